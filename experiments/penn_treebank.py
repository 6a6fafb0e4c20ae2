"""Penn Treebank: the perplexity that the methods reach."""

from experiments import markdown, results
from mlrsnet.lab.recipes import table3 as recipe
from mlrsnet.lab.report.numbers import Stat, metric_stat


def table() -> list[str]:
    """Two layers: the paper's test perplexity and ours."""
    ours = [results.rows(folder, "2-layer LSTM") for folder in ("table3_paper", "table3_short")]
    lines = (
        [row, metric_stat(Stat(*two)), *(results.outcome(found.get(row)) for found in ours)]
        for row, (two, _) in recipe.PAPER.items()
    )
    return markdown.table(["", "paper, 150 epochs", "ours, 150 epochs", "ours, 20 epochs"], lines)
