"""The schedule's network: an MLP moves more slowly than the paper's LSTM, and its trainings end better."""

from pathlib import Path

from experiments import results
from experiments.drawing import lrs, metrics, new, plain, save

LOOKS = {"LSTM": "#D55E00", "MLP": "#0072B2"}
LEARNED_ON = {
    "Meta-training: CIFAR-10": ("CIFAR-10, ResNet-18", "test accuracy (%)", (70, 95)),
    "Meta-training: Penn Treebank": ("Penn Treebank, 2-layer LSTM", "test perplexity", (75, 200)),
}
"""Column -> task, metric, and the range to show."""


def draw(out: Path) -> None:
    """LRs of Algorithm 1 with both networks, and test results, for every seed."""
    figure, panels = new(1, 4, (12, 3.2))
    for (column, (task, metric, limits)), (rates, outcomes) in zip(
        LEARNED_ON.items(), panels.reshape(2, 2), strict=True
    ):
        for row, colour in LOOKS.items():
            for run in results.runs("lstm_or_mlp_short", column, row):
                rates.plot(*lrs(run), color=colour, linewidth=1.2, label=row if run.spec["seed"] == 0 else None)
                outcomes.plot(*metrics(run), color=colour, linewidth=1.2)
        rates.set(xlabel="epoch", yscale="log")
        rates.set_title(f"{task}: LR", fontsize=9)
        outcomes.set(xlabel="epoch", ylim=limits)
        outcomes.set_title(metric, fontsize=9)
    panels[0].legend(frameon=False)
    for axes in panels:
        plain(axes)
    save(figure, out)
