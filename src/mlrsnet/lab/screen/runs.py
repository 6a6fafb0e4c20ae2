"""`mlrsnet runs` on a terminal."""

from pathlib import Path

from rich.console import Console

from mlrsnet.lab import records
from mlrsnet.lab.screen.tables import describe_run, result_table
from mlrsnet.lab.screen.train import train_all
from mlrsnet.lab.spec import RunSpec


def show_runs(folder: Path) -> None:
    """Every run below a folder, those that cannot be read too."""
    found, unreadable = [], []
    for path in records.find(folder):
        try:
            found.append(records.read(path))
        except ValueError as error:
            unreadable.append(str(error))
    console = Console()
    if found:
        console.print(result_table(f"{len(found)} runs below {folder}", found))
        for record in found:
            console.print(f"{record.status:12} {record.folder}", soft_wrap=True, highlight=False)
    for message in unreadable:
        console.print(f"unreadable   {message}", soft_wrap=True, highlight=False)
    if not found and not unreadable:
        console.print(f"There are no runs below {folder}: `mlrsnet train` and `mlrsnet reproduce` make some.")


def show_run(folder: Path) -> None:
    """One run in words."""
    record, console = records.read(folder), Console()
    console.print_json(records.dumps(record.data))
    for line in record.epochs[-3:]:
        console.print(records.dumps(line), soft_wrap=True, highlight=False)


def resume_runs(folder: Path, device: str, root: Path | None, tensorboard: bool) -> None:
    """Go on with every unfinished run at or below a folder."""
    paths = [folder] if (folder / records.RECORD).is_file() else list(records.find(folder))
    found = [records.read(path) for path in paths]
    if not found:
        raise ValueError(f"there are no runs below {folder}: pass a run's folder, or one above runs")
    todo = [record for record in found if not record.ended]
    if not todo:
        Console().print(f"nothing to do: all {len(found)} runs have ended")
        return
    jobs = [(RunSpec.from_dict(record.spec), record.folder or folder, describe_run(record)) for record in todo]
    train_all(jobs, device, root, tensorboard)
