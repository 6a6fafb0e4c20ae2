"""Schedule networks: (features, memory) -> (factor in (0, 1), memory).

They are pure functions of weights and arguments, with no hidden state, on numpy's arrays or on tensors with any leading dimensions:
many networks side by side are one whose weights have a leading dimension more.

Paper symbols: h, c are the cell's memory; i, f, o, g its gates; p the factor; d' the hidden size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mlrsnet import _check
from mlrsnet.ops import DEVICE, Operations
from mlrsnet.plan import Plan

INPUTS = ("loss", "progress")
LOSS_SCALES = ("none", "log_classes", "initial")
ANNEALS = ("none", "linear")

LARGEST_FEATURE = 1e4
"""Scaled losses are clipped here: no finite loss can overflow a network in float32."""

SMALLEST_LOSS = 1e-4
"""Logarithms of scaled losses stop here."""

SMALLEST_SPREAD = 1e-8
"""A smaller variance of the loss is rounding."""

SMALLEST_FACTOR = 1e-12
"""The factor never becomes 0: an optimizer may divide by its LR, as Adam's capturable path does."""

FAST, SLOW = 0.02, 0.1
"""How far averages of the loss look back, as fractions of the training."""

Weights = Mapping[str, Any]
"""Arrays by the names of a network's parameters."""


@dataclass(frozen=True)
class Layout:
    """How a published cell arranges its weights.

    gates: order of the four blocks of rows in the second layer. forget_shift: added before the forget gate's sigmoid.
    width: size of the pre-processing layers as a fraction of the hidden size.
    """

    gates: str
    forget_shift: float
    width: float


LAYOUTS = {
    "paper": Layout("ifog", 0.0, 1.0),  # Appendix B
    "official-test": Layout("ifgo", 0.0, 0.5),  # the network the published checkpoints are made for
    "official-train": Layout("ifog", -1.0, 0.5),  # same keys, another meaning: see Schedule.from_official
}


class ScheduleNet(nn.Module):
    """Base of the schedule networks: what they read and how their answer is used.

        x_t = (f_t / s, u_t)        alpha_t = gamma p(x_t) a(u_t)        s: the loss scale, u: progress, a: the anneal factor

    Args:
        inputs: names of the features, in order: `("loss",)` in the paper; `("loss", "progress")` knows the horizon.
        loss_scale: what the loss is divided by: `none` (the paper), `log_classes`, `initial` (the first loss).
        sharpness: k in p = sigmoid(k z); 1 in the paper.
        anneal: `none` (the paper), or `linear`: the factor is multiplied by 1 - progress.
    """

    def __init__(
        self,
        *,
        inputs: tuple[str, ...] = ("loss",),
        loss_scale: str = "none",
        sharpness: float = 1.0,
        anneal: str = "none",
    ) -> None:
        super().__init__()
        self.inputs = tuple(_check.one_of("inputs", name, INPUTS) for name in inputs)
        if not self.inputs or len(set(self.inputs)) != len(self.inputs):
            raise ValueError(
                f"inputs must name each feature once and at least one of {', '.join(INPUTS)}; got {inputs!r}"
            )
        self.loss_scale = _check.one_of("loss_scale", loss_scale, LOSS_SCALES)
        self.sharpness = _check.positive("sharpness", sharpness, "k in sigmoid(k z), 1 in the paper")
        self.anneal = _check.one_of("anneal", anneal, ANNEALS)

    def config(self) -> dict[str, Any]:
        """Everything but the weights, as `build_net` takes it."""
        return {
            "kind": type(self).__name__,
            "inputs": list(self.inputs),
            "loss_scale": self.loss_scale,
            "sharpness": self.sharpness,
            "anneal": self.anneal,
        }

    @property
    def knows_progress(self) -> bool:
        """Whether its answers depend on how much of the training is over."""
        return "progress" in self.inputs or self.anneal != "none"

    def initial_state(self, *batch: int) -> Tensor:
        """theta_0: the memory before the first step, for any batch shape."""
        raise NotImplementedError

    def respond(self, weights: Weights, features: Any, memory: Any, o: Operations) -> tuple[Any, Any]:
        """(..., inputs), memory -> p (...), memory; with these weights."""
        raise NotImplementedError

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """`respond` with its own weights."""
        return self.respond(dict(self.named_parameters()), features, state, DEVICE)

    def predict(self, weights: Weights, loss: Any, progress: Any, memory: Any, o: Operations) -> tuple[Any, Any]:
        """One step: scaled loss, progress, memory -> alpha / gamma, memory."""
        columns = {"loss": o.clamp(loss, -LARGEST_FEATURE, LARGEST_FEATURE), "progress": progress}
        factor, memory = self.respond(weights, o.stack([columns[name] for name in self.inputs], memory), memory, o)
        if self.anneal == "linear":
            factor = factor * (1 - progress)
        return o.clamp(factor, SMALLEST_FACTOR, 1.0), memory

    def divisor(self, initial_loss: Any, num_classes: Any, o: Operations) -> Any:
        """s: what the loss is divided by. `num_classes` is NaN where nobody told it.

        An untrained classifier's loss is about log(classes), so the first loss stands in for that.
        """
        if self.loss_scale == "none":
            return o.constant(1.0, initial_loss)
        if self.loss_scale == "initial":
            return initial_loss
        return o.where(o.isnan(num_classes), initial_loss, o.log(num_classes))

    def _squash(self, z: Any, o: Operations) -> Any:
        """p = sigmoid(k z)."""
        return _sigmoid(self.sharpness * z[..., 0], o)


class Cell(nn.Module):
    """The paper's LSTM cell: a two-layer branch for the input and one for h, whose sum is split into four gates.

    The shapes of the matrix form printed in Section 3.2.1 do not fit together; the separate branches of Appendix B do.
    """

    def __init__(self, num_inputs: int, hidden_size: int, layout: str) -> None:
        super().__init__()
        self.layout = LAYOUTS[layout]
        width = max(1, int(hidden_size * self.layout.width))
        self.i2h = nn.Sequential(nn.Linear(num_inputs, width), nn.ReLU(), nn.Linear(width, 4 * hidden_size))
        self.h2h = nn.Sequential(nn.Linear(hidden_size, width), nn.ReLU(), nn.Linear(width, 4 * hidden_size))

    def respond(self, weights: Weights, name: str, x: Any, h: Any, c: Any, o: Operations) -> tuple[Any, Any]:
        """c' = sigma(f) c + sigma(i) tanh(g);  h' = sigma(o) tanh(c')."""
        sums = _linear(weights, f"{name}.i2h.2", o.relu(_linear(weights, f"{name}.i2h.0", x, o)), o)
        sums = sums + _linear(weights, f"{name}.h2h.2", o.relu(_linear(weights, f"{name}.h2h.0", h, o)), o)
        size = h.shape[-1]
        i, f, out, g = (sums[..., place * size : (place + 1) * size] for place in map(self.layout.gates.index, "ifog"))
        c = _sigmoid(f + self.layout.forget_shift, o) * c + _sigmoid(i, o) * o.tanh(g)
        return _sigmoid(out, o) * o.tanh(c), c


class LSTMNet(ScheduleNet):
    """The paper's MLR-SNet (Section 3.2.1, Appendix B): p = sigmoid(k (W3 h + b3)) over one or more LSTM cells.

    Args:
        hidden_size: d', 50 in the paper.
        num_layers: cells on top of each other, 1 in the paper.
        layout: `paper`, or one of the authors' two published arrangements, `official-test` and `official-train`.
        inputs, loss_scale, sharpness, anneal: see `ScheduleNet`.

    >>> net = LSTMNet()
    >>> factor, state = net(torch.tensor([2.3]), net.initial_state())
    >>> 0 < factor.item() < 1, state.shape
    (True, torch.Size([1, 2, 50]))
    """

    extra = 0
    """Numbers that the first cell reads beside the features, and a layer of memory for them if there are any."""

    def __init__(
        self,
        hidden_size: int = 50,
        num_layers: int = 1,
        *,
        layout: str = "paper",
        inputs: tuple[str, ...] = ("loss",),
        loss_scale: str = "none",
        sharpness: float = 1.0,
        anneal: str = "none",
    ) -> None:
        super().__init__(inputs=inputs, loss_scale=loss_scale, sharpness=sharpness, anneal=anneal)
        self.hidden_size = _check.whole_number("hidden_size", hidden_size)
        self.num_layers = _check.whole_number("num_layers", num_layers)
        self.layout = _check.one_of("layout", layout, LAYOUTS)
        sizes = [len(self.inputs) + self.extra] + [hidden_size] * (num_layers - 1)
        self.cells = nn.ModuleList(Cell(size, hidden_size, layout) for size in sizes)
        self.out = nn.Linear(hidden_size, 1)

    def config(self) -> dict[str, Any]:
        """See `ScheduleNet`."""
        own = {"hidden_size": self.hidden_size, "num_layers": self.num_layers, "layout": self.layout}
        return super().config() | own

    def initial_state(self, *batch: int) -> Tensor:
        """Zeros."""
        return self.out.weight.new_zeros(*batch, self.num_layers + bool(self.extra), 2, self.hidden_size)

    def respond(self, weights: Weights, features: Any, memory: Any, o: Operations) -> tuple[Any, Any]:
        """See `ScheduleNet`."""
        x, after = features, []
        for layer, cell in enumerate(self.cells):
            x, c = cell.respond(weights, f"cells.{layer}", x, memory[..., layer, 0, :], memory[..., layer, 1, :], o)  # type: ignore[operator]
            after += [x, c]
        shape = (*memory.shape[:-3], len(self.cells), 2, self.hidden_size)
        return self._squash(_linear(weights, "out", x, o), o), o.joined(after).reshape(shape)


class Averages(NamedTuple):
    """How l, the logarithm of the scaled loss, has moved. All 0 before the first step.

    known: 1 after the first step. before: the last progress. first: the first l. fast, slow: averages of l with weights
    exp(-passed progress / window). spread: average of (l - fast)^2 over the slow window.
    """

    known: Any
    before: Any
    first: Any
    fast: Any
    slow: Any
    spread: Any

    def after(self, loss: Any, progress: Any, o: Operations) -> "Averages":
        """After one more scaled loss."""
        log = o.log(o.clamp(loss, SMALLEST_LOSS, LARGEST_FEATURE))
        passed = o.clamp(progress - self.before, 0.0, 1.0)  # a horizon that grows sets the progress back
        keep_fast, keep_slow = (self.known * o.exp(-passed / window) for window in (FAST, SLOW))
        fast, slow = log + keep_fast * (self.fast - log), log + keep_slow * (self.slow - log)
        now = (log - fast) ** 2
        first = o.where(self.known == 0, log, self.first)
        return Averages(0.0 * log + 1.0, progress, first, fast, slow, now + keep_slow * (self.spread - now))

    def features(self, o: Operations) -> list[Any]:
        """Level, trend, noise and first value, scaled to similar sizes."""
        noise = o.sqrt(o.clamp(self.spread, SMALLEST_SPREAD, LARGEST_FEATURE))
        return [self.fast, 3 * (self.fast - self.slow), 3 * noise, self.first]


class TrendNet(LSTMNet):
    """An LSTM that also reads how the loss has moved, over fixed fractions of the training.

    Besides loss / s and progress it reads level, trend, noise and first value of log(loss / s), see `Averages`. They are kept in a
    layer of the memory behind those of the cells.

    >>> net = TrendNet(16, inputs=("loss", "progress"))
    >>> factor, state = net(torch.tensor([2.3, 0.0]), net.initial_state())
    >>> state.shape, round(state[1, 0, 2].exp().item(), 3)
    (torch.Size([2, 2, 16]), 2.3)
    """

    extra = 4

    def __init__(
        self,
        hidden_size: int = 16,
        num_layers: int = 1,
        *,
        inputs: tuple[str, ...] = ("loss", "progress"),
        **options: Any,
    ) -> None:
        _check.whole_number("hidden_size", hidden_size, len(Averages._fields))
        super().__init__(hidden_size, num_layers, inputs=inputs, **options)
        if self.inputs != ("loss", "progress"):
            raise ValueError(f"inputs of a TrendNet must be ('loss', 'progress'), got {self.inputs!r}: use an LSTMNet")

    def respond(self, weights: Weights, features: Any, memory: Any, o: Operations) -> tuple[Any, Any]:
        """See `ScheduleNet`."""
        kept = len(Averages._fields)
        loss, progress = o.unstack(features)
        averages = Averages(*o.unstack(memory[..., -1, 0, :kept])).after(loss, progress, o)
        told = o.joined([features, o.stack(averages.features(o), memory)])
        factor, cells = super().respond(weights, told, memory[..., :-1, :, :], o)
        rest = memory[..., -1, 0, kept:]
        layer = o.joined([o.stack(averages, memory), rest, memory[..., -1, 1, :]])
        flat = o.joined([cells.reshape(*cells.shape[:-3], -1), layer])
        return factor, flat.reshape(memory.shape)


class MLPNet(ScheduleNet):
    """The memoryless network of Section 5.4: p = sigmoid(k (W2 relu(W1 x + b1) + b2)).

    The paper does not print its shape. One hidden layer as wide as the LSTM's is our choice.

    >>> net = MLPNet()
    >>> factor, state = net(torch.tensor([[2.3], [0.1]]), net.initial_state(2))
    >>> factor.shape, state.shape
    (torch.Size([2]), torch.Size([2, 0]))
    """

    def __init__(
        self,
        hidden_size: int = 50,
        *,
        inputs: tuple[str, ...] = ("loss",),
        loss_scale: str = "none",
        sharpness: float = 1.0,
        anneal: str = "none",
    ) -> None:
        super().__init__(inputs=inputs, loss_scale=loss_scale, sharpness=sharpness, anneal=anneal)
        self.hidden_size = _check.whole_number("hidden_size", hidden_size)
        self.hidden = nn.Linear(len(self.inputs), hidden_size)
        self.out = nn.Linear(hidden_size, 1)

    def config(self) -> dict[str, Any]:
        """See `ScheduleNet`."""
        return super().config() | {"hidden_size": self.hidden_size}

    def initial_state(self, *batch: int) -> Tensor:
        """Zeros."""
        return self.out.weight.new_zeros(*batch, 0)

    def respond(self, weights: Weights, features: Any, memory: Any, o: Operations) -> tuple[Any, Any]:
        """See `ScheduleNet`; the memory is empty."""
        return self._squash(_linear(weights, "out", o.relu(_linear(weights, "hidden", features, o)), o), o), memory


def predict(net: ScheduleNet, loss: Tensor, progress: Tensor | float, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step of a network with its own weights: scaled loss (...), progress, state -> alpha / gamma (...), state."""
    u = torch.as_tensor(progress, dtype=loss.dtype, device=loss.device).expand_as(loss)
    return net.predict(dict(net.named_parameters()), loss, u, state, DEVICE)


@torch.no_grad()
def unroll(phases: Sequence[ScheduleNet], losses: Tensor, total_steps: int | None = None) -> Tensor:
    """A training: scaled losses (steps, ...) -> alpha / gamma (steps, ...), the phases spread over the steps.

    `total_steps`: of the whole training, if these losses are only its beginning.
    """
    plan, state, factors = Plan.of(total_steps or len(losses)), phases[0].initial_state(*losses.shape[1:]), []
    for step, loss in enumerate(losses):
        factor, state = predict(phases[plan.phase(step, len(phases))], loss, plan.progress(step), state)
        factors.append(factor)
    return torch.stack(factors)


KINDS: dict[str, type[ScheduleNet]] = {kind.__name__: kind for kind in (LSTMNet, TrendNet, MLPNet)}


def build_net(config: dict[str, Any]) -> ScheduleNet:
    """The network a `config()` describes, freshly initialised.

    >>> build_net(MLPNet(8).config()).hidden_size
    8
    """
    arguments = dict(config)
    kind = _check.one_of("network kind", arguments.pop("kind", None), KINDS)
    return KINDS[kind](**{**arguments, "inputs": tuple(arguments.get("inputs", ("loss",)))})


def _linear(weights: Weights, name: str, x: Any, o: Operations) -> Any:
    """W x + b."""
    return o.product(weights[f"{name}.weight"], x) + weights[f"{name}.bias"]


def _sigmoid(z: Any, o: Operations) -> Any:
    """sigma(z) = (1 + tanh(z / 2)) / 2."""
    return 0.5 * o.tanh(0.5 * z) + 0.5
