"""What RTHO does with the LR of ResNet-18 on CIFAR-10 at the paper's hyper-LRs and at smaller LRs."""

import paper

from mlrsnet.lab import records
from mlrsnet.lab.records import Record
from mlrsnet.lab.report.numbers import metric_text, short_text

FOLDER = paper.RESULTS / "rtho"


def trainings() -> list[Record]:
    """From the largest LR and hyper-LR on; float32 after the same in bf16."""
    found = [records.read(path) for path in records.find(FOLDER)]
    return sorted(found, key=lambda run: (-run.spec["lr"], -hyper_lr(run), run.spec["precision"] == "fp32"))


def hyper_lr(run: Record) -> float:
    """The step along the slope."""
    return float(run.spec["schedule_options"]["hyper_lr"])


def first_at_zero(run: Record) -> float | None:
    """The first step whose LR is 0."""
    return next((step for step, lr in zip(run.trace["step"], run.trace["lr"], strict=True) if lr == 0), None)


def table() -> list[str]:
    """A row a training."""
    heads = ["LR", "hyper-LR", "first step at an LR of 0", "steps at 0 (%)", "largest LR", "LR at the end", "test (%)"]
    return [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}", *map(_line, trainings())]


def _line(run: Record) -> str:
    lrs, first = run.trace["lr"], first_at_zero(run)
    precision = ", float32" if run.spec["precision"] == "fp32" else ""
    cells = [
        f"{run.spec['lr']:g}",
        f"{hyper_lr(run):g}{precision}",
        "never" if first is None else f"{first:g}",
        f"{100 * lrs.count(0.0) / len(lrs):.0f}",
        short_text(max(lrs)),
        short_text(lrs[-1]),
        metric_text(run.result["last"]) if run.status == records.FINISHED else run.status,
    ]
    return f"| {' | '.join(cells)} |"
