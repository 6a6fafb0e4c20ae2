"""Rivals that find the LR while they train, each a `torch.optim.Optimizer` that needs nothing else of this package."""

from mlrsnet.baselines.hd import HDSGD, HDAdam
from mlrsnet.baselines.l4 import L4
from mlrsnet.baselines.rtho import RTHO

__all__ = ["HDSGD", "L4", "RTHO", "HDAdam"]
