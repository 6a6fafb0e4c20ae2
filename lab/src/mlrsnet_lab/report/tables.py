"""Runs become sections, tables and rows: everything that the page says, without how it looks."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from mlrsnet_lab import records
from mlrsnet_lab.report.gather import Gathered
from mlrsnet_lab.report.names import by, different, name, names, same_method, same_spec, shared
from mlrsnet_lab.report.numbers import Stat, count_text, metric_text, number, stat
from mlrsnet_lab.report.runs import LEARNED_ROW, Metric, Run, table
from mlrsnet_lab.sheets import Average, Cell, Paper, Sheet

PAPER_SCALE = "paper"


@dataclass(frozen=True)
class Row:
    """One method: its runs differ only in their seeds."""

    name: str
    runs: list[Run]
    paper: Paper | None = None
    missing: str = ""
    num_seeds: int = 0
    wins: bool = False
    paper_best: Paper | None = None

    @property
    def learned(self) -> bool:
        """Whether it is a learned schedule."""
        return self.name.startswith(LEARNED_ROW) or any(run.learned for run in self.runs)

    @property
    def in_legend(self) -> str:
        """Its name, and whether all of its runs go on."""
        return self.name if any(run.record.ended for run in self.runs) else f"{self.name} (not finished)"

    @property
    def counted(self) -> list[Run]:
        """The runs whose numbers enter the means."""
        return [run for run in self.runs if run.counts]

    @property
    def drawn(self) -> list[Run]:
        """The runs to draw: those that have ended, or all if none has."""
        return [run for run in self.runs if run.record.ended] or self.runs

    @property
    def diverged(self) -> bool:
        """Whether a run diverged: a mean over the others would flatter the row."""
        return any(run.status == records.DIVERGED for run in self.runs)

    def stat(self, key: str) -> Stat | None:
        """`last` or `best` over the counted runs."""
        return stat(run.result(key) for run in self.counted)

    @property
    def train_loss(self) -> Stat | None:
        """Of the last epoch, over the counted runs."""
        return stat(run.train_loss for run in self.counted)

    @property
    def seconds_per_epoch(self) -> Stat | None:
        """Over the counted runs."""
        return stat(number(run.timing("seconds_per_epoch")) for run in self.counted)

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's; `Table.comparable` says whether it means anything."""
        last = self.stat("last")
        return None if last is None or self.paper is None else last.mean - self.paper[0]

    @property
    def seeds(self) -> str:
        """How many seeds are in the means, and how many were planned."""
        runs, seeds = len(self.counted), len({run.seed for run in self.counted})
        if runs != seeds:
            return f"{count_text(runs, 'run')}, {count_text(seeds, 'seed')}"
        wanted = max(self.num_seeds, len({run.seed for run in self.runs}))
        return str(seeds) if seeds == wanted else f"{seeds} of {wanted}"

    @property
    def remarks(self) -> list[str]:
        """About runs that have not finished, and rows without runs."""
        if not self.runs:
            return [f"not run: {self.missing}" if self.missing else "not run"]
        seeds: dict[str, list[str]] = {}
        for run in self.runs:
            seeds.setdefault(run.remark, []).append(run.seed)
        return [f"seed{'s'[: len(said) - 1]} {', '.join(said)}: {remark}" for remark, said in seeds.items() if remark]


@dataclass(frozen=True)
class Table:
    """Rows with the same task and metric."""

    title: str
    rows: list[Row]
    metric: Metric
    comparable: bool = False
    paper_setting: str = ""
    averaged: bool = False

    @property
    def trials(self) -> bool:
        """Whether its rows are trials of a setting, which their validation results choose."""
        return self.title.endswith(records.CHOSEN)

    @property
    def deciding(self) -> str:
        """The result that the rows are compared by."""
        return "val_metric" if self.trials else "last"

    @property
    def runs(self) -> list[Run]:
        """Of all rows."""
        return [run for row in self.rows for run in row.runs]

    @property
    def settings(self) -> str:
        """What all runs share, in words; empty if there is no run."""
        words = [shared(self.runs, key) for key in ("task", "model", "optimizer")]
        for key, text in (("epochs", "{} epochs"), ("batch_size", "batch size {}")):
            words.append(text.format(value) if (value := shared(self.runs, key)) else "")
        return ", ".join(word for word in words if word)

    @property
    def notes(self) -> list[str]:
        """What the tasks say about their data, such as that they are made up; with the rows, if it is not all of them."""
        said = {row.name: _distinct(_note(run) for run in row.runs) for row in self.rows if row.runs}
        found = []
        for note in _distinct(note for notes in said.values() for note in notes):
            rows = [name for name, notes in said.items() if note in notes]
            found.append(note if len(rows) == len(said) else f"{', '.join(rows)}: {note}")
        return found


@dataclass(frozen=True)
class Section(Sheet):
    """The sheet of a recipe with tables of its runs, or of the runs of none."""

    tables: Sequence[Table] = ()

    @property
    def warning(self) -> str:
        """Why the paper's numbers cannot be compared with ours; empty if they can, or if there are none."""
        rows = [row for one in self.tables for row in one.rows]
        if all(row.paper is None for row in rows) or all(one.comparable for one in self.tables):
            return ""
        return (
            f'These runs are at scale "{self.scale}", not at the paper\'s. Its numbers are shown for orientation; no difference '
            "is computed."
        )


@dataclass(frozen=True)
class Report:
    """Everything that a report says."""

    name: str
    sections: list[Section]
    unreadable: list[tuple[str, str]]

    @property
    def runs(self) -> list[Run]:
        """Of all sections."""
        return [run for section in self.sections for one in section.tables for run in one.runs]

    @property
    def statuses(self) -> str:
        """How many runs have which status."""
        count = Counter(run.status for run in self.runs)
        return ", ".join(f"{amount} {status}" for status, amount in sorted(count.items(), key=_finished_first))

    @property
    def facts(self) -> dict[str, str]:
        """Where the numbers come from."""
        data = [*(run.record.data for run in self.runs), *(section.made for section in self.sections if section.made)]
        versions = [table(one.get("versions")) for one in data]
        found = {
            "runs": f"{len(self.runs)}: {self.statuses}" if self.runs else "",
            "newest": newest(run.timing(key) for run in self.runs for key in ("started", "ended")),
            "device": "; ".join(_distinct(one.get("device") for one in data)),
            "versions": "; ".join(_distinct(", ".join(f"{key} {one[key]}" for key in one) for one in versions)),
            "commit": ", ".join(_distinct(one.get("commit") for one in data)),
        }
        return {key: value for key, value in found.items() if value}


def build(gathered: Gathered) -> Report:
    """The whole report, tables of recipes first."""
    sections = [_section(sheet, runs) for sheet, runs in gathered.sheets]
    if gathered.loose:
        title = "Other runs" if sections else "Runs"
        sections.append(Section("", "", title, tables=_of_loose(gathered.loose)))
    return Report(gathered.name, sections, gathered.unreadable)


def newest(dates: Iterable[Any]) -> str:
    """The latest of ISO dates, in UTC; empty if there is none.

    >>> newest(["2026-11-15T12:00:00+00:00", "2026-11-15T13:30:00+02:00", None, "soon"])
    '2026-11-15 12:00 UTC'
    """
    read = [date for date in map(_date, dates) if date is not None]
    return f"{max(read):%Y-%m-%d %H:%M} UTC" if read else ""


def _date(text: Any) -> datetime | None:
    try:
        date = datetime.fromisoformat(str(text))
        return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _section(sheet: Sheet, runs: list[Run]) -> Section:
    planned, there = (cell.column for cell in sheet.cells), (run.labels["column"] for run in runs)
    tables = [_column(sheet, column, runs) for column in dict.fromkeys((*planned, *there))]
    averages = [_averaged(sheet, average, runs) for average in sheet.averages]
    return Section(**vars(sheet), tables=[*averages, *tables])


def _averaged(sheet: Sheet, average: Average, runs: list[Run]) -> Table:
    """All runs of a row in these columns as one row."""
    mine = [run for run in runs if run.labels["column"] in average.columns]
    labels = dict.fromkeys(cell.row for cell in sheet.cells if cell.column in average.columns)
    rows = [
        Row(
            label,
            [run for run in mine if run.labels["row"] == label],
            average.paper.get(label),
            paper_best=average.paper_best.get(label),
        )
        for label in labels
    ]
    return _table(sheet, average.title, rows, mine, averaged=True)


def _column(sheet: Sheet, column: str, runs: list[Run]) -> Table:
    runs = [run for run in runs if run.labels["column"] == column]
    cells = {cell.row: cell for cell in sheet.cells if cell.column == column}
    rows: list[Row] = []
    all_seeds = 1 if column.endswith(records.CHOSEN) else len(sheet.seeds)
    for label in dict.fromkeys((*cells, *(run.labels["row"] for run in runs))):
        cell = cells.get(label, Cell(label, column, None))
        num_seeds = all_seeds if cell.seeds is None else min(cell.seeds, all_seeds)
        groups = by(same_method, (run for run in runs if run.labels["row"] == label)) or [[]]
        apart = different([group[0].spec for group in groups if group])
        for group in groups:
            # Runs with other settings under one label must not be averaged.
            full = f"{label} ({name(group[0].spec, apart)})" if apart else label
            rows.append(Row(full, _by_seed(group), cell.paper, cell.missing or "", num_seeds))
    return _table(sheet, column, rows, runs)


def _table(sheet: Sheet, title: str, rows: list[Row], runs: list[Run], averaged: bool = False) -> Table:
    comparable = sheet.scale == PAPER_SCALE  # else our numbers may not be set against the paper's
    metric = runs[0].metric if runs else Metric()
    return _with_winners(Table(title, rows, metric, comparable, sheet.paper_setting, averaged))


def _of_loose(runs: list[Run]) -> list[Table]:
    tables = []
    for group in by(lambda run: (str(run.spec.get("task")), str(run.spec.get("model")), run.metric), runs):
        groups = by(same_spec, group)
        rows = [Row(label, _by_seed(members)) for label, members in zip(names(groups), groups, strict=True)]
        title = ", ".join(str(group[0].spec.get(key) or f"no {key}") for key in ("task", "model"))
        tables.append(_with_winners(Table(title, rows, group[0].metric)))
    return tables


def _with_winners(one: Table) -> Table:
    """Mark the best mean, and means that are printed alike, if there is another row to be better than."""
    means = {index: row.stat(one.deciding) for index, row in enumerate(one.rows) if not row.diverged}
    there = {index: value.mean for index, value in means.items() if value is not None}
    if len(there) < 2:
        return one
    best = metric_text((max if one.metric.higher_is_better else min)(there.values()))
    wins = {index for index, mean in there.items() if metric_text(mean) == best}
    return replace(one, rows=[replace(row, wins=index in wins) for index, row in enumerate(one.rows)])


def _by_seed(runs: list[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (len(run.seed), run.seed, run.folder))


LEAKY = "leaky: the validation pictures are trained on too"
REWORDED = {f"{LEAKY}, as in the authors' code": LEAKY}
"""Notes of earlier versions that were wrong: the authors' code does what `overlap` does."""


def _note(run: Run) -> str:
    note = str(table(run.record.data.get("task")).get("note") or "")
    return REWORDED.get(note, note)


def _distinct(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values if value))


def _finished_first(item: tuple[str, int]) -> tuple[bool, str]:
    return item[0] != records.FINISHED, item[0]
