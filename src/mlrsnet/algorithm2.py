"""Algorithm 2 of the paper, one step of it, as a pure function of Python numbers or of tensors.

    theta_{t+1}, p_t = network of the current phase (f_t / s, u_t; theta_t)
    alpha_t = gamma p_t,        gamma from the first loss f_0

A loss that is not finite holds the LR, the memory theta and the network's own clock.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from mlrsnet.law import Seen
from mlrsnet.nets import ScheduleNet
from mlrsnet.ops import Operations
from mlrsnet.plan import Plan
from mlrsnet.ranges import Range

Network = Callable[[Any, Any, Any, Any], tuple[Any, Any]]
"""(scaled loss, progress, phase, memory) -> (p, memory)."""


class NetState(NamedTuple):
    """What a network's schedule remembers.

    step: losses that counted, its clock. phase: of the last step; -1 before the first. nonfinite, unusable: losses that were
    skipped, since they were not finite or gave no range. outside: losses far outside those that the network was learned on.
    initial_loss, classes: f_0 and C, NaN while they are not known. gamma: the range. lr: alpha. memory: theta.
    """

    step: Any
    phase: Any
    nonfinite: Any
    unusable: Any
    outside: Any
    initial_loss: Any
    classes: Any
    gamma: Any
    lr: Any
    memory: Any


def advance(
    state: NetState,
    seen: Seen,
    plan: Plan,
    network: Network,
    net: ScheduleNet,
    gamma_of: Range,
    phases: int,
    usual: tuple[float, float],
    o: Operations,
) -> NetState:
    """One step; `state.lr` of what it returns is alpha_t.

    Args:
        state: after the step before.
        seen: the loss, and what carries the range over to the optimizer.
        plan: of the network's clock.
        network: the networks of all phases.
        net: one of them, for what all share.
        gamma_of: the range.
        phases: how many there are.
        usual: smallest and largest scaled loss that are not far from what it was learned on.
        o: `HOST` or `DEVICE`, as the numbers are.
    """
    loss, begins = seen.loss, state.phase < 0
    finite, untold = o.isfinite(loss), o.isnan(loss)
    initial_loss = o.where(o.isnan(state.initial_loss), loss, state.initial_loss)
    phase = plan.phase(state.step, phases, o)
    renews = begins | (phase != state.phase) if gamma_of.is_renewed else begins
    fresh = gamma_of.formula(o.where(begins, initial_loss, loss), state.classes, o)
    gamma = o.where(renews & o.isfinite(fresh) & (fresh > 0), fresh, state.gamma)
    divisor = net.divisor(initial_loss, state.classes, o)
    usable = (gamma > 0) & (divisor > 0)  # false for NaN
    taken = finite & usable

    scaled = o.where(taken, loss, 0.0 * state.step) / o.where(taken, divisor, 1.0 + 0.0 * state.step)
    outside = taken & ((scaled < usual[0]) | (scaled > usual[1]))
    p, memory = network(scaled, plan.progress(state.step, o), phase, state.memory)
    return NetState(
        step=state.step + taken,
        phase=o.where(taken, phase, state.phase),
        nonfinite=state.nonfinite + (o.invert(finite) & o.invert(untold)),
        unusable=state.unusable + (finite & o.invert(usable)),
        outside=state.outside + outside,
        initial_loss=o.where(taken, initial_loss, state.initial_loss),
        classes=state.classes,
        gamma=o.where(taken, gamma, state.gamma),
        lr=o.where(taken, seen.scale * gamma * p, state.lr),
        memory=o.keep(taken, memory, state.memory),
    )
