"""`mlrsnet train` and `mlrsnet metatrain` on a terminal."""

import hashlib
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from mlrsnet import _check
from mlrsnet._files import hub, names
from mlrsnet.lab import deciders, records, tasks
from mlrsnet.lab.board import Board
from mlrsnet.lab.lock import RunInUseError
from mlrsnet.lab.recipes.base import slug
from mlrsnet.lab.records import Record
from mlrsnet.lab.screen.progress import Bar, bars
from mlrsnet.lab.screen.tables import run_lines
from mlrsnet.lab.spec import RunSpec
from mlrsnet.lab.trainer import run
from mlrsnet.lab.watch import Watcher
from mlrsnet.schedule import Schedule

Option = tuple[str, str, Any]


def make_spec(path: Path | None, fields: Mapping[str, Any], options: Sequence[Option]) -> RunSpec:
    """A spec from a file, with fields and options that were given in words on top."""
    values = RunSpec.from_file(path).to_dict() if path else {}
    fields, options = _with_learned(fields, options)
    for name in ("task", "model", "optimizer", "schedule"):
        if fields.get(name, values.get(name)) != values.get(name):
            values.pop(f"{name}_options", None)  # they belong to another one
    values |= fields
    task = str(values.get("task", ""))
    if task.endswith(".npz") or (task not in tasks.KNOWN and task and Path(task).is_dir()):
        values["task"] = os.path.abspath(task)  # a run may be resumed from another folder
    for field, name, value in options:
        values[f"{field}_options"] = {**values.get(f"{field}_options", {}), name: value}
    spec = RunSpec.from_dict(values)
    if "lr" in fields and not deciders.uses_lr(spec.schedule):
        _check.warn(f"--lr has no effect under schedule {spec.schedule!r}, which finds its own range: leave it out")
    return spec


def _with_learned(fields: Mapping[str, Any], options: Sequence[Option]) -> tuple[Mapping[str, Any], Sequence[Option]]:
    """A learned schedule may stand where a method does: `universal` is `learned` with the option `schedule=universal`."""
    name = fields.get("schedule")
    if name is None or name in deciders.SCHEDULES:
        return fields, options
    known = names.available()
    if name not in known and not name.startswith(hub.PREFIX) and not name.endswith(names.SUFFIX):
        every = ", ".join([*deciders.SCHEDULES, *sorted(known)])
        raise ValueError(
            f"schedule must be one of {every}, the path of a {names.SUFFIX} file or hf://owner/name; got {name!r}"
        )
    return {**fields, "schedule": "learned"}, [("schedule", "schedule", name), *options]


def show_train(spec: RunSpec, out: Path | None, device: str, root: Path | None, tensorboard: bool) -> None:
    """One training, in a folder of its own."""
    folder = out or Path("runs") / run_name(spec)
    train_all([(spec, folder, "training")], folder, device, root, tensorboard, [Sizes()])


class Sizes(Watcher):
    """Says how much data there is, above the bar."""

    def begin(self, record: Record, step: int, total_steps: int) -> None:
        """Before the first step."""
        task = record.data["task"]
        print(", ".join(f"{task[part]:,} {part}" for part in ("train", "val", "test")))


def run_name(spec: RunSpec) -> str:
    """A folder's name that says what the run is, the same for the same spec."""
    words = [Path(spec.task).stem if "/" in spec.task else spec.task, spec.model, spec.optimizer, spec.schedule]
    digest = hashlib.sha256(spec.to_json().encode()).hexdigest()[:6]
    return "-".join(map(slug, words)) + f"-seed{spec.seed}-{digest}"


def learning_folder(out: Path) -> Path:
    """Where a meta-training into `out` is kept until it ends; a schedule that is there from another one is not overwritten."""
    if out.is_dir():
        raise ValueError(f"--out must be a file, got the folder {out}: add a name such as learned.safetensors")
    folder = out.with_name(out.name + ".run")
    if out.exists() and not folder.exists():
        raise ValueError(f"--out must be a new file, but {out} is there already: use another --out, or delete it")
    return folder


def show_metatrain(fields: Mapping[str, Any], out: Path, device: str, root: Path | None, tensorboard: bool) -> None:
    """Meta-train into `out`; a folder beside it lets an interrupted run go on."""
    console, spec = Console(), RunSpec.from_dict(fields)
    folder = learning_folder(out)
    try:
        with bars(console) as progress:
            watchers = [Bar(progress, "learning"), *boards(out.with_name(out.name + ".tensorboard"), tensorboard)]
            record = run(spec, folder, device=device, root=root, watchers=watchers)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command goes on where it was stopped") from None
    if record.status != records.FINISHED:
        raise ValueError(
            f"the training diverged after {record.result['epoch']} epochs: see {folder}, and change its settings"
        )
    schedule = Schedule.load(folder / records.SCHEDULE)
    schedule.save(out)
    shutil.rmtree(folder)
    lrs = record.trace["lr"]
    print(schedule.describe())
    print(f"LR           {lrs[0]:.4g} at the start, {lrs[len(lrs) // 2]:.4g} halfway, {lrs[-1]:.4g} at the end")
    print(f"\nschedule: {out}")


def train_all(
    jobs: Sequence[tuple[RunSpec, Path, str]],
    top: Path,
    device: str,
    root: Path | None,
    tensorboard: bool,
    more: Sequence[Watcher] = (),
) -> None:
    """Trainings below `top` one after the other, a bar each; one that fails does not keep the others from their turn."""
    found, failed, last = [], [], None
    one_by_one = (ValueError, TypeError, OSError, ImportError) if len(jobs) > 1 else ()  # one alone is told as it is
    try:
        with bars(Console()) as progress:
            for number, (spec, folder, title) in enumerate(jobs, 1):
                name = title if len(jobs) == 1 else f"{number}/{len(jobs)} {title}"
                watchers = [*more, Bar(progress, name), *boards(folder / "tensorboard", tensorboard)]
                try:
                    found.append(run(spec, folder, device=device, root=root, watchers=watchers))
                except (RuntimeError, RunInUseError, *one_by_one) as error:
                    failed.append(f"{folder}: {type(error).__name__}: {error}")
                    last = error.with_traceback(None)  # which would hold on to the training's memory
    except KeyboardInterrupt:
        data = ["--data", str(root)] if root else []
        raise KeyboardInterrupt(f"go on with: {shlex.join(['mlrsnet', 'runs', 'resume', str(top), *data])}") from None
    if found:
        print("\n".join(run_lines(found)))
    raise_failed(failed, len(jobs), last)


def raise_failed(failed: Sequence[str], total: int, last: Exception | None = None) -> None:
    """The command's own failure, after everything else was said."""
    if failed:
        raise RuntimeError(f"{len(failed)} of {total} runs failed; {'; '.join(failed)}") from last


def boards(folder: Path, wanted: bool) -> list[Watcher]:
    """TensorBoard, where it is wanted."""
    return [Board(folder)] if wanted else []
