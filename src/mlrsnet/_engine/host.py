"""The engine for float LRs: plain numbers in, a float out, numpy inside (a fifth of the cost of small torch calls)."""

import copy
import math
from array import array
from collections.abc import Sequence

import numpy as np
import torch

from mlrsnet import _features
from mlrsnet._engine.contract import Moment, Report, Rule, Snapshot
from mlrsnet.nets import LSTMNet, MLPNet, ScheduleNet, TrendNet


class HostNet:
    """Any network, called with floats."""

    def __init__(self, net: ScheduleNet) -> None:
        self.net = net

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
            hidden = W1 @ np.concatenate((x, h))
            hidden += b1
            np.maximum(hidden, 0, out=hidden)
            gates = W2 @ hidden
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
        return _sigmoid(self.net.sharpness * (float(self.w3 @ x) + self.b3)), after


class HostTrend(HostLSTM):
    """`TrendNet`: the averages as plain numbers, the cells as `HostLSTM` has them."""

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


class HostMLP(HostNet):
    """`MLPNet` in numpy."""

    def __init__(self, net: MLPNet) -> None:
        super().__init__(net)
        self.W1, self.b1 = net.hidden.weight.detach().numpy(), net.hidden.bias.detach().numpy()
        self.w2, self.b2 = net.out.weight.detach().numpy()[0], net.out.bias.item()

    def __call__(self, x: np.ndarray, memory: np.ndarray) -> tuple[float, np.ndarray]:
        """p = sigmoid(k (w2 relu(W1 x + b1) + b2))."""
        z = float(self.w2 @ np.maximum(self.W1 @ x + self.b1, 0)) + self.b2
        return _sigmoid(self.net.sharpness * z), memory


def host_net(net: ScheduleNet) -> HostNet:
    """The fastest form of a network for single steps on the host."""
    if next(net.parameters()).dtype not in (torch.float32, torch.float64):  # numpy has no bfloat16
        net = copy.deepcopy(net).float()
    twin = {LSTMNet: HostLSTM, TrendNet: HostTrend, MLPNet: HostMLP}.get(type(net), HostNet)
    return twin(net)  # type: ignore[arg-type]


def _sigmoid(z: float) -> float:
    if z >= 0:
        return 1 / (1 + math.exp(-z))
    e = math.exp(z)
    return e / (1 + e)


class HostEngine:
    """Algorithm 2, a step at a time, on the host. See `Rule` for what a step is."""

    def __init__(self, rule: Rule, total_steps: int, initial_loss: float | None, lr: float) -> None:
        self.rule, self.total_steps, self.lr = rule, total_steps, lr
        self.optimizer_scale = self.ratio = 1.0
        self.nets = [host_net(net) for net in rule.schedule.phases]
        self.memory = self.nets[0].net.initial_state().numpy()
        self.step_count, self.phase, self.gamma, self.divisor = 0, -1, math.nan, math.nan
        self.nonfinite = self.unusable = self.outside = 0
        self.history = array("d")
        self.initial_loss: float | None = None
        if initial_loss is not None:
            self._begin(initial_loss, "initial_loss")

    def step(self, loss: float) -> bool:
        """Advance by one loss; False where it was not finite and the LR stays as it was."""
        finite = math.isfinite(loss)
        if finite:
            self._advance(loss)
        else:
            self.nonfinite += 1
        self.history.append(self.lr)
        return finite

    def moment(self, loss: float) -> Moment:
        """What the network would read if `loss`, finite, came now; sets f_0 where it is the first."""
        if self.initial_loss is None:
            self._begin(loss)
        return Moment(
            self.divisor,
            self.progress(),
            self.copy_memory(),
            self.rule.scale * self.optimizer_scale * self.gamma,
        )

    def set_weights(self, nets: Sequence[ScheduleNet]) -> None:
        """Go on with other weights of the same networks."""
        self.nets = [host_net(net) for net in nets]

    def set_memory(self, memory: torch.Tensor) -> None:
        """Go on with another memory."""
        self.memory = memory.to(torch.from_numpy(self.memory)).numpy().copy()

    def copy_memory(self) -> torch.Tensor:
        """The network's memory now."""
        return torch.from_numpy(self.memory.copy())

    def progress(self) -> float:
        """u of the next step."""
        return _features.progress(self.step_count, self.total_steps)

    def alpha(self) -> float:
        """The LR of the reference group now."""
        return self.lr

    def extend(self, total_steps: int) -> None:
        """Set the horizon."""
        self.total_steps = total_steps

    def report(self) -> Report:
        """Where it stands."""
        return Report(
            step=self.step_count,
            phase=self.phase,
            initial_loss=math.nan if self.initial_loss is None else self.initial_loss,
            gamma=self.gamma,
            lr=self.lr,
            nonfinite=self.nonfinite,
            unusable=self.unusable,
            outside=self.outside,
        )

    def snapshot(self) -> Snapshot:
        """Everything that the next step depends on, as copies."""
        return Snapshot(
            **self.report(),
            memory=self.copy_memory(),
            history=torch.tensor(self.history, dtype=torch.float64),
            ratio=self.ratio,
        )

    def restore(self, saved: Snapshot) -> None:
        """Go on from a snapshot."""
        self.step_count, self.phase, self.lr = saved["step"], saved["phase"], saved["lr"]
        self.nonfinite, self.unusable, self.outside = saved["nonfinite"], saved["unusable"], saved["outside"]
        self.set_memory(saved["memory"])
        self.ratio = saved["ratio"]
        self.history = array("d", saved["history"].tolist())
        self.initial_loss, self.gamma, self.divisor = None, math.nan, math.nan
        if not math.isnan(saved["initial_loss"]):
            self._begin(saved["initial_loss"])
        if not math.isnan(saved["gamma"]):
            self.gamma = saved["gamma"]

    def _begin(self, loss: float, name: str = "the first loss") -> None:
        """Set f_0, and with it gamma and the loss scale; raises where it gives no valid range, changing nothing."""
        schedule, classes = self.rule.schedule, self.rule.num_classes
        gamma, divisor = schedule.card.gamma(loss, classes, name), schedule.loss_divisor(loss, classes, name)
        self.initial_loss, self.gamma, self.divisor = loss, gamma, divisor

    def _advance(self, loss: float) -> None:
        rule, net = self.rule, self.rule.schedule.net
        if self.initial_loss is None:
            self._begin(loss)
        phase = _features.phase_index(self.step_count, self.total_steps, len(self.nets))
        if phase != self.phase:
            if self.phase >= 0 and rule.schedule.card.gamma.policy == "per-phase":
                self._renew_gamma(loss)
            self.phase = phase
        progress = self.progress()
        scaled = loss / self.divisor
        low, high = rule.schedule.card.warn_outside
        self.outside += not low <= scaled <= high
        clipped = min(max(scaled, -_features.LARGEST_FEATURE), _features.LARGEST_FEATURE)
        values = {"loss": clipped, "progress": progress}
        x = np.array([values[name] for name in net.inputs], dtype=self.memory.dtype)
        factor, self.memory = self.nets[phase](x, self.memory)
        if net.anneal == "linear":
            factor *= 1 - progress
        lr = rule.scale * self.optimizer_scale * self.ratio * self.gamma * max(factor, _features.SMALLEST_FACTOR)
        self.lr = min(max(lr, rule.min_lr), rule.max_lr)
        self.step_count += 1

    def _renew_gamma(self, loss: float) -> None:
        """gamma from the current loss; a loss that gives no valid range keeps the one before."""
        try:
            self.gamma = self.rule.schedule.card.gamma(loss, self.rule.num_classes)
        except ValueError:
            return
