"""Tables of finished studies, from their records. The programs that measured are at commit 96fdb0853c23, under `experiments/`."""

import math
from statistics import fmean

from experiments import markdown, results
from mlrsnet_lab.recipes import table3
from mlrsnet_lab.report.numbers import short_text

OBJECTIVES = (
    "before learning",
    "the end of whole trainings",
    "the first quarter of trainings, four times as many",
    "one step ahead (Algorithm 1)",
)
"""In the order of the record."""


def objectives() -> list[str]:
    """Mean loss of held-out trainings, and the LR curve that was learned."""
    record = results.data("horizon/greedy_against_horizon.json")
    lines = []
    for name, row in zip(OBJECTIVES, record["rows"], strict=True):
        lrs, gap = row["lrs"], 100 * row["gap to cosine, one LR chosen on these tasks"]
        curve = f"{lrs[0]:.2f}, {lrs[len(lrs) // 2]:.2f}, {lrs[-1]:.3f}"
        spent = f"{row['gradients'] / 1e6:.2f} million" if "gradients" in row else ""
        lines.append([name, spent, f"{row['mean fitness']:.4f}", f"{gap:+.1f} %", curve])
    heads = ["learned from", "gradients", "mean validation loss", "gap to the best cosine"]
    return markdown.table([*heads, "LR at the start, halfway, at the end"], lines)


def variants() -> list[str]:
    """Mean and median gap before and after learning; and of one LR for all trainings."""
    record = results.data("universal_lstm/variants-h200.json")
    lines = []
    for name, variant in record["variants"].items():
        found = {line["generations"]: _mean_and_median(line) for line in variant["comparisons"]}
        lines.append([name, variant["about"].replace("|", r"\|"), found[0], found.get(25, "")])
    for name in ("linear 0.3", "linear 1", "linear 3"):
        lines.append([name, "one LR for all, 5 % warm-up", _mean_and_median(record["one LR for all"][name]), ""])
    heads = ["variant", "reads, and its range", "mean, median gap before learning", "after 25 generations"]
    return markdown.table(heads, lines)


def _mean_and_median(line: dict[str, float]) -> str:
    return f"{line['mean']:.3f}, {line['median']:.3f}"


def validation() -> list[str]:
    """Learned against not learned, seeing against blind."""
    record, own = results.data("universal_lstm/validation-cpu.json"), "universal-lstm"
    pairs = {
        f"`{own}` against linear from 1": record["gap to linear"][own],
        f"`{own}` against its start": record["gap to start"][own],
        f"`{own}` against blind": record["gap to blind"][own],
        "blind against linear from 1": record["gap to linear"]["blind"],
    }
    lines = []
    for name, one in pairs.items():
        gap = f"{one['mean']:+.4f} ± {one['standard error']:.4f}"
        lines.append([name, gap, f"{one['median']:+.4f}", f"{100 * one['at least as good']:.0f} %"])
    return markdown.table(["", "mean gap, negative is better", "median", "trainings at least as good"], lines)


CLEARLY = 0.05
"""The difference of log losses from which one is clearly better."""


def over_fitting() -> list[str]:
    """Each arm against the cosine at its last epoch, over all trainings."""
    runs = results.data("over_fitting/cpu.json")["trainings"]
    lines = []
    for place, what in enumerate(("last epoch", "epoch with the lowest validation loss")):
        for arm in ("cosine, usual LR", "default", "default, validated"):
            logs = [math.log(run["losses"][arm][place] / run["losses"]["cosine, usual LR"][0]) for run in runs]
            better, worse = sum(log < -CLEARLY for log in logs), sum(log > CLEARLY for log in logs)
            shares = [f"{100 * number / len(logs):.0f}%" for number in (better, worse)]
            lines.append([arm, what, f"{math.exp(fmean(logs)):.3f}", *shares, f"{math.exp(max(logs)):.2f}"])
    heads = ["", "weights of the", "test loss / cosine's", "clearly better", "clearly worse", "worst"]
    return [*markdown.table(heads, lines), "", f"{len(runs)} trainings; geometric mean; clearly: by 5 %."]


LAST = 100
"""Steps whose mean loss is shown."""


def adam_on_text() -> list[str]:
    """What the decay takes in a step under three optimizers, and Adam's loss in both precisions at the same steps.

    SGD's decay shrinks a weight by lr * wd a step, Adam's by lr * wd / sqrt(v), and AdamW's by lr * wd again.
    """
    told = results.data("adam_on_text/cpu.json")
    sgd = table3.language_model("paper", 2)
    adam = table3.over_adam(sgd)
    lines = [
        [f"SGD, LR {sgd.lr:g}", short_text(sgd.lr * sgd.weight_decay)],
        [f"Adam, LR {adam.lr:g}", short_text(told["decay_per_step"])],
        [f"AdamW, LR {adam.lr:g}", short_text(adam.lr * adam.weight_decay)],
    ]
    steps = range(told["steps"] - LAST, told["steps"])
    own = fmean(told["losses"][step] for step in steps)
    trace = results.run("table3_short", "2-layer LSTM", "Adam, val strategy").trace
    recorded = fmean(loss for step, loss in zip(trace["step"], trace["loss"], strict=True) if step in steps)
    return [
        *markdown.table(["", "share of the median weight that the decay takes in a step"], lines),
        "",
        f"Adam's training loss in steps {steps[0]} to {steps[-1]}: {recorded:.2f} in bf16 on an H200, {own:.2f} in fp32 on a CPU "
        "([record](../results/adam_on_text/cpu.json)).",
    ]
