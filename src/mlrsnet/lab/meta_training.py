"""Meta-trainings that end in a schedule file and continue where they were stopped.

A full-horizon meta-training keeps in its folder:

horizon.json          spec, sessions (versions, device, commit), rivals, every generation and comparison, seconds
schedule.safetensors  what has been learned so far
checkpoint.pt         to continue from
"""

import io
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mlrsnet import __version__
from mlrsnet._files.storage import write_atomically
from mlrsnet.card import versions
from mlrsnet.gamma import Gamma
from mlrsnet.horizon import HorizonTrainer, Sampler
from mlrsnet.horizon.trainer import default_net
from mlrsnet.lab import loop, records
from mlrsnet.lab.devices import device_name, resolve
from mlrsnet.lab.distributions import inner_tasks
from mlrsnet.lab.folders import learning_folder
from mlrsnet.lab.lock import held
from mlrsnet.lab.meta_specs import NETWORKS, TABLE, UNIVERSAL, GreedySpec, HorizonSpec
from mlrsnet.lab.records import Record
from mlrsnet.lab.signals import PoliteStop
from mlrsnet.lab.table.kinds import FAMILIES
from mlrsnet.lab.table.sampler import KindSampler
from mlrsnet.lab.universal import distribution
from mlrsnet.lab.watch import Watcher
from mlrsnet.nets import DecayNet, ReadingNet, ScheduleNet
from mlrsnet.schedule import Schedule

RECORD = "horizon.json"
COMPARE_EVERY, COMPARISONS = 25, 8
"""Generations between comparisons at least, and about how many comparisons at most."""

OnGeneration = Callable[[HorizonTrainer], Any]


def learn_greedy(
    spec: GreedySpec,
    out: Path,
    *,
    device: str = "auto",
    root: Path | None = None,
    watchers: Sequence[Watcher] = (),
) -> tuple[Schedule, Record]:
    """Learn one step ahead and write the schedule to `out`; return it with the record of the training."""
    folder = learning_folder(out)
    record = loop.run(spec.run_spec(), folder, device=device, root=root, watchers=watchers)
    if record.status != records.FINISHED:
        raise ValueError(
            f"the training diverged after {record.result['epoch']} epochs: see {folder}, and change its settings"
        )
    schedule = Schedule.load(folder / records.SCHEDULE)
    schedule.save(out)
    shutil.rmtree(folder)
    return schedule, record


def learn_horizon(
    spec: HorizonSpec,
    out: Path,
    *,
    device: str = "auto",
    root: Path | None = None,
    on_generation: OnGeneration | None = None,
) -> tuple[Schedule, Path]:
    """Learn from whole trainings and write the schedule to `out`; return it with the path of its record, beside `out`."""
    folder = learning_folder(out)
    schedule, _ = learn(spec, folder, device=device, root=root, on_generation=on_generation)
    schedule.save(out)
    record = out.with_name(out.name + ".json")
    shutil.copy(folder / RECORD, record)
    shutil.rmtree(folder)
    return schedule, record


def learn(
    spec: HorizonSpec,
    folder: Path,
    *,
    device: str = "auto",
    root: Path | None = None,
    on_generation: OnGeneration | None = None,
    checkpoint_seconds: float = 60.0,
) -> tuple[Schedule, HorizonTrainer]:
    """Run all generations, keeping everything in `folder`. An interrupted folder is continued, a finished one only read.

    Raises:
        KeyboardInterrupt: on Ctrl-C or SIGTERM; what was done is saved in the folder.
        RunInUseError: if another process uses the folder.
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


def build(spec: HorizonSpec, device: torch.device, root: Path | None = None) -> HorizonTrainer:
    """The trainer that a spec describes."""
    sampler, held_out = _samplers(spec, root)
    options = f", {spec.task_options}" if spec.task_options else ""
    net, gamma = _begin(spec)
    return HorizonTrainer(
        sampler,
        generations=spec.generations,
        net=net,
        gamma=gamma,
        average=spec.average,
        tasks_per_generation=spec.tasks,
        members=spec.members,
        sigma=spec.sigma,
        meta_lr=spec.meta_lr,
        utility=spec.utility,
        fitness=spec.fitness,
        held_out=held_out,
        held_out_tasks=spec.held_out,
        seed=spec.seed,
        device=device,
        name=spec.name,
        learned_on=f"small trainings on {spec.task}{options}, seed {spec.seed}",
    )


def _begin(spec: HorizonSpec) -> tuple[ScheduleNet, Gamma]:
    """The network to start from, and the range of its LRs."""
    if spec.begin is None:
        gamma = Gamma("relative" if spec.relative else "fixed", value=spec.gamma)
        kind = NETWORKS[spec.network]
        return default_net(spec.hidden, anneal=spec.anneal, start=spec.start, seed=spec.seed, kind=kind), gamma
    schedule = Schedule.load(spec.begin)
    if type(schedule.net) is not DecayNet:
        return schedule.net, schedule.card.gamma
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(spec.seed)
        return ReadingNet(*schedule.net.powers.tolist()), schedule.card.gamma


def _samplers(spec: HorizonSpec, root: Path | None) -> tuple[Sampler, Sampler | None]:
    """Tasks to learn from, and tasks to measure on where these come from elsewhere."""
    if spec.task == UNIVERSAL:
        return distribution(root)
    if spec.task == TABLE:
        options = spec.task_options
        horizons = tuple(options.get("horizons", KindSampler.horizons))
        return KindSampler(horizons, options.get("families", FAMILIES), root), None
    other = spec.held_out_options
    held_out = None if other is None else inner_tasks(spec.task, root, **other)
    return inner_tasks(spec.task, root, **spec.task_options), held_out


def before_this_process(trainer: HorizonTrainer) -> int:
    """How many comparisons an earlier process made. Call it after this process's first generation."""
    first = trainer.history[-1].number
    return sum(found.number < first for found in trainer.comparisons) if first > 1 else 0


class _Run:
    """The files of a full-horizon meta-training."""

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
        except Exception as error:  # a file that is not a checkpoint can fail in any way
            raise ValueError(
                f"{path} is not a checkpoint of this run ({type(error).__name__}): delete it to start over"
            ) from None
        different = [name for name, value in self.spec.items() if spec.get(name) != value]
        if different:
            raise ValueError(
                f"{path.parent} holds a run with another spec (different: {', '.join(different)}): write to another file, or "
                "delete the folder"
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
