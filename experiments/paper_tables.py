"""The paper's tables: Table 1 in detail, what momentum adds in Table 2, and the schedule's network, an LSTM or an MLP."""

from pathlib import Path
from statistics import mean

from experiments import markdown, results, side_by_side
from experiments.algorithm_1 import authors, meta_training
from experiments.drawing import lrs, metrics, new, plain, save
from mlrsnet_lab.recipes import table1 as recipe
from mlrsnet_lab.report.numbers import difference_text, metric_text, short_text

COLUMN, MULTISTEP, SGDR, MLR_SNET, LSTM = "CIFAR-10", "MultiStep", "SGDR", "MLR-SNet", "Universal LSTM"


def table1() -> list[str]:
    """The paper, ours at two scales, and what the authors' program wrote."""
    theirs = (
        f"The authors' program wrote {authors()['last']:.2f} at the last epoch, {authors()['best']:.2f} at the best"
    )
    return [
        *side_by_side.scales(COLUMN, "table1_paper", "table1_short"),
        "",
        f"{theirs} ([copied](../results/authors/meta-training.json)).",
    ]


def gaps() -> list[str]:
    """200 epochs, best first: points against MultiStep, last with last and best with best; meta-updates, LR at the end."""
    rows = results.rows("table1_paper", COLUMN)
    base = results.run("table1_paper", COLUMN, MULTISTEP).result
    lines = []
    for name in sorted(rows, key=lambda row: -results.run("table1_paper", COLUMN, row).result["last"]):
        run = results.run("table1_paper", COLUMN, name)
        learned = meta_training(run) if run.spec["schedule"] == "mlr-snet" else None
        result = [
            text
            for which in ("last", "best")
            for text in (metric_text(run.result[which]), difference_text(run.result[which] - base[which]))
        ]
        ends = [f"{learned.updates:,}" if learned else "", short_text(run.epochs[-1]["lr"])]
        lines.append([name, *result, *ends])
    heads = [
        "200 epochs, seed 0",
        "last epoch (%)",
        "against MultiStep's last",
        "best epoch (%)",
        "against MultiStep's best",
        "meta-updates",
        "LR at the end",
    ]
    return [*markdown.table(heads, lines), "", _behind()]


def against_sgdr() -> list[str]:
    """MLR-SNet against SGDR in the paper, and in ours: last with last, best with best."""
    theirs = {row: recipe.PAPER[COLUMN][row][0] for row in (SGDR, MLR_SNET)}
    lines = [["paper", *map(metric_text, theirs.values()), difference_text(theirs[MLR_SNET] - theirs[SGDR])]]
    for folder, name in (("table1_paper", "200 epochs"), ("table1_short", "60 epochs")):
        rows = results.rows(folder, COLUMN)
        for which in ("last", "best"):
            sgdr, ours = (results.last_mean(rows[row], which) for row in (SGDR, MLR_SNET))
            if sgdr is not None and ours is not None:
                gap = difference_text(ours - sgdr)
                lines.append([f"ours, {name}, {which} epoch", metric_text(sgdr), metric_text(ours), gap])
    return markdown.table(["test accuracy (%)", SGDR, MLR_SNET, "MLR-SNet against SGDR"], lines)


def _behind() -> str:
    """When `universal-lstm` has the lowest accuracy of all rows, and until when its LR is high."""
    rows = results.rows("table1_paper", COLUMN)
    own, *others = [results.run("table1_paper", COLUMN, row) for row in sorted(rows, key=lambda row: row != LSTM)]
    behind = [
        line["epoch"]
        for place, line in enumerate(own.epochs)
        if all(line["test_metric"] < other.epochs[place]["test_metric"] for other in others)
    ]
    first, last = longest(behind)
    high = max(line["epoch"] for line in own.epochs if line["lr"] > 0.5)
    return f"{LSTM} is below every other row from epoch {first} to {last}; its LR is above 0.5 until epoch {high}."


def longest(epochs: list[int]) -> tuple[int, int]:
    """The longest stretch without a gap.

    >>> longest([1, 4, 5, 6, 9])
    (4, 6)
    """
    starts = [epoch for epoch in epochs if epoch - 1 not in epochs]
    ends = [epoch for epoch in epochs if epoch + 1 not in epochs]
    return max(zip(starts, ends, strict=True), key=lambda stretch: stretch[1] - stretch[0])


TABLE1_LOOKS = {
    "Universal LSTM": ("#000000", 2.0),
    "Cosine from 1, warm-up": ("#E69F00", 1.4),
    "Cosine, warm-up": ("#F0C674", 1.4),
    "MLR-SNet, the authors' program": ("#009E73", 1.4),
    "MultiStep": ("#0072B2", 1.2),
    "Authors' checkpoints": ("#56B4E9", 1.2),
    "MLR-SNet, T_val 300": ("#CC79A7", 1.4),
    "MLR-SNet": ("#D55E00", 1.4),
    "SGDR": ("#BBBBBB", 1.0),
}


def draw_table1(out: Path) -> None:
    """LR and test accuracy over 200 epochs, seed 0."""
    figure, (rates, accuracies) = new(1, 2, (11, 4.2))
    for row, (colour, width) in TABLE1_LOOKS.items():
        run = results.run("table1_paper", COLUMN, row)
        rates.plot(*lrs(run), color=colour, linewidth=width, label=row)
        accuracies.plot(*metrics(run), color=colour, linewidth=width)
    rates.set(xlabel="epoch", title="learning rate", yscale="log", ylim=(1e-4, 10))
    accuracies.set(xlabel="epoch", title="test accuracy (%)", ylim=(70, 96))
    figure.legend(*rates.get_legend_handles_labels(), frameon=False, fontsize=9, loc="outside lower center", ncols=5)
    for axes in (rates, accuracies):
        plain(axes)
    save(figure, out)


def momentum() -> list[str]:
    """CIFAR-10, 60 epochs: Table 2, with momentum 0.9, less Table 1, without."""
    without, with_it = (results.rows(folder, "CIFAR-10") for folder in ("table1_short", "table2_short"))
    lines = []
    for name, row in with_it.items():
        plain, heavy = results.ended(without[name]), results.ended(row)
        gain = mean(results.last(heavy)) - mean(results.last(plain))
        best = mean(run.result["best"] for run in heavy) - mean(run.result["best"] for run in plain)
        outcomes = [results.outcome(without[name]), results.outcome(row)]
        lines.append([name, *outcomes, difference_text(gain), difference_text(best)])
    heads = [
        "CIFAR-10, 60 epochs",
        "plain SGD, 3 seeds (%)",
        "momentum 0.9, 1 seed (%)",
        "gain, last epoch",
        "gain, best epoch",
    ]
    return markdown.table(heads, lines)


NETWORK_LOOKS = {"LSTM": "#D55E00", "MLP": "#0072B2"}
LEARNED_ON = {
    "Meta-training: CIFAR-10": ("CIFAR-10, ResNet-18", "test accuracy (%)", (70, 95)),
    "Meta-training: Penn Treebank": ("Penn Treebank, 2-layer LSTM", "test perplexity", (75, 200)),
}
"""Column -> task, metric, and the range to show."""


def draw_networks(out: Path) -> None:
    """LRs of Algorithm 1 with both networks, and test results, for every seed."""
    figure, panels = new(1, 4, (12, 3.2))
    for (column, (task, metric, limits)), (rates, outcomes) in zip(
        LEARNED_ON.items(), panels.reshape(2, 2), strict=True
    ):
        for row, colour in NETWORK_LOOKS.items():
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
