"""What the LRs of the tuned decays were: which lie at the edge of their grid, and what the usual LR costs with momentum."""

from statistics import geometric_mean

from experiments import markdown, proof, results
from mlrsnet_lab.report.tables import Row

MOMENTUM_LRS = {"Linear 1x": "linear from 0.01", "Linear 10x": "linear from 0.1"}
"""Of SGD with momentum 0.9: what the tasks of `proof` call usual, and what the paper's Table 2 uses."""


def tuned(folder: str = proof.FOLDER) -> dict[str, tuple[str, dict[str, Row]]]:
    """The best decay of every task, and all its rows."""
    columns = {one.title: results.rows(folder, one.title) for one in results.columns(folder)}
    return {task: (best, rows) for task, rows in columns.items() if (best := proof.best_decay(rows))}


def edges(folder: str = proof.FOLDER) -> list[str]:
    """On which tasks the best decay has the smallest or the largest LR that was tried."""
    chosen = tuned(folder)
    found = [f"{task} ({best})" for task, (best, rows) in chosen.items() if proof.at_edge(best, rows)]
    where = f"on {len(found)} of {len(chosen)} tasks: {'; '.join(found)}" if found else "on no task"
    return [f"The best-tuned decay has the smallest or the largest LR of its grid {where}; x is the usual LR."]


def with_momentum(folder: str = proof.FOLDER) -> list[str]:
    """Linear decays of SGD with momentum from the usual LR, and from the paper's, which is ten times that; against the best."""
    lines, values = [], []
    for task, (best, rows) in tuned(folder).items():
        decay = results.ended(rows[best])
        pair = [proof.ratio(results.ended(rows[name]), decay) for name in MOMENTUM_LRS if name in rows]
        both = [one.value for one in pair if one]
        if decay[0].spec["optimizer"] == "sgdm" and len(both) == len(MOMENTUM_LRS):
            values.append(both)
            lines.append([task, best, *(f"{one:.2f}" for one in both)])
    if not lines:
        return results.NOTHING
    means = [f"**{geometric_mean(those):.2f}**" for those in zip(*values, strict=True)]
    table = markdown.table(["error / best-tuned decay's", "which is", *MOMENTUM_LRS.values()], lines)
    return [*table, markdown.line(["**geometric mean**", "", *means])]
