"""Schedule networks for the host: floats in, a float out, numpy inside, at a fifth of the cost of small torch calls."""

import copy
import math

import numpy as np
import torch

from mlrsnet import _features
from mlrsnet._numbers import HOST
from mlrsnet.nets import DecayNet, LSTMNet, MLPNet, ScheduleNet, TrendNet


class HostNet:
    """Any schedule network, called with floats."""

    def __init__(self, net: ScheduleNet) -> None:
        self.net = net
        self.places = [_features.INPUTS.index(name) for name in net.inputs]

    def predict(self, loss: float, progress: float, memory: np.ndarray) -> tuple[float, np.ndarray]:
        """`nets.predict`: scaled loss, progress, memory -> alpha / gamma, memory."""
        clipped = min(max(loss, -_features.LARGEST_FEATURE), _features.LARGEST_FEATURE)
        values = (clipped, progress)  # in the order of INPUTS
        x = np.array([values[place] for place in self.places], dtype=memory.dtype)
        factor, memory = self(x, memory)
        if self.net.anneal == "linear":
            factor *= 1 - progress
        return max(factor, _features.SMALLEST_FACTOR), memory

    def __call__(self, x: np.ndarray, memory: np.ndarray) -> tuple[float, np.ndarray]:
        """x, memory -> factor, memory."""
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            factor, state = self.net(torch.from_numpy(x), torch.from_numpy(memory))
        return float(factor), state.numpy()


class HostLSTM(HostNet):
    """`LSTMNet` in the matrix form of `nets.Matrices`."""

    def __init__(self, net: LSTMNet) -> None:
        super().__init__(net)
        self.cells = [[m.detach().numpy() for m in cell.matrices()] for cell in net.cells]  # type: ignore[operator]
        self.w3, self.b3 = net.out.weight.detach().numpy()[0], net.out.bias.item()

    def __call__(self, x: np.ndarray, memory: np.ndarray) -> tuple[float, np.ndarray]:
        """c' = f c + i g;  h' = o tanh(c')."""
        size, after = self.w3.size, np.empty_like(memory)
        for (W1, b1, W2, b2), (h, c), (h_after, c_after) in zip(self.cells, memory, after, strict=True):
            hidden = W1.dot(np.concatenate((x, h)))  # cheaper than @ at this size
            hidden += b1
            np.maximum(hidden, 0, out=hidden)
            gates = W2.dot(hidden)
            gates += b2
            ifo, g = gates[: 3 * size], gates[3 * size :]
            ifo *= 0.5  # sigma(z) = (1 + tanh(z / 2)) / 2
            np.tanh(gates, out=gates)
            ifo += 1.0
            ifo *= 0.5
            np.multiply(ifo[size : 2 * size], c, out=c_after)
            g *= ifo[:size]
            c_after += g
            np.tanh(c_after, out=h_after)
            h_after *= ifo[2 * size :]
            x = h_after
        return _sigmoid(self.net.sharpness * (float(self.w3.dot(x)) + self.b3)), after


class HostTrend(HostLSTM):
    """`TrendNet`: averages as plain numbers, cells as in `HostLSTM`."""

    def __call__(self, x: np.ndarray, memory: np.ndarray) -> tuple[float, np.ndarray]:
        """See `features.Averages`."""
        loss, progress = x.tolist()
        known, before, first, fast, slow, spread = memory[-1, 0, :6].tolist()
        log = math.log(max(loss, _features.SMALLEST_LOSS))
        passed = max(progress - before, 0.0)  # a horizon that grows sets the progress back
        keep_fast, keep_slow = (known * math.exp(-passed / window) for window in (_features.FAST, _features.SLOW))
        first = first if known else log
        fast, slow = log + keep_fast * (fast - log), log + keep_slow * (slow - log)
        spread = (log - fast) ** 2 + keep_slow * (spread - (log - fast) ** 2)
        noise = math.sqrt(max(spread, _features.SMALLEST_SPREAD))
        told = np.array((loss, progress, fast, 3 * (fast - slow), 3 * noise, first), dtype=x.dtype)
        factor, cells = super().__call__(told, memory[:-1])
        layer = np.zeros_like(memory[-1:])
        layer[0, 0, :6] = 1.0, progress, first, fast, slow, spread
        return factor, np.concatenate((cells, layer))


class HostDecay(HostNet):
    """`DecayNet` in plain numbers."""

    def __init__(self, net: DecayNet) -> None:
        super().__init__(net)
        self.fall, self.rise = net.powers.tolist()

    def __call__(self, x: np.ndarray, memory: np.ndarray) -> tuple[float, np.ndarray]:
        """See `features.Level`."""
        loss, progress = x.tolist()
        level = _features.Level(*memory.tolist()).after(loss, progress, HOST)
        return _features.warm_up(progress, HOST) * level.factor(self.fall, self.rise, HOST), np.array(
            level, dtype=memory.dtype
        )


class HostMLP(HostNet):
    """`MLPNet` in numpy."""

    def __init__(self, net: MLPNet) -> None:
        super().__init__(net)
        self.W1, self.b1 = net.hidden.weight.detach().numpy(), net.hidden.bias.detach().numpy()
        self.w2, self.b2 = net.out.weight.detach().numpy()[0], net.out.bias.item()

    def __call__(self, x: np.ndarray, memory: np.ndarray) -> tuple[float, np.ndarray]:
        """p = sigmoid(k (w2 relu(W1 x + b1) + b2))."""
        z = float(self.w2.dot(np.maximum(self.W1.dot(x) + self.b1, 0))) + self.b2
        return _sigmoid(self.net.sharpness * z), memory


def host_net(net: ScheduleNet) -> HostNet:
    """The fastest form of a network for single steps on the host."""
    if next(net.parameters()).dtype not in (torch.float32, torch.float64):  # numpy has no bfloat16
        net = copy.deepcopy(net).float()
    twin = {LSTMNet: HostLSTM, TrendNet: HostTrend, MLPNet: HostMLP, DecayNet: HostDecay}.get(type(net), HostNet)
    return twin(net)  # type: ignore[arg-type]


def _sigmoid(z: float) -> float:
    if z >= 0:
        return 1 / (1 + math.exp(-z))
    e = math.exp(z)
    return e / (1 + e)
