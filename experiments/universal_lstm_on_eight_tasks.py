"""Version 1 of the default, `universal-lstm`, beside tuned decays and rivals on eight trainings that it was not learned from.

A rival with a grid of LRs is shown at the LR whose validation result is best over all seeds; one that diverged is no candidate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from experiments import markdown, results
from experiments.drawing import new, plain, save
from mlrsnet.lab.report.numbers import metric_stat, metric_text, short_text
from mlrsnet.lab.report.tables import Row

TASKS = {
    "Digits, MLP, SGD": "digits, MLP, SGD",
    "Fashion-MNIST, MLP, SGD": "Fashion-MNIST, MLP, SGD",
    "SVHN 16x16, CNN, SGDM": "SVHN 16x16, CNN, SGD with momentum",
    "CIFAR-10 16x16, CNN, SGD": "CIFAR-10 16x16, CNN, SGD",
    "Shakespeare, transformer, AdamW": "characters, transformer, AdamW",
    "Shakespeare, LSTM, Adam": "characters, LSTM, Adam",
    "Shakespeare, LSTM, SGD": "characters, LSTM, SGD",
}
RESNET, RESNET_TASK = "CIFAR-10, ResNet-18, SGD", "CIFAR-10, ResNet-18, SGD"
DECAYS = [f"{kind} {times}x" for kind in ("Cosine", "Linear") for times in ("0.3", "1", "3", "10", "30")]
BEST, USUAL, FREE, PRODIGY = "best decay of ten", "cosine, usual LR", "Schedule-Free", "Prodigy + cosine"
OURS = "universal-lstm"
ROWS = {
    "Universal LSTM": OURS,
    "Cosine 1x": USUAL,
    "MultiStep": "MultiStep",
    "Schedule-Free": FREE,
    "Prodigy + cosine": PRODIGY,
    "Authors' checkpoints": "the authors' checkpoints",
    "Algorithm 1": "Algorithm 1",
}
COLUMNS = (OURS, USUAL, BEST, FREE, PRODIGY)


@dataclass(frozen=True)
class Outcome:
    """Test results of the last epoch, one per seed, of the row of that name."""

    name: str
    row: Row
    higher_is_better: bool

    @property
    def mean(self) -> float:
        """Over seeds."""
        return mean(results.last(results.ended(self.row)))

    @property
    def error(self) -> float:
        """Lower is better: the error in percent, or the perplexity."""
        return 100 - self.mean if self.higher_is_better else self.mean

    @property
    def validation(self) -> float:
        """Lower is better, too: what a setting is chosen by."""
        found = mean(run.result["val_metric"] for run in results.ended(self.row))
        return -found if self.higher_is_better else found


def outcome(rows: dict[str, Row], name: str) -> Outcome | None:
    """Over all seeds; None if a row was not run, or one of its trainings did not finish."""
    row = rows.get(name)
    if row is None or row.diverged or len(row.counted) != len(row.runs):
        return None
    return Outcome(name, row, row.runs[0].metric.higher_is_better)


def best(rows: dict[str, Row], names: Sequence[str]) -> Outcome | None:
    """The one whose validation result is best."""
    found = [one for name in names if (one := outcome(rows, name)) is not None]
    return min(found, key=lambda one: one.validation, default=None)


def outcomes() -> dict[str, dict[str, Outcome | None]]:
    """By task and column."""
    found: dict[str, dict[str, Outcome | None]] = {}
    for column, task in TASKS.items():
        rows = results.rows("universal_lstm_short", column)
        found[task] = {name: outcome(rows, row) for row, name in ROWS.items()} | {BEST: best(rows, DECAYS)}
    learned, rivals = results.rows("universal_lstm_paper", RESNET), results.rows("horizon_short", "CIFAR-10")
    found[RESNET_TASK] = {
        OURS: outcome(learned, "Universal LSTM"),
        USUAL: outcome(rivals, "Cosine 0.1"),
        BEST: best(rivals, [row for row in rivals if row != "Full horizon"]),
    }
    return found


def table(columns: Sequence[str], *, bold: bool = True) -> list[str]:
    """One row per task, its best mean in bold unless told otherwise."""
    lines = []
    for task, row in outcomes().items():
        there = {column: one for column in columns if (one := row.get(column))}
        if there:
            low = metric_text(min(one.error for one in there.values())) if bold else ""
            unit = "%" if next(iter(there.values())).higher_is_better else "perplexity"
            lines.append([f"{task} ({unit})", *(_cell(there.get(column), low) for column in columns)])
    return markdown.table(["", *columns], lines)


def _cell(one: Outcome | None, low: str) -> str:
    if one is None:
        return results.NOT_RUN
    text = metric_stat(one.row.stat("last"))
    return f"**{text}**" if metric_text(one.error) == low else text


def tasks() -> list[str]:
    """Version 1 and its rivals, and the rivals' settings as they were run."""
    about = "Last epoch, mean ± standard deviation over 3 seeds, one seed if there is no deviation; the best of a row is bold."
    return [*table(COLUMNS), "", f"{about} {_settings()}"]


def _settings() -> str:
    """From the records: LRs against the usual one of the task."""
    free: dict[str, set[float]] = {}
    prodigy = set()
    for column in TASKS:
        usual = results.run("universal_lstm_short", column, "Cosine 1x").spec["lr"]
        spec = results.run("universal_lstm_short", column, "Schedule-Free").spec
        free.setdefault(spec["optimizer"], set()).add(round(spec["lr"] / usual, 6))
        prodigy.add(results.run("universal_lstm_short", column, "Prodigy + cosine").spec["lr"])
    ((sgd,), (adam,)), (lr,) = (free[f"schedule-free-{kind}"] for kind in ("sgd", "adamw")), prodigy
    return (
        f"Schedule-Free was run at {sgd:g} times the usual LR ({adam:g} times with Adam and AdamW) with a 5 % warm-up, Prodigy at "
        f"its default LR of {lr:g} with a cosine: one setting each, not tuned."
    )


def gaps() -> list[str]:
    """Its error, or perplexity, against the best decay and against the usual cosine."""
    lines = []
    for task, row in outcomes().items():
        ours, tuned, usual = (row[name] for name in (OURS, BEST, USUAL))
        if ours and tuned and usual:
            lines.append([task, tuned.name, _gap(ours, tuned), _gap(ours, usual), _late_lr(ours)])
    heads = [f"error or perplexity of `{OURS}`", "the best decay of ten", "against it", "against the usual cosine"]
    return markdown.table([*heads, f"LR of `{OURS}` after 90 %"], lines)


def _late_lr(one: Outcome) -> str:
    """Of seed 0."""
    trace = results.ended(one.row)[0].trace
    late = 0.9 * (trace["step"][-1] + 1)
    return short_text(next(lr for step, lr in zip(trace["step"], trace["lr"], strict=True) if step >= late))


def _gap(ours: Outcome, other: Outcome) -> str:
    return f"{100 * (ours.error / other.error - 1):+.1f} %"


LOOKS = {
    OURS: (OURS, "#000000"),
    USUAL: ("cosine, usual LR", "#D55E00"),
    FREE: ("Schedule-Free", "#009E73"),
    PRODIGY: ("Prodigy", "#0072B2"),
}
"""Label and colour."""

CURVES = {
    "Shakespeare, transformer, AdamW": ("transformer with\nAdamW: LR x 100", 100.0, "#009E73", (0.40, 1.16)),
    "CIFAR-10 16x16, CNN, SGD": ("CIFAR-10 16x16, CNN", 1.0, "#0072B2", (0.30, 1.07)),
    "Shakespeare, LSTM, SGD": ("LSTM, SGD", 1.0, "#CC79A7", (0.68, 1.66)),
    RESNET: ("CIFAR-10, ResNet-18", 1.0, "#000000", (0.02, 1.88)),
    "Fashion-MNIST, MLP, SGD": ("Fashion-MNIST, MLP", 1.0, "#E69F00", (0.32, 0.42)),
}
"""Columns whose LRs are drawn: label, factor, colour, and where the label stands."""


def draw(out: Path) -> None:
    """Errors against the best decay, one lane per method and task, best on top; and LRs that version 1 chose."""
    figure, (dots, rates) = new(1, 2, (12, 7), width_ratios=(1.9, 1))
    _draw_errors(dots)
    _draw_rates(rates)
    save(figure, out)


def _draw_errors(axes: Any) -> None:
    lane, ticks = 0.0, {}
    for number, (task, row) in enumerate(outcomes().items()):
        tuned = row[BEST]
        assert tuned is not None
        found = sorted((one.error / tuned.error, name) for name in LOOKS if (one := row.get(name)))
        ticks[task] = lane - (len(found) - 1) / 2
        if number % 2 == 0:
            axes.axhspan(lane + 0.75, lane - len(found) + 0.25, color="#F3F3F3", zorder=0)
        for ratio, name in found:
            _draw_dot(axes, ratio, lane, *LOOKS[name])
            lane -= 1
        lane -= 0.5
    axes.axvline(1.0, color="#666666", linewidth=1.2, zorder=1)
    axes.text(1.0, 1.0, "best of ten tuned decays", color="#666666", ha="center", va="bottom", fontsize=9)
    axes.set(xscale="log", xlim=(0.64, 2.45), ylim=(lane + 0.75, 0.9))
    axes.set_yticks(list(ticks.values()), [task.replace(", ", "\n", 1) for task in ticks], fontsize=9)
    axes.set_xticks([0.8, 1.0, 1.25, 1.5, 2.0], ["20 % lower", "equal", "+25 %", "+50 %", "twice"])
    axes.minorticks_off()
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("test error (perplexity for characters) against the best decay: left is better")
    plain(axes)
    axes.grid(visible=False, axis="y")


def _draw_dot(axes: Any, ratio: float, lane: float, label: str, colour: str) -> None:
    """A line from the best decay, a dot and its name."""
    ours = label == OURS
    axes.plot([1.0, ratio], [lane, lane], color=colour, linewidth=1.0, alpha=0.4, zorder=2)
    axes.scatter([ratio], [lane], s=55 if ours else 30, color=colour, zorder=3)
    weight = "bold" if ours else "normal"
    left = ratio < 1  # the name stands away from the line
    place = {"xytext": (-6 if left else 6, 0), "ha": "right" if left else "left"}
    axes.annotate(
        label,
        (ratio, lane),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=colour,
        fontweight=weight,
        **place,
    )


def _draw_rates(axes: Any) -> None:
    for column, (label, times, colour, place) in CURVES.items():
        folder = "universal_lstm_paper" if column == RESNET else "universal_lstm_short"
        trace = results.run(folder, column, "Universal LSTM").trace
        x, y = [step / trace["step"][-1] for step in trace["step"]], [times * lr for lr in trace["lr"]]
        axes.plot(x, y, color=colour, linewidth=1.2)
        axes.text(*place, label, color=colour, fontsize=9)
    axes.set(xlabel="progress of the training", title=f"LRs that {OURS} chose, seed 0", ylim=(0, 2), xlim=(0, 1))
    plain(axes)
