"""`device.advance` as one Triton kernel: one block, the weights of the current phase read once from the L2 cache.

A captured step of some thirty small kernels becomes one. `advance` is the reference; the tests run both in lockstep.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from mlrsnet import features
from mlrsnet.gamma import POLICIES
from mlrsnet.nets import LSTMNet
from mlrsnet.rule import Rule

LARGEST_HIDDEN = 64
"""Larger cells would not fit a block's registers; they take the torch path."""


@triton.jit
def _sigmoid(z):
    return 1.0 / (1.0 + tl.exp(-z))


@triton.jit
def _tanh(z):
    return 2.0 * _sigmoid(2.0 * z) - 1.0


@triton.jit
def _product(matrix, stride, num_rows, num_columns, vector, BLOCK: tl.constexpr):
    """W v for a matrix in memory and a vector in registers, both padded to BLOCK."""
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    inside = (rows[:, None] < num_rows) & (columns[None, :] < num_columns)
    tile = tl.load(matrix + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)
    return tl.sum(tile * vector[None, :], axis=1)


@triton.jit
def _gate(W2, b2, gate: tl.constexpr, from_x, from_h, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """One gate before its squashing: its rows of W2 times (from_x, from_h), plus its part of b2."""
    cells = tl.arange(0, BLOCK)
    rows = W2 + gate * HIDDEN * 2 * WIDTH
    z = tl.load(b2 + gate * HIDDEN + cells, mask=cells < HIDDEN, other=0.0)
    z += _product(rows, 2 * WIDTH, HIDDEN, WIDTH, from_x, BLOCK)
    z += _product(rows + WIDTH, 2 * WIDTH, HIDDEN, WIDTH, from_h, BLOCK)
    return z


@triton.jit(do_not_specialize=["history_size", "num_groups", "weights_stride"])
def _step(
    loss_pointer, counts, values, memory, weights, group_lrs, ratios, history,
    history_size, num_groups, scale, min_lr, max_lr, low, high,
    classes, log_classes, root_classes, fixed_gamma, sharpness, largest_feature, smallest_factor, weights_stride,
    PHASES: tl.constexpr, LAYERS: tl.constexpr, INPUTS: tl.constexpr, LOSS_COLUMN: tl.constexpr,
    PROGRESS_COLUMN: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, POLICY: tl.constexpr,
    PERPLEXITY: tl.constexpr, SCALE_BY_CLASSES: tl.constexpr, SCALE_BY_FIRST: tl.constexpr, ANNEAL: tl.constexpr,
    BLOCK: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    loss = tl.load(loss_pointer).to(tl.float32)
    step, last_phase = tl.load(counts), tl.load(counts + 1)
    nonfinite, unusable, outside = tl.load(counts + 2), tl.load(counts + 3), tl.load(counts + 4)
    total_steps = tl.load(counts + 5)
    first_loss, last_gamma, last_lr = tl.load(values), tl.load(values + 1), tl.load(values + 2)

    finite = tl.abs(loss) < float("inf")  # false for NaN
    initial_loss = tl.where(first_loss == first_loss, first_loss, loss)
    phase = tl.minimum(PHASES * step // total_steps, PHASES - 1)

    begins = last_phase < 0
    renews = begins
    if POLICY == 1:  # per-phase
        renews = begins | (phase != last_phase)
    if POLICY == 2:  # fixed
        fresh = loss * 0.0 + fixed_gamma
    else:
        f_0 = tl.where(begins, initial_loss, loss)
        if PERPLEXITY:
            f_0 = tl.exp(f_0)
        fresh = tl.sqrt(f_0) * tl.log(f_0 * classes) / (4.0 * root_classes)
    gamma = tl.where(renews & (fresh > 0) & (fresh < float("inf")), fresh, last_gamma)
    divisor = loss * 0.0 + 1.0
    if SCALE_BY_CLASSES:
        divisor = loss * 0.0 + log_classes
    if SCALE_BY_FIRST:
        divisor = initial_loss
    usable = (gamma > 0) & (divisor > 0)
    taken = finite & usable

    scaled = tl.where(taken, loss / divisor, 0.0)
    progress = tl.minimum(step, total_steps - 1).to(tl.float32) / total_steps.to(tl.float32)
    clipped = tl.minimum(tl.maximum(scaled, -largest_feature), largest_feature)

    cells = tl.arange(0, BLOCK)
    real, wide = cells < HIDDEN, cells < WIDTH
    w = weights + phase * weights_stride
    x = tl.zeros((BLOCK,), tl.float32)
    for layer in tl.static_range(LAYERS):
        inputs = INPUTS if layer == 0 else HIDDEN
        stride = inputs + HIDDEN
        h = tl.load(memory + 2 * layer * HIDDEN + cells, mask=real, other=0.0)
        c = tl.load(memory + (2 * layer + 1) * HIDDEN + cells, mask=real, other=0.0)
        b1 = w + 2 * WIDTH * stride
        W2 = b1 + 2 * WIDTH
        b2 = W2 + 4 * HIDDEN * 2 * WIDTH
        from_x = tl.load(b1 + cells, mask=wide, other=0.0)
        if layer > 0:
            from_x += _product(w, stride, WIDTH, inputs, x, BLOCK)
        else:
            if LOSS_COLUMN >= 0:
                from_x += tl.load(w + cells * stride + LOSS_COLUMN, mask=wide, other=0.0) * clipped
            if PROGRESS_COLUMN >= 0:
                from_x += tl.load(w + cells * stride + PROGRESS_COLUMN, mask=wide, other=0.0) * progress
        from_h = tl.load(b1 + WIDTH + cells, mask=wide, other=0.0)
        from_h += _product(w + WIDTH * stride + inputs, stride, WIDTH, HIDDEN, h, BLOCK)
        from_x, from_h = tl.maximum(from_x, 0.0), tl.maximum(from_h, 0.0)
        i = _gate(W2, b2, 0, from_x, from_h, HIDDEN, WIDTH, BLOCK)
        f = _gate(W2, b2, 1, from_x, from_h, HIDDEN, WIDTH, BLOCK)
        o = _gate(W2, b2, 2, from_x, from_h, HIDDEN, WIDTH, BLOCK)
        g = _gate(W2, b2, 3, from_x, from_h, HIDDEN, WIDTH, BLOCK)
        c_after = _sigmoid(f) * c + _sigmoid(i) * _tanh(g)
        x = _sigmoid(o) * _tanh(c_after)
        tl.store(memory + 2 * layer * HIDDEN + cells, tl.where(taken, x, h), mask=real)
        tl.store(memory + (2 * layer + 1) * HIDDEN + cells, tl.where(taken, c_after, c), mask=real)
        w = b2 + 4 * HIDDEN

    z = tl.sum(tl.load(w + cells, mask=real, other=0.0) * x, axis=0) + tl.load(w + HIDDEN)
    factor = _sigmoid(sharpness * z)
    if ANNEAL:
        factor = factor * (1.0 - progress)
    lr = scale * gamma * tl.maximum(factor, smallest_factor)
    lr = tl.where(taken, tl.minimum(tl.maximum(lr, min_lr), max_lr), last_lr)

    groups = tl.arange(0, GROUPS)
    present = groups < num_groups
    last_lrs = tl.load(group_lrs + groups, mask=present)
    tl.store(group_lrs + groups, tl.where(taken, lr * tl.load(ratios + groups, mask=present), last_lrs), mask=present)
    tl.store(history + tl.minimum(step + nonfinite + unusable, history_size - 1), lr)
    tl.store(counts, step + taken)
    tl.store(counts + 1, tl.where(taken, phase, last_phase))
    tl.store(counts + 2, nonfinite + (finite == 0))
    tl.store(counts + 3, unusable + (finite & (usable == 0)))
    tl.store(counts + 4, outside + (taken & ((scaled < low) | (scaled > high))))
    tl.store(values, tl.where(taken, initial_loss, first_loss))
    tl.store(values + 1, tl.where(taken, gamma, last_gamma))
    tl.store(values + 2, lr)


class FusedStep:
    """The kernel for one rule; the caller owns the buffers."""

    def __init__(self, rule: Rule, device: torch.device) -> None:
        card, net = rule.schedule.card, rule.schedule.net
        assert isinstance(net, LSTMNet)
        classes = rule.num_classes or 2  # unused without num_classes
        self.weights = torch.stack([_flat(phase) for phase in rule.schedule.phases]).to(device)  # type: ignore[arg-type]
        width = len(net.cells[0].matrices().b1) // 2  # type: ignore[operator]
        low, high = card.warn_outside
        by_classes = net.loss_scale == "log_classes" and rule.num_classes is not None
        self.numbers = (
            rule.min_lr, rule.max_lr, low, high, float(classes), math.log(classes), classes**0.25, card.gamma.value or 1.0,
            net.sharpness, features.LARGEST_FEATURE, features.SMALLEST_FACTOR, self.weights.shape[1],
        )  # fmt: skip
        self.constants: dict[str, Any] = {
            "PHASES": rule.schedule.num_phases,
            "LAYERS": net.num_layers,
            "INPUTS": len(net.inputs),
            "LOSS_COLUMN": net.inputs.index("loss") if "loss" in net.inputs else -1,
            "PROGRESS_COLUMN": net.inputs.index("progress") if "progress" in net.inputs else -1,
            "HIDDEN": net.hidden_size,
            "WIDTH": width,
            "POLICY": POLICIES.index(card.gamma.policy),
            "PERPLEXITY": card.gamma.statistic == "perplexity",
            "SCALE_BY_CLASSES": by_classes,
            "SCALE_BY_FIRST": net.loss_scale != "none" and not by_classes,
            "ANNEAL": net.anneal == "linear",
            "BLOCK": max(16, triton.next_power_of_2(max(net.hidden_size, width))),
        }

    @classmethod
    def build(cls, rule: Rule, device: torch.device) -> "FusedStep | None":
        """The kernel for a rule whose network it can compute; None for the others."""
        net = rule.schedule.net
        fits = type(net) is LSTMNet and net.hidden_size <= LARGEST_HIDDEN and net.out.weight.dtype == torch.float32
        return cls(rule, device) if fits else None

    def __call__(
        self,
        loss: Tensor,
        scale: float,
        *,
        counts: Tensor,
        values: Tensor,
        memory: Tensor,
        group_lrs: Tensor,
        ratios: Tensor,
        history: Tensor,
    ) -> None:
        """One step, in place."""
        groups = len(group_lrs)
        _step[(1,)](
            loss, counts, values, memory, self.weights, group_lrs, ratios, history, len(history), groups, scale, *self.numbers,
            GROUPS=triton.next_power_of_2(groups), num_warps=8, **self.constants,
        )  # fmt: skip


def _flat(net: LSTMNet) -> Tensor:
    """The weights in the order the kernel reads them: W1, b1, W2, b2 of every cell, then W3, b3."""
    parts = [matrix for cell in net.cells for matrix in cell.matrices()]  # type: ignore[operator]
    return torch.cat([part.reshape(-1) for part in (*parts, net.out.weight, net.out.bias)])
