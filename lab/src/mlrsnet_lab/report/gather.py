"""What lies below a folder: runs, the recipes they belong to, and what could not be read."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlrsnet.files.untrusted import read_json, reason
from mlrsnet_lab import records
from mlrsnet_lab.records import RECIPE, STUDY
from mlrsnet_lab.report.numbers import Stat, number
from mlrsnet_lab.report.runs import Run, read, table

T = TypeVar("T")
PAPER_SCALE = "paper"


@dataclass(frozen=True)
class Target:
    """One place in a recipe's table: the paper's number, and why there is none of ours."""

    paper: Stat | None = None
    missing: str = ""


@dataclass(frozen=True)
class AveragePlan:
    """One more table: means over these columns, beside the paper's."""

    title: str
    columns: tuple[str, ...]
    paper: dict[str, Stat | None]
    paper_best: dict[str, Stat | None]


@dataclass(frozen=True)
class Plan:
    """A recipe.json: what `mlrsnet reproduce` planned to run."""

    name: str
    scale: str
    title: str
    claim: str
    notes: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    num_seeds: int
    targets: dict[tuple[str, str], Target]
    paper_setting: str = ""
    averages: tuple[AveragePlan, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether our numbers may be set against the paper's."""
        return self.scale == PAPER_SCALE


@dataclass(frozen=True)
class Findings:
    """A study.json: what `mlrsnet reproduce` computed without training; `data` is the file as it is."""

    title: str
    scale: str
    claim: str
    notes: tuple[str, ...]
    data: dict[str, Any]


@dataclass(frozen=True)
class Gathered:
    """Everything that a report says, read once: plans with their runs, runs of no recipe, (place, reason) of damaged files."""

    name: str
    plans: list[tuple[Plan, list[Run]]]
    loose: list[Run]
    unreadable: list[tuple[str, str]]
    findings: list[Findings]


def gather(root: Path) -> Gathered:
    """Everything below `root`; one ValueError if there is no run at all."""
    folders, files = list(records.find(root)), _files(root)
    if not folders and not files[STUDY]:
        raise ValueError(f"there is no run below {root}: pass a folder that `mlrsnet train` or `reproduce` has written")
    unreadable: list[tuple[str, str]] = []
    plans = dict(_read_all(root, files[RECIPE], parse, unreadable))
    findings = [found for _, found in _read_all(root, files[STUDY], parse_findings, unreadable)]
    runs = list(_runs(root, folders, unreadable))
    groups: dict[tuple[Path, str, str], list[Run]] = {
        (folder, plan.name, plan.scale): [] for folder, plan in plans.items()
    }
    loose = []
    for run in runs:
        key = _home(root, run, plans)
        if key is None:
            loose.append(run)
        else:
            groups.setdefault(key, []).append(run)
    pairs = [(_plan_of(key, plans), group) for key, group in groups.items()]
    pairs.sort(key=lambda pair: _in_order(pair[0]))
    return Gathered(root.resolve().name, pairs, loose, sorted(unreadable), findings)


def _runs(root: Path, folders: list[Path], unreadable: list[tuple[str, str]]) -> Iterator[Run]:
    for folder in folders:
        try:
            yield read(folder, root)
        except (ValueError, RecursionError) as error:
            unreadable.append((folder.relative_to(root).as_posix(), _reason(error, root)))


def _files(root: Path) -> dict[str, list[Path]]:
    """What `mlrsnet reproduce` left above its runs, by name."""
    found: dict[str, list[Path]] = {RECIPE: [], STUDY: []}
    for place, _, names in os.walk(root):
        for name in found.keys() & set(names):
            found[name].append(Path(place, name))
    return {name: sorted(paths) for name, paths in found.items()}


def _read_all(
    root: Path, paths: list[Path], parse: Callable[[Any], T], unreadable: list[tuple[str, str]]
) -> Iterator[tuple[Path, T]]:
    for path in paths:
        try:
            yield path.parent, parse(read_json(path))
        except (ValueError, OSError, RecursionError) as error:
            unreadable.append((path.relative_to(root).as_posix(), _reason(error, root)))


def _reason(error: Exception, root: Path) -> str:
    # Paths relative to the folder: the same runs elsewhere give the same page.
    return reason(error).replace(f"{root}/", "")


def _home(root: Path, run: Run, plans: dict[Path, Plan]) -> tuple[Path, str, str] | None:
    """The plan a run belongs to; a run of another scale in the same folder is kept apart."""
    name = run.labels.get("recipe")
    if name is None or not {"row", "column"} <= run.labels.keys():
        return None
    for folder in (root / run.folder, *(root / run.folder).parents):
        plan = plans.get(folder)
        if plan is not None and name == plan.name and run.labels.get("scale", plan.scale) == plan.scale:
            return folder, plan.name, plan.scale
    return root, name, run.labels.get("scale", "")


def _plan_of(key: tuple[Path, str, str], plans: dict[Path, Plan]) -> Plan:
    folder, name, scale = key
    known = plans.get(folder)
    if known is not None and (known.name, known.scale) == (name, scale):
        return known
    return Plan(name, scale, name, "", (), (), (), 0, {})


def _in_order(plan: Plan) -> tuple[list[tuple[int, str]], str]:
    """Names by their letters, numbers in them by value: table2 before table10."""
    words = "".join(letter if letter.isdecimal() else f" {letter} " for letter in plan.name).split()
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in words], plan.scale


def parse(data: Any) -> Plan:
    """The plan of a recipe.json; one ValueError if it is not one."""
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise ValueError(f"{RECIPE} has no name: run `mlrsnet reproduce` again, which writes it again")
    targets = {
        (str(cell.get("row")), str(cell.get("column"))): _target(cell) for cell in map(table, _list(data, "cells"))
    }
    return Plan(
        name=data["name"],
        scale=str(data.get("scale") or ""),
        title=str(data.get("title") or data["name"]),
        claim=str(data.get("claim") or ""),
        notes=tuple(map(str, _list(data, "notes"))),
        rows=tuple(map(str, _list(data, "rows"))),
        columns=tuple(map(str, _list(data, "columns"))),
        num_seeds=len(_list(data, "seeds")),
        targets=targets,
        paper_setting=str(data.get("paper_setting") or ""),
        averages=tuple(_average(one) for one in map(table, _list(data, "averages"))),
    )


def parse_findings(data: Any) -> Findings:
    """The findings of a study.json; one ValueError if it is not one."""
    if not isinstance(data, dict) or not isinstance(data.get("title"), str):
        raise ValueError(f"{STUDY} has no title: run `mlrsnet reproduce` again, which writes it again")
    notes = tuple(map(str, _list(data, "notes")))
    return Findings(data["title"], str(data.get("scale") or ""), str(data.get("claim") or ""), notes, data)


def _target(cell: dict[str, Any]) -> Target:
    return Target(_paper(cell.get("paper")), str(cell.get("missing") or ""))


def _average(one: dict[str, Any]) -> AveragePlan:
    last, best = (
        {str(row): _paper(value) for row, value in table(one.get(key)).items()} for key in ("paper", "paper_best")
    )
    return AveragePlan(str(one.get("title")), tuple(map(str, _list(one, "columns"))), last, best)


def _paper(paper: Any) -> Stat | None:
    mean, std = (*paper, None, None)[:2] if isinstance(paper, list) else (paper, None)
    value = number(mean)
    return None if value is None else Stat(value, number(std))


def _list(data: dict[str, Any], key: str) -> list[Any]:
    value = data.get(key)
    return value if isinstance(value, list) else []
