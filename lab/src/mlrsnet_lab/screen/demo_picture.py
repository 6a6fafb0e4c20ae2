"""The demo's picture."""

from collections.abc import Mapping
from pathlib import Path

import torch

from mlrsnet.schedule import Schedule
from mlrsnet_lab.demo import GREEDY, DemoRun


def draw(path: Path, runs: list[DemoRun], learned: Mapping[str, Schedule]) -> None:
    """Training loss, test accuracy and LR over the epochs, averaged over the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.4), layout="constrained")
    loss_axes, accuracy_axes, lr_axes = figure.subplots(1, 3)
    for name in dict.fromkeys(run.schedule for run in runs):
        those = [run for run in runs if run.schedule == name]
        epochs = min(len(run.test_accuracy) for run in those)  # a run that diverged is shorter
        style = {
            "label": name,
            "linewidth": 2.4 if name in learned else 1.3,
            "color": "black" if name in learned else None,
            "linestyle": "--" if name == GREEDY else "-",
        }
        loss = _mean([[line["train_loss"] for line in run.record.epochs] for run in those])
        lr = _mean([run.record.trace["lr"] for run in those])
        loss_axes.plot(range(1, epochs + 1), loss, **style)
        accuracy_axes.plot(range(1, epochs + 1), _mean([run.test_accuracy for run in those]), **style)
        lr_axes.plot(torch.arange(len(lr)) * epochs / len(lr), lr, **style)
    loss_axes.set(xlabel="epoch", ylabel="training loss", yscale="log")
    accuracy_axes.set(xlabel="epoch", ylabel="test accuracy (%)")
    lr_axes.set(xlabel="epoch", ylabel="LR", yscale="log", ylim=(1e-5, None))
    for axes in (loss_axes, accuracy_axes, lr_axes):
        axes.grid(alpha=0.3)
    accuracy_axes.legend(frameon=False)
    seeds = len({run.record.spec["seed"] for run in runs})
    told = "; ".join(f"{name}: learned on {schedule.card.name}" for name, schedule in learned.items())
    figure.suptitle(f"Digits 5 to 9, small CNN, SGD, mean of {seeds} {'seed' if seeds == 1 else 'seeds'}.  {told}")
    figure.savefig(path, dpi=130)


def _mean(curves: list[list[float]]) -> torch.Tensor:
    """The mean over seeds, up to the end of the shortest curve."""
    return torch.tensor([list(values) for values in zip(*curves, strict=False)]).mean(1)
