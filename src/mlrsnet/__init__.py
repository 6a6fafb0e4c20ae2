"""Learned learning-rate schedules for PyTorch (MLR-SNet: Shu, Zhu, Zhao, Xu, Meng, TPAMI 2022)."""

from mlrsnet._files.storage import ScheduleError
from mlrsnet.card import Card
from mlrsnet.gamma import Gamma
from mlrsnet.horizon import HorizonTrainer, TaskSampler
from mlrsnet.metatrain import MetaTrainer
from mlrsnet.nets import LSTMNet, MLPNet, ScheduleNet, TrendNet
from mlrsnet.pretrained import load
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR

__version__ = "0.1.0"
__all__ = [
    "Card",
    "Gamma",
    "HorizonTrainer",
    "LSTMNet",
    "LearnedLR",
    "MLPNet",
    "MetaTrainer",
    "Schedule",
    "ScheduleError",
    "ScheduleNet",
    "TaskSampler",
    "TrendNet",
    "load",
]
