"""The default before and after its core was rebuilt: both cores looking at the same training, and where trainings end."""

import math
from statistics import geometric_mean, mean, stdev
from typing import Any

from experiments import markdown, results
from experiments.proof import FOLDER, Ratio, last_error

WATCHED, ENDS = "lockstep/lockstep.json", "lockstep/ends.json"
"""LRs of both cores for the same steps; errors at the end of trainings under the old one, by row, task and seed."""

ROWS = {"Universal": "default", "Universal, validated": "default, validated"}


def watched() -> list[str]:
    """How far the LR of the new core is from that of the old one, which trains; one line for each network."""
    found = results.data(WATCHED)
    networks: dict[str, list[dict[str, Any]]] = {}
    for name, one in found["trainings"].items():
        networks.setdefault(name.rsplit(", ", 1)[0], []).append(one)
    lines = [
        [
            name,
            f"{of[0]['weights']:,}",
            f"{len(of)} x {of[0]['steps']}",
            f"{of[0]['sampled']:.0%}",
            f"{100 * mean(one['mean'] for one in of):.1f} %",
            f"{100 * max(one['worst'] for one in of):.1f} %",
        ]
        for name, of in networks.items()
    ]
    heads = ["new LR against the old one", "weights", "optimizers x steps", "matrices sampled", "mean", "worst step"]
    words = "; ".join(
        f"{kind}: {100 * one['mean']:.1f} % in the mean, {100 * one['worst']:.1f} % at worst"
        for kind, one in found["embedding"].items()
    )
    weights = next(iter(found["embedding"].values()))["weights"]
    return [
        *markdown.table(heads, lines),
        "",
        f"The running mean of |step| / |weights|, sampled against all entries, of an embedding of {weights / 1e6:.0f} million "
        f"weights and words as frequent as in a text: {words}.",
    ]


def ends() -> list[str]:
    """The same trainings under both cores. They part by themselves, so only their ends can be compared."""
    before = results.data(ENDS)["errors"]
    found = {
        row: {task: one for task in tasks if (one := _against(task, row, tasks[task]))} for row, tasks in before.items()
    }
    tasks = dict.fromkeys(task for row in found.values() for task in row)
    lines = [[task, *(row[task].text if task in row else "" for row in found.values())] for task in tasks]
    means = [f"**{geometric_mean([one.value for one in row.values()]):.3f}**" for row in found.values()]
    heads = ["error after / before", *(ROWS[row] for row in found)]
    return [*markdown.table(heads, lines), markdown.line(["**geometric mean**", *means])]


def _against(task: str, row: str, before: dict[str, float]) -> Ratio | None:
    """Seed by seed, over the seeds that both have."""
    rows = results.rows(FOLDER, task)
    logs = [
        math.log(last_error(run) / before[seed])
        for run in (results.ended(rows[row]) if row in rows else [])
        if (seed := str(run.spec["seed"])) in before
    ]
    return Ratio(math.exp(mean(logs)), stdev(logs) if len(logs) > 1 else None, len(logs)) if logs else None
