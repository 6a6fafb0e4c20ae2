"""`register`: a learned schedule by its name, `lr_scheduler_type="learned"`.

Transformers looks a name up in two tables: the enum `SchedulerType`, which checks it, and `TYPE_TO_SCHEDULER_FUNCTION`, which
makes the scheduler. Neither can be extended in public, so this file does it, and nothing else does.
"""

from typing import Any

from torch.optim import Optimizer
from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION
from transformers.trainer_utils import SchedulerType

from mlrsnet import _check
from mlrsnet.integrations.transformers.callback import LearnedLRCallback, calling_trainer
from mlrsnet.scheduler import LearnedLR

NAME = "learned"


class ByName(LearnedLRCallback):
    """The callback whose arguments are `lr_scheduler_kwargs`."""

    without_effect = ("learning_rate", "warmup_steps")


def register() -> None:
    """Make `lr_scheduler_type="learned"` known: in `TrainingArguments`, on a script's command line, and for `get_scheduler`.

    Call it before `TrainingArguments` are made or parsed. `lr_scheduler_kwargs` holds the arguments of `LearnedLRCallback`,
    if any. It does what that callback does, in every Trainer with this type, and changes no other one. A second call changes
    nothing.

    >>> from transformers import TrainingArguments
    >>> register()
    >>> TrainingArguments("run", lr_scheduler_type="learned", lr_scheduler_kwargs={"num_classes": 3}).lr_scheduler_type.value
    'learned'
    """
    if NAME not in SchedulerType._value2member_map_:
        _add_member(SchedulerType, NAME.upper(), NAME)
    TYPE_TO_SCHEDULER_FUNCTION[SchedulerType(NAME)] = _make_scheduler


def _make_scheduler(optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, **options: Any) -> LearnedLR:
    """What `get_scheduler` calls. Inside a Trainer a callback joins it and makes the schedule, so that it gets the losses."""
    trainer = calling_trainer()
    if trainer is not None:
        callback = ByName(**options)
        callback.attach(trainer)
        return callback.make(num_training_steps, optimizer)
    if num_warmup_steps:
        _check.warn(
            f"num_warmup_steps has no effect with the scheduler {NAME!r}, got {num_warmup_steps}: the schedule warms up by itself"
        )
    return LearnedLR(optimizer, **{"total_steps": num_training_steps, **options})


def _add_member(enum: Any, name: str, value: str) -> None:
    """Give an enum of strings one member more, as its class statement would have."""
    member = str.__new__(enum, value)
    member._name_, member._value_, member.__objclass__, member._sort_order_ = name, value, enum, len(enum)
    enum._member_names_.append(name)
    enum._member_map_[name] = enum._value2member_map_[value] = member
    type.__setattr__(enum, name, member)
