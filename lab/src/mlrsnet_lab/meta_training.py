"""Meta-trainings that end in a schedule file and continue where they were stopped.

A full-horizon meta-training keeps in its folder:

horizon.json          spec, sessions (versions, device, commit), rivals, every generation and comparison, seconds
schedule.safetensors  what has been learned so far
checkpoint.pt         to continue from, with checkpoint.previous.pt for when it is damaged
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mlrsnet import __version__
from mlrsnet.card import versions
from mlrsnet.files.untrusted import LARGEST_LINES, read_bytes, reason
from mlrsnet.files.writing import write_atomically
from mlrsnet.schedule import Schedule
from mlrsnet_lab import checkpoint, loop, records
from mlrsnet_lab.devices import device_name, resolve
from mlrsnet_lab.executors import Crew
from mlrsnet_lab.folders import learning_folder, remove_folder
from mlrsnet_lab.generations import CrewHelpers
from mlrsnet_lab.horizon import HorizonTrainer
from mlrsnet_lab.lock import held, held_file
from mlrsnet_lab.meta_building import build
from mlrsnet_lab.meta_specs import GreedySpec, HorizonSpec
from mlrsnet_lab.processes import current
from mlrsnet_lab.records import Record
from mlrsnet_lab.settings import DEFAULT, Settings
from mlrsnet_lab.signals import PoliteStop
from mlrsnet_lab.watch import Watcher

RECORD = "horizon.json"
COMPARE_EVERY, COMPARISONS = 25, 8
"""Generations between comparisons at least, and about how many comparisons at most."""

OnGeneration = Callable[[HorizonTrainer], Any]


def learn_greedy(
    spec: GreedySpec, out: Path, settings: Settings = DEFAULT, *, watchers: Sequence[Watcher] = ()
) -> tuple[Schedule, Record]:
    """Learn one step ahead and write the schedule to `out`; return it with the record of the training."""
    folder = learning_folder(out)
    first = current().is_first
    with held_file(out) if first else nullcontext():
        learning_folder(out)  # again: another process may have written the file meanwhile
        record = loop.run(spec.run_spec(), folder, settings, watchers=watchers)
        if record.status != records.FINISHED:
            raise ValueError(
                f"the training diverged after {record.result['epoch']} epochs: see {folder}, and change its settings"
            )
        if first:
            Schedule.read(folder / records.SCHEDULE).save(out)
            remove_folder(folder)
        current().wait()
    return Schedule.read(out), record


def learn_horizon(
    spec: HorizonSpec, out: Path, settings: Settings = DEFAULT, *, on_generation: OnGeneration | None = None
) -> tuple[Schedule, Path]:
    """Learn from whole trainings and write the schedule to `out`; return it with the path of its record, beside `out`.

    Args:
        spec: what to learn from.
        out: a new file for the schedule.
        settings: where, and how many of a generation's trainings run at once.
        on_generation: called with the trainer after each generation.
    """
    _check_alone()  # before the lock, which only one of several processes would get
    folder, record = learning_folder(out), out.with_name(out.name + ".json")
    with held_file(out):
        learning_folder(out)  # again: another process may have written the file meanwhile
        with settings.executor.crew(settings.device) as crew:
            schedule, _ = learn(spec, folder, settings, on_generation=on_generation, crew=crew)
        schedule.save(out)
        write_atomically(record, read_bytes(folder / RECORD, LARGEST_LINES))
        remove_folder(folder)
    return schedule, record


def _check_alone() -> None:
    """Refuse several processes that torchrun started."""
    if current().count > 1:
        raise ValueError(
            f"the objective horizon must be learned in one process, got {current().count} from torchrun: start it without it, "
            "or spread its trainings with --executor ray"
        )


def learn(
    spec: HorizonSpec,
    folder: Path,
    settings: Settings = DEFAULT,
    *,
    on_generation: OnGeneration | None = None,
    crew: Crew | None = None,
) -> tuple[Schedule, HorizonTrainer]:
    """Run all generations, keeping everything in `folder`. An interrupted folder is continued, a finished one left as it was.

    Args:
        spec, settings, on_generation: see `learn_horizon`.
        folder: for everything.
        crew: trains each generation, with the same result for any number of processes; this process if None.

    Raises:
        KeyboardInterrupt: on Ctrl-C or SIGTERM; what was done is saved in the folder.
        RunInUseError: if another process uses the folder.
    """
    _check_alone()
    trainer = build(spec, resolve(settings.device if crew is None else "cpu"), settings.root)
    if crew is not None:
        trainer.helpers = CrewHelpers(crew, spec, settings.root)
    with held(folder), PoliteStop() as stop:
        where = crew.workers.describe() if crew is not None else device_name(trainer.where.device)
        run = _Run(spec, trainer, folder, where)

        def after(trainer: HorizonTrainer) -> None:
            if on_generation is not None:
                on_generation(trainer)
            if stop.asked or time.perf_counter() - run.saved_at > settings.checkpoint_seconds:
                run.save()
            if stop.asked and trainer.number < trainer.evolution.generations:
                raise KeyboardInterrupt

        if trainer.number >= trainer.evolution.generations:
            run.write_files(run.sessions[:-1])  # a kill or damage may have come between them and the checkpoint
        else:
            run.save()  # a folder that cannot be written fails before the work, not after
            trainer.run(max(COMPARE_EVERY, spec.generations // COMPARISONS), after)
            run.save()
    return trainer.schedule(), trainer


def before_this_process(trainer: HorizonTrainer) -> int:
    """How many comparisons an earlier process made. Call it after this process's first generation."""
    first = trainer.history[-1].number
    return sum(found.number < first for found in trainer.comparisons) if first > 1 else 0


class _Run:
    """The files of a full-horizon meta-training."""

    def __init__(self, spec: HorizonSpec, trainer: HorizonTrainer, folder: Path, device: str) -> None:
        self.spec, self.trainer, self.folder = asdict(spec), trainer, folder
        self.seconds, self.saved_at = 0.0, time.perf_counter()
        self.sessions: list[dict[str, Any]] = []
        if checkpoint.exists(folder):
            self._restore()
        where = {"versions": {"mlrsnet": __version__, **versions()}, "device": device}
        self.sessions.append({**where, "commit": records.commit(), "from_generation": trainer.number})

    def save(self) -> None:
        now = time.perf_counter()
        self.seconds, self.saved_at = self.seconds + now - self.saved_at, now
        checkpoint.write(self.folder, {**self._known(self.sessions), "trainer": self.trainer.state_dict()})
        self.write_files(self.sessions)

    def _known(self, sessions: list[dict[str, Any]]) -> dict[str, Any]:
        return {"spec": self.spec, "sessions": sessions, "seconds": round(self.seconds, 1)}

    def write_files(self, sessions: list[dict[str, Any]]) -> None:
        content = records.dumps({**self._known(sessions), **self._results()}, indent=1)
        write_atomically(self.folder / RECORD, content.encode())
        self.trainer.schedule().save(self.folder / records.SCHEDULE)

    def _restore(self) -> None:
        state = checkpoint.read(self.folder)
        try:
            spec, trainer = dict(state["spec"]), state["trainer"]
            self.seconds, self.sessions = state["seconds"], state["sessions"]
        except Exception as error:  # a file that is not a checkpoint can fail in any way
            raise checkpoint.other(self.folder, error) from None
        spec = {"together": 0, **spec}  # older checkpoints do not name it
        different = [name for name, value in self.spec.items() if spec.get(name) != value]
        if different:
            raise ValueError(
                f"{self.folder} holds a run with another spec (different: {', '.join(different)}): write to another file, or "
                "delete the folder"
            )
        try:
            self.trainer.load_state_dict(trainer)
        except ValueError as error:
            raise ValueError(
                f"the checkpoint in {self.folder} does not fit this run ({reason(error)}), or delete it to start over"
            ) from None

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
