"""Draws docs/pictures/lr_curves.png from committed records: `python docs/tools/pictures.py`."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "results" / "horizon_short" / "cifar-10"
ROWS = {
    "full-horizon": ("cifar10-patches, nothing tuned", "#000000", 2.4),
    "cosine-1": ("cosine, best LR of five", "#0072B2", 1.4),
    "cosine-0-1": ("cosine, the usual LR", "#E69F00", 1.4),
}


def draw(out: Path) -> None:
    """LR and test accuracy of three schedules of ResNet-18 on CIFAR-10, seed 0."""
    figure, (rates, accuracies) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for name, (label, colour, width) in ROWS.items():
        folder = RUNS / name / "seed0"
        trace = json.loads((folder / "trace.json").read_text())
        record = json.loads((folder / "record.json").read_text())
        lines = [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]
        steps = [step / record["steps_per_epoch"] for step in trace["step"]]
        rates.plot(steps, trace["lr"], color=colour, linewidth=width / 1.5, label=label)
        points = [(line["epoch"], line["test_metric"]) for line in lines if line.get("test_metric") is not None]
        accuracies.plot(*zip(*points, strict=True), color=colour, linewidth=width, label=label)
    rates.set(xlabel="epoch", title="learning rate")
    accuracies.set(xlabel="epoch", title="test accuracy (%)", ylim=(70, 95))
    accuracies.legend(frameon=False, loc="lower right")
    for axes in (rates, accuracies):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    draw(ROOT / "docs" / "pictures" / "lr_curves.png")
