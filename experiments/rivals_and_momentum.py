"""L4 and HD: the settings that validation chose and the LRs that follow; and what momentum adds to the rows of Table 1."""

from statistics import mean, median

from experiments import markdown, results
from experiments.markdown import span
from mlrsnet_lab import records
from mlrsnet_lab.records import Record
from mlrsnet_lab.report.numbers import difference_text, metric_text

TABLES = {
    "table1_short": ("CIFAR-10", "Table 1, 60 epochs"),
    "table2_short": ("CIFAR-10", "Table 2, 60 epochs"),
    "table3_short": ("2-layer LSTM", "Table 3, 20 epochs"),
}
OPTIONS = {"L4": "fraction", "HD": "hyper_lr"}


def rates() -> list[str]:
    """The setting, with the validation results of its trials; LRs as a range over seeds."""
    heads = [
        "",
        "setting",
        "trials: setting, validation",
        "median LR",
        "largest LR",
        "LR at the end",
        "last epoch (best)",
    ]
    lines = []
    for folder, (column, words) in TABLES.items():
        for row, option in OPTIONS.items():
            runs = results.runs(folder, column, row)
            if runs:
                cells = [_setting(runs[0], option), _trials(folder, column, row, option)]
                lines.append(
                    [f"{words}: {row}", *cells, *_rates(runs), results.outcome(results.rows(folder, column)[row])]
                )
    return markdown.table(heads, lines)


def _rates(runs: list[Record]) -> list[str]:
    return [
        span(median(run.trace["lr"]) for run in runs),
        span(max(run.trace["lr"]) for run in runs),
        span(run.epochs[-1]["lr"] for run in runs),
    ]


def _setting(run: Record, option: str) -> str:
    value = run.spec["schedule_options"].get(option)
    return "its authors'" if value is None else f"{option} {value:g}"


def _trials(folder: str, column: str, row: str, option: str) -> str:
    """Best first."""
    trials = results.rows(folder, f"{column}: {option} of {row}, {records.CHOSEN}").values()
    runs = [run for trial in trials for run in results.ended(trial)]
    sign = -1 if runs and runs[0].data["metric"]["better"] == "higher" else 1
    ranked = sorted(runs, key=lambda run: sign * (run.result.get("val_metric") or 0))
    return "; ".join(
        f"{run.spec['schedule_options'][option]:g}: {metric_text(run.result.get('val_metric'))}" for run in ranked
    )


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
