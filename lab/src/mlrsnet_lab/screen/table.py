"""`mlrsnet table` on a terminal: a line per training, a line per law."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mlrsnet_lab import checks
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.table.columns import grid
from mlrsnet_lab.table.compare import compare
from mlrsnet_lab.table.file import TrainingTable, merged
from mlrsnet_lab.table.fill import fill
from mlrsnet_lab.table.kinds import FAMILIES, Kind, draw


def show_fill(
    file: Path,
    settings: Settings,
    *,
    first: int,
    rows: int,
    horizons: tuple[int, int],
    families: Sequence[str] | None,
    seconds: float | None,
) -> None:
    """Fill a table, with a line for each training."""
    chosen = [checks.one_of("families", family, FAMILIES) for family in families or FAMILIES]
    checks.whole_number("rows", rows)
    columns = grid()
    names = [str(column) for column in columns]

    def tell(kind: Kind, fitness: np.ndarray) -> None:
        best = int(fitness.argmin())
        what = f"{kind.number:>6} {kind.family:12} {kind.optimizer:6} {kind.total_steps:>6} steps"
        print(f"{what}  best {fitness[best]:.3f} at {names[best]}", flush=True)

    limit = float("inf") if seconds is None else checks.positive("seconds", seconds)
    kinds = [draw(number, horizons=horizons, families=chosen) for number in range(first, first + rows)]
    try:
        with settings.executor.crew(settings.device) as crew:
            table = fill(
                file,
                kinds,
                columns,
                device=settings.device,
                root=settings.root,
                seconds=limit,
                on_row=tell,
                crew=crew,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command continues where it stopped") from None
    print(f"{len(table)} trainings x {len(columns)} columns: {file}")


def show_laws(files: Sequence[Path]) -> None:
    """Every law, its mean and median gap on families it was not fitted on, and its exponents."""
    table = merged([TrainingTable.load(file) for file in files])
    print(f"{len(table)} trainings\n{'mean':>7} {'median':>7} {'worst':>7}  law")
    for law in compare(table):
        print(f"{law.mean:7.4f} {law.median:7.4f} {law.worst:7.2f}  {law.name}{law.in_words()}")
