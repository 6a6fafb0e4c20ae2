"""The backend for float LRs: Python numbers and numpy, on the host."""

import math
from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mlrsnet import _features
from mlrsnet._engine import contract, relative
from mlrsnet._engine.contract import Moment, Rule, Snapshot, Status
from mlrsnet._engine.groups import set_lr
from mlrsnet._engine.host_nets import host_net
from mlrsnet._engine.step import Carry, advance, begin, status_of
from mlrsnet._features import Horizon
from mlrsnet._numbers import HOST
from mlrsnet.nets import ScheduleNet


class HostBackend:
    """See `contract.Backend`."""

    on_host = True

    def __init__(self, rule: Rule, total_steps: int, initial_loss: float | None, lr: float) -> None:
        self.rule, self.horizon = rule, Horizon(total_steps)
        self.optimizer_scale, self.ratio = 1.0, relative.initial_ratio(rule)
        self.nets = [host_net(net) for net in rule.schedule.phases]
        self.carry = begin(self.nets[0].net.initial_state().numpy(), lr)
        self.history = array("d")
        self.last: tuple[Carry, float, Horizon] | None = None  # what the last step began with
        self.groups: list[dict[str, Any]] = []
        self.ratios: list[float] = []
        self.given: Sequence[float] = ()
        if initial_loss is not None:
            contract.check_first_loss(rule, initial_loss, "initial_loss")
            self.carry = self.carry._replace(initial_loss=initial_loss)

    def bind(self, groups: list[dict[str, Any]], ratios: list[float]) -> list[float]:
        """See `Backend`."""
        self.groups, self.ratios, self.given = list(groups), ratios, ()
        return ratios

    def is_bound(self, groups: list[dict[str, Any]]) -> bool:
        """See `Backend`."""
        return list(map(id, groups)) == list(map(id, self.groups))

    def step(self, loss: float | Tensor) -> None:
        """See `Backend`; a first loss that gives no range is an error, and changes nothing."""
        before, after = self.carry, self._advance(float(loss))
        if after.unusable > before.unusable:
            first = float(loss) if math.isnan(before.initial_loss) else before.initial_loss
            contract.check_first_loss(self.rule, first, "the first loss")
        self.carry, self.last = after, (before, float(loss), self.horizon)
        self.history.append(after.lr)
        if after.step > before.step:
            self._set(after.lr)
        self.given = [group["lr"] for group in self.groups]

    def shorten(self, share: float) -> None:
        """See `Backend`."""
        lr = min(self.carry.lr, max(share * self.carry.lr, self.rule.min_lr))
        self.carry = self.carry._replace(lr=lr)
        self.history[-1] = lr
        self._set(lr)
        self.given = [group["lr"] for group in self.groups]

    def set_ratio(self, ratio: Tensor) -> None:
        """See `Backend`."""
        self.ratio = float(relative.usable(ratio, torch.full_like(ratio, self.ratio)))

    def redo(self, ratio: Tensor) -> None:
        """See `Backend`."""
        old = self.ratio
        self.set_ratio(ratio)
        if self.ratio != old and self.last is not None:
            now, (self.carry, loss, self.horizon) = self.horizon, self.last
            self.history.pop()
            self.step(loss)
            self.horizon = now

    def moment(self, loss: float) -> Moment:
        """See `Backend`."""
        return contract.moment(self, self.status(), self.horizon, loss)

    def set_weights(self, nets: Sequence[ScheduleNet]) -> None:
        """See `Backend`."""
        self.nets = [host_net(net) for net in nets]

    def set_memory(self, memory: Tensor) -> None:
        """See `Backend`."""
        own = torch.from_numpy(self.carry.memory)
        self.carry = self.carry._replace(memory=memory.to(own).numpy().copy())

    def copy_memory(self) -> Tensor:
        """See `Backend`."""
        return torch.from_numpy(self.carry.memory.copy())

    def set_gamma(self, gamma: float, phase: int) -> None:
        """See `Backend`."""
        self.carry = self.carry._replace(gamma=gamma, phase=phase)

    def progress(self) -> float:
        """See `Backend`."""
        return float(_features.progress(self.carry.step, *self.horizon))

    def alpha(self) -> float:
        """See `Backend`."""
        return float(self.carry.lr)

    def set_horizon(self, horizon: Horizon) -> None:
        """See `Backend`."""
        self.horizon = horizon

    def status(self) -> Status:
        """See `Backend`."""
        return status_of(self.carry)

    def snapshot(self) -> Snapshot:
        """See `Backend`."""
        history = torch.tensor(self.history, dtype=torch.float64)
        return Snapshot(**self.status(), memory=self.copy_memory(), history=history, ratio=self.ratio)

    def restore(self, saved: Snapshot) -> None:
        """See `Backend`."""
        numbers: dict[str, Any] = {name: saved[name] for name in Status.__annotations__}  # type: ignore[literal-required]
        self.carry = Carry(**numbers, memory=self.carry.memory)
        self.set_memory(saved["memory"])
        self.ratio, self.history = saved["ratio"], array("d", saved["history"].tolist())

    def _set(self, lr: float) -> None:
        for group, ratio in zip(self.groups, self.ratios, strict=True):
            set_lr(group, lr * ratio)

    def _advance(self, loss: float) -> Carry:
        scale = self.rule.scale * self.optimizer_scale * self.ratio
        return advance(self.rule, self.carry, loss, self.horizon, scale, self._network, HOST)

    def _network(self, scaled: float, progress: float, phase: int, memory: Any) -> tuple[float, Any]:
        return self.nets[phase].predict(scaled, progress, memory)
