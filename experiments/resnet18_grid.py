"""ResNet-18 on CIFAR-10, 30 epochs: learned schedules, untuned, beside cosine and linear decays over a grid of LRs."""

from pathlib import Path

from experiments import markdown, results
from experiments.drawing import lrs, metrics, new, plain, save
from mlrsnet_lab.recipes import horizon as recipe
from mlrsnet_lab.report.numbers import metric_stat
from mlrsnet_lab.report.tables import Row

COLUMN, OTHER = "CIFAR-10", "CIFAR-10, ResNet-18, SGD"
LARGEST = 3.0
"""An LR that was run with `universal-lstm`: 30 times the usual one."""


def table() -> list[str]:
    """Last epoch, mean ± deviation over seeds; one seed if there is no deviation."""
    grid, learned = results.rows("horizon_short", COLUMN), results.rows("universal_lstm_paper", OTHER)
    rates = [f"{lr:g}" for lr in (*recipe.GRID, LARGEST)]
    lines = []
    for kind in ("Cosine", "Linear"):
        found = [grid.get(f"{kind} {lr}") or learned.get(f"{kind} 30x") for lr in rates]
        lines.append([f"{kind.lower()} from an LR of", *map(_told, found)])
    ours = {"cifar10-patches": grid["Full horizon"], "universal-lstm": learned["Universal LSTM"]}
    lines += [[f"`{name}`, no LR to choose", _told(row), *[""] * (len(rates) - 1)] for name, row in ours.items()]
    return markdown.table(["test accuracy (%)", *rates], lines)


def _told(row: Row | None) -> str:
    return metric_stat(row.stat("last")) if row else results.NOT_RUN


LOOKS = {
    "Full horizon": ("cifar10-patches, nothing tuned", "#000000", 2.4),
    "Cosine 1": ("cosine, best LR of five", "#0072B2", 1.4),
    "Cosine 0.1": ("cosine, the usual LR", "#E69F00", 1.4),
}


def draw(out: Path) -> None:
    """LR and test accuracy of three schedules, seed 0."""
    figure, (rates, accuracies) = new(1, 2, (9, 3.2))
    for row, (label, colour, width) in LOOKS.items():
        run = results.run("horizon_short", COLUMN, row)
        rates.plot(*lrs(run), color=colour, linewidth=width / 1.5, label=label)
        accuracies.plot(*metrics(run), color=colour, linewidth=width, label=label)
    rates.set(xlabel="epoch", title="learning rate")
    accuracies.set(xlabel="epoch", title="test accuracy (%)", ylim=(70, 95))
    accuracies.legend(frameon=False, loc="lower right")
    for axes in (rates, accuracies):
        plain(axes)
    save(figure, out)
