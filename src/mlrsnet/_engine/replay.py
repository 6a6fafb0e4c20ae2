"""Recorded LRs as a plain `LambdaLR`."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from mlrsnet._engine.groups import set_lr


class Recorded:
    """The LR of a step, from a list; the last one stays. It is an object, so `LambdaLR.state_dict` saves the list."""

    def __init__(self, lrs: list[float]) -> None:
        self.lrs = lrs

    def __call__(self, step: int) -> float:
        """The LR of a step."""
        return self.lrs[min(step, len(self.lrs) - 1)]


def replay(optimizer: Optimizer, lrs: list[float], ratios: list[float]) -> LambdaLR:
    """A `LambdaLR` that sets group i to lrs[step] * ratios[i], bit for bit as recorded."""
    if len(optimizer.param_groups) != len(ratios):
        raise ValueError(
            f"optimizer must have the {len(ratios)} parameter groups of the recorded run, got {len(optimizer.param_groups)}"
        )
    scheduler = LambdaLR(optimizer, Recorded(lrs))
    # LambdaLR multiplies base_lrs by the lambda. With the ratios as base_lrs, the product is exactly the recorded one.
    scheduler.base_lrs = list(ratios)
    for group, ratio in zip(optimizer.param_groups, ratios, strict=True):
        set_lr(group, lrs[0] * ratio)
    scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]
    return scheduler
