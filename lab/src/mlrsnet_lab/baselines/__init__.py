"""Optimizers that find their LR while they train, to compare learned schedules with."""

from mlrsnet_lab.baselines.hd import HDSGD, HDAdam
from mlrsnet_lab.baselines.l4 import L4
from mlrsnet_lab.baselines.rtho import RTHO

__all__ = ["HDSGD", "L4", "RTHO", "HDAdam"]
