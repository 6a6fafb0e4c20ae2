"""Full-horizon meta-training: a schedule learned from the end of whole trainings (see `trainer.py`)."""

from mlrsnet.horizon.mixture import Mixture
from mlrsnet.horizon.rivals import Comparison, Rivals
from mlrsnet.horizon.tasks import Data, Sampler, Task, TaskSampler
from mlrsnet.horizon.trainer import Generation, HorizonTrainer
from mlrsnet.horizon.updates import SGD, Adam, Update

__all__ = [
    "SGD",
    "Adam",
    "Comparison",
    "Data",
    "Generation",
    "HorizonTrainer",
    "Mixture",
    "Rivals",
    "Sampler",
    "Task",
    "TaskSampler",
    "Update",
]
