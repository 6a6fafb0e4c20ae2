"""Which weights of an optimizer are measured, and how long they are."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from mlrsnet._engine import shards
from mlrsnet._engine.measured import LONGEST, count, shortest_length, wide

LOW_PRECISION = (torch.bfloat16, torch.float16)


class Counted:
    """Weights that are measured together: tensors of two or more dimensions, or all if there are none.

    Args:
        weights: the weights.
        groups: the parameter group of each.
        shares: the LR of each, divided by alpha.
        device: where numbers about them live; that of tensor LRs, else None for the host.
        columns: (4, L) what lengths count as at least, what they are multiplied by, what each weight counts, and the shares; if
            they are there already.
    """

    def __init__(
        self,
        weights: list[Tensor],
        groups: list[dict[str, Any]],
        shares: list[float],
        device: torch.device | None,
        columns: Tensor | None = None,
    ) -> None:
        self.weights, self.groups, self.shares = weights, groups, shares
        self._device, self.device = device, device or torch.device("cpu")
        self.is_low_precision = any(weight.dtype in LOW_PRECISION for weight in weights)
        self.has_one_group = all(group is groups[0] for group in groups)
        self._columns = self._numbers() if columns is None else columns
        self.floors, self.shrink, self.counts, self.share_column = self._columns
        self._parts: dict[tuple[int, ...], Counted] = {}

    @classmethod
    def of(cls, groups: Sequence[dict[str, Any]], shares: Sequence[float], device: torch.device | None) -> "Counted":
        """Those of an optimizer. A group whose share is 0 does not move, and does not count."""
        found = [
            (weight, group, share)
            for group, share in zip(groups, shares, strict=True)
            for weight in group["params"]
            if share
        ]
        matrices = [one for one in found if one[0].ndim >= 2]
        rows = matrices or found
        return cls([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], device)

    def only(self, places: Sequence[int]) -> "Counted":
        """Some of them. The answer is remembered: a captured step reads its constants."""
        if len(places) == len(self.weights):
            return self
        key = tuple(places)
        if key not in self._parts:
            weights, groups, shares = ([c[i] for i in key] for c in (self.weights, self.groups, self.shares))
            # Taken from what is on the device: a copy from the host would wait for it.
            chosen = torch.stack([self._columns[:, i] for i in key], dim=1) if key else self._columns[:, :0]
            self._parts[key] = Counted(weights, groups, shares, self._device, chosen)  # type: ignore[arg-type]
        return self._parts[key]

    def follow(self, other: "Counted") -> bool:
        """Take over the groups of another if it has the same weights and shares; says whether it does."""
        if len(self.weights) != len(other.weights) or self.shares != other.shares:
            return False
        if any(a is not b for a, b in zip(self.weights, other.weights, strict=True)):
            return False
        for key, part in self._parts.items():
            part.groups = [other.groups[i] for i in key]
        self.groups = other.groups
        return True

    @property
    def root_size(self) -> float:
        """sqrt(n): the length of a first step in which every weight moves by its share."""
        columns = zip(self.weights, self.groups, self.shares, strict=True)
        return math.sqrt(sum((share * first_move(group)) ** 2 * weight.numel() for weight, group, share in columns))

    def lrs(self) -> list[Any]:
        """The LR of each now."""
        return [group["lr"] for group in self.groups]

    def lengths(self, *columns: Iterable[Tensor]) -> Tensor:
        """(rows, L) lengths of whole weights from the norms of this process's parts, where the LRs are.

        For the host they meet where the first weight is, so that nothing waits for a device until they are read.
        """
        norms = [norm for column in columns for norm in column]
        meeting = self._device or norms[0].device
        together = torch.stack([norm if norm.device == meeting else norm.to(meeting) for norm in norms])
        return shards.whole_lengths(together.view(len(columns), -1), self.weights)

    def gradients(self) -> Tensor:
        """(2, L) lengths of weights and of gradients, 0 without one."""
        weights = torch._foreach_norm([dense(weight) for weight in self.weights])  # type: ignore[arg-type]
        missing = torch.zeros_like(weights[0])
        gradients = [missing if weight.grad is None else dense(weight.grad).norm() for weight in self.weights]
        return self.lengths(weights, gradients)

    def as_they_count(self, lengths: Tensor) -> Tensor:
        """(L,) lengths of weights: those that began too long are shorter, none is too short; in double precision."""
        return torch.maximum(lengths * self.shrink, self.floors)

    @torch.no_grad()
    def begin(self, known: dict[int, Tensor]) -> None:
        """Shrink weights that are too long now; those that are `known`, by their identity, as before."""
        if not self.weights:
            return
        norms = torch._foreach_norm([dense(weight) for weight in self.weights])  # type: ignore[arg-type]
        lengths = self.lengths(norms)[0].to(self.floors)
        shrink = (LONGEST * self.floors / lengths).nan_to_num(nan=1.0, posinf=1.0).clamp(max=1.0)
        self.shrink.copy_(
            torch.stack([known.get(id(weight), one) for weight, one in zip(self.weights, shrink, strict=True)])
        )

    def set_shrink(self, shrink: Tensor) -> None:
        """Continue with what a saved run had, if it had as many weights."""
        if len(shrink) == len(self.shrink):
            self.shrink.copy_(shrink)
            self._parts = {}

    def _numbers(self) -> Tensor:
        numbers = [
            [shortest_length(weight.shape) for weight in self.weights],
            [1.0] * len(self.weights),
            [count(weight.shape) for weight in self.weights],
            self.shares,
        ]
        return torch.tensor(numbers, dtype=wide(self.device), device=self.device)


def dense(tensor: Tensor) -> Tensor:
    """This process's numbers, in float32 at least; of a sparse gradient, those that are there."""
    part = shards.local(tensor)
    part = part.coalesce().values() if part.is_sparse else part
    return part.float() if part.dtype in LOW_PRECISION else part


def first_move(group: dict[str, Any]) -> float:
    """How far an optimizer that divides by the size of the gradient moves a weight in its first step at an LR of 1: by at most 1.

    RMSprop's average of squares begins at 0 and is not corrected for it, so its first step is 1 / sqrt(1 - alpha) times that.

    >>> first_move({"betas": (0.9, 0.999)}), round(first_move({"alpha": 0.99, "centered": False}), 6)
    (1.0, 10.0)
    """
    return 1 / math.sqrt(1 - group["alpha"]) if "centered" in group and group.get("alpha", 1) < 1 else 1.0


def check(optimizer: Optimizer) -> None:
    """Refuse what cannot be measured."""
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise ValueError(
            f"optimizer must have torch's step hooks for a schedule with a measured range, got {type(optimizer).__name__}, which "
            "does not call Optimizer.__init__: call it there, or use a schedule whose range is not measured, such as 'universal'"
        )
    if any(shards.is_flattened(weight) for group in optimizer.param_groups for weight in group["params"]):
        raise ValueError(
            "optimizer must have whole weights or those of fully_shard (FSDP2) for a schedule with a measured range, got flat "
            "ones of FullyShardedDataParallel (FSDP1): use fully_shard, or a schedule whose range is not measured, such as "
            "'universal'"
        )
