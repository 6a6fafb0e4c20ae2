"""What the LRs of the tuned decays were, and which lie at the edge of their grid."""

from experiments import proof, results
from mlrsnet_lab.report.tables import Row


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
