"""Schedule networks: (features, state) -> (factor in (0, 1), state).

They are pure functions of weights and arguments, with no hidden state and any leading batch dimensions. For many networks at
once, use `torch.func.stack_module_state` and `torch.vmap` over `torch.func.functional_call`.

Paper symbols: h, c are the cell's memory; i, f, o, g its gates; p the factor; d' the hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mlrsnet import _check
from mlrsnet._features import (
    ANNEALS,
    INPUTS,
    LOSS_SCALES,
    Averages,
    Level,
    anneal,
    phase_index,
    progress,
    stack_features,
    warm_up,
)
from mlrsnet._numbers import DEVICE


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


class Matrices(NamedTuple):
    """One cell in the matrix form of Section 3.2.1, gates in the order i, f, o, g.

    (i, f, o, g) = (sigma, sigma, sigma, tanh)(W2 relu(W1 (x, h) + b1) + b2), with W1 block-diagonal. The shapes printed in
    the paper do not fit together; the separate branches for x and h in Appendix B do.
    """

    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor


class ScheduleNet(nn.Module):
    """Base of the schedule networks: what they read and how their answer is used.

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

    def initial_state(self, *batch: int) -> Tensor:
        """theta_0: the memory before the first step, for any batch shape."""
        raise NotImplementedError

    def careful(self, state: Tensor, share: float | Tensor) -> Tensor:
        """A state that keeps steps at this share of their length until the loss has fallen, where the network can do so."""
        return state

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """(..., inputs), state -> (...), state."""
        raise NotImplementedError

    def _squash(self, z: Tensor) -> Tensor:
        """p = sigmoid(k z)."""
        return torch.sigmoid(self.sharpness * z.squeeze(-1))


class Cell(nn.Module):
    """The paper's LSTM cell: a two-layer branch for the input and one for h, whose sum is split into four gates."""

    def __init__(self, num_inputs: int, hidden_size: int, layout: str) -> None:
        super().__init__()
        self.layout = LAYOUTS[layout]
        width = max(1, int(hidden_size * self.layout.width))
        self.i2h = nn.Sequential(nn.Linear(num_inputs, width), nn.ReLU(), nn.Linear(width, 4 * hidden_size))
        self.h2h = nn.Sequential(nn.Linear(hidden_size, width), nn.ReLU(), nn.Linear(width, 4 * hidden_size))

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """c' = sigma(f) c + sigma(i) tanh(g);  h' = sigma(o) tanh(c')."""
        gates = dict(zip(self.layout.gates, (self.i2h(x) + self.h2h(h)).chunk(4, dim=-1), strict=True))
        forget = torch.sigmoid(gates["f"] + self.layout.forget_shift)
        c = forget * c + torch.sigmoid(gates["i"]) * torch.tanh(gates["g"])
        return torch.sigmoid(gates["o"]) * torch.tanh(c), c

    def matrices(self) -> Matrices:
        """The same cell as two matrix products, whatever its layout."""
        first_x, second_x, first_h, second_h = (
            cast(nn.Linear, branch[i]) for branch in (self.i2h, self.h2h) for i in (0, 2)
        )
        order = [self.layout.gates.index(gate) for gate in "ifog"]
        blocks = torch.cat((second_x.weight, second_h.weight), dim=1).chunk(4)
        bias = (second_x.bias + second_h.bias).chunk(4)
        shift = torch.tensor([0.0, self.layout.forget_shift, 0.0, 0.0]).to(bias[0])
        return Matrices(
            W1=torch.block_diag(first_x.weight, first_h.weight),
            b1=torch.cat((first_x.bias, first_h.bias)),
            W2=torch.cat([blocks[i] for i in order]),
            b2=torch.cat([bias[j] + shift[i] for i, j in enumerate(order)]),
        )


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
        sizes = [self._width()] + [hidden_size] * (num_layers - 1)
        self.cells = nn.ModuleList(Cell(size, hidden_size, layout) for size in sizes)
        self.out = nn.Linear(hidden_size, 1)

    def config(self) -> dict[str, Any]:
        """See `ScheduleNet`."""
        own = {"hidden_size": self.hidden_size, "num_layers": self.num_layers, "layout": self.layout}
        return super().config() | own

    def initial_state(self, *batch: int) -> Tensor:
        """Zeros."""
        return self.out.weight.new_zeros(*batch, self.num_layers, 2, self.hidden_size)

    def _width(self) -> int:
        """How many numbers the first cell reads."""
        return len(self.inputs)

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `ScheduleNet`."""
        x, memory = features, []
        for cell, layer in zip(self.cells, state.unbind(-3), strict=True):
            x, c = cell(x, *layer.unbind(-2))
            memory.append(torch.stack((x, c), dim=-2))
        return self._squash(self.out(x)), torch.stack(memory, dim=-3)


class TrendNet(LSTMNet):
    """An LSTM that also reads how the loss has moved, over fixed fractions of the training.

    Besides loss / s and progress it reads level, trend, noise and first value of log(loss / s), see `_features.Averages`. They
    are kept in a layer of the memory behind those of the cells.

    >>> net = TrendNet(16, inputs=("loss", "progress"))
    >>> factor, state = net(torch.tensor([2.3, 0.0]), net.initial_state())
    >>> state.shape, round(state[1, 0, 2].exp().item(), 3)
    (torch.Size([2, 2, 16]), 2.3)
    """

    def __init__(
        self,
        hidden_size: int = 16,
        num_layers: int = 1,
        *,
        layout: str = "paper",
        inputs: tuple[str, ...] = ("loss", "progress"),
        loss_scale: str = "none",
        sharpness: float = 1.0,
        anneal: str = "none",
    ) -> None:
        _check.whole_number("hidden_size", hidden_size, len(Averages._fields))
        super().__init__(
            hidden_size,
            num_layers,
            layout=layout,
            inputs=inputs,
            loss_scale=loss_scale,
            sharpness=sharpness,
            anneal=anneal,
        )
        if self.inputs != ("loss", "progress"):
            raise ValueError(f"inputs of a TrendNet must be ('loss', 'progress'), got {self.inputs!r}: use an LSTMNet")

    def initial_state(self, *batch: int) -> Tensor:
        """Zeros."""
        return self.out.weight.new_zeros(*batch, self.num_layers + 1, 2, self.hidden_size)

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `ScheduleNet`."""
        kept = len(Averages._fields)
        averages = Averages(*state[..., -1, 0, :kept].unbind(-1)).after(*features.unbind(-1))
        factor, memory = super().forward(self._read(features, averages), state[..., :-1, :, :])
        layer = torch.zeros_like(state[..., -1:, :, :])
        layer[..., 0, 0, :kept] = torch.stack(averages, dim=-1)
        return factor, torch.cat((memory, layer), dim=-3)

    def _read(self, features: Tensor, averages: Averages) -> Tensor:
        return torch.cat((features, torch.stack(averages.features(), dim=-1)), dim=-1)

    def _width(self) -> int:
        return len(self.inputs) + 4


class DecayNet(ScheduleNet):
    """A warm-up and a linear decay, made shorter by what the loss says. Two weights, no hidden layer.

        p = warm_up(u) * min(1, level)^q * max(s, (lowest / level)^p) * max(k, gain) * (1 - u)

    See `_features.Level`. k is 1 unless `careful` lowers it.

    Args:
        fall: q, of the level of the loss.
        rise: p, of its rise above the lowest level so far.
        inputs, loss_scale, sharpness, anneal: for files; they have one value each.

    >>> net = DecayNet()
    >>> factor, state = net(torch.tensor([2.3, 0.5]), net.initial_state())
    >>> round(factor.item(), 3), state.shape
    (1.0, torch.Size([8]))
    """

    def __init__(
        self,
        fall: float = 0.25,
        rise: float = 3.0,
        *,
        inputs: tuple[str, ...] = ("loss", "progress"),
        loss_scale: str = "none",
        sharpness: float = 1.0,
        anneal: str = "linear",
    ) -> None:
        super().__init__(inputs=inputs, loss_scale=loss_scale, sharpness=sharpness, anneal=anneal)
        if self.inputs != ("loss", "progress") or (loss_scale, sharpness) != ("none", 1.0):
            raise ValueError(
                "a DecayNet reads ('loss', 'progress') with loss_scale='none' and sharpness=1, got "
                f"{self.inputs!r}, {loss_scale!r} and {sharpness!r}: leave them out"
            )
        powers = [_check.not_negative("fall", fall), _check.not_negative("rise", rise)]
        self.powers = nn.Parameter(torch.tensor(powers))

    def initial_state(self, *batch: int) -> Tensor:
        """Zeros."""
        return self.powers.new_zeros(*batch, len(Level._fields))

    def careful(self, state: Tensor, share: float | Tensor) -> Tensor:
        """See `ScheduleNet`: k is `share`."""
        level = Level(*state.unbind(-1))
        return torch.stack(level._replace(caution=torch.zeros_like(level.caution) + (1 - share)), dim=-1)

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `ScheduleNet`."""
        loss, progress = features.unbind(-1)
        level = Level(*state.unbind(-1)).after(loss, progress, DEVICE)
        fall, rise = self.powers.unbind(-1)
        return warm_up(progress, DEVICE) * level.factor(fall, rise, DEVICE), torch.stack(level, dim=-1)


class ReadingNet(DecayNet):
    """A `DecayNet` that a small network may correct, from how far the run is and how its loss moves.

        p = p_decay * M^tanh(w2 . tanh(W1 x + b1) + b2)          M = `MOST_CORRECTION`
        x = (2 u - 1, log level, log(lowest / level), trend, noise)

    See `_features.Level` and `_features.Averages`. Only ratios of losses count. W2 and b2 begin at 0: it begins as the `DecayNet`.

    Args:
        fall, rise: see `DecayNet`.
        hidden_size: of the small network.
        inputs, loss_scale, sharpness, anneal: for files; they have one value each.

    >>> net = ReadingNet()
    >>> factor, state = net(torch.tensor([2.3, 0.5]), net.initial_state())
    >>> round(factor.item(), 3), state.shape
    (1.0, torch.Size([14]))
    """

    READS = 5
    MOST_CORRECTION = 4.0

    def __init__(
        self,
        fall: float = 0.25,
        rise: float = 3.0,
        hidden_size: int = 8,
        *,
        inputs: tuple[str, ...] = ("loss", "progress"),
        loss_scale: str = "none",
        sharpness: float = 1.0,
        anneal: str = "linear",
    ) -> None:
        super().__init__(fall, rise, inputs=inputs, loss_scale=loss_scale, sharpness=sharpness, anneal=anneal)
        self.hidden_size = _check.whole_number("hidden_size", hidden_size)
        self.hidden, self.out = nn.Linear(self.READS, hidden_size), nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def config(self) -> dict[str, Any]:
        """See `ScheduleNet`."""
        return super().config() | {"hidden_size": self.hidden_size}

    def initial_state(self, *batch: int) -> Tensor:
        """Zeros: a `Level`, then `Averages`."""
        return self.powers.new_zeros(*batch, len(Level._fields) + len(Averages._fields))

    def careful(self, state: Tensor, share: float | Tensor) -> Tensor:
        """See `DecayNet`."""
        level, averages = self._parts(state)
        return torch.cat((super().careful(level, share), averages), dim=-1)

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `ScheduleNet`."""
        before, averages = self._parts(state)
        decay, after = super().forward(features, before)
        moved = Averages(*averages.unbind(-1)).after(*features.unbind(-1))
        z = self.out(torch.tanh(self.hidden(self._read(features[..., 1], Level(*after.unbind(-1)), moved))))
        correction = self.MOST_CORRECTION ** torch.tanh(z.squeeze(-1))
        return decay * correction, torch.cat((after, torch.stack(moved, dim=-1)), dim=-1)

    def _read(self, progress: Tensor, level: Level, averages: Averages) -> Tensor:
        now, (_, trend, noise, _) = level.level(DEVICE), averages.features()
        rise = torch.where(level.lowest > 0, level.lowest / now, torch.ones_like(now))
        return torch.stack((2 * progress - 1, now.log(), rise.log(), trend, noise), dim=-1)

    @staticmethod
    def _parts(state: Tensor) -> tuple[Tensor, Tensor]:
        level, averages = state.split((len(Level._fields), len(Averages._fields)), dim=-1)
        return level, averages


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

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `ScheduleNet`; the state is empty."""
        return self._squash(self.out(torch.relu(self.hidden(features)))), state


def predict(
    net: ScheduleNet, loss: Tensor, progress: Tensor | float, state: Tensor, weights: dict[str, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """One step of a network: scaled loss (...), progress, state -> alpha / gamma (...), state. Pure and batched.

    `weights` replace the network's own.
    """
    x = stack_features(net.inputs, loss, progress)
    factor, state = net(x, state) if weights is None else functional_call(net, weights, (x, state))
    return anneal(net.anneal, factor, progress), state


@torch.no_grad()
def unroll(phases: Sequence[ScheduleNet], losses: Tensor, total_steps: int | None = None) -> Tensor:
    """A training: scaled losses (steps, ...) -> alpha / gamma (steps, ...), the phases spread over the steps.

    `total_steps`: of the whole training, if these losses are only its beginning.
    """
    steps, state, factors = total_steps or len(losses), phases[0].initial_state(*losses.shape[1:]), []
    for step, loss in enumerate(losses):
        net = phases[phase_index(step, steps, len(phases))]
        factor, state = predict(net, loss, progress(step, steps), state)
        factors.append(factor)
    return torch.stack(factors)


KINDS: dict[str, type[ScheduleNet]] = {
    kind.__name__: kind for kind in (LSTMNet, TrendNet, MLPNet, DecayNet, ReadingNet)
}


def build_net(config: dict[str, Any]) -> ScheduleNet:
    """The network a `config()` describes, freshly initialised.

    >>> build_net(MLPNet(8).config()).hidden_size
    8
    """
    arguments = dict(config)
    kind = _check.one_of("network kind", arguments.pop("kind", None), KINDS)
    return KINDS[kind](**{**arguments, "inputs": tuple(arguments.get("inputs", ("loss",)))})
