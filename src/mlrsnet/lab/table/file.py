"""The table as one compact file."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlrsnet._files.storage import write_atomically

EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)
"""Between which shares of the training the mean loss is kept."""

EARLY = ("cosine", "growth", "x")
"""Early observations; see `horizon.measured`."""


@dataclass
class Table:
    """Rows are trainings, columns are sizes of steps.

    columns: as `Column` writes them. kinds: what decides each training. facts: what is known before it starts.
    fitness: (rows, columns) at the end, on held-out data; infinite where it diverged. losses: (rows, columns, parts) mean
    training loss between `EDGES`. early: (rows, columns, 3), see `EARLY`, at a tenth of the training.
    """

    columns: list[str]
    kinds: list[dict[str, Any]] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    fitness: list[np.ndarray] = field(default_factory=list)
    losses: list[np.ndarray] = field(default_factory=list)
    early: list[np.ndarray] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def numbers(self) -> set[int]:
        """The kinds that are done."""
        return {kind["number"] for kind in self.kinds}

    def save(self, path: Path) -> None:
        """Write the file, atomically."""
        file = io.BytesIO()
        np.savez_compressed(
            file,
            columns=np.array(self.columns),
            kinds=np.array([json.dumps(kind) for kind in self.kinds], dtype=str),
            facts=np.array([json.dumps(fact) for fact in self.facts], dtype=str),
            fitness=np.array(self.fitness, dtype=np.float32),
            losses=np.array(self.losses, dtype=np.float32),
            early=np.array(self.early, dtype=np.float32),
        )
        write_atomically(path, file.getvalue())

    @classmethod
    def load(cls, path: Path) -> "Table":
        """Read the file. It holds numbers and text only."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as kept:
                return cls(
                    kept["columns"].tolist(),
                    [json.loads(kind) for kind in kept["kinds"]],
                    [json.loads(fact) for fact in kept["facts"]],
                    *(list(kept[name]) for name in ("fitness", "losses", "early")),
                )
        except FileNotFoundError:
            raise
        except Exception as error:  # a file that is not an .npz can fail in any way
            raise ValueError(f"{path} is not a table ({type(error).__name__}: {error}): make it again") from None


def merged(tables: Sequence[Table]) -> Table:
    """The rows of several tables with the same columns."""
    columns = tables[0].columns
    for table in tables:
        if table.columns != columns:
            raise ValueError(f"tables must have the same columns, got {columns} and {table.columns}: fit them apart")
    whole = Table(columns)
    for table in tables:
        for name in ("kinds", "facts", "fitness", "losses", "early"):
            getattr(whole, name).extend(getattr(table, name))
    return whole
