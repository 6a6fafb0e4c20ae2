"""What lies below a folder: runs, the recipes they belong to, and what could not be read."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlrsnet.lab import records
from mlrsnet.lab.records import RECIPE, STUDY
from mlrsnet.lab.report.numbers import Stat, number
from mlrsnet.lab.report.runs import Run, read, table

T = TypeVar("T")
PAPER_SCALE = "paper"


@dataclass(frozen=True)
class Cell:
    """One place in a recipe's table: the paper's number, and why we have none where we cannot have one."""

    paper: Stat | None = None
    missing: str = ""


@dataclass(frozen=True)
class Average:
    """One more table: means over these columns, beside the paper's."""

    title: str
    columns: tuple[str, ...]
    paper: dict[str, Stat | None]
    paper_best: dict[str, Stat | None]


@dataclass(frozen=True)
class Recipe:
    """What `mlrsnet reproduce` set out to do."""

    name: str
    scale: str
    title: str
    claim: str
    notes: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    num_seeds: int
    cells: dict[tuple[str, str], Cell]
    paper_setting: str = ""
    averages: tuple[Average, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether our numbers may be set against the paper's."""
        return self.scale == PAPER_SCALE


@dataclass(frozen=True)
class Study:
    """What `mlrsnet reproduce` has computed where there is nothing to train: the file as it is."""

    title: str
    scale: str
    claim: str
    notes: tuple[str, ...]
    data: dict[str, Any]


@dataclass(frozen=True)
class Gathered:
    """Recipes with their runs, runs of no recipe, and (place, reason) of what could not be read."""

    name: str
    recipes: list[tuple[Recipe, list[Run]]]
    loose: list[Run]
    unreadable: list[tuple[str, str]]
    studies: list[Study]


def gather(root: Path) -> Gathered:
    """Everything below `root`; one ValueError if there is no run at all."""
    folders = list(records.find(root))
    if not folders and not any(root.rglob(STUDY)):
        raise ValueError(f"there is no run below {root}: pass a folder that `mlrsnet train` or `reproduce` has written")
    unreadable: list[tuple[str, str]] = []
    recipes = dict(_read_all(root, RECIPE, parse, unreadable))
    studies = [study for _, study in _read_all(root, STUDY, parse_study, unreadable)]
    runs = list(_runs(root, folders, unreadable))
    groups: dict[tuple[Path, str, str], list[Run]] = {
        (folder, recipe.name, recipe.scale): [] for folder, recipe in recipes.items()
    }
    loose = []
    for run in runs:
        key = _home(root, run, recipes)
        if key is None:
            loose.append(run)
        else:
            groups.setdefault(key, []).append(run)
    pairs = [(_recipe_of(key, recipes), group) for key, group in groups.items()]
    pairs.sort(key=lambda pair: _in_order(pair[0]))
    return Gathered(root.resolve().name, pairs, loose, sorted(unreadable), studies)


def _runs(root: Path, folders: list[Path], unreadable: list[tuple[str, str]]) -> Iterator[Run]:
    for folder in folders:
        try:
            yield read(folder, root)
        except (ValueError, RecursionError) as error:
            unreadable.append((folder.relative_to(root).as_posix(), _reason(error, root)))


def _read_all(
    root: Path, name: str, parse: Callable[[Any], T], unreadable: list[tuple[str, str]]
) -> Iterator[tuple[Path, T]]:
    for path in sorted(root.rglob(name)):
        try:
            yield path.parent, parse(json.loads(path.read_text()))
        except (ValueError, OSError, RecursionError) as error:
            unreadable.append((path.relative_to(root).as_posix(), _reason(error, root)))


def _reason(error: Exception, root: Path) -> str:
    # Paths relative to the folder: the same runs elsewhere give the same page.
    return str(error).replace(f"{root}/", "")


def _home(root: Path, run: Run, recipes: dict[Path, Recipe]) -> tuple[Path, str, str] | None:
    """The recipe a run belongs to. One of another scale in the same folder is kept apart: it is not the same thing."""
    name = run.labels.get("recipe")
    if name is None or not {"row", "column"} <= run.labels.keys():
        return None
    for folder in (root / run.folder, *(root / run.folder).parents):
        recipe = recipes.get(folder)
        if recipe is not None and name == recipe.name and run.labels.get("scale", recipe.scale) == recipe.scale:
            return folder, recipe.name, recipe.scale
    return root, name, run.labels.get("scale", "")


def _recipe_of(key: tuple[Path, str, str], recipes: dict[Path, Recipe]) -> Recipe:
    folder, name, scale = key
    known = recipes.get(folder)
    if known is not None and (known.name, known.scale) == (name, scale):
        return known
    return Recipe(name, scale, name, "", (), (), (), 0, {})


def _in_order(recipe: Recipe) -> tuple[list[tuple[int, str]], str]:
    """Names by their letters, numbers in them by value: table2 before table10."""
    words = "".join(letter if letter.isdecimal() else f" {letter} " for letter in recipe.name).split()
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in words], recipe.scale


def parse(data: Any) -> Recipe:
    """The recipe of a recipe.json; one ValueError if it is not one."""
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise ValueError(f"{RECIPE} has no name: run `mlrsnet reproduce` again, which writes it anew")
    cells = {(str(cell.get("row")), str(cell.get("column"))): _cell(cell) for cell in map(table, _list(data, "cells"))}
    return Recipe(
        name=data["name"],
        scale=str(data.get("scale") or ""),
        title=str(data.get("title") or data["name"]),
        claim=str(data.get("claim") or ""),
        notes=tuple(map(str, _list(data, "notes"))),
        rows=tuple(map(str, _list(data, "rows"))),
        columns=tuple(map(str, _list(data, "columns"))),
        num_seeds=len(_list(data, "seeds")),
        cells=cells,
        paper_setting=str(data.get("paper_setting") or ""),
        averages=tuple(_average(one) for one in map(table, _list(data, "averages"))),
    )


def parse_study(data: Any) -> Study:
    """The study of a study.json; one ValueError if it is not one."""
    if not isinstance(data, dict) or not isinstance(data.get("title"), str):
        raise ValueError(f"{STUDY} has no title: run `mlrsnet reproduce` again, which writes it anew")
    notes = tuple(map(str, _list(data, "notes")))
    return Study(data["title"], str(data.get("scale") or ""), str(data.get("claim") or ""), notes, data)


def _cell(cell: dict[str, Any]) -> Cell:
    return Cell(_paper(cell.get("paper")), str(cell.get("missing") or ""))


def _average(one: dict[str, Any]) -> Average:
    last, best = (
        {str(row): _paper(value) for row, value in table(one.get(key)).items()} for key in ("paper", "paper_best")
    )
    return Average(str(one.get("title")), tuple(map(str, _list(one, "columns"))), last, best)


def _paper(paper: Any) -> Stat | None:
    mean, std = (*paper, None, None)[:2] if isinstance(paper, list) else (paper, None)
    value = number(mean)
    return None if value is None else Stat(value, number(std))


def _list(data: dict[str, Any], key: str) -> list[Any]:
    value = data.get(key)
    return value if isinstance(value, list) else []
