"""Which Lightning is in use, and questions about its objects."""

import importlib
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torch.optim import LBFGS, Optimizer

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""Lightning has two package names, each with its own classes."""


def _callback_class() -> Any:
    """`Callback` of the package that is already imported, else of the first one that is installed."""
    for name in sorted(PACKAGES, key=lambda name: name not in sys.modules):
        with suppress(ModuleNotFoundError):
            return importlib.import_module(name).Callback
    raise ImportError(
        "mlrsnet.integrations.lightning needs Lightning, which is not installed: pip install 'mlrsnet[lightning]'"
    )


if TYPE_CHECKING:
    from lightning.pytorch import Callback as Callback
else:
    Callback = _callback_class()


def is_a(thing: Any, name: str) -> bool:
    """`isinstance` by class name, because each package has its own class."""
    return any(kind.__name__ == name for kind in type(thing).__mro__)


def class_names(things: list[Any]) -> str:
    """The classes of some objects, for an error."""
    return " and ".join(type(thing).__name__ for thing in things) or "none"


def scaler_of(trainer: Any) -> Any:
    """The Trainer's GradScaler, or None."""
    return getattr(trainer.precision_plugin, "scaler", None)


def only_optimizer(trainer: Any, callback: Any) -> Optimizer:
    """The training's optimizer, if there is exactly one and it can be scheduled."""
    name, optimizers = type(callback).__name__, [each for each in trainer.optimizers if each.param_groups]
    if len(optimizers) != 1:
        raise ValueError(
            f"configure_optimizers must return one optimizer for {name}, got {len(optimizers)}: for several, pass LossFeed() "
            "instead, return a LearnedLR for each as its scheduler, and in training_step call "
            "self.lr_schedulers()[i].step(loss) with the loss of optimizer i, before its step()"
        )
    if isinstance(optimizers[0], LBFGS):
        raise ValueError(
            f"configure_optimizers must return an optimizer that reads its LR after the loss for {name}, got LBFGS, which "
            "reads it before: use another optimizer"
        )
    return optimizers[0]
