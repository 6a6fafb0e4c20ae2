"""Penn Treebank: which LRs the methods use, and the perplexity that they reach."""

from statistics import median

from experiments import markdown, results
from experiments.markdown import span
from mlrsnet_lab.recipes import table3 as recipe
from mlrsnet_lab.report.numbers import Stat, metric_stat
from mlrsnet_lab.report.tables import Row

SOURCES = {
    "table3_paper": ("2-layer LSTM", "2 layers, 150 epochs"),
    "table3_short": ("2-layer LSTM", "2 layers, 20 epochs"),
    "lstm_or_mlp_short": ("Meta-training: Penn Treebank", "2 layers, 20 epochs, schedule network"),
    "transfer_short": ("Penn Treebank, 3-layer LSTM", "3 layers, 20 epochs"),
}
"""Folder -> its column, in words."""


def table() -> list[str]:
    """Two layers: the paper's test perplexity and ours."""
    ours = [results.rows(folder, "2-layer LSTM") for folder in ("table3_paper", "table3_short")]
    lines = (
        [row, metric_stat(Stat(*two)), *(results.outcome(found.get(row)) for found in ours)]
        for row, (two, _) in recipe.PAPER.items()
    )
    return markdown.table(["", "paper, 150 epochs", "ours, 150 epochs", "ours, 20 epochs"], lines)


def rates() -> list[str]:
    """LRs over the epochs, as a range over seeds."""
    heads = ["", "seeds", "LR at the start", "after 20 steps", "after 5 epochs", "after 10", "after 50", "at the end"]
    heads += ["median", "largest", "test perplexity (best)"]
    found = [
        (words, row) for folder, (column, words) in SOURCES.items() for row in results.rows(folder, column).values()
    ]
    return markdown.table(heads, [_line(words, row) for words, row in found])


def _line(words: str, row: Row) -> list[str]:
    runs = results.ended(row)
    early = [
        [lr for step, lr in zip(run.trace["step"], run.trace["lr"], strict=True) if 0 < step <= 20] for run in runs
    ]
    cells = [
        span(run.trace["lr"][0] for run in runs),
        span(lr for found in early for lr in found[-1:]),
        *(span(results.lr_at(run, epoch) for run in runs) for epoch in (5, 10, 50)),
        span(run.epochs[-1]["lr"] for run in runs),
        span(median(run.trace["lr"]) for run in runs),
        span(max(run.trace["lr"]) for run in runs),
    ]
    return [f"{words}: {row.name}", str(len(runs)), *cells, results.outcome(row)]
