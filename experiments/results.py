"""The committed records, read once: `mlrsnet report`'s tables of a folder of results/, and other JSON files there."""

import json
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mlrsnet.baselines import HAND_DESIGNED
from mlrsnet.card import versions
from mlrsnet_lab import records
from mlrsnet_lab.optimizers import EAGER
from mlrsnet_lab.records import Record
from mlrsnet_lab.report import Report, read_report
from mlrsnet_lab.report.numbers import metric_stat, metric_text
from mlrsnet_lab.report.tables import Row, Section, Table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
NOT_RUN = "not run"
NOTHING = ["Not run yet."]


def place(recipe: str, scale: str) -> str:
    """The folder of results/ that holds a recipe's runs."""
    return f"{recipe.replace('-', '_')}_{scale}"


def data(path: str) -> Any:
    """A JSON file of results/."""
    return json.loads((RESULTS / path).read_text())


def here() -> dict[str, Any]:
    """What a new record says of where it was made."""
    return {"versions": versions(), "device": platform.processor() or platform.machine(), "commit": records.commit()}


def report(folder: str) -> Report:
    """The report on a folder of results/."""
    return _report(RESULTS / folder)


@cache
def _report(folder: Path) -> Report:
    return read_report(folder)


def forget() -> None:
    """Read everything anew: files have changed."""
    _report.cache_clear()


def section(folder: str) -> Section | None:
    """The recipe whose runs a folder holds; None if there is no such folder."""
    return report(folder).sections[0] if (RESULTS / folder).is_dir() else None


def columns(folder: str) -> list[Table]:
    """The columns of a recipe in which a training has ended, without trials of settings and averages over columns."""
    found = section(folder)
    tables = [one for one in found.tables if not one.trials and not one.averaged] if found else []
    return [one for one in tables if any(ended(row) for row in one.rows)]


def rows(folder: str, column: str) -> dict[str, Row]:
    """The rows of a column by name, those without a training that ended left out; `column` may be one of trials."""
    found = section(folder)
    tables = [one for one in found.tables if one.title == column] if found else []
    return {row.name: row for one in tables for row in one.rows if ended(row)}


def runs(folder: str, column: str, row: str) -> list[Record]:
    """The trainings of a row that have ended, by seed."""
    return [run for name, found in rows(folder, column).items() if name == row for run in ended(found)]


def run(folder: str, column: str, row: str) -> Record:
    """The training of a row with the first seed."""
    return runs(folder, column, row)[0]


def ended(row: Row) -> list[Record]:
    """Its trainings that finished or diverged."""
    return [run.record for run in row.runs if run.record.ended]


def last_mean(row: Row, which: str = "last") -> float | None:
    """The mean result of the last epochs, or of the `best`; None if nothing was run, or a training diverged."""
    value = row.stat(which)
    return None if row.diverged or value is None else value.mean


def outcome(row: Row | None) -> str:
    """Last epoch, mean ± deviation over seeds; in brackets the mean of the best epochs; how many diverged."""
    found = ended(row) if row else []
    if row is None or not found:
        return NOT_RUN
    best, astray = row.stat("best"), sum(run.status == records.DIVERGED for run in found)
    diverged = f", {astray} of {len(found)} diverged" if astray else ""
    return f"{metric_stat(row.stat('last'))} ({metric_text(best.mean if best else None)}){diverged}"


def last(found: Sequence[Record]) -> list[float]:
    """Results of the last epochs."""
    return [run.result["last"] for run in found]


def hand_designed(row: Row) -> bool:
    """Whether its initial LR is all that decides its LRs; Schedule-Free and Prodigy find LRs of their own."""
    spec = ended(row)[0].spec
    return spec["schedule"] in (*HAND_DESIGNED, "val-strategy") and spec["optimizer"] not in EAGER


def lr_at(run: Record, epoch: int) -> float | None:
    """The LR at the end of an epoch; None if the training was shorter."""
    return float(run.epochs[epoch - 1]["lr"]) if epoch <= len(run.epochs) else None
