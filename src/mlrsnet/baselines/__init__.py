"""Optimizers that find their LR while they train, and hand-designed schedules, to compare learned schedules with."""

from mlrsnet.baselines.hd import HDSGD, HDAdam
from mlrsnet.baselines.l4 import L4
from mlrsnet.baselines.rtho import RTHO

__all__ = ["HDSGD", "L4", "RTHO", "HDAdam"]
