"""Rows of trainings and their forks, written one a line by several processes."""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from lab.studies.forks.sensors import sensed
from lab.studies.forks.training import Row, Training, drawn

MARKS = (0.02, 0.05, 0.2, 0.5)
FACTORS = (0.5, 2.0)
NEARLY, NEARLY_AT = 1.01, 0.2
"""A fork that should make no difference: by how much ends differ by chance alone."""

FEWEST = 2
"""Steps before a fork: `sensors` needs the last two."""

Work = Callable[[int, Path], Row]


def marks(steps: int) -> dict[float, int]:
    """The step of each mark.

    >>> marks(60)
    {0.02: 2, 0.05: 3, 0.2: 12, 0.5: 30}
    """
    return {share: max(FEWEST, round(share * steps)) for share in MARKS}


def fill_row(number: int, folder: Path) -> Row:
    """A training, and at each mark its sensors and the ends of its forks."""
    begin = time.perf_counter()
    row, task, plan = drawn(number, folder)
    training = Training(task, plan, row["size"], watches=True)
    found: dict[str, Any] = {}
    for share, step in marks(plan.steps).items():
        training.run(step)
        if training.is_lost:
            break
        factors = (*FACTORS, NEARLY) if share == NEARLY_AT else FACTORS
        found[str(share)] = {
            "step": step,
            "sensors": sensed(training),
            "ends": {str(factor): training.fork(factor).judged() for factor in factors},
        }
    end = training.judged()
    return row | {"end": end, "marks": found, "seconds": time.perf_counter() - begin}


def fill(work: Work, folder: Path, out: Path, rows: Sequence[int], workers: int, seconds: float) -> None:
    """Add the rows that `out` does not have yet, one a line, until so many seconds have passed."""
    done = {json.loads(line)["number"] for line in out.read_text().splitlines()} if out.is_file() else set()
    left = [number for number in rows if number not in done]
    job = partial(_in_time, work, folder, time.time() + seconds)
    with get_context("spawn").Pool(workers) as pool, out.open("a") as file:
        for row in pool.imap_unordered(job, left):
            if row is not None:
                file.write(json.dumps(row) + "\n")
                file.flush()


def _in_time(work: Work, folder: Path, end: float, number: int) -> Row | None:
    if time.time() > end:
        return None
    torch.set_num_threads(1)
    try:
        return work(number, folder)
    except Exception as error:
        return {"number": number, "failed": f"{type(error).__name__}: {error}"}
