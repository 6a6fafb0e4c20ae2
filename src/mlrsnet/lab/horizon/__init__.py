"""Full-horizon meta-training: learn a schedule from the end of whole trainings (see `trainer.py`)."""

from mlrsnet.lab.horizon.comparison import Comparison, HeldOut
from mlrsnet.lab.horizon.data import Data
from mlrsnet.lab.horizon.evolution import Evolution
from mlrsnet.lab.horizon.generation import Generation
from mlrsnet.lab.horizon.mixture import Mixture
from mlrsnet.lab.horizon.run import Run
from mlrsnet.lab.horizon.sampler import Sampler, TaskSampler
from mlrsnet.lab.horizon.task import Task
from mlrsnet.lab.horizon.tasks import Tasks
from mlrsnet.lab.horizon.trainer import HorizonTrainer
from mlrsnet.lab.horizon.updates import SGD, Adam, Update

__all__ = [
    "SGD",
    "Adam",
    "Comparison",
    "Data",
    "Evolution",
    "Generation",
    "HeldOut",
    "HorizonTrainer",
    "Mixture",
    "Run",
    "Sampler",
    "Task",
    "TaskSampler",
    "Tasks",
    "Update",
]
