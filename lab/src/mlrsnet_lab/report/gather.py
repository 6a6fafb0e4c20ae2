"""What lies below a folder: runs, the recipes they belong to, and what could not be read."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlrsnet.files.untrusted import read_json, reason
from mlrsnet_lab import records
from mlrsnet_lab.records import RECIPE, STUDY
from mlrsnet_lab.report.numbers import Stat, number
from mlrsnet_lab.report.runs import Run, read, table
from mlrsnet_lab.sheets import Average, Cell, Figure, Grid, Sheet

Place = tuple[Path, str, str]
"""Of runs: the folder of their recipe, its name and scale."""


@dataclass(frozen=True)
class Gathered:
    """Everything that a report says, read once: sheets with their runs, runs of no recipe, (place, reason) of damaged files."""

    name: str
    sheets: list[tuple[Sheet, list[Run]]]
    loose: list[Run]
    unreadable: list[tuple[str, str]]


def gather(root: Path) -> Gathered:
    """Everything below `root`; one ValueError if there is no run at all."""
    folders, files = list(records.find(root)), _files(root)
    if not folders and not files[STUDY]:
        raise ValueError(f"there is no run below {root}: pass a folder that `mlrsnet train` or `reproduce` has written")
    unreadable: list[tuple[str, str]] = []
    plans = dict(_sheets(root, files[RECIPE], unreadable))
    groups: dict[Place, list[Run]] = {(folder, plan.name, plan.scale): [] for folder, plan in plans.items()}
    loose: list[Run] = []
    for run in _runs(root, folders, unreadable):
        key = _home(root, run, plans)
        (loose if key is None else groups.setdefault(key, [])).append(run)
    pairs = [(_plan_of(key, plans), group) for key, group in groups.items()]
    pairs += [(study, []) for _, study in _sheets(root, files[STUDY], unreadable)]
    pairs.sort(key=lambda pair: _in_order(pair[0]))
    return Gathered(root.resolve().name, pairs, loose, sorted(unreadable))


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


def _sheets(root: Path, paths: list[Path], unreadable: list[tuple[str, str]]) -> Iterator[tuple[Path, Sheet]]:
    for path in paths:
        try:
            yield path.parent, parse(read_json(path))
        except (ValueError, OSError, RecursionError) as error:
            unreadable.append((path.relative_to(root).as_posix(), _reason(error, root)))


def _reason(error: Exception, root: Path) -> str:
    # Paths relative to the folder: the same runs elsewhere give the same page.
    return reason(error).replace(f"{root}/", "")


def _home(root: Path, run: Run, plans: dict[Path, Sheet]) -> Place | None:
    """The plan a run belongs to; a run of another scale in the same folder is kept apart."""
    name = run.labels.get("recipe")
    if name is None or not {"row", "column"} <= run.labels.keys():
        return None
    for folder in (root / run.folder, *(root / run.folder).parents):
        plan = plans.get(folder)
        if plan is not None and name == plan.name and run.labels.get("scale", plan.scale) == plan.scale:
            return folder, plan.name, plan.scale
    return root, name, run.labels.get("scale", "")


def _plan_of(key: Place, plans: dict[Path, Sheet]) -> Sheet:
    folder, name, scale = key
    known = plans.get(folder)
    if known is not None and (known.name, known.scale) == (name, scale):
        return known
    return Sheet(name, scale, name)


def _in_order(plan: Sheet) -> tuple[list[tuple[int, str]], str]:
    """Names by their letters, numbers in them by value: table2 before table10."""
    words = "".join(letter if letter.isdecimal() else f" {letter} " for letter in plan.name).split()
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in words], plan.scale


def parse(data: Any) -> Sheet:
    """The sheet of a recipe.json or study.json; one ValueError if it is not one."""
    named = table(data)
    name = named.get("name", named.get("title"))
    if not isinstance(name, str):
        raise ValueError("it has no name: run `mlrsnet reproduce` again, which writes it again")
    scale, title, claim = (str(data.get(key) or "") for key in ("scale", "title", "claim"))
    grids = [_grid(one) for one in _objects(data, "grids") if _list(one, "columns")]
    return Sheet(
        name,
        scale,
        title or name,
        claim,
        notes=tuple(map(str, _list(data, "notes"))),
        seeds=_list(data, "seeds"),
        paper_setting=str(data.get("paper_setting") or ""),
        cells=[_cell(one) for one in _objects(data, "cells")],
        averages=[_average(one) for one in _objects(data, "averages")],
        grids=grids,
        figures=[_figure(one) for one in _objects(data, "figures")],
        made=data if grids else {},
    )


def _cell(one: dict[str, Any]) -> Cell:
    paper, missing, seeds = _paper(one.get("paper")), one.get("missing"), one.get("seeds")
    return Cell(
        str(one.get("row")),
        str(one.get("column")),
        None,
        paper,
        str(missing) if missing else None,
        seeds=seeds if type(seeds) is int and seeds > 0 else None,
    )


def _average(one: dict[str, Any]) -> Average:
    last, best = (
        {str(row): _paper(value) for row, value in table(one.get(key)).items()} for key in ("paper", "paper_best")
    )
    return Average(str(one.get("title")), tuple(map(str, _list(one, "columns"))), last, best)


def _grid(one: dict[str, Any]) -> Grid:
    rows = [row if isinstance(row, list) else [] for row in _list(one, "rows")]
    return Grid(str(one.get("title")), [*map(str, _list(one, "columns"))], rows, str(one.get("note") or ""))


def _figure(one: dict[str, Any]) -> Figure:
    lines = {name: line for name, line in table(one.get("lines")).items() if isinstance(line, list) and len(line) > 1}
    axes = {name: tuple(axis if isinstance(axis, list) else [] for axis in line[:2]) for name, line in lines.items()}
    return Figure(str(one.get("title")), str(one.get("x")), axes)  # type: ignore[arg-type]


def _paper(paper: Any) -> Stat | None:
    mean, std = (*paper, None, None)[:2] if isinstance(paper, list) else (paper, None)
    value = number(mean)
    return None if value is None else Stat(value, number(std))


def _list(data: dict[str, Any], key: str) -> list[Any]:
    value = data.get(key)
    return value if isinstance(value, list) else []


def _objects(data: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [table(one) for one in _list(data, key)]
