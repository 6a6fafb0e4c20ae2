"""Algorithm 1 of the paper: a network learns to set the LR while the model trains."""

from mlrsnet.meta.authors import Departures
from mlrsnet.meta.learning import Learning
from mlrsnet.meta.metatrain import MetaTrainer

__all__ = ["Departures", "Learning", "MetaTrainer"]
