"""All that was trained to judge the default: the 18 tasks of the recipe `proof`, and the 13 kinds of `lab/studies/judge`."""

import math
from collections.abc import Collection
from pathlib import Path
from statistics import fmean, stdev

from experiments import drawing, judge, markdown, proof, results
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
    """By method: its logs on the tasks of the recipe, if all that the default has are done, and on the new kinds."""
    tasks, kinds = of_proof(), judge.logs(judge.read())
    own = tasks.get(NAMES[DEFAULT][0], {})
    found = {name: (_like(own, tasks.get(row, {})), kinds.get(method, {})) for name, (row, method) in NAMES.items()}
    return {name: logs for name, logs in found.items() if any(logs)}


def _like(own: Logs, others: Logs) -> Logs:
    """The tasks that the default has; none unless all of them are there."""
    return {task: others[task] for task in own} if own.keys() <= others.keys() else {}


def summary(names: Collection[str] = tuple(NAMES)) -> list[str]:
    """A line for each of these methods, over the tasks, the new kinds, and all."""
    found = {name: logs for name, logs in both().items() if name in names}
    if DEFAULT not in found:
        return results.NOTHING
    mine = found[DEFAULT]
    own = mine[0] | mine[1]
    lines = []
    for name, (tasks, kinds) in found.items():
        every = judge.summary(tasks | kinds)
        cells = [_cell(judge.summary(some)) if some else "" for some in (tasks, kinds)]
        whole = (
            [_cell(every), f"{every.worst:.2f}", f"{every.within} of {every.tasks}"] if tasks and kinds else [""] * 3
        )
        lines.append([name, *cells, *whole, "" if name == DEFAULT else against(own, tasks | kinds)])
    sizes = [f"{len(mine[0])} tasks", f"{len(mine[1])} new kinds"]
    heads = ["error / best-tuned decay's", *sizes, "all", "worst", "at most 1.05", "default / it"]
    return [
        *markdown.table(heads, lines),
        "",
        "Geometric means, with intervals of 95 % by draws of tasks and of their seeds. Last column: ± standard error over tasks, "
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


def short() -> list[str]:
    """Of the methods in the picture."""
    return summary(MARKS)


RIGHT = 1.6
MARKS = {
    DEFAULT: ("o", "tab:blue", 60),
    "default, not told losses": (".", "tab:cyan", 40),
    "AdamW for all, calibrated": ("x", "tab:red", 30),
    "cosine, usual LR": ("|", "black", 90),
    "Schedule-Free": ("^", "tab:green", 24),
    "Prodigy": ("s", "tab:orange", 20),
    "one relative size": ("+", "tab:purple", 40),
}
"""Form, colour and size in the picture."""


def draw(out: Path) -> None:
    """A line per training, the new kinds above, and a mark per method, against the best-tuned decay."""
    found = {name: [_means(logs) for logs in pair] for name, pair in both().items() if name in MARKS}
    groups = [sorted(means, key=means.__getitem__) for means in found[DEFAULT]]
    tasks = [task for group in groups for task in group]
    figure, axes = drawing.new(1, 1, (8.0, 0.24 * len(tasks) + 1.4))
    for name, (mark, colour, size) in MARKS.items():
        values = {task: value for means in found.get(name, []) for task, value in means.items()}
        places = [(min(values[task], RIGHT), y) for y, task in enumerate(tasks) if task in values]
        if places:
            axes.scatter(*zip(*places, strict=True), s=size, marker=mark, color=colour, label=name, zorder=3)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.axhline(len(groups[0]) - 0.5, color="grey", linewidth=0.5)
    axes.set_xscale("log")
    ticks = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, RIGHT)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(tasks)), tasks, fontsize=8)
    axes.set_xlabel(f"error / error of the best-tuned decay (left is better; beyond {RIGHT:g}: drawn there)")
    drawing.plain(axes)
    options = {"loc": "lower center", "bbox_to_anchor": (0.3, 1.0), "ncols": 4, "frameon": False, "fontsize": 8}
    axes.legend(columnspacing=1.2, handletextpad=0.2, **options)
    drawing.save(figure, out)


def _means(logs: Logs) -> dict[str, float]:
    return {task: math.exp(fmean(by_seed.values())) for task, by_seed in logs.items()}
