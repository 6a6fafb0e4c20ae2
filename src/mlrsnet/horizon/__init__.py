"""Full-horizon meta-training: learn a schedule from the end of whole trainings (see `trainer.py`)."""

from mlrsnet._deprecated import renamed
from mlrsnet.horizon.comparison import Comparison, HeldOut
from mlrsnet.horizon.data import Data
from mlrsnet.horizon.generation import Generation
from mlrsnet.horizon.mixture import Mixture
from mlrsnet.horizon.sampler import Sampler, TaskSampler
from mlrsnet.horizon.task import Task
from mlrsnet.horizon.trainer import HorizonTrainer
from mlrsnet.horizon.updates import SGD, Adam, Update

__all__ = [
    "SGD",
    "Adam",
    "Comparison",
    "Data",
    "Generation",
    "HeldOut",
    "HorizonTrainer",
    "Mixture",
    "Sampler",
    "Task",
    "TaskSampler",
    "Update",
]

__getattr__ = renamed(__name__, {"Rivals": ("mlrsnet.horizon.HeldOut", HeldOut)})
