"""What a `HorizonTrainer` learns from, and what it is measured on."""

from dataclasses import dataclass

from mlrsnet_lab import checks
from mlrsnet_lab.horizon.fitness import Fitness, find_fitness
from mlrsnet_lab.horizon.sampler import Sampler


@dataclass(frozen=True)
class Tasks:
    """The tasks of a meta-training, and by what their ends are judged.

    Args:
        sampler: a `TaskSampler`, or anything with its `sample(seed, count)`.
        per_generation: how many tasks a generation trains.
        together: how many of them train side by side at most; 0 for all that can.
        fitness: `calibrated` (validation loss at the best temperature), `loss`, or a function of outputs and targets; see
            `fitness.py`.
        held_out: how many tasks only measure; 0 for no comparison.
        measured_on: their sampler; `sampler` under other seeds if None.
    """

    sampler: Sampler
    per_generation: int = 8
    together: int = 0
    fitness: str | Fitness = "calibrated"
    held_out: int = 8
    measured_on: Sampler | None = None

    def __post_init__(self) -> None:
        for name in ("sampler", "measured_on"):
            given = getattr(self, name) or self.sampler
            if not callable(getattr(given, "sample", None)):
                raise TypeError(f"{name} must be a TaskSampler or have sample(seed, count), got {given!r}")
        checks.whole_number("per_generation", self.per_generation)
        checks.whole_number("together", self.together, 0)
        checks.whole_number("held_out", self.held_out, 0)
        find_fitness(self.fitness)

    @property
    def judge(self) -> Fitness:
        """The fitness as a function."""
        return find_fitness(self.fitness)
