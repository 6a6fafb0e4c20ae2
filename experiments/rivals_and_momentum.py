"""What momentum adds to the rows of Table 1."""

from statistics import mean

from experiments import markdown, results
from mlrsnet.lab.report.numbers import difference_text


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
