"""Fill a table: train every kind under every column. What is done is kept; the same call goes on."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlrsnet.facts import read_facts
from mlrsnet_lab import datasets
from mlrsnet_lab.executors import Crew, Done, Place, Work, here
from mlrsnet_lab.files.fallback import exists
from mlrsnet_lab.horizon.compute import Compute
from mlrsnet_lab.horizon.fitness import find_fitness
from mlrsnet_lab.horizon.pool import Pool
from mlrsnet_lab.horizon.task import Task
from mlrsnet_lab.lock import held_file
from mlrsnet_lab.signals import PoliteStop
from mlrsnet_lab.table.columns import Sizes, Sizing
from mlrsnet_lab.table.file import EDGES, TrainingRow, TrainingTable
from mlrsnet_lab.table.kinds import Kind

SAVE_SECONDS = 20.0

OnRow = Callable[[Kind, np.ndarray], None]


def fill(
    path: Path,
    kinds: Sequence[Kind],
    columns: Sequence[Sizing],
    *,
    device: str = "cpu",
    root: Path | None = None,
    seconds: float = float("inf"),
    on_row: OnRow | None = None,
    crew: Crew | None = None,
) -> TrainingTable:
    """Train the kinds that the table at `path` does not have yet, until `seconds` have passed.

    Args:
        path: of the file; made if it does not exist.
        kinds: the rows.
        columns: must be those of an existing file.
        device: where to train, unless there is a crew.
        root: where the data is.
        seconds: do not begin another training after this.
        on_row: called with each kind and its fitness, in the order in which they are done.
        crew: trains the rows, several at once; this process if None. See `Executor`.

    Raises:
        KeyboardInterrupt: on Ctrl-C or SIGTERM; what is done is saved. This process finishes the training in progress.
        RunInUseError: if another process fills the file.
    """
    names, begin = [str(column) for column in columns], time.monotonic()
    with held_file(path), PoliteStop() as stop:
        table = TrainingTable.load(path) if exists(path) else TrainingTable(names)
        if table.columns != names:
            raise ValueError(f"columns must be those of {path}, {table.columns}, got {names}: choose another file")
        missing = iter([kind for kind in kinds if kind.number not in table.numbers])
        place = datasets.data_root(root)

        def take() -> Work | None:
            kind = next(missing, None) if not stop.asked and time.monotonic() - begin <= seconds else None
            return None if kind is None else Work(str(kind.number), train_row, (kind, tuple(columns), place))

        _collect(table, here(take, device) if crew is None else crew.run(take), path, on_row)
    if stop.asked:
        raise KeyboardInterrupt
    return table


def _collect(table: TrainingTable, rows: Iterator[Done], path: Path, on_row: OnRow | None) -> None:
    """Keep the rows as they are done, and save them now and then, and at the end, whatever ends it."""
    saved, before = time.monotonic(), len(table)
    try:
        for done in rows:
            if done.lost is not None:
                raise done.lost
            table.add(done.value)
            if on_row is not None:
                on_row(done.work.arguments[0], done.value.fitness)
            if time.monotonic() - saved > SAVE_SECONDS:
                table.save(path)
                saved = time.monotonic()
    except BaseException:
        if len(table) > before:
            table.save(path)
        raise
    table.save(path)


def train_row(where: Place, kind: Kind, columns: Sequence[Sizing], root: Path) -> TrainingRow:
    """Train a kind under every column, in whichever process."""
    task, device = kind.task(root), torch.device(where.device)
    pool = Pool(lambda trainings: Sizes(columns, device), Compute(device))
    group = next(iter(pool.train([task], [torch.empty(len(columns), 0)], find_fitness("calibrated"))))
    trained = group.trained
    return TrainingRow(
        kind.to_dict(),
        _facts(task),
        torch.where(torch.isfinite(trained.fitness), trained.fitness, torch.inf).cpu().numpy(),
        _in_parts(trained.losses).cpu().numpy(),
    )


def _facts(task: Task) -> dict[str, Any]:
    """What is known before the training starts: of the weights, see `mlrsnet.law.Facts`, and of the data."""
    assert task.train is not None
    known = read_facts(weight for weight in task.fresh_model().parameters() if weight.requires_grad)
    return {
        **{name: getattr(known, name) for name in ("matrices", "parameters", "is_trained")},
        "depth": 1 if known.has_norms else known.depth,
        "epochs": task.total_steps * task.batch_size / len(task.train),
        "outputs": task.num_classes,
    }


def _in_parts(losses: Tensor) -> Tensor:
    """(trainings, parts) means between `EDGES`."""
    steps = losses.shape[1]
    places = [round(edge * steps) for edge in EDGES]
    parts = [losses[:, min(a, steps - 1) : max(b, a + 1)].mean(1) for a, b in pairwise(places)]
    return torch.stack(parts, dim=1)
