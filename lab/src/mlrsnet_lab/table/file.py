"""The table as one compact file."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlrsnet.files.untrusted import parse_json
from mlrsnet_lab.files import fallback
from mlrsnet_lab.files.archives import load_arrays
from mlrsnet_lab.files.fallback import DamagedError

EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
"""Between which shares of the training the mean loss is kept."""

PARTS = ("kinds", "facts", "fitness", "losses")

NUMBERS: dict[str, tuple[int, ...]] = {"fitness": (), "losses": (len(EDGES) - 1,)}
"""Arrays with a number for each row and column, and their further dimensions."""


@dataclass(frozen=True)
class TrainingRow:
    """One training under every column; see `TrainingTable`."""

    kind: dict[str, Any]
    facts: dict[str, Any]
    fitness: np.ndarray
    losses: np.ndarray


@dataclass
class TrainingTable:
    """Rows are trainings, columns are sizes of steps.

    columns: as `Sizing` writes them. kinds: what decides each training. facts: what is known before it starts.
    fitness: (rows, columns) at the end, on held-out data; infinite where it diverged. losses: (rows, columns, parts) mean
    training loss between `EDGES`.
    """

    columns: list[str]
    kinds: list[dict[str, Any]] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    fitness: list[np.ndarray] = field(default_factory=list)
    losses: list[np.ndarray] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def numbers(self) -> set[int]:
        """The kinds that are done."""
        return {kind["number"] for kind in self.kinds}

    def add(self, row: TrainingRow) -> None:
        """Put a row before the first one with a larger number, so that the file does not depend on which was done first."""
        place = next((at for at, kind in enumerate(self.kinds) if kind["number"] > row.kind["number"]), len(self))
        for name, value in zip(PARTS, (row.kind, row.facts, row.fitness, row.losses), strict=True):
            getattr(self, name).insert(place, value)

    def save(self, path: Path) -> None:
        """Write the file, atomically and with a digest. The one before it stays as FILE.previous.npz."""
        file = io.BytesIO()
        np.savez_compressed(
            file,
            columns=np.array(self.columns),
            kinds=np.array([json.dumps(kind) for kind in self.kinds], dtype=str),
            facts=np.array([json.dumps(fact) for fact in self.facts], dtype=str),
            fitness=np.array(self.fitness, dtype=np.float32),
            losses=np.array(self.losses, dtype=np.float32),
        )
        fallback.write(path, file)

    @classmethod
    def load(cls, path: Path) -> "TrainingTable":
        """Read the file, or the one before it if it is damaged. They hold numbers and text only."""
        try:
            return fallback.read_newest(path, _read)
        except DamagedError as error:
            raise error.told("a table", "delete {it}, and make it again") from None


def _read(path: Path) -> TrainingTable:
    return _table(load_arrays(path, ("columns", "kinds", "facts", *NUMBERS)))


def _table(kept: Mapping[str, np.ndarray]) -> TrainingTable:
    """A table from its arrays, whose shapes must fit together."""
    columns, kinds, facts = (kept[name].tolist() for name in ("columns", "kinds", "facts"))
    expected = {name: (len(kinds), len(columns), *more) for name, more in NUMBERS.items()}
    for name, shape in expected.items():
        if kept[name].shape != shape and len(kinds):
            raise ValueError(f"{name} must have the shape {shape}, got {kept[name].shape}")
    if len(facts) != len(kinds):
        raise ValueError(f"there must be facts for each of the {len(kinds):,} kinds, got {len(facts):,}")
    found = [_object(text) for text in kinds]
    if not all(isinstance(kind.get("number"), int) for kind in found):
        raise ValueError("every kind must have a number, got one without")
    return TrainingTable(
        columns, found, [_renamed(_object(text)) for text in facts], *(list(kept[name]) for name in NUMBERS)
    )


def _object(text: str) -> dict[str, Any]:
    found = parse_json(text)
    if not isinstance(found, dict):
        raise ValueError(f"kinds and facts must be objects, got {text[:40]!r}")
    return found


def _renamed(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts as `sensors.read_facts` calls them. Older tables counted new gains of norms, `fresh`, and used ones, `trained`."""
    if "fresh" not in facts:
        return facts
    new, used = facts.pop("fresh"), facts.pop("trained")
    return facts | {"depth": 1 if new + used else max(1, facts["matrices"]), "is_trained": used > new}


def merged(tables: Sequence[TrainingTable]) -> TrainingTable:
    """The rows of several tables with the same columns."""
    columns = tables[0].columns
    for table in tables:
        if table.columns != columns:
            raise ValueError(f"tables must have the same columns, got {columns} and {table.columns}: fit them apart")
    whole = TrainingTable(columns)
    for table in tables:
        for name in PARTS:
            getattr(whole, name).extend(getattr(table, name))
    return whole
