"""Trainings that stop long before their end, at a high LR: told when the program ends, since nothing earlier can know.

The usual cause is a `total_steps` that counts something else than optimizer steps. Nothing is said about a training that was saved
at its last step, which may go on elsewhere, nor after an error, nor by other ranks than the first.
"""

import atexit
import os
import sys
import weakref
from dataclasses import dataclass

from mlrsnet import _check

LEAST_STEPS, SHARE = 100, 0.5
"""A shorter run is a trial. One that has passed half of its steps has a falling LR."""


@dataclass
class Course:
    """How far a training has come; it is still known when the training's objects are gone.

    steps: taken. total_steps: where its LR ends, or 0 if it does not fall there. saved_at: steps when its state was last saved.
    """

    steps: int = 0
    total_steps: int = 0
    saved_at: int = -1

    @property
    def is_unfinished(self) -> bool:
        """Whether it would be a pity if this were the end."""
        return LEAST_STEPS <= self.steps < SHARE * self.total_steps and self.saved_at != self.steps

    def watch(self, owner: object) -> None:
        """Look at it when `owner` is gone, or at the end of the program."""
        weakref.finalize(owner, _end, self)


_longest = Course()


def _end(course: Course) -> None:
    """A training is over; the longest unfinished one is remembered."""
    global _longest
    if course.is_unfinished and course.steps > _longest.steps:
        _longest = course


@atexit.register  # before the first `weakref.finalize`, whose own exit comes first therefore
def _report() -> None:
    failed = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if _longest.steps and not failed and os.environ.get("RANK", "0") == "0":
        _check.warn(
            f"a training stopped after {_longest.steps} of {_longest.total_steps} steps, so LearnedLR had not lowered its LR yet: "
            "total_steps must be the number of optimizer steps, batches times epochs; to stop early, call anneal(steps) and "
            "train for so many steps more"
        )
