"""Full-horizon meta-training: learn a schedule from the end of whole trainings (see `trainer.py`)."""

from mlrsnet_lab.horizon.comparison import Comparison, HeldOut
from mlrsnet_lab.horizon.compute import Compute
from mlrsnet_lab.horizon.data import Data
from mlrsnet_lab.horizon.evolution import Evolution, Generation
from mlrsnet_lab.horizon.sampler import Mixture, Sampler, TaskSampler
from mlrsnet_lab.horizon.task import Task
from mlrsnet_lab.horizon.tasks import Tasks
from mlrsnet_lab.horizon.trainer import HorizonTrainer
from mlrsnet_lab.horizon.updates import SGD, Adam

__all__ = [
    "SGD",
    "Adam",
    "Comparison",
    "Compute",
    "Data",
    "Evolution",
    "Generation",
    "HeldOut",
    "HorizonTrainer",
    "Mixture",
    "Sampler",
    "Task",
    "TaskSampler",
    "Tasks",
]
