"""Pictures of schedules."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mlrsnet import _check
from mlrsnet.nets import ScheduleNet, predict, unroll

SETTLE_STEPS = 100
"""Steps at a constant loss before the factor is read, because the network has a memory."""

FLAT = 8
"""A curve whose peak is this many times lower than another's is hard to read on one linear axis."""


@torch.no_grad()
def settled_factors(net: ScheduleNet, losses: torch.Tensor, progress: float) -> torch.Tensor:
    """alpha / gamma after `SETTLE_STEPS` steps at each constant (scaled) loss."""
    state = net.initial_state(len(losses))
    for _ in range(SETTLE_STEPS):
        factor, state = predict(net, losses, progress, state)
    return factor


def plot_map(
    phases: Sequence[ScheduleNet], title: str, path: str | os.PathLike[str] | None, *, max_loss: float, ax: Any = None
) -> Any:
    """LR over loss and progress; see `Schedule.plot_map`."""
    ax = _axes(ax, "plot_map")
    losses = torch.linspace(0, _check.positive("max_loss", max_loss), 121).to(next(phases[0].parameters()))
    factors = unroll(phases, losses.expand(SETTLE_STEPS, -1)).T.float().cpu().numpy()
    image = ax.imshow(factors, origin="lower", aspect="auto", extent=(0, 1, 0, max_loss), cmap="viridis", vmin=0)
    lines = ax.contour(factors, levels=8, origin="lower", extent=(0, 1, 0, max_loss), colors="white", linewidths=0.6)
    ax.clabel(lines, fontsize=7, fmt="%.2g")
    ax.figure.colorbar(image, ax=ax, label="LR / gamma")
    ax.set(xlabel="progress", ylabel="training loss, as the network sees it", title=title)
    return _save(ax, path)


def plot_phases(
    phases: Sequence[ScheduleNet], title: str, path: str | os.PathLike[str] | None, *, max_loss: float, ax: Any = None
) -> Any:
    """One curve from loss to LR per phase; see `Schedule.plot`."""
    _check.positive("max_loss", max_loss)
    ax = _axes(ax, "plot")
    losses = torch.linspace(0, max_loss, 201).to(next(phases[0].parameters()))
    for index, net in enumerate(phases):
        middle = (index + 0.5) / len(phases)
        label = f"phase {index + 1} of {len(phases)}" + (f" (progress {middle:.2f})" if len(phases) > 1 else "")
        ax.plot(losses.cpu(), settled_factors(net, losses, middle).cpu(), label=label)
    ax.set(xlabel="training loss, as the network sees it", ylabel="LR / gamma", title=title)
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return _save(ax, path)


def plot_run(
    lrs: np.ndarray,
    title: str,
    path: str | os.PathLike[str] | None,
    *,
    stride: int = 1,
    end: int | None,
    borders: Sequence[int],
    annealed: int | None,
    ax: Any = None,
) -> Any:
    """The LRs of a run, one in `stride`; see `LearnedLR.plot`. `end`, `borders` of phases and `annealed` are steps."""
    ax = _axes(ax, "plot")
    ax.plot(stride * np.arange(len(lrs)), lrs, label="LR")
    for index, border in enumerate(borders):
        ax.axvline(border, color="gray", linewidth=0.8, linestyle=":", label=None if index else "next phase")
    if annealed is not None:
        ax.axvline(annealed, color="tab:orange", linestyle="--", label=f"annealing began (step {annealed:,})")
    if end is not None:
        ax.axvline(end, color="black", linewidth=1, label=f"end (step {end:,})")
    ax.set(xlabel="step", ylabel="LR", title=title if end is not None else f"{title}, no end yet")
    ax.set_xlim(0, max(stride * len(lrs), end or 1) * 1.02)
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return _save(ax, path)


def plot_curves(
    steps: np.ndarray,
    curves: dict[str, np.ndarray],
    title: str,
    unit: str,
    path: str | os.PathLike[str] | None,
    *,
    ax: Any = None,
) -> Any:
    """Curves by their names; see `Preview.plot`. Logarithmic if a linear axis would press one of them flat."""
    ax = _axes(ax, "plot")
    for index, (name, values) in enumerate(curves.items()):
        ax.plot(steps, values, label=name, linestyle="--" if index else "-")
    peaks = [float(values.max()) for values in curves.values()]
    if min(peaks) * FLAT < max(peaks) and min(peaks) > 0:
        ax.set_yscale("log")
        ax.set_ylim(bottom=min(peaks) / 100)
    else:
        ax.set_ylim(bottom=0)
    ax.set(xlabel="step", ylabel=unit, title=title)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return _save(ax, path)


def _axes(ax: Any, what: str) -> Any:
    """Axes to draw into: the given ones, or new ones."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"{what} needs matplotlib, which is not installed: pip install 'mlrsnet[plots]'") from None
    return Figure(figsize=(6, 4), layout="constrained").subplots() if ax is None else ax


def _save(ax: Any, path: str | os.PathLike[str] | None) -> Any:
    if path is not None:
        ax.figure.savefig(os.fspath(path), dpi=150)
    return ax
