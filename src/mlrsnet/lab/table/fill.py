"""Fill a table: train every kind under every column. What is done is kept; the same call goes on."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mlrsnet._files.fallback import exists
from mlrsnet.baselines.hand_designed import factors
from mlrsnet.horizon.fitness import find_fitness
from mlrsnet.horizon.policies import Decays
from mlrsnet.horizon.pool import Pool
from mlrsnet.horizon.task import Task
from mlrsnet.lab import datasets
from mlrsnet.lab.executors import Crew, Done, Here, Place, Work
from mlrsnet.lab.lock import held_file
from mlrsnet.lab.signals import PoliteStop
from mlrsnet.lab.table.columns import Column
from mlrsnet.lab.table.facts import weight_facts
from mlrsnet.lab.table.file import EARLY, EDGES, Row, Table
from mlrsnet.lab.table.kinds import Kind

SAVE_SECONDS = 20.0
WARMUP = 0.05

OnRow = Callable[[Kind, np.ndarray], None]


def fill(
    path: Path,
    kinds: Sequence[Kind],
    columns: Sequence[Column],
    *,
    device: torch.device | str = "cpu",
    root: Path | None = None,
    seconds: float = float("inf"),
    on_row: OnRow | None = None,
    crew: Crew | None = None,
) -> Table:
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
        table = Table.load(path) if exists(path) else Table(names)
        if table.columns != names:
            raise ValueError(f"columns must be those of {path}, {table.columns}, got {names}: choose another file")
        missing = iter([kind for kind in kinds if kind.number not in table.numbers])
        place = datasets.data_root(root)

        def take() -> Work | None:
            kind = next(missing, None) if not stop.asked and time.monotonic() - begin <= seconds else None
            return None if kind is None else Work(str(kind.number), train_row, (kind, tuple(columns), place))

        crew = Crew(Here(str(device))) if crew is None else crew
        _collect(table, crew.run(take), path, on_row)
    if stop.asked:
        raise KeyboardInterrupt
    return table


def _collect(table: Table, rows: Iterator[Done], path: Path, on_row: OnRow | None) -> None:
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


def train_row(where: Place, kind: Kind, columns: Sequence[Column], root: Path) -> Row:
    """Train a kind under every column, in whichever process."""
    task, device = kind.task(root), torch.device(where.device)
    network = task.fresh_model()
    pool = Pool(lambda trainings: _policy(columns, task.total_steps, device), device)
    shape = torch.tensor(factors("linear", task.total_steps, 1, warmup=WARMUP))
    group = next(iter(pool.train([task], [shape.expand(len(columns), -1)], find_fitness("calibrated"))))
    trained, state = group.trained, group.training.population.state
    return Row(
        kind.to_dict(),
        {**weight_facts(p for p in network.parameters() if p.requires_grad), **_data_facts(task)},
        torch.where(torch.isfinite(trained.fitness), trained.fitness, torch.inf).cpu().numpy(),
        _in_parts(trained.losses).cpu().numpy(),
        torch.stack([state[f"early_{name}"] for name in EARLY], dim=1).cpu().numpy(),
    )


def _policy(columns: Sequence[Column], total_steps: int, device: torch.device) -> Decays:
    sizes = torch.tensor([column.size for column in columns], device=device)
    powers = torch.tensor([(column.fall, column.rise, column.wait) for column in columns], device=device)
    return Decays(sizes, powers, [column.structure for column in columns], total_steps)


def _data_facts(task: Task) -> dict[str, float]:
    assert task.train is not None
    return {"epochs": task.total_steps * task.batch_size / len(task.train), "outputs": task.num_classes}


def _in_parts(losses: Tensor) -> Tensor:
    """(trainings, parts) means between `EDGES`."""
    steps = losses.shape[1]
    places = [round(edge * steps) for edge in EDGES]
    parts = [losses[:, min(a, steps - 1) : max(b, a + 1)].mean(1) for a, b in pairwise(places)]
    return torch.stack(parts, dim=1)
