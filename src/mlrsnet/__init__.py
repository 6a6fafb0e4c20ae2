"""Learned learning-rate schedules for PyTorch (MLR-SNet: Shu, Zhu, Zhao, Xu, Meng, TPAMI 2022)."""

from mlrsnet import integrations as _integrations  # noqa: F401 (marks LearnedLR for frameworks that look for it)
from mlrsnet._deprecated import renamed as _renamed
from mlrsnet._files.names import list_schedules
from mlrsnet._files.storage import ScheduleError
from mlrsnet._preview import Preview, preview
from mlrsnet.card import Card
from mlrsnet.gamma import Gamma
from mlrsnet.horizon import Data, HorizonTrainer, TaskSampler
from mlrsnet.metatrain import MetaTrainer
from mlrsnet.nets import DecayNet, LSTMNet, MLPNet, ReadingNet, ScheduleNet, TrendNet
from mlrsnet.pretrained import load_any as _load_any
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR

__version__ = "0.2.0.dev0"
__all__ = [
    "Card",
    "Data",
    "DecayNet",
    "Gamma",
    "HorizonTrainer",
    "LSTMNet",
    "LearnedLR",
    "MLPNet",
    "MetaTrainer",
    "Preview",
    "ReadingNet",
    "Schedule",
    "ScheduleError",
    "ScheduleNet",
    "TaskSampler",
    "TrendNet",
    "list_schedules",
    "preview",
]

__getattr__ = _renamed(__name__, {"load": ("mlrsnet.Schedule.load", _load_any)})
