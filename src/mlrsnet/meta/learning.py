"""`Learning`: how the network of a meta-training learns."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import nn
from torch.optim import Adam, Optimizer

from mlrsnet import _check
from mlrsnet.nets import ScheduleNet

MetaOptimizer = Optimizer | Callable[[Iterable[nn.Parameter]], Optimizer]


@dataclass(frozen=True)
class Learning:
    """How the network learns.

    Args:
        every: T_val, steps between meta-updates; 100 if None.
        meta_optimizer: optimizer of the network's weights, or a function that makes one from them; Adam with LR 1e-3
            and weight decay 1e-4 if None.
        num_phases: k, networks kept for the schedule, after ceil(T l / k) steps for l = 1..k.
        bptt: steps to back-propagate through the network's memory; 1 in the paper.
        assume_linear: accept an optimizer that is not known to take steps that are linear in its LR.
    """

    every: int | None = None
    meta_optimizer: MetaOptimizer | None = None
    num_phases: int = 3
    bptt: int = 1
    assume_linear: bool = False

    def __post_init__(self) -> None:
        if self.every is not None:
            _check.whole_number("every", self.every)
        _check.whole_number("num_phases", self.num_phases)
        _check.whole_number("bptt", self.bptt)
        given = self.meta_optimizer
        if not (given is None or isinstance(given, Optimizer) or callable(given)):
            raise TypeError(f"meta_optimizer must be an optimizer or a function that makes one, got {given!r}")

    def optimizer(self, net: ScheduleNet) -> Optimizer:
        """The optimizer of the network's weights."""
        given = self.meta_optimizer
        if given is None:
            return Adam(net.parameters(), lr=1e-3, weight_decay=1e-4, foreach=True)
        made = given if isinstance(given, Optimizer) else given(net.parameters())
        held = {id(parameter) for group in made.param_groups for parameter in group["params"]}
        if not held & {id(parameter) for parameter in net.parameters()}:
            raise ValueError(
                "meta_optimizer must hold the parameters of net, got one with others: make it from net.parameters()"
            )
        return made
