"""The run that a folder already holds, and whether it is the one that was asked for."""

from pathlib import Path

from mlrsnet_lab import inputs, records
from mlrsnet_lab.records import Record
from mlrsnet_lab.spec import RunSpec


def earlier_run(folder: Path | None, spec: RunSpec) -> Record | None:
    """The run that the folder already holds, or None. Refuses a run of another spec, or of files that have changed since."""
    if folder is None or not records.holds(folder):
        return None
    earlier = records.read(folder)
    if earlier.spec != spec.to_dict():
        different = [key for key, value in spec.to_dict().items() if earlier.spec.get(key) != value]
        raise ValueError(
            f"{folder} holds a run with another spec (different: {', '.join(different)}): use another folder, or delete it"
        )
    kept, read = earlier.entry("digests"), inputs.files(spec, folder)
    changed = [str(path) for name, path in read.items() if name in kept and inputs.digest(path) != kept[name]]
    if changed:
        raise ValueError(
            f"{folder} holds a run with another file (changed since: {', '.join(changed)}): use another folder, or delete it"
        )
    return earlier


def check_data(folder: Path, earlier: Record | None, now: Record) -> None:
    """Refuse to continue with a dataset whose parts have other sizes than when the run started."""
    parts = ("train", "val", "test")
    before = earlier.entry("task") if earlier is not None else {}
    if any(before.get(part, now.data["task"][part]) != now.data["task"][part] for part in parts):
        then, found = ([task.get(part) for part in parts] for task in (before, now.data["task"]))
        raise ValueError(
            f"the run in {folder} was started with {then} examples to train, validate and test on, got {found}: restore the "
            "data, or delete the folder to start over"
        )
