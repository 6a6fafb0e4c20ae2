"""What goes wrong in a training is said once: losses that will come to nothing, and what a law has counted.

Three signs that a training will come to nothing, from its losses alone, for any schedule:

    stuck       the loss is where it began, after 20 % of the training, or later under more noise
    exploding   its average is more than 3 times its first level, after the warm-up
    lost        10 losses in a row were not finite

A loss that is 0 or negative has no level to compare with: then only the last is looked for. The same holds for runs that were
resumed, whose first losses are not known.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from mlrsnet import _check
from mlrsnet.default import WARMUP
from mlrsnet.law import Law

FIRST = 10
"""The first level is the mean of so many losses."""

SHARE, SHORTEST = 20, 20
"""Losses are compared in blocks of a 20th of the training, and of at least 20."""

MOST_BLOCKS = 2 * SHARE
"""A training that goes on far beyond its plan has larger blocks, not more."""

STUCK_AFTER, STUCK_STEPS = 0.2, 100
"""Before this share of the training, and before so many steps, a loss need not have fallen."""

SURE, SURE_TIMES, HIGHER = 0.005, 3, 1.1
"""A loss is stuck if it did not fall, if a fall of 0.5 % would have been seen in spite of the noise (3 standard errors), and if it
is at most 1.1 times as high as it was; all that in two blocks in a row."""

PACE, PACE_TIMES = 0.05, 4
"""Or, under more noise, if it did not fall in the last half of all losses, where a fall of 5 % in the whole training would have
been seen (4 standard errors)."""

BEGIN, BLOWN, CALM = 2, 1.5, 0.03
"""Or if it was once 1.5 times as high as the first 2 losses, before anything was learned, and is now as high as they were, with a
noise below 3 %: steps that were too long have destroyed the network."""

EXPLODED, SPIKE, EXPLODE_STEPS, KEEP = 3.0, 10.0, 50, 0.95
"""A loss has exploded if its average over about 20 losses is 3 times the first level and its noise. One loss counts as at most
10 times the first level."""

LOST = 10
"""Losses in a row that are not finite."""


class Sign(NamedTuple):
    """What is wrong, as a name and in words."""

    kind: str
    message: str


class Block:
    """Mean and variance of some losses.

    >>> block = Block()
    >>> for loss in (1.0, 2.0, 3.0):
    ...     block.add(loss)
    >>> block.mean, block.variance
    (2.0, 1.0)
    """

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, loss: float) -> None:
        """One more."""
        self.count += 1
        difference = loss - self.mean
        self.mean += difference / self.count
        self.squares += difference * (loss - self.mean)

    @property
    def variance(self) -> float:
        """Of the losses; infinite before the second."""
        return self.squares / (self.count - 1) if self.count > 1 else math.inf

    @classmethod
    def of(cls, blocks: Sequence["Block"]) -> "Block":
        """Several as one."""
        whole = cls()
        whole.count = sum(block.count for block in blocks)
        whole.mean = sum(block.count * block.mean for block in blocks) / whole.count
        whole.squares = sum(block.squares + block.count * (block.mean - whole.mean) ** 2 for block in blocks)
        return whole


class VitalSigns:
    """Watches one loss after another.

    Args:
        total_steps: of the training as planned.
        knows_begin: whether the first loss that it sees is the training's first.
    """

    def __init__(self, total_steps: int, *, knows_begin: bool = True) -> None:
        self.size = max(SHORTEST, total_steps // SHARE)
        self.compares, self.count, self.lost, self.in_a_row = knows_begin, 0, 0, 0
        self.begin, self.first, self.early, self.recent = Block(), Block(), Block(), Block()
        self.blocks: list[Block] = []  # after the early one
        self.average = self.highest = 0.0
        self.told: set[str] = set()

    def see(self, loss: float, total_steps: int) -> Sign | None:
        """One more loss: a sign that was not told before, or None. `total_steps`: as planned now."""
        if not math.isfinite(loss):
            self.lost += 1
            return self._tell(Sign("lost", _lost(self.lost))) if self.lost >= LOST else None
        self.lost = 0
        self.compares = self.compares and loss > 0
        if not self.compares:
            return None
        self.count += 1
        self.highest = max(self.highest, loss)
        if self.count <= BEGIN:
            self.begin.add(loss)
        if self.count <= FIRST:
            self.first.add(loss)
            self.average = self.first.mean
        else:
            self.average += (1 - KEEP) * (min(loss, SPIKE * self.first.mean) - self.average)
        if self.count > max(EXPLODE_STEPS, WARMUP * total_steps) and self._has_exploded():
            return self._tell(Sign("exploding", _exploding(self.average, self.first.mean)))
        if self.early.count < self.size:
            self.early.add(loss)
            return None
        self.recent.add(loss)
        if self.recent.count < self.size:
            return None
        recent, self.recent = self.recent, Block()
        self._keep(recent)
        self.in_a_row = self.in_a_row + 1 if self._is_stuck(recent) else 0
        if self.count < max(STUCK_STEPS, STUCK_AFTER * total_steps):
            return None
        if self.in_a_row >= 2:
            return self._tell(Sign("stuck", _stuck(recent, self.early)))
        late = Block.of(self.blocks[len(self.blocks) // 2 :])
        if self._fell_too_little(late, total_steps):
            return self._tell(Sign("stuck", _stuck(late, self.early)))
        if self._is_destroyed(late):
            return self._tell(Sign("stuck", _stuck(late, self.begin)))
        return None

    def _keep(self, block: Block) -> None:
        """One more block; all are joined in pairs when there are too many."""
        self.blocks.append(block)
        if len(self.blocks) == MOST_BLOCKS:
            self.blocks = [Block.of(pair) for pair in zip(self.blocks[::2], self.blocks[1::2], strict=True)]

    def _has_exploded(self) -> bool:
        """Whether the average is far above the first level, and its noise."""
        return self.average > EXPLODED * (self.first.mean + 2 * math.sqrt(self.first.variance / FIRST))

    def _is_stuck(self, recent: Block) -> bool:
        """Whether a block of losses equals those before, too surely for chance."""
        level = self.early.mean
        error = math.sqrt((self.early.variance + recent.variance) / self.size)
        return (
            level - error / 2 <= recent.mean <= HIGHER * level
            and SURE_TIMES * error < SURE * level
            and not self._fell_at_once(recent)
        )

    def _fell_too_little(self, late: Block, total_steps: int) -> bool:
        """Whether the losses of the last half did not fall, where a slow fall would have been seen."""
        level = self.early.mean
        error = math.sqrt(self.early.variance / self.early.count + late.variance / late.count)
        passed = (self.count - (late.count + self.early.count) / 2) / total_steps
        return (
            level - error <= late.mean <= HIGHER * level
            and PACE_TIMES * error < PACE * passed * level
            and not self._fell_at_once(late)
        )

    def _is_destroyed(self, late: Block) -> bool:
        """Whether the loss blew up, and came back to where it was before anything was learned."""
        level, noise = self.begin.mean, math.sqrt(late.variance)
        return self.highest > BLOWN * level and noise < CALM * level and level - noise <= late.mean <= HIGHER * level

    def _fell_at_once(self, recent: Block) -> bool:
        """Whether the loss fell in its first steps already."""
        return recent.mean < self.first.mean - 2 * math.sqrt(recent.variance / FIRST)

    def _tell(self, sign: Sign) -> Sign | None:
        if sign.kind in self.told:
            return None
        self.told.add(sign.kind)
        return sign


class Watch:
    """Remembers what has been said.

    Args:
        on_stuck: `warn` or `raise` if the training will come to nothing.
        total_steps: of the training as planned.
        knows_begin: whether the first loss that it sees is the training's first.
    """

    def __init__(self, on_stuck: str, total_steps: int, *, knows_begin: bool = True) -> None:
        self.on_stuck = on_stuck
        self.warned: set[str] = set()
        self.seen = 0
        """Steps whose losses were seen, where a device has to be asked for them."""
        self.signs = VitalSigns(total_steps, knows_begin=knows_begin)

    def warn_once(self, kind: str, message: str) -> None:
        """Warn, the first time only."""
        if kind not in self.warned:
            self.warned.add(kind)
            _check.warn(message)

    def see(self, loss: float, planned: int) -> None:
        """A loss was used for a step. `planned`: steps of the whole training."""
        sign = self.signs.see(loss, planned)
        if sign is not None:
            self._tell(sign)

    def look(self, law: Law, state: Any) -> None:
        """Warn about what the law has counted."""
        for kind, message in law.problems(state).items():
            self.warn_once(kind, message)

    def _tell(self, sign: Sign) -> None:
        if self.on_stuck == "raise":
            raise RuntimeError(f"{sign.message}; on_stuck='warn' goes on")
        self.warn_once(sign.kind, f"{sign.message}; on_stuck='raise' would stop here")


def _stuck(recent: Block, early: Block) -> str:
    return (
        f"the loss does not fall: its mean over the last {recent.count} losses is {recent.mean:.4g}, and was {early.mean:.4g} over "
        f"the first {early.count}. Check that the optimizer has the model's parameters, and that inputs are normalised and belong "
        "to their targets; then try scale=0.1 and scale=10, or another initialisation"
    )


def _exploding(average: float, first: float) -> str:
    return (
        f"the loss grows: its average is {average:.4g}, and was {first:.4g} over the first {FIRST} losses. Try a smaller scale=, "
        "such as 0.3, or max_lr=, or clip the gradients; go back to weights from before it grew"
    )


def _lost(losses: int) -> str:
    return (
        f"{losses} losses in a row were not finite, so the weights are probably lost: go back to a checkpoint from before, with a "
        "smaller scale=, such as 0.3, or clip the gradients; torch.autograd.set_detect_anomaly(True) finds the first NaN"
    )
