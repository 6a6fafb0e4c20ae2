"""Learning-rate schedules for PyTorch that need no tuning, and the paper they began with: MLR-SNet (TPAMI 2022)."""

from mlrsnet.meta import MetaTrainer
from mlrsnet.preview import preview
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR

__version__ = "0.2.0.dev0"
__all__ = ["LearnedLR", "MetaTrainer", "Schedule", "preview"]
