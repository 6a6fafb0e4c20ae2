"""Fresh trainings, steered at every mark by policies that were fitted without their family, within [1/4, 4] in all.

Policies that have decided the same so far share their training.
"""

import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.studies.forks import fit
from lab.studies.forks.fill import FACTORS, MARKS, marks
from lab.studies.forks.sensors import sensed
from lab.studies.forks.training import Row, Training, drawn

LOW, HIGH = 0.25, 4.0

LEARNED = {
    "facts": ("coarse", "fine"),
    "one sensor": ("fine",),
    "facts and sensors": ("coarse", "fine"),
    "facts, direct": ("fine", "fine at 0.05"),
    "one sensor, direct": ("fine", "fine at 0.05"),
    "facts and sensors, direct": ("coarse", "fine", "fine at 0.02", "fine at 0.05"),
    "facts and sensors, smooth, direct": ("fine", "fine at 0.05"),
}
"""Forms of `fit`, and how they choose: at every mark, or at one."""

FIRST = "facts and sensors, direct | fine at 0.05"
"""The policy that counts: named after a fit to 149 rows, before ends of steered trainings were seen. Others are for the record."""

Policy = Callable[[float, Row, dict[str, float]], float]
"""The factor at a mark: of its share, the row, and its sensors."""


def once(factor: float, share: float, row: Row, sensors: dict[str, float]) -> float:
    """The same factor for every training, from the first mark on."""
    return factor if share == MARKS[0] else 1.0


def foretelling(models: dict[float, fit.Foretold], kind: str, share: float, row: Row, sensors: Any) -> float:
    """The factor that is foretold to end best."""
    how, _, mark = kind.partition(" at ")
    if mark and float(mark) != share:
        return 1.0
    model = models[share]
    x = np.array([fit.known(row, sensors, model.names)])
    return float(2.0 ** fit.best(model(x), how == "fine")[0])


@cache
def fitted(path: Path, family: str) -> dict[str, Policy]:
    """Policies that have not seen a family."""
    rows = [row for row in fit.read(path) if row["family"] != family]
    tables = [fit.Table(rows, share) for share in MARKS]
    found: dict[str, Policy] = {}
    for name, kinds in LEARNED.items():
        models = {
            table.share: fit.chosen(table, fit.forms(table)[name], np.arange(len(table.rows))) for table in tables
        }
        found |= {f"{name} | {kind}": partial(foretelling, models, kind) for kind in kinds}
    return found


def steered(training: Training, row: Row, policies: dict[str, Policy]) -> dict[str, Any]:
    """The end of a training under each policy, and what it had multiplied LRs by after each mark."""
    nodes: dict[tuple[float, ...], Training] = {(): training}
    history: dict[str, tuple[float, ...]] = dict.fromkeys(policies, ())
    for share, step in marks(training.plan.steps).items():
        seen: dict[tuple[float, ...], dict[str, float]] = {}
        for key, node in nodes.items():
            node.run(step)
            seen[key] = {} if node.is_lost else sensed(node)
        after: dict[tuple[float, ...], Training] = {}
        for name, key in history.items():
            node, before = nodes[key], nodes[key].scale
            factor = policies[name](share, row, seen[key]) if seen[key] else 1.0
            factor = min(max(factor, LOW / before), HIGH / before)
            history[name] = (*key, before * factor)
            if history[name] not in after:
                after[history[name]] = node.fork(factor, watches=True)
        nodes = after
    ends = {key: node.judged() for key, node in nodes.items()}
    return {name: {"scales": key, "end": ends[key]} for name, key in history.items()}


def steer_row(path: Path, number: int, folder: Path) -> Row:
    """A row under all policies."""
    begin = time.perf_counter()
    row, task, plan = drawn(number, folder)
    policies: dict[str, Policy] = {str(factor): partial(once, factor) for factor in (1.0, *FACTORS)}
    training = Training(task, plan, row["size"], watches=True)
    ends = steered(training, row, policies | fitted(path, row["family"]))
    return row | {"policies": ends, "seconds": time.perf_counter() - begin}
