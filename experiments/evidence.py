"""All that was trained to judge the default: the 18 tasks of the recipe `proof`, and the 13 kinds of `lab/studies/judge`."""

import math
from statistics import fmean, stdev

from experiments import judge, markdown, proof, results
from experiments.judge import Logs, Summary
from mlrsnet_lab.recipes.proof import UNTOLD

DEFAULT = "default"
NAMES = {
    DEFAULT: ("Universal", "default"),
    "default, not told losses": (UNTOLD, "default without losses"),
    "default, told batch and model, too": ("", "default told more"),
    "the law before": ("", "the law before"),
    "one relative size": ("One relative size", "one relative size"),
    "AdamW for all, calibrated": ("Calibrated AdamW", "calibrated AdamW"),
    "own optimizer, calibrated": ("Calibrated", "calibrated"),
    "cosine, usual LR": (proof.USUAL, "cosine 1x"),
    "Schedule-Free": ("Schedule-Free", "Schedule-Free"),
    "Prodigy": ("Prodigy", "Prodigy"),
    "AdamH": ("AdamH", "AdamH"),
    "ScheduleFree+": ("ScheduleFree+", "ScheduleFree+"),
    "Mechanic": ("Mechanic", "Mechanic"),
    "L-DoG": ("L-DoG", "L-DoG"),
    "D-Adaptation": ("D-Adaptation", "D-Adaptation"),
}
"""In tables, in the recipe, and in the study."""


def of_proof() -> dict[str, Logs]:
    """By row, task and seed: log(error / error of the best-tuned decay)."""
    found: dict[str, Logs] = {}
    for one in results.columns(proof.FOLDER):
        rows = results.rows(proof.FOLDER, one.title)
        tuned = proof.best_decay(rows)
        if tuned is None:
            continue
        decay = results.ended(rows[tuned])
        for name, row in rows.items():
            if logs := proof.logs(results.ended(row), decay):
                found.setdefault(name, {})[one.title] = logs
    return found


def both() -> dict[str, tuple[Logs, Logs]]:
    """By method: its logs on the tasks of the recipe, and on the new kinds; without those that have neither."""
    tasks, kinds = of_proof(), judge.logs(judge.read())
    found = {name: (tasks.get(row, {}), kinds.get(method, {})) for name, (row, method) in NAMES.items()}
    return {name: logs for name, logs in found.items() if any(logs)}


def summary() -> list[str]:
    """A line for each method, over the tasks, the new kinds, and all."""
    found = both()
    if DEFAULT not in found:
        return results.NOTHING
    own = found[DEFAULT][0] | found[DEFAULT][1]
    lines = []
    for name, (tasks, kinds) in found.items():
        every = judge.summary(tasks | kinds)
        cells = [_cell(judge.summary(some)) if some else "" for some in (tasks, kinds)]
        whole = (
            [_cell(every), f"{every.worst:.2f}", f"{every.within} of {every.tasks}"] if tasks and kinds else [""] * 3
        )
        lines.append([name, *cells, *whole, "" if name == DEFAULT else against(own, tasks | kinds)])
    heads = ["error / best-tuned decay's", "18 tasks", "13 new kinds", "all", "worst", "at most 1.05", "default / it"]
    return [
        *markdown.table(heads, lines),
        "",
        "Geometric means, with intervals of 95 % by draws of tasks and of their seeds. The last column: ± standard error over tasks, "
        "and on how many the default is better.",
    ]


def against(own: Logs, others: Logs) -> str:
    """The error of one method divided by another's, on tasks and seeds that both have."""
    logs = [
        fmean(own[task][seed] - others[task][seed] for seed in seeds)
        for task in own
        if (seeds := own[task].keys() & others.get(task, {}).keys())
    ]
    if len(logs) < 2:
        return ""
    error = stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(fmean(logs)):.3f} ± {error:.3f} ({sum(log < 0 for log in logs)} of {len(logs)})"


def _cell(one: Summary) -> str:
    return f"{one.mean:.3f} ({one.low:.2f} to {one.high:.2f})"
