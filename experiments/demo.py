"""The demo: a schedule learned on the digits 0 to 4, used on 5 to 9."""

from statistics import mean, stdev

from experiments import markdown, results
from mlrsnet_lab.recipes.demo import COLUMN
from mlrsnet_lab.report.numbers import metric_stat

KINDS = {"cosine": "cosine, 5 % warm-up", "linear": "linear, 5 % warm-up", "fixed": "fixed"}


def comparison() -> list[str]:
    """Small CNNs on the digits 5 to 9: test accuracy of the last epoch over five seeds."""
    lines = []
    for name, row in results.rows("demo", COLUMN).items():
        spec = results.ended(row)[0].spec
        lr = "-" if spec["schedule"] == "learned" else f"{spec['lr']:g}"
        lines.append([name, lr, metric_stat(row.stat("last"))])
    return markdown.table(["schedule", "initial LR", "test accuracy (%)"], lines)


def small_trainings() -> list[str]:
    """48 small trainings on the digits 5 to 9: mean validation loss, and the learned schedule's difference to each rival."""
    record = results.data("demo/horizon.json")
    first, last, rivals = record["comparisons"][0]["learned"], record["comparisons"][-1]["learned"], record["rivals"]
    lines = [["Full horizon, nothing to choose", f"{mean(last):.4f}", "", ""]]
    lines.append(["the same before learning", f"{mean(first):.4f}", _difference(last, first), ""])
    for kind, name in KINDS.items():
        place, fitness = rivals["grid"].index(rivals["tuned_lr"][kind]), rivals["fitness"][kind]
        tuned, oracle = [row[place] for row in fitness], list(map(min, fitness))
        lines.append([name, f"{mean(tuned):.4f}", _difference(last, tuned), f"{mean(oracle):.4f}"])
    heads = ["schedule", "mean validation loss", "learned minus this, ± standard error", "best LR for each training"]
    about = f"Learned in {record['seconds']:.0f} seconds from {record['spec']['generations']} generations, 1 CPU core."
    return [*markdown.table(heads, lines), "", f"{about} [Record](../results/demo/horizon.json)."]


def _difference(mine: list[float], rival: list[float]) -> str:
    each = [one - other for one, other in zip(mine, rival, strict=True)]
    return f"{mean(each):+.4f} ± {stdev(each) / len(each) ** 0.5:.4f}"
