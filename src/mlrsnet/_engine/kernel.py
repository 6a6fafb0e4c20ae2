"""`device.advance` as one Triton kernel: one block per training, which reads the current phase's weights once from L2.

It replaces about thirty small kernels per captured step, or ninety for a population. `advance` is the reference, and the
tests run both in lockstep.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from mlrsnet import _features
from mlrsnet._engine.contract import Rule
from mlrsnet.gamma import POLICIES
from mlrsnet.nets import DecayNet, LSTMNet, ScheduleNet, TrendNet

NUM_WARPS = 8
LARGEST_HIDDEN = 64
"""Larger cells would not fit into a block's registers; they use torch instead."""


@triton.jit
def _sigmoid(z):
    return 1.0 / (1.0 + tl.exp(-z))


@triton.jit
def _tanh(z):
    return 2.0 * _sigmoid(2.0 * z) - 1.0


@triton.jit
def _product(matrix, vector, BLOCK: tl.constexpr):
    """W v for a BLOCK x BLOCK matrix in memory and a vector in registers."""
    place = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    return tl.sum(tl.load(matrix + place) * vector[None, :], axis=1)


@triton.jit
def _gates(W2, from_x, from_h, BLOCK: tl.constexpr):
    """Pre-activations of i, f, o, g: W2 (from_x, from_h) + b2, all rows in one reduction."""
    row = tl.arange(0, BLOCK)[:, None, None]
    gate = 2 * tl.arange(0, 2)[None, :, None] + tl.arange(0, 2)[None, None, :]
    row += gate * BLOCK  # (BLOCK, 2, 2)
    tile = W2 + row[:, :, :, None] * BLOCK + tl.arange(0, BLOCK)[None, None, None, :]
    products = tl.load(tile) * from_x[None, None, None, :]
    products += tl.load(tile + 4 * BLOCK * BLOCK) * from_h[None, None, None, :]
    z = tl.sum(products, axis=3) + tl.load(W2 + 8 * BLOCK * BLOCK + row)
    first, second = tl.split(z)  # (i, o), (f, g)
    i, o = tl.split(first)
    f, g = tl.split(second)
    return i, f, o, g


@triton.jit
def _lerp(new, old, keep):
    return new + keep * (old - new)


@triton.jit
def _averages(place, loss, progress, taken, smallest_loss, fast_window, slow_window):
    """`_features.Averages` after one more loss, if it is taken. The caller stores them once all warps have read."""
    known, before, first = tl.load(place), tl.load(place + 1), tl.load(place + 2)
    fast, slow, spread = tl.load(place + 3), tl.load(place + 4), tl.load(place + 5)
    log = tl.log(tl.maximum(loss, smallest_loss))
    passed = tl.maximum(progress - before, 0.0)
    begins = known == 0
    keep_fast = tl.where(begins, 0.0, tl.exp(-passed / fast_window))
    keep_slow = tl.where(begins, 0.0, tl.exp(-passed / slow_window))
    new_fast, new_slow = _lerp(log, fast, keep_fast), _lerp(log, slow, keep_slow)
    new_spread = _lerp((log - new_fast) * (log - new_fast), spread, keep_slow)
    known, before, first = (
        tl.where(taken, 1.0, known),
        tl.where(taken, progress, before),
        tl.where(taken & begins, log, first),
    )
    fast, slow, spread = (
        tl.where(taken, new_fast, fast),
        tl.where(taken, new_slow, slow),
        tl.where(taken, new_spread, spread),
    )
    return known, before, first, fast, slow, spread


@triton.jit
def _power(x, exponent):
    return tl.exp(exponent * tl.log(x))


@triton.jit
def _within(x, low, high):
    return tl.minimum(tl.maximum(x, low), high)


@triton.jit
def _decay(
    place, weights, loss, progress,
    smallest_loss, warmup, level_window, level_steps, settled_share, margin, spike, shortest_rise,
):  # fmt: skip
    """`_features.Level` after one more loss, and the factor of a `DecayNet`. The caller stores the level if it is taken."""
    known, before, last_first = tl.load(place), tl.load(place + 1), tl.load(place + 2)
    sum, weight = tl.load(place + 3), tl.load(place + 4)
    settled, lowest, caution = tl.load(place + 5), tl.load(place + 6), tl.load(place + 7)
    first = tl.where(known == 0, loss, last_first)
    reads, ends = (loss > 0) & (known < 2), loss < 0
    most = spike * tl.abs(first)
    passed = tl.maximum(progress - before, 0.0)
    fresh = tl.where(reads, 1.0 - tl.exp(-tl.minimum(passed / level_window, 1.0 / level_steps)), 0.0)
    sum += fresh * (tl.minimum(loss, most) - sum)
    weight += fresh * (1.0 - weight)
    usable = (weight > 0) & (first > 0)
    ratio = sum / tl.where(usable, weight * first, 1.0)
    level = tl.where(usable, _within(ratio, smallest_loss, spike), 1.0)
    is_settled = weight > settled_share
    settled = tl.where(is_settled & (settled == 0), level, settled)
    lowest = tl.where(is_settled & ((lowest == 0) | (level < lowest)), level, lowest)
    lowest = tl.where(ends & (lowest > 0), level, lowest)
    known = tl.where(ends | (known == 2), 2.0, tl.where((known == 0) & (loss == 0), 0.0, 1.0))
    rise = tl.where(lowest > 0, lowest / level, 1.0)
    gain = tl.where(settled > 0, 1.0 - level / tl.where(settled > 0, settled, 1.0) / (1.0 - margin), 0.0)
    factor = _power(_within(level, smallest_loss, 1.0), tl.load(weights))
    factor *= _within(_power(_within(rise, smallest_loss, 1.0), tl.load(weights + 1)), shortest_rise, 1.0)
    factor *= tl.maximum(gain, 1.0 - caution) * _within(progress / warmup, 0.01, 1.0)
    return factor, known, first, sum, weight, settled, lowest


@triton.jit(do_not_specialize=["history_size", "num_groups"])
def _step(
    loss_pointer, counts, values, memory, weights, group_lrs, ratios, history, losses, scales, num_classes,
    history_size, num_groups, scale, min_lr, max_lr, low, high,
    classes, log_classes, root_classes, fixed_gamma, sharpness, largest_feature, smallest_factor,
    smallest_loss, smallest_spread, fast_window, slow_window,
    warmup, level_window, level_steps, settled_share, margin, spike, shortest_rise,
    PHASES: tl.constexpr, LAYERS: tl.constexpr, INPUTS: tl.constexpr, LOSS_INPUT: tl.constexpr,
    PROGRESS_INPUT: tl.constexpr, HIDDEN: tl.constexpr, POLICY: tl.constexpr, PERPLEXITY: tl.constexpr,
    SCALE_BY_CLASSES: tl.constexpr, SCALE_BY_FIRST: tl.constexpr, ANNEAL: tl.constexpr, TREND: tl.constexpr,
    DECAY: tl.constexpr, MEMORY: tl.constexpr, PROGRESS_UNIT: tl.constexpr,
    STRIDE: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr, MEMBERS: tl.constexpr,
):  # fmt: skip
    if MEMBERS:  # each member has its own loss, state, weights, scale and number of classes
        member = tl.program_id(0)
        loss_pointer += member
        counts += 8 * member
        values += 3 * member
        memory += MEMORY * member
        weights += PHASES * STRIDE * member
        group_lrs += num_groups * member
        history += history_size * member
        losses += history_size * member
        scales += member
        classes = tl.load(num_classes + member)
        log_classes = tl.log(classes)
        root_classes = tl.exp(0.25 * log_classes)
    scale *= tl.load(scales)
    loss = tl.load(loss_pointer).to(tl.float32)
    step, last_phase = tl.load(counts), tl.load(counts + 1)
    nonfinite, unusable, outside = tl.load(counts + 2), tl.load(counts + 3), tl.load(counts + 4)
    total_steps, begin, start = tl.load(counts + 5), tl.load(counts + 6), tl.load(counts + 7)
    first_loss, last_gamma, last_lr = tl.load(values), tl.load(values + 1), tl.load(values + 2)

    finite = tl.abs(loss) < float("inf")  # false for NaN
    initial_loss = tl.where(first_loss == first_loss, first_loss, loss)
    passed, length = step - begin, total_steps - begin
    parts = start * length + (PROGRESS_UNIT - start) * passed
    phase = tl.minimum(PHASES * parts // (PROGRESS_UNIT * length), PHASES - 1)

    begins = last_phase < 0
    renews = begins
    if POLICY == 1:  # per-phase
        renews = begins | (phase != last_phase)
    if POLICY >= 2:  # fixed, relative, measured
        fresh = loss * 0.0 + fixed_gamma
    else:
        f_0 = tl.where(begins, initial_loss, loss)
        if PERPLEXITY:
            f_0 = tl.exp(f_0)
        fresh = tl.sqrt(f_0) * tl.log(f_0 * classes) / (4.0 * root_classes)
    gamma = tl.where(renews & (fresh > 0) & (fresh < float("inf")), fresh, last_gamma)
    divisor = loss * 0.0 + 1.0
    if SCALE_BY_CLASSES:
        divisor = tl.where(log_classes == log_classes, log_classes, initial_loss)  # NaN where numbers are predicted
    if SCALE_BY_FIRST:
        divisor = initial_loss
    usable = (gamma > 0) & (divisor > 0)
    taken = finite & usable

    scaled = tl.where(taken, loss / divisor, 0.0)
    share = start.to(tl.float32) / PROGRESS_UNIT
    progress = share + (1.0 - share) * (tl.minimum(passed, length - 1).to(tl.float32) / length.to(tl.float32))
    clipped = tl.minimum(tl.maximum(scaled, -largest_feature), largest_feature)

    averages = memory + 2 * LAYERS * HIDDEN
    if TREND:
        known, before, first, fast, slow, spread = _averages(
            averages, clipped, progress, taken, smallest_loss, fast_window, slow_window
        )

    cells = tl.arange(0, BLOCK)
    real = cells < HIDDEN
    w = weights + phase * STRIDE
    x = tl.zeros((BLOCK,), tl.float32)
    for layer in tl.static_range(LAYERS):
        h = tl.load(memory + 2 * layer * HIDDEN + cells, mask=real, other=0.0)
        c = tl.load(memory + (2 * layer + 1) * HIDDEN + cells, mask=real, other=0.0)
        if layer > 0:
            from_x = _product(w, x, BLOCK)
            w += BLOCK * BLOCK
        else:
            from_x = tl.zeros((BLOCK,), tl.float32)
            if LOSS_INPUT >= 0:
                from_x += tl.load(w + LOSS_INPUT * BLOCK + cells) * clipped
            if PROGRESS_INPUT >= 0:
                from_x += tl.load(w + PROGRESS_INPUT * BLOCK + cells) * progress
            if TREND:
                noise = tl.sqrt(tl.maximum(spread, smallest_spread))
                from_x += tl.load(w + 2 * BLOCK + cells) * fast
                from_x += tl.load(w + 3 * BLOCK + cells) * (3.0 * (fast - slow))
                from_x += tl.load(w + 4 * BLOCK + cells) * (3.0 * noise)
                from_x += tl.load(w + 5 * BLOCK + cells) * first
            w += INPUTS * BLOCK
        from_h = _product(w, h, BLOCK)
        w += BLOCK * BLOCK
        from_x = tl.maximum(from_x + tl.load(w + cells), 0.0)
        from_h = tl.maximum(from_h + tl.load(w + BLOCK + cells), 0.0)
        w += 2 * BLOCK
        i, f, o, g = _gates(w, from_x, from_h, BLOCK)
        w += 8 * BLOCK * BLOCK + 4 * BLOCK
        c_after = _sigmoid(f) * c + _sigmoid(i) * _tanh(g)
        x = _sigmoid(o) * _tanh(c_after)
        tl.store(memory + 2 * layer * HIDDEN + cells, tl.where(taken, x, h), mask=real)
        tl.store(memory + (2 * layer + 1) * HIDDEN + cells, tl.where(taken, c_after, c), mask=real)

    if DECAY:
        factor, known, first, sum, weight, settled, lowest = _decay(
            memory, w, clipped, progress,
            smallest_loss, warmup, level_window, level_steps, settled_share, margin, spike, shortest_rise,
        )  # fmt: skip
    else:
        z = tl.sum(tl.load(w + cells) * x, axis=0) + tl.load(w + BLOCK)
        factor = _sigmoid(sharpness * z)
    if ANNEAL:
        factor = factor * (1.0 - progress)
    lr = scale * gamma * tl.maximum(factor, smallest_factor)
    lr = tl.where(taken, tl.minimum(tl.maximum(lr, min_lr), max_lr), last_lr)

    groups = tl.arange(0, GROUPS)
    present = groups < num_groups
    last_lrs = tl.load(group_lrs + groups, mask=present)
    tl.store(group_lrs + groups, tl.where(taken, lr * tl.load(ratios + groups, mask=present), last_lrs), mask=present)
    place = tl.minimum(step + nonfinite + unusable, history_size - 1)
    tl.store(history + place, lr)
    tl.store(losses + place, loss)
    tl.store(counts, step + taken)
    tl.store(counts + 1, tl.where(taken, phase, last_phase))
    tl.store(counts + 2, nonfinite + (finite == 0))
    tl.store(counts + 3, unusable + (finite & (usable == 0)))
    tl.store(counts + 4, outside + (taken & ((scaled < low) | (scaled > high))))
    tl.store(values, tl.where(taken, initial_loss, first_loss))
    tl.store(values + 1, tl.where(taken, gamma, last_gamma))
    tl.store(values + 2, lr)
    if DECAY:
        tl.store(memory, known, mask=taken)
        tl.store(memory + 1, progress, mask=taken)
        tl.store(memory + 2, first, mask=taken)
        tl.store(memory + 3, sum, mask=taken)
        tl.store(memory + 4, weight, mask=taken)
        tl.store(memory + 5, settled, mask=taken)
        tl.store(memory + 6, lowest, mask=taken)
    if TREND:
        tl.store(averages, known)
        tl.store(averages + 1, before)
        tl.store(averages + 2, first)
        tl.store(averages + 3, fast)
        tl.store(averages + 4, slow)
        tl.store(averages + 5, spread)


class FusedStep:
    """The kernel for one rule. The caller owns the buffers."""

    def __init__(self, rule: Rule, device: torch.device) -> None:
        self.rule, card, net = rule, rule.schedule.card, rule.schedule.net
        is_decay = isinstance(net, DecayNet)
        layers, hidden = (0, 1) if is_decay else (net.num_layers, net.hidden_size)
        classes = rule.num_classes or 2  # unused without num_classes
        self.block = max(16, triton.next_power_of_2(hidden))
        self.weights = self._stack(rule.schedule.phases).to(device)
        low, high = rule.schedule.warn_outside
        by_classes = net.loss_scale == "log_classes" and rule.num_classes is not None
        self.numbers = (
            rule.min_lr, rule.max_lr, low, high, float(classes), math.log(classes), classes**0.25, card.gamma.value or 1.0,
            net.sharpness, _features.LARGEST_FEATURE, _features.SMALLEST_FACTOR, _features.SMALLEST_LOSS, _features.SMALLEST_SPREAD,
            _features.FAST, _features.SLOW, _features.WARMUP, _features.LEVEL_WINDOW, float(_features.LEVEL_STEPS),
            _features.SETTLED, _features.MARGIN, _features.SPIKE, _features.SHORTEST_RISE,
        )  # fmt: skip
        self.constants: dict[str, Any] = {
            "PHASES": rule.schedule.num_phases,
            "LAYERS": layers,
            "INPUTS": 0 if is_decay else net.cells[0].i2h[0].in_features,  # type: ignore[index,union-attr]
            "LOSS_INPUT": net.inputs.index("loss") if "loss" in net.inputs else -1,
            "PROGRESS_INPUT": net.inputs.index("progress") if "progress" in net.inputs else -1,
            "HIDDEN": hidden,
            "POLICY": POLICIES.index(card.gamma.policy),
            "PERPLEXITY": card.gamma.statistic == "perplexity",
            "SCALE_BY_CLASSES": by_classes,
            "SCALE_BY_FIRST": net.loss_scale != "none" and not by_classes,
            "ANNEAL": net.anneal == "linear",
            "TREND": isinstance(net, TrendNet),
            "DECAY": is_decay,
            "MEMORY": net.initial_state().numel(),
            "PROGRESS_UNIT": _features.PROGRESS_UNIT,
            "STRIDE": self.weights.shape[1],
            "BLOCK": self.block,
        }

    @classmethod
    def build(cls, rule: Rule, device: torch.device) -> "FusedStep | None":
        """The kernel for a rule, or None if it cannot compute the rule's network."""
        net = rule.schedule.net
        if type(net) not in (LSTMNet, TrendNet, DecayNet) or next(net.parameters()).dtype != torch.float32:
            return None
        fits = not isinstance(net, LSTMNet) or net.hidden_size <= LARGEST_HIDDEN
        return cls(rule, device) if fits else None

    def set_weights(self, nets: Sequence[ScheduleNet]) -> None:
        """Continue with other weights of the same networks, in place."""
        self.weights.copy_(self._stack(nets))

    def _stack(self, nets: Sequence[ScheduleNet]) -> Tensor:
        return torch.stack([_flat(net, self.block) for net in nets])

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
        losses: Tensor,
        ratio: Tensor,
    ) -> None:
        """Take one step, in place."""
        groups = len(group_lrs)
        _step[(1,)](
            loss, counts, values, memory, self.weights, group_lrs, ratios, history, losses, ratio, loss, len(history), groups,
            scale, *self.numbers, GROUPS=triton.next_power_of_2(groups), MEMBERS=False, num_warps=NUM_WARPS, **self.constants,
        )  # fmt: skip


class FusedMembers:
    """The kernel for a population: networks of one description, one block each. The caller owns the buffers.

    counts (members, 8), values (members, 3), memory (members, layers, 2, hidden): a row per member, laid out as `_step`
    reads it.
    """

    def __init__(self, step: FusedStep, members: int) -> None:
        self.step, net = step, step.rule.schedule.net
        self.weights = step.weights.new_empty(members, step.weights.shape[1])
        self.ratios = self.weights.new_ones(1)
        self.unused, self.unlooked = self.weights.new_empty(2, members, 1)
        self.constant, *places = (part.to(self.weights.device) for part in _places(net, step.block))
        self.places = [(place.clamp(min=0), place >= 0) for place in places]

    @classmethod
    def build(cls, rule: Rule, members: int, device: torch.device) -> "FusedMembers | None":
        """The kernel for a rule with one phase, or None if it cannot compute the rule's network."""
        own = replace(rule, num_classes=2)  # unused: every member has its own
        step = FusedStep.build(own, device) if rule.schedule.num_phases == 1 else None
        return cls(step, members) if step else None

    def set_weights(self, flat: Tensor) -> None:
        """Set all weights from a (members, size) tensor, each row as from `torch.nn.utils.parameters_to_vector`."""
        found = self.constant.expand_as(self.weights).clone()
        for place, there in self.places:
            found += flat[:, place] * there
        self.weights.copy_(found)

    def __call__(
        self, losses: Tensor, *, counts: Tensor, values: Tensor, memory: Tensor, scales: Tensor, num_classes: Tensor
    ) -> None:
        """Take one step of all members, in place."""
        step = self.step
        _step[(len(losses),)](
            losses, counts, values, memory, self.weights, self.unused, self.ratios, self.unused, self.unlooked, scales, num_classes,
            1, 1, 1.0, *step.numbers, GROUPS=1, MEMBERS=True, num_warps=NUM_WARPS, **step.constants,
        )  # fmt: skip


def _flat(net: ScheduleNet, block: int) -> Tensor:
    """The weights in the order the kernel reads them: the powers of a `DecayNet`, or the matrices of an `LSTMNet`.

    Every matrix is padded with zeros to whole blocks.

    For each cell: W1's part for x (for the first cell transposed, and its few inputs not padded), W1's part for h, b1
    (both parts), W2's part for x gate by gate, W2's part for h gate by gate, b2. Then W3 and b3. Padded cells stay
    exactly 0.
    """
    if isinstance(net, DecayNet):
        return net.powers.detach().clone()
    assert isinstance(net, LSTMNet)
    parts, size = [], net.hidden_size
    for layer, cell in enumerate(net.cells):
        W1, b1, W2, b2 = cell.matrices()  # type: ignore[operator]
        inputs, width = W1.shape[1] - size, len(b1) // 2
        from_x = W1[:width, :inputs]
        parts.append(_pad(from_x.T, inputs, block) if layer == 0 else _pad(from_x, block, block))
        parts.append(_pad(W1[width:, inputs:], block, block))
        parts.append(_pad(b1.view(2, width), 2, block))
        for half in (W2[:, :width], W2[:, width:]):
            parts += [_pad(gate, block, block) for gate in half.chunk(4)]
        parts.append(_pad(b2.view(4, size), 4, block))
    parts += [_pad(net.out.weight, 1, block), _pad(net.out.bias.view(1, 1), 1, block)]
    return torch.cat([part.reshape(-1) for part in parts])


def _places(net: ScheduleNet, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where each number of `_flat` comes from: a constant plus up to two entries of the parameter vector (-1 for none).

    Most numbers are a single parameter. Those of b2 are sums of two, from different branches.
    """
    probe = copy.deepcopy(net).double().cpu().requires_grad_(False)
    names = [name for name, _ in probe.named_parameters()]
    size = sum(parameter.numel() for parameter in probe.parameters())
    second = [name.endswith("h2h.2.bias") for name in names]

    def filled(numbers: Tensor, chosen: bool | None) -> Tensor:
        vector_to_parameters(numbers.clone(), probe.parameters())  # the parameters become views of it
        for name, is_second in zip(names, second, strict=True):
            if chosen is not None and is_second != chosen:
                probe.get_parameter(name).zero_()
        return _flat(probe, block)

    constant = filled(torch.zeros(size, dtype=torch.float64), None)
    numbers = torch.arange(1, size + 1, dtype=torch.float64)
    first, other = ((filled(numbers, chosen) - constant).round().long() - 1 for chosen in (False, True))
    return constant.float(), first, other


def _pad(matrix: Tensor, rows: int, columns: int) -> Tensor:
    return nn.functional.pad(matrix, (0, columns - matrix.shape[1], 0, rows - matrix.shape[0]))
