"""What decides a meta-training. The defaults of `mlrsnet metatrain` are the defaults of these classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mlrsnet.nets import ANNEALS, LSTMNet, TrendNet
from mlrsnet_lab import checks, datasets
from mlrsnet_lab.horizon.evolution import Evolution
from mlrsnet_lab.horizon.fitness import FITNESS
from mlrsnet_lab.horizon.tasks import Tasks
from mlrsnet_lab.spec import RunSpec

UNIVERSAL, KINDS = "universal", "kinds"
NETWORKS: dict[str, type[LSTMNet]] = {"LSTMNet": LSTMNet, "TrendNet": TrendNet}


@dataclass(frozen=True)
class GreedySpec:
    """Algorithm 1: learn one step ahead, while one model trains.

    Args:
        task, task_options, model, optimizer, epochs, batch_size, weight_decay, seed: the training; see `RunSpec`.
        every: steps between meta-updates, T_val.
        net: the schedule's network, `lstm` or `mlp`.
        meta_lr: LR of the Adam that trains the schedule.
        name: for the schedule's card.

    >>> GreedySpec(every=10).run_spec().schedule_options["every"]
    10
    """

    task: str = RunSpec.task
    task_options: dict[str, Any] = field(default_factory=dict)
    model: str = RunSpec.model
    optimizer: str = RunSpec.optimizer
    epochs: int = 60  # about 200 meta-updates on digits
    batch_size: int = RunSpec.batch_size
    weight_decay: float = RunSpec.weight_decay
    every: int = 5  # the paper's 100 suits CIFAR; an epoch of digits has 18 steps
    net: str = "lstm"
    meta_lr: float = 1e-3
    seed: int = RunSpec.seed
    name: str = "unnamed"

    def run_spec(self) -> RunSpec:
        """The training that the schedule is learned in."""
        options = {name: getattr(self, name) for name in ("every", "meta_lr", "net", "name")}
        training = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in options}
        return RunSpec(**training, schedule="mlr-snet", schedule_options=options)


@dataclass(frozen=True)
class HorizonSpec(Evolution):
    """Learn from the end of many small trainings, by an `Evolution`, whose settings are its own too.

    Args:
        task: the dataset whose training pictures the small trainings use; see `distributions.py`. `universal`: many kinds of data,
            networks and optimizers; see `universal.py`. `kinds`: more of them, and fine-tuning; see `kinds.py`.
        task_options: options of the dataset, such as `classes`; of `kinds`, `horizons` and `families`.
        held_out: number of other small trainings that only measure.
        held_out_options: options of the dataset for these; the same if None.
        tasks: trainings of a generation.
        fitness, together: see `horizon.Tasks`.
        begin: name or path of a network's schedule to begin as, with its range, if any. Then `gamma`, `start`, `network`,
            `hidden` and `anneal` are not used.
        gamma: range of the LR.
        start: the output that the network starts with, as a fraction of the range; about half if None.
        network: `LSTMNet` or `TrendNet`.
        hidden: size of the schedule network.
        anneal: `linear`, or `none` for a network that starts as a fixed LR.
        name: for the schedule's card.
    """

    task: str = RunSpec.task
    task_options: dict[str, Any] = field(default_factory=dict)
    held_out: int = 48  # horizon.Tasks has 8, enough to watch; the lab reports differences with their standard errors
    held_out_options: dict[str, Any] | None = None
    tasks: int = Tasks.per_generation
    fitness: str = str(Tasks.fitness)
    together: int = Tasks.together
    begin: str = ""
    gamma: float = 1.0
    start: float | None = None
    network: str = "LSTMNet"
    hidden: int = 50
    anneal: str = "linear"
    name: str = "unnamed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task == KINDS:
            _check_options_of_kinds(self.task_options, self.held_out_options)
        elif self.task != UNIVERSAL:
            for options in (self.task_options, self.held_out_options or {}):
                datasets.check(self.task, options)
        elif self.task_options or self.held_out_options:
            raise ValueError(
                f"{UNIVERSAL} has no options, got {self.task_options or self.held_out_options}: leave them out"
            )
        for name in ("tasks", "hidden", "held_out"):
            checks.whole_number(name, getattr(self, name))
        checks.whole_number("together", self.together, 0)
        checks.one_of("fitness", self.fitness, FITNESS)
        checks.one_of("anneal", self.anneal, ANNEALS)
        checks.one_of("network", self.network, NETWORKS)


def _check_options_of_kinds(options: Mapping[str, Any], held_out_options: Mapping[str, Any] | None) -> None:
    if held_out_options is not None:
        raise ValueError(f"held_out_options of {KINDS} must be left out, got {dict(held_out_options)}")
    for name in options:
        checks.one_of(f"task_options of {KINDS}", name, ("horizons", "families"))


MetaSpec = GreedySpec | HorizonSpec
OBJECTIVES: dict[str, type[GreedySpec] | type[HorizonSpec]] = {"greedy": GreedySpec, "horizon": HorizonSpec}

_UNIVERSAL_LSTM = HorizonSpec(
    task=UNIVERSAL,
    held_out=32,
    generations=350,
    tasks=16,
    average=0.97,
    gamma=20.0,
    start=0.05,
    network="TrendNet",
    hidden=16,
    name="universal-lstm",
)
_DIGITS = HorizonSpec(  # starts as a fixed LR, and is small enough to be learned in minutes on a CPU
    task_options={"classes": [0, 1, 2, 3, 4]},
    held_out_options={"classes": [5, 6, 7, 8, 9]},
    generations=200,
    tasks=4,
    hidden=16,
    anneal="none",
    name="digits-0-4",
)
PRESETS: dict[str, HorizonSpec] = {spec.name: spec for spec in (_UNIVERSAL_LSTM, _DIGITS)}
"""Meta-trainings by name: `mlrsnet metatrain --preset NAME`."""


def make_meta_spec(objective: str, fields: Mapping[str, Any], preset: str | None = None) -> MetaSpec:
    """The spec of an objective, `greedy` or `horizon`, or a preset, with these fields changed.

    >>> make_meta_spec("horizon", {"members": 8}, preset="universal-lstm").members
    8
    """
    kind = OBJECTIVES[checks.one_of("objective", objective, OBJECTIVES)]
    if preset is None:
        return kind(**fields)
    chosen = PRESETS[checks.one_of("preset", preset, PRESETS)]
    if not isinstance(chosen, kind):
        raise ValueError(f"preset {preset!r} belongs to the objective horizon, got {objective}: leave one out")
    return replace(chosen, **fields)
