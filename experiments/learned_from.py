"""What the shipped full-horizon schedules were learned from, and how far learning took them."""

import math
from statistics import mean, median
from typing import Any

from experiments import markdown, results
from mlrsnet_lab.horizon.comparison import log_gaps

RECORDS = {
    "universal-lstm": "universal_lstm/universal-lstm.json",
    "cifar10-patches": "horizon/cifar10-patches.json",
}
UNIVERSAL = "universal-lstm"


def table() -> list[str]:
    """Generations, trainings and seconds; mean loss of held-out trainings before and after."""
    lines = []
    for name, path in RECORDS.items():
        record = results.data(path)
        spec, first, last = record["spec"], record["comparisons"][0], record["comparisons"][-1]
        before, after = _losses(first["learned"], last["learned"])
        lines.append(
            [
                f"`{name}`",
                f"{len(record['generations'])} of {spec['generations']}",
                str(spec["tasks"] * spec["members"]),
                f"{record['seconds']:.0f}",
                str(len(last["learned"])),
                before,
                f"{after}, at generation {last['number']}",
                f"{100 * last['summary']['gap to cosine, one LR chosen on these tasks']:+.1f} %",
                f"[record](../results/{path})",
            ]
        )
    heads = ["schedule", "generations", "trainings in each", "seconds on an H200", "held-out trainings"]
    return markdown.table([*heads, "mean loss before learning", "after", "against the best cosine", ""], lines)


def _losses(first: list[float | None], last: list[float | None]) -> tuple[str, str]:
    """Mean losses over the trainings that diverged in neither, and how many diverged."""
    both = [(one, two) for one, two in zip(first, last, strict=True) if one is not None and two is not None]
    told = []
    for found, side in zip((first, last), zip(*both, strict=True), strict=True):
        diverged = found.count(None)
        told.append(f"{mean(side):.4f}" + (f", {diverged} diverged" if diverged else ""))
    return told[0], told[1]


def progress() -> list[str]:
    """The meta-training of `universal-lstm`: mean and median gap to the best of 18 rivals of each held-out training."""
    record = results.data(RECORDS[UNIVERSAL])
    rivals = _rivals(record)
    best = [min(map(_number, found)) for found in zip(*rivals.values(), strict=True)]
    lines = [[str(one["number"]), _gap(one["learned"], best)] for one in record["comparisons"]]
    single = min(rivals, key=lambda name: mean(log_gaps([_number(one) for one in rivals[name]], best)))
    lines.append([f"the best LR for all, {single}", _gap(rivals[single], best)])
    return markdown.table(["mean, median gap after generation", UNIVERSAL], lines)


def _rivals(record: dict[str, Any]) -> dict[str, list[float | None]]:
    """Every rival's fitness on every held-out training."""
    rivals = record["rivals"]
    return {
        f"{kind} {lr:g}": [row[place] for row in rows]
        for kind, rows in rivals["fitness"].items()
        for place, lr in enumerate(rivals["grid"])
    }


def _gap(found: list[float | None], best: list[float]) -> str:
    each = log_gaps([_number(one) for one in found], best)
    return f"{mean(each):.3f}, {median(each):.3f}"


def _number(value: float | None) -> float:
    """A record's number; a training that diverged has none."""
    return float(value) if isinstance(value, int | float) else math.inf
