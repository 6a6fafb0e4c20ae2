"""`mlrsnet metatrain --objective horizon`: a full-horizon meta-training in a folder, which goes on where it was stopped.

horizon.json          spec, versions, device, commit, every generation and comparison, seconds
schedule.safetensors  what was learned
checkpoint.pt         to go on from; removed at the end
"""

import io
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from mlrsnet import __version__, _check
from mlrsnet.card import versions
from mlrsnet.horizon import HorizonTrainer
from mlrsnet.horizon.fitness import FITNESS
from mlrsnet.lab import records, tasks
from mlrsnet.lab.distributions import inner_tasks
from mlrsnet.lab.lock import held
from mlrsnet.lab.signals import PoliteStop
from mlrsnet.lab.trainer import device_name, resolve
from mlrsnet.nets import LSTMNet
from mlrsnet.schedule import Schedule
from mlrsnet.storage import write_atomically

RECORD = "horizon.json"
COMPARE_EVERY = 25
OnGeneration = Callable[[HorizonTrainer], Any]


@dataclass(frozen=True)
class HorizonSpec:
    """Everything that decides a full-horizon meta-training.

    Args:
        task: whose training pictures the small trainings use; see `distributions.py`.
        task_options: of the task, such as `classes`.
        held_out: so many other small trainings only measure.
        held_out_options: of the task for these; the same if None.
        generations, tasks, members, sigma, meta_lr, fitness: see `HorizonTrainer`.
        hidden: size of the schedule network.
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
    fitness: str = "calibrated"
    hidden: int = 50
    seed: int = 0
    name: str = "unnamed"

    def __post_init__(self) -> None:
        for options in (self.task_options, self.held_out_options or {}):
            tasks.check(self.task, options)
        for name in ("generations", "tasks", "hidden", "held_out"):
            _check.whole_number(name, getattr(self, name))
        _check.one_of("fitness", self.fitness, FITNESS)


def build(spec: HorizonSpec, device: torch.device, root: Path | None = None) -> HorizonTrainer:
    """The trainer that a spec describes."""
    sampler = inner_tasks(spec.task, root, **spec.task_options)
    other = spec.held_out_options
    held_out = None if other is None else inner_tasks(spec.task, root, **other)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        net = LSTMNet(
            spec.hidden, inputs=("loss", "progress"), loss_scale="log_classes", sharpness=4.0, anneal="linear"
        )
    options = f", {spec.task_options}" if spec.task_options else ""
    return HorizonTrainer(
        sampler,
        generations=spec.generations,
        net=net,
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


def learn(
    spec: HorizonSpec,
    folder: Path,
    *,
    device: str = "auto",
    root: Path | None = None,
    on_generation: OnGeneration | None = None,
    checkpoint_seconds: float = 60.0,
) -> tuple[Schedule, HorizonTrainer]:
    """All generations; a folder that was left by an interruption goes on, a finished one is read.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; what was done is in the folder.
    """
    trainer = build(spec, resolve(device), root)
    with held(folder), PoliteStop() as stop:
        run = _Run(spec, trainer, folder)
        run.restore()
        if trainer.number == 0 and trainer.rivals is not None:
            trainer.compare()  # where it starts from
        while trainer.number < trainer.generations:
            trainer.step()
            if trainer.number % COMPARE_EVERY == 0 or trainer.number == trainer.generations:
                trainer.compare()
            if on_generation is not None:
                on_generation(trainer)
            if stop.asked or time.perf_counter() - run.saved_at > checkpoint_seconds:
                run.save()
            if stop.asked:
                raise KeyboardInterrupt
        run.finish()
    return trainer.schedule(), trainer


class _Run:
    """The files of a meta-training."""

    def __init__(self, spec: HorizonSpec, trainer: HorizonTrainer, folder: Path) -> None:
        self.spec, self.trainer, self.folder = spec, trainer, folder
        self.seconds, self.saved_at = 0.0, time.perf_counter()

    def restore(self) -> None:
        path = self.folder / records.CHECKPOINT
        if not path.is_file():
            return
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            spec, seconds, trainer = state["spec"], state["seconds"], state["trainer"]
        except Exception as error:  # bytes that are no checkpoint can fail in any way
            raise ValueError(
                f"{path} is not a checkpoint of this run ({type(error).__name__}): delete it to begin anew"
            ) from None
        if spec != asdict(self.spec):
            different = [name for name, value in asdict(self.spec).items() if spec.get(name) != value]
            raise ValueError(
                f"{self.folder} holds a run with another spec (different: {', '.join(different)}): use another --out, or "
                f"delete the folder"
            )
        self.seconds = seconds
        self.trainer.load_state_dict(trainer)

    def save(self) -> None:
        now = time.perf_counter()
        self.seconds, self.saved_at = self.seconds + now - self.saved_at, now
        content = io.BytesIO()
        torch.save({"spec": asdict(self.spec), "seconds": self.seconds, "trainer": self.trainer.state_dict()}, content)
        write_atomically(self.folder / records.CHECKPOINT, content.getvalue())
        write_atomically(self.folder / RECORD, records.dumps(self.describe(), indent=1).encode())

    def finish(self) -> None:
        self.save()
        self.trainer.schedule().save(self.folder / records.SCHEDULE)

    def describe(self) -> dict[str, Any]:
        trainer = self.trainer
        return {
            "spec": asdict(self.spec),
            "versions": {"mlrsnet": __version__, **versions()},
            "device": device_name(trainer.device),
            "commit": records.commit(),
            "seconds": round(self.seconds, 1),
            "generations": [asdict(line) for line in trainer.history],
            "comparisons": [asdict(line) | {"summary": line.summary()} for line in trainer.comparisons],
        }
