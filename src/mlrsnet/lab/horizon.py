"""`mlrsnet metatrain --objective horizon`: a full-horizon meta-training in a folder, which goes on where it was stopped.

horizon.json          spec, sessions (versions, device, commit), rivals, every generation and comparison, seconds
schedule.safetensors  what was learned so far
checkpoint.pt         to go on from
"""

import io
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from mlrsnet import __version__, _check
from mlrsnet._features import ANNEALS
from mlrsnet._files.storage import write_atomically
from mlrsnet.card import versions
from mlrsnet.gamma import Gamma
from mlrsnet.horizon import HorizonTrainer, Sampler
from mlrsnet.horizon.fitness import FITNESS
from mlrsnet.horizon.trainer import default_net
from mlrsnet.lab import records, tasks
from mlrsnet.lab.distributions import inner_tasks
from mlrsnet.lab.lock import held
from mlrsnet.lab.signals import PoliteStop
from mlrsnet.lab.trainer import device_name, resolve
from mlrsnet.lab.universal import distribution
from mlrsnet.nets import LSTMNet, TrendNet
from mlrsnet.schedule import Schedule

RECORD = "horizon.json"
UNIVERSAL = "universal"
NETWORKS: dict[str, type[LSTMNet]] = {"LSTMNet": LSTMNet, "TrendNet": TrendNet}
COMPARE_EVERY, COMPARISONS = 25, 8
"""Generations between comparisons, and about the most that there are."""

OnGeneration = Callable[[HorizonTrainer], Any]


@dataclass(frozen=True)
class HorizonSpec:
    """Everything that decides a full-horizon meta-training.

    Args:
        task: whose training pictures the small trainings use; see `distributions.py`. `universal`: many kinds of
            data, networks and optimizers; see `universal.py`.
        task_options: of the task, such as `classes`.
        held_out: so many other small trainings only measure.
        held_out_options: of the task for these; the same if None.
        generations, tasks, members, sigma, meta_lr, average, fitness: see `HorizonTrainer`.
        gamma, relative: range of the LR, or, if relative, of the part of the weights' length that a step moves them by.
        start: part of the range that the network begins with; about half if None.
        network: `LSTMNet` or `TrendNet`.
        hidden: size of the schedule network.
        anneal: `linear`, or `none` for a network that begins as a fixed LR.
        seed: of everything.
        name: for the schedule's card.
    """

    task: str = "digits"
    task_options: dict[str, Any] = field(default_factory=dict)
    held_out: int = 48
    held_out_options: dict[str, Any] | None = None
    generations: int = 150
    tasks: int = 8
    members: int = 16
    sigma: float = 0.1
    meta_lr: float = 0.03
    average: float = 0.9
    fitness: str = "calibrated"
    gamma: float = 1.0
    relative: bool = False
    start: float | None = None
    network: str = "LSTMNet"
    hidden: int = 50
    anneal: str = "linear"
    seed: int = 0
    name: str = "unnamed"

    def __post_init__(self) -> None:
        if self.task != UNIVERSAL:
            for options in (self.task_options, self.held_out_options or {}):
                tasks.check(self.task, options)
        elif self.task_options or self.held_out_options:
            raise ValueError(
                f"{UNIVERSAL} has no options, got {self.task_options or self.held_out_options}: leave them out"
            )
        for name in ("generations", "tasks", "hidden", "held_out"):
            _check.whole_number(name, getattr(self, name))
        _check.one_of("fitness", self.fitness, FITNESS)
        _check.one_of("anneal", self.anneal, ANNEALS)
        _check.one_of("network", self.network, NETWORKS)


_UNIVERSAL = HorizonSpec(
    task=UNIVERSAL,
    held_out=32,
    generations=350,
    tasks=16,
    average=0.97,
    gamma=20.0,
    start=0.05,
    network="TrendNet",
    hidden=16,
    name=UNIVERSAL,
)
RECIPES: dict[str, HorizonSpec] = {
    spec.name: spec
    for spec in (
        _UNIVERSAL,
        replace(_UNIVERSAL, relative=True, gamma=0.2, start=0.1, meta_lr=0.02, name="universal-relative"),
    )
}
"""Meta-trainings by name: `mlrsnet metatrain --recipe NAME`."""


def build(spec: HorizonSpec, device: torch.device, root: Path | None = None) -> HorizonTrainer:
    """The trainer that a spec describes."""
    sampler, held_out = _samplers(spec, root)
    options = f", {spec.task_options}" if spec.task_options else ""
    return HorizonTrainer(
        sampler,
        generations=spec.generations,
        net=default_net(spec.hidden, anneal=spec.anneal, start=spec.start, seed=spec.seed, kind=NETWORKS[spec.network]),
        gamma=Gamma("relative" if spec.relative else "fixed", value=spec.gamma),
        average=spec.average,
        tasks_per_generation=spec.tasks,
        members=spec.members,
        sigma=spec.sigma,
        meta_lr=spec.meta_lr,
        fitness=spec.fitness,
        held_out=held_out,
        held_out_tasks=spec.held_out,
        seed=spec.seed,
        device=device,
        name=spec.name,
        learned_on=f"small trainings on {spec.task}{options}, seed {spec.seed}",
    )


def _samplers(spec: HorizonSpec, root: Path | None) -> tuple[Sampler, Sampler | None]:
    """What to learn from, and what to measure on where that is something else."""
    if spec.task == UNIVERSAL:
        return distribution(root)
    other = spec.held_out_options
    held_out = None if other is None else inner_tasks(spec.task, root, **other)
    return inner_tasks(spec.task, root, **spec.task_options), held_out


def learn(
    spec: HorizonSpec,
    folder: Path,
    *,
    device: str = "auto",
    root: Path | None = None,
    on_generation: OnGeneration | None = None,
    checkpoint_seconds: float = 60.0,
) -> tuple[Schedule, HorizonTrainer]:
    """All generations; a folder that was left by an interruption goes on, a finished one is only read.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; what was done is in the folder.
        RunInUseError: another process works in the folder.
    """
    trainer = build(spec, resolve(device), root)
    with held(folder), PoliteStop() as stop:
        run = _Run(spec, trainer, folder)

        def after(trainer: HorizonTrainer) -> None:
            if on_generation is not None:
                on_generation(trainer)
            if stop.asked or time.perf_counter() - run.saved_at > checkpoint_seconds:
                run.save()
            if stop.asked and trainer.number < trainer.generations:
                raise KeyboardInterrupt

        if trainer.number < trainer.generations:
            trainer.run(max(COMPARE_EVERY, spec.generations // COMPARISONS), after)
            run.save()
    return trainer.schedule(), trainer


def before_this_process(trainer: HorizonTrainer) -> int:
    """How many comparisons were made before, asked after the first generation in this process."""
    first = trainer.history[-1].number
    return sum(found.number < first for found in trainer.comparisons) if first > 1 else 0


class _Run:
    """The files of a meta-training."""

    def __init__(self, spec: HorizonSpec, trainer: HorizonTrainer, folder: Path) -> None:
        self.spec, self.trainer, self.folder = asdict(spec), trainer, folder
        self.seconds, self.saved_at = 0.0, time.perf_counter()
        self.sessions: list[dict[str, Any]] = []
        if (folder / records.CHECKPOINT).is_file():
            self._restore(folder / records.CHECKPOINT)
        where = {"versions": {"mlrsnet": __version__, **versions()}, "device": device_name(trainer.device)}
        self.sessions.append({**where, "commit": records.commit(), "from_generation": trainer.number})

    def save(self) -> None:
        now = time.perf_counter()
        self.seconds, self.saved_at = self.seconds + now - self.saved_at, now
        known = {"spec": self.spec, "sessions": self.sessions, "seconds": round(self.seconds, 1)}
        content = io.BytesIO()
        torch.save({**known, "trainer": self.trainer.state_dict()}, content)
        write_atomically(self.folder / records.CHECKPOINT, content.getvalue())
        write_atomically(self.folder / RECORD, records.dumps({**known, **self._results()}, indent=1).encode())
        self.trainer.schedule().save(self.folder / records.SCHEDULE)

    def _restore(self, path: Path) -> None:
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            spec, trainer = state["spec"], state["trainer"]
            self.seconds, self.sessions = state["seconds"], state["sessions"]
        except Exception as error:  # bytes that are no checkpoint can fail in any way
            raise ValueError(
                f"{path} is not a checkpoint of this run ({type(error).__name__}): delete it to begin anew"
            ) from None
        different = [name for name, value in self.spec.items() if spec.get(name) != value]
        if different:
            raise ValueError(
                f"{path.parent} holds a run with another spec (different: {', '.join(different)}): use another --out, or "
                f"delete the folder"
            )
        self.trainer.load_state_dict(trainer)

    def _results(self) -> dict[str, Any]:
        trainer = self.trainer
        return {
            "rivals": trainer.held_out.describe() if trainer.held_out else None,
            "comparisons": [
                {"number": found.number, "learned": found.learned, "lrs": found.lrs, "summary": found.summary()}
                for found in trainer.comparisons
            ],
            "generations": [asdict(line) for line in trainer.history],
        }
