"""The networks that a meta-training keeps, one per phase of its schedule."""

import copy
from collections.abc import Mapping, Sequence

from torch import Tensor

from mlrsnet.nets import ScheduleNet

Weights = dict[str, Tensor]


class KeptNets:
    """Copies of the schedule network's weights, by the step after which each was taken."""

    def __init__(self, weights: Mapping[int, Weights] | None = None) -> None:
        self.weights = {step: copy_weights(each) for step, each in (weights or {}).items()}

    def keep(self, net: ScheduleNet, step: int) -> None:
        """Copy the network as it is after `step` steps."""
        self.weights[step] = copy_weights(net.state_dict())

    def phases(self, net: ScheduleNet, ends: Sequence[int], step: int) -> list[ScheduleNet]:
        """One network per phase: the kept one if the phase is over, else the current one."""
        return [self._phase(net, end, step) for end in ends]

    def _phase(self, net: ScheduleNet, end: int, step: int) -> ScheduleNet:
        kept = [known for known in self.weights if known <= end]
        phase = copy.deepcopy(net)
        if end <= step and kept:
            phase.load_state_dict(self.weights[max(kept)])
        return phase


def copy_weights(weights: Mapping[str, Tensor]) -> Weights:
    """The same tensors, detached and cloned."""
    return {name: tensor.detach().clone() for name, tensor in weights.items()}
