"""Optimizers that find their LR while they train, to compare learned schedules with."""

from mlrsnet.lab.baselines.hd import HDSGD, HDAdam
from mlrsnet.lab.baselines.l4 import L4
from mlrsnet.lab.baselines.rtho import RTHO

__all__ = ["HDSGD", "L4", "RTHO", "HDAdam"]
