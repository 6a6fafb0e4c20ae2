"""Train small MLPs on tables of R under every column. Ctrl-C stops it; the same command goes on."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from lab.studies.rows import r_tables
from mlrsnet_lab.datasets import data_root
from mlrsnet_lab.horizon import Data
from mlrsnet_lab.horizon.sampler import log_uniform, pick
from mlrsnet_lab.horizon.seeds import generator
from mlrsnet_lab.table.columns import grid
from mlrsnet_lab.table.fill import fill
from mlrsnet_lab.table.kinds import Kind, draw_mlp
from mlrsnet_lab.universal import DECAYS, OPTIMIZERS, OTHER_DECAYS


@dataclass(frozen=True)
class RowKind(Kind):
    """A training on a table of R; `source` is its name."""

    def data(self, root: Path | None = None) -> Data:
        """See `Kind`."""
        return r_tables.load(self.source, data_root(root))


def draw(number: int, horizons: tuple[int, int]) -> RowKind:
    """A small table, and what people train on one."""
    random = generator("table", number)
    optimizer = pick(OPTIMIZERS, random)
    return RowKind(
        number,
        "rows",
        tuple(r_tables.TABLES)[number % len(r_tables.TABLES)],
        draw_mlp(random, (1, 1, 2, 3), ("none", "none", "batch", "layer")),
        optimizer,
        log_uniform(*horizons, random),
        pick((8, 16, 32, 64), random),
        log_uniform(100, 5000, random),
        weight_decay=pick(DECAYS.get(optimizer, OTHER_DECAYS), random),
        seed=int(torch.randint(2**31, (), generator=random)),
    )


def main() -> None:
    """Fill the table."""
    parser = argparse.ArgumentParser(prog="python -m lab.studies.rows", description=__doc__)
    parser.add_argument("file", type=Path, help="an .npz file; made if it does not exist")
    parser.add_argument("--first", type=int, default=20_400, help="number of the first training")
    parser.add_argument("--rows", type=int, default=136, help="trainings in all")
    parser.add_argument("--horizons", type=int, nargs=2, default=(50, 2000), help="fewest and most steps")
    parser.add_argument("--data", type=Path, help="where the data is")
    words = parser.parse_args()
    kinds = [draw(number, tuple(words.horizons)) for number in range(words.first, words.first + words.rows)]
    fill(words.file, kinds, grid(), root=words.data, on_row=lambda kind, fitness: print(kind.number, fitness.min()))


if __name__ == "__main__":
    main()
