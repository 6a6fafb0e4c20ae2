"""`lr_scheduler_type="learned"` in the Transformers `Trainer`.

A script whose code you do not want to touch can be started with

    python -m mlrsnet.integrations.transformers run_glue.py --lr_scheduler_type learned ...

`torchrun -m` and `accelerate launch -m` take this module, too. `Trainer(optimizers=(optimizer, LearnedLR(optimizer, ...)))` needs
none of this.
"""

import functools
import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from mlrsnet import _check
from mlrsnet._driver import driver_of
from mlrsnet.scheduler import LearnedLR

try:
    from transformers import Trainer
    from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION
    from transformers.trainer_utils import SchedulerType
except ImportError as error:
    raise ImportError(
        f"mlrsnet.integrations.transformers needs transformers and accelerate ({error}): pip install 'mlrsnet[transformers]'"
    ) from None

__all__ = ["register"]

NAME = "learned"
USAGE = "usage: python -m mlrsnet.integrations.transformers SCRIPT --lr_scheduler_type learned [its other arguments]"


def register() -> None:
    """Make `lr_scheduler_type="learned"` known: in `TrainingArguments`, on a script's command line, and for `get_scheduler`.

    Call it before `TrainingArguments` are made or parsed. The Trainer counts the steps. `lr_scheduler_kwargs` holds other arguments
    of `LearnedLR`, if any. From then on a Trainer tells every `LearnedLR` that it has, also yours, the loss that it logs. Other
    schedules stay as they are, and a second call changes nothing.

    >>> from transformers import TrainingArguments
    >>> register()
    >>> TrainingArguments("run", lr_scheduler_type="learned", lr_scheduler_kwargs={"scale": 0.5}).lr_scheduler_type.value
    'learned'
    """
    if NAME not in SchedulerType._value2member_map_:
        _add_member(SchedulerType, NAME.upper(), NAME)
    TYPE_TO_SCHEDULER_FUNCTION[SchedulerType(NAME)] = _make
    if not hasattr(Trainer.training_step, "__wrapped__"):
        Trainer.training_step = _telling(Trainer.training_step)  # type: ignore[method-assign]


class TrainerLR(LearnedLR):
    """A `LearnedLR` that a Trainer made: a run that is resumed with more steps goes on to their end."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where the saved run stopped."""
        planned = self.total_steps
        super().load_state_dict(state_dict)
        if self.has_end and not self.is_annealing and self.total_steps < planned:
            self.extend(planned)


def _make(optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, **options: Any) -> LearnedLR:
    """What `get_scheduler` calls."""
    if num_warmup_steps:
        _check.warn(
            f"the number of warm-up steps has no effect with the scheduler {NAME!r}, got {num_warmup_steps}: leave it out, since "
            "the schedule warms up by itself"
        )
    earlier = driver_of(optimizer)
    if earlier is not None:  # of this Trainer's last training
        earlier.remove()
    return TrainerLR(optimizer, **{"total_steps": num_training_steps, **options})


def _telling(training_step: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`Trainer.training_step`, which then tells the loss.

    It returns a micro-batch's share of the mean loss over the micro-batches, and their number times it is what has that mean.
    """

    @functools.wraps(training_step)
    def told(trainer: Any, *args: Any, **kwargs: Any) -> Tensor:
        loss = training_step(trainer, *args, **kwargs)
        if isinstance(trainer.lr_scheduler, LearnedLR):
            trainer.lr_scheduler.observe(loss * trainer.current_gradient_accumulation_steps)
        return loss

    return told


def _add_member(enum: Any, name: str, value: str) -> None:
    """Give an enum of strings one member more, as its class statement would have: it cannot be extended in public."""
    member = str.__new__(enum, value)
    member._name_, member._value_, member.__objclass__, member._sort_order_ = name, value, enum, len(enum)
    enum._member_names_.append(name)
    enum._member_map_[name] = enum._value2member_map_[value] = member
    type.__setattr__(enum, name, member)


def main(words: list[str]) -> None:
    """Run `words[0]` with the arguments that follow, as Python itself would."""
    if not words or not os.path.isfile(words[0]):
        sys.exit(f"{USAGE}\nSCRIPT must be a Python file, got {words[0] if words else 'none'}")
    register()
    sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
