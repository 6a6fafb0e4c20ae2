"""How far a training is: the line that progress follows from 0 to 1, and the phases on it. Numbers or tensors.

u = u_0 + (1 - u_0) min(t - t_0, S - 1) / S        with S = T - t_0; it stays below 1
"""

from typing import Any, NamedTuple

from mlrsnet.ops import HOST, Operations

UNIT = 2**24
"""u_0 is a whole number of parts of 1 / `UNIT`: exact in float32 too, so every backend has the same line."""

OPEN_STEPS, OPEN_GROWTH = 1000, 16
"""A training without an end plans for so many steps first, then for a sixteenth more whenever half of them are over."""


class Plan(NamedTuple):
    """The steps of a training. Python's whole numbers, or tensors of them.

    total_steps: T, where progress is 1. begin, start: t_0, and u_0 in parts of 1 / `UNIT`; 0 unless someone annealed. planned:
    the number of steps that sizes and windows are for: T as it was planned.
    """

    total_steps: Any
    begin: Any
    start: Any
    planned: Any

    @classmethod
    def of(cls, total_steps: int) -> "Plan":
        """A training as planned."""
        return cls(total_steps, 0, 0, total_steps)

    def annealed(self, step: int, steps: int) -> "Plan":
        """The line from where progress is at `step` to 1, `steps` steps later. Only of numbers.

        >>> plan = Plan.of(100).annealed(50, 10)
        >>> plan.total_steps, [plan.progress(t) for t in (50, 51, 59, 99)]
        (60, [0.5, 0.55, 0.95, 0.95])
        """
        length = self.total_steps - self.begin
        passed = min(step - self.begin, length - 1)
        parts = self.start * length + (UNIT - self.start) * passed
        start = -(-parts // length)  # rounded up, so that no phase comes back
        return Plan(step + steps, step, min(start, UNIT - 1), self.planned)

    def progress(self, step: Any, o: Operations = HOST) -> Any:
        """u.

        >>> Plan.of(120).progress(30), Plan.of(100).progress(500)
        (0.25, 0.99)
        """
        length, share = self.total_steps - self.begin, self.start / UNIT
        return share + (1 - share) * (o.smaller(step - self.begin, length - 1) / length)

    def phase(self, step: Any, num_phases: int, o: Operations = HOST) -> Any:
        """Which of `num_phases` equal parts of the training a step is in: floor(P u). The last part goes on past the end.

        >>> [Plan.of(10).phase(t, 3) for t in (0, 3, 4, 6, 7, 9, 99)]
        [0, 0, 1, 1, 2, 2, 2]
        """
        length = self.total_steps - self.begin
        parts = self.start * length + (UNIT - self.start) * (step - self.begin)
        return o.smaller(num_phases * parts // (UNIT * length), num_phases - 1)

    def borders(self, num_phases: int) -> list[int]:
        """The steps at which phases begin from now on, but for the one that it is in now. Only of numbers.

        >>> Plan.of(10).borders(3), Plan.of(100).annealed(50, 12).borders(4)
        ([4, 7], [56])
        """
        length, first = self.total_steps - self.begin, num_phases * self.start // UNIT + 1
        missing = [phase * UNIT - num_phases * self.start for phase in range(first, num_phases)]
        steps = [-(-parts * length // (num_phases * (UNIT - self.start))) for parts in missing]
        return [self.begin + step for step in steps if step < length]
