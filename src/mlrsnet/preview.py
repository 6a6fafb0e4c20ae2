"""`preview`: which LRs a schedule would give a model and its optimizer, before the first step. It only reads."""

import base64
import html
import io
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn
from torch.optim import Optimizer

from mlrsnet import _check, _groups, _optimizers, _probe, plots
from mlrsnet._numbers import Limits, make_limits
from mlrsnet.baselines import factors
from mlrsnet.default import NAME
from mlrsnet.facts import read_facts, told
from mlrsnet.law import Facts, Law, Seen
from mlrsnet.ops import HOST
from mlrsnet.plan import Plan
from mlrsnet.schedule import Schedule
from mlrsnet.sensors import Still

POINTS = 1000
"""A longer training is looked at in so many of its steps."""

LAST_LEVEL = 0.1
FALLS = (
    "It assumes that the loss falls evenly to a tenth of the first one. Pass losses= of an earlier run if you have them"
)

AS_NOW = (
    "It assumes that weights and gradients stay as long as they are now. Gradients often get smaller in the second half of a "
    "training, and LRs then become higher than this"
)
COSINE_WARMUP = 0.05
CURVE = 24
"""Characters of a curve."""

BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", "_.-=+*%#"
"""Heights of a curve."""

SHARES = {"start": 0.0, "5 %": 0.05, "25 %": 0.25, "50 %": 0.5, "75 %": 0.75, "end": 1.0}
"""Of the training, for which a preview prints numbers."""


@dataclass(frozen=True, eq=False, repr=False)
class Preview:
    """What `preview` found. `print` shows it with small curves, a notebook as a picture.

    Args:
        schedule: the schedule's name.
        optimizer: the kind of the optimizer.
        total_steps: of the training.
        steps: the steps that were looked at.
        lrs: the LR at each, of the main group; None if it cannot be known yet.
        moves: by which share of their length each of these steps would move the weights; None if it cannot be known yet.
        cosine: the LRs of a cosine at the optimizer's own LR, with a warm-up over 5 % of the training.
        cosine_moves: the same as `moves`, for the cosine.
        notes: what was assumed, and what is not known.
    """

    schedule: str
    optimizer: str
    total_steps: int
    steps: np.ndarray
    lrs: np.ndarray | None
    moves: np.ndarray | None
    cosine: np.ndarray
    cosine_moves: np.ndarray | None
    notes: tuple[str, ...]

    def at(self, progress: float) -> float:
        """The LR at a share of the training, from 0 to 1; NaN if it cannot be known yet."""
        share = _check.real("progress", progress)
        if not 0 <= share <= 1:
            raise ValueError(f"progress must be in [0, 1], a share of the training, got {progress!r}")
        return math.nan if self.lrs is None else float(_at(self.lrs, share))

    def plot(self, path: str | os.PathLike[str] | None = None, *, ax: Any = None) -> Any:
        """Draw the LRs beside the cosine's, or the share of their length that steps move the weights by, if that is all that is
        known. Needs matplotlib (`mlrsnet[plots]`).

        Args:
            path: where to write the picture; not written if None.
            ax: matplotlib axes to draw into.

        Returns:
            The matplotlib axes.
        """
        title = f"{self.schedule} for {self.optimizer}, {self.total_steps:,} steps"
        if self.lrs is None:
            assert self.moves is not None
            curves, unit = {self.schedule: 100 * self.moves}, "% of the weights' length per step"
        else:
            curves, unit = {self.schedule: self.lrs, f"cosine, {self.cosine.max():.3g}": self.cosine}, "LR"
        return plots.plot_curves(self.steps, curves, title, unit, path, ax=ax)

    def __str__(self) -> str:
        if self.lrs is None:
            assert self.moves is not None
            unit, rows = "% of the weights' length", {self.schedule: 100 * self.moves}
        else:
            unit, rows = "LR", {self.schedule: self.lrs, "cosine": self.cosine}
        width, marks = max(map(len, rows)), marks_of_terminal()
        lines = [f"{unit:{width + CURVE + 3}}" + "".join(f"{name:>10}" for name in SHARES)]
        for name, values in rows.items():
            numbers = "".join(f"{_at(values, share):>10.3g}" for share in SHARES.values())
            lines.append(f"{name:{width}}  {sparkline(values, CURVE, marks):{CURVE}} {numbers}")
        title = f"{self.schedule} for {self.optimizer}, {self.total_steps:,} steps"
        return "\n".join([title, "", *lines, "", *self._words()])

    __repr__ = __str__

    def _words(self) -> list[str]:
        """The length of the longest step, and the notes."""
        words = []
        if self.moves is not None:
            text = f"At its peak, each step moves the weights by about {100 * self.moves.max():.2g} % of their length"
            beside = "" if self.cosine_moves is None else f", the cosine's by {100 * self.cosine_moves.max():.2g} %"
            words.append(f"{text}{beside}.")
        return [*words, *(f"- {note}." for note in self.notes)]

    def _repr_html_(self) -> str:
        """For notebooks: the text, and a picture if there is matplotlib."""
        text = f"<pre>{html.escape(str(self))}</pre>"
        try:
            picture = io.BytesIO()
            self.plot().figure.savefig(picture, dpi=100, format="png")
        except ImportError:
            return text
        return (
            f'{text}<img alt="LR by step" src="data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}">'
        )


def preview(
    optimizer: Optimizer,
    schedule: str | os.PathLike[str] | Law = NAME,
    *,
    total_steps: int,
    losses: Sequence[float] | None = None,
    num_classes: int | None = None,
    trained: bool | None = None,
    batch_size: int | None = None,
    model: nn.Module | None = None,
    scale: float = 1.0,
    min_lr: float = 0.0,
    max_lr: float | None = None,
) -> Preview:
    """Which LRs `LearnedLR` with these arguments would give this optimizer, beside a cosine at the optimizer's own LR.

    It takes no step of yours, and changes neither weights nor optimizer. What it cannot know is how weights and gradients will
    change. It takes them as they are now, so the LRs of the second half are often too low.

    Adam and others that divide by the gradients' size need nothing else. For SGD, call it after one `loss.backward()`.

    Args:
        optimizer: the one to be used. A copy of it takes 20 steps for each matrix, on random gradients.
        schedule: as for `LearnedLR`.
        total_steps: optimizer steps of the whole training.
        losses: those of an earlier run, or as you expect them, spread evenly over the training. If None, the loss falls evenly
            to a tenth of log(num_classes), or of 1.
        num_classes, trained, batch_size, model, scale, min_lr, max_lr: as for `LearnedLR`.

    >>> import torch, mlrsnet
    >>> model = torch.nn.Linear(20, 10)
    >>> found = mlrsnet.preview(torch.optim.AdamW(model.parameters()), total_steps=100)
    >>> 1e-4 < found.at(0.25) < 1e-1, round(float(found.moves.max()), 3)
    (True, 0.131)
    """
    _optimizers.check(optimizer)
    total_steps = _check.whole_number("total_steps", total_steps, hint="optimizer steps of the whole training")
    law = Schedule.load(schedule) if isinstance(schedule, str | os.PathLike) else schedule
    optimizer = _optimizers.owner(optimizer)
    groups: list[dict[str, Any]] = [{**group, "lr": float(group["lr"])} for group in optimizer.param_groups]
    _groups.remember_initial_lrs(groups)
    _groups.check(groups)
    main = _groups.main_group(groups)
    ratios = _groups.ratios_to(groups, main)
    settings = _optimizers.settings(optimizer, groups[main])
    weights = read_facts(weight for group in groups for weight in group["params"])
    facts = told(trained, batch_size, model, num_classes).seen(weights, _optimizers.is_adaptive(settings))
    law.check(facts)
    x, notes = _step_length(optimizer, groups, ratios)
    points = min(total_steps, POINTS)
    expected, assumed = _losses(losses, points, num_classes)
    is_known = x is not None or isinstance(law.sensor(None), Still)
    limits = make_limits(scale, min_lr, max_lr) if is_known else Limits(scale=scale)  # limits are for LRs
    carried = law.carry_over(settings, facts)
    plan = Plan.of(points)._replace(planned=total_steps)
    lrs = _lrs(law, facts, expected, 1.0 if x is None else x, float(carried), limits, plan)
    base = groups[main]["initial_lr"]
    cosine = base * np.array(factors("cosine", points, 1, warmup=COSINE_WARMUP))
    if len(set(ratios)) > 1:
        notes.append(f"LRs are those of the parameter groups at {base:.3g}; the others keep their ratio to them")
    length = None if x is None else math.sqrt(x)
    return Preview(
        schedule=law.name,
        optimizer=type(optimizer).__name__,
        total_steps=total_steps,
        steps=np.arange(points) * total_steps // points,
        lrs=lrs if is_known else None,
        moves=lrs * length if length is not None else None if is_known else lrs,
        cosine=cosine,
        cosine_moves=None if length is None else cosine * length,
        notes=(*notes, assumed),
    )


def _step_length(
    optimizer: Optimizer, groups: list[dict[str, Any]], ratios: list[float]
) -> tuple[float | None, list[str]]:
    """x, None if it is not known; and what there is to say about it."""
    try:
        return _probe.relative_square(optimizer, groups, ratios), [AS_NOW]
    except _probe.UnknownError as error:
        return None, [f"The length of a step is not known yet: {error}"]


def _losses(losses: Sequence[float] | None, points: int, num_classes: int | None) -> tuple[np.ndarray, str]:
    """The losses at the points, and a note."""
    if losses is None:
        first = 1.0 if num_classes is None else math.log(num_classes)
        return first * LAST_LEVEL ** np.linspace(0, 1, points), FALLS
    try:
        given = np.asarray(losses, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.ndim != 1 or not len(given) or not np.isfinite(given).all():
        raise ValueError(f"losses must be a non-empty list of finite numbers, got {losses!r}")
    return np.interp(
        np.linspace(0, 1, points), np.linspace(0, 1, len(given)), given
    ), "It assumes the given losses, spread evenly over the training"


def _lrs(
    law: Law, facts: Facts, losses: np.ndarray, x: float, carried: float, limits: Limits, plan: Plan
) -> np.ndarray:
    """The LRs for these losses, where every step at an LR of 1 is as long as x says."""
    state, lr, lrs = law.begin(facts), math.nan, []
    for loss in losses:
        seen = Seen(float(loss), x=x, guess=x, scale=limits.scale * carried)
        raw, state = law.advance(state, seen, plan, HOST)
        lr = limits.applied(raw, lr, HOST)
        lrs.append(lr)
    return np.array(lrs)


def _at(values: np.ndarray, share: float) -> float:
    return float(values[round(share * (len(values) - 1))])


def sparkline(values: Sequence[float] | np.ndarray, width: int = 24, marks: str = BLOCKS) -> str:
    """The values from 0 to their maximum, averaged in `width` parts, as blocks of eight heights.

    >>> sparkline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), sparkline([0.0, 2.0], marks=PLAIN), sparkline([])
    ('▁▂▃▄▅▆▇█', '_#', '')
    """
    parts = np.array_split(np.asarray(values, dtype=float), max(1, min(width, len(values))))
    means = np.array([part.mean() for part in parts if len(part)])
    if not len(means):
        return ""
    heights = means / max(means.max(), np.finfo(float).tiny) * (len(marks) - 1)
    return "".join(marks[round(float(height))] for height in heights)


def marks_of_terminal() -> str:
    """Blocks, or plain characters where standard output cannot show them."""
    try:
        BLOCKS.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN
    return BLOCKS
