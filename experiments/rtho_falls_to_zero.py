"""RTHO: at the paper's LR and hyper-LRs the LR of ResNet-18 falls to 0 within a few steps."""

from experiments import markdown, results
from mlrsnet_lab import records
from mlrsnet_lab.records import Record
from mlrsnet_lab.report.numbers import metric_text, short_text

TRIALS = f"2-layer LSTM: hyper_lr of RTHO, {records.CHOSEN}"
HEADS = ["LR", "hyper-LR", "epochs", "first step at an LR of 0", "steps at 0 (%)", "largest LR", "LR at the end"]


def trainings() -> list[Record]:
    """ResNet-18 on CIFAR-10, from the largest LR and hyper-LR on; float32 after the same in bf16."""
    found = [run.record for run in results.report("rtho").runs]
    return sorted(found, key=lambda run: (-run.spec["lr"], -hyper_lr(run), run.spec["precision"] == "fp32"))


def hyper_lr(run: Record) -> float:
    """The step along the slope."""
    return float(run.spec["schedule_options"]["hyper_lr"])


def first_at_zero(run: Record) -> float | None:
    """The first recorded step whose LR is 0."""
    return next((step for step, lr in zip(run.trace["step"], run.trace["lr"], strict=True) if lr == 0), None)


def pictures() -> list[str]:
    """One row per training, and the one of the table of times."""
    timed = results.runs("time_short", "CIFAR-10", "RTHO")
    return markdown.table([*HEADS, "test (%)"], map(_line, [*trainings(), *timed]))


def text() -> list[str]:
    """RTHO's trials on Penn Treebank with 2 layers."""
    rows = results.rows("table3_short", TRIALS).values()
    return markdown.table([*HEADS, "test perplexity"], [_line(run) for row in rows for run in results.ended(row)])


def _line(run: Record) -> list[str]:
    rates, first = run.trace["lr"], first_at_zero(run)
    precision = ", float32" if run.spec["precision"] == "fp32" else ""
    return [
        f"{run.spec['lr']:g}",
        f"{hyper_lr(run):g}{precision}",
        str(run.spec["epochs"]),
        "never" if first is None else f"{first:g}",
        f"{100 * rates.count(0.0) / len(rates):.0f}",
        short_text(max(rates)),
        short_text(rates[-1]),
        metric_text(run.result["last"]) if run.status == records.FINISHED else run.status,
    ]
