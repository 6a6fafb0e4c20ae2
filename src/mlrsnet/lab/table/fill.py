"""Fill a table: train every kind under every column, one kind at a time. What is done is kept; the same call goes on."""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mlrsnet.baselines.hand_designed import factors
from mlrsnet.horizon.fitness import find_fitness
from mlrsnet.horizon.policies import Decays
from mlrsnet.horizon.pool import Pool
from mlrsnet.horizon.task import Task
from mlrsnet.lab.table.columns import Column
from mlrsnet.lab.table.facts import weight_facts
from mlrsnet.lab.table.file import EARLY, EDGES, Table
from mlrsnet.lab.table.kinds import Kind

SAVE_SECONDS = 20.0
WARMUP = 0.05


def fill(
    path: Path,
    kinds: Sequence[Kind],
    columns: Sequence[Column],
    *,
    device: torch.device | str = "cpu",
    root: Path | None = None,
    seconds: float = float("inf"),
    on_row: Callable[[Kind, np.ndarray], None] | None = None,
) -> Table:
    """Train the kinds that the table at `path` does not have yet, until `seconds` have passed.

    Args:
        path: of the file; made if it does not exist.
        kinds: the rows.
        columns: must be those of an existing file.
        device: where to train.
        root: where the data is.
        seconds: do not begin another training after this.
        on_row: called with each kind and its fitness.
    """
    names, begin = [str(column) for column in columns], time.monotonic()
    table = Table.load(path) if path.is_file() else Table(names)
    if table.columns != names:
        raise ValueError(f"columns must be those of {path}, {table.columns}, got {names}: choose another file")
    saved = begin
    for kind in kinds:
        if kind.number in table.numbers:
            continue
        if time.monotonic() - begin > seconds:
            break
        _add_row(table, kind, columns, torch.device(device), root)
        if on_row is not None:
            on_row(kind, table.fitness[-1])
        if time.monotonic() - saved > SAVE_SECONDS:
            table.save(path)
            saved = time.monotonic()
    table.save(path)
    return table


def _add_row(table: Table, kind: Kind, columns: Sequence[Column], device: torch.device, root: Path | None) -> None:
    task = kind.task(root)
    network = task.fresh_model()
    pool = Pool(lambda trainings: _policy(columns, task.total_steps, device), device)
    shape = torch.tensor(factors("linear", task.total_steps, 1, warmup=WARMUP))
    group = next(iter(pool.train([task], [shape.expand(len(columns), -1)], find_fitness("calibrated"))))
    trained, state = group.trained, group.training.population.state
    table.kinds.append(kind.to_dict())
    table.facts.append({**weight_facts(p for p in network.parameters() if p.requires_grad), **_data_facts(task)})
    table.fitness.append(torch.nan_to_num(trained.fitness, nan=torch.inf).cpu().numpy())
    table.losses.append(_in_parts(trained.losses).cpu().numpy())
    table.early.append(torch.stack([state[f"early_{name}"] for name in EARLY], dim=1).cpu().numpy())


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
