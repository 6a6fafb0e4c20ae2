"""The trainings of a population in progress."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mlrsnet_lab.horizon.batches import Batches
from mlrsnet_lab.horizon.fitness import Fitness
from mlrsnet_lab.horizon.population import CHUNK, Population
from mlrsnet_lab.horizon.task import Task


@dataclass(frozen=True)
class Trained:
    """The end of a population's trainings: fitness (trainings,), losses and LRs (trainings, steps)."""

    fitness: Tensor
    losses: Tensor
    lrs: Tensor


class Training:
    """Whole trainings, from fresh weights to the fitness on held-out data: `advance()` until `done`, then `result`.

    Between two calls the host is free to start or advance other trainings: a GPU may still be busy with this one. Random
    numbers are the training's own, so the order of the calls does not matter.

    Args:
        population: must not be in another training.
        tasks: as many as the population has, of one kind and with equal numbers of steps.
        fitness: judges the outputs on the held-out examples.
    """

    def __init__(self, population: Population, tasks: Sequence[Task], fitness: Fitness) -> None:
        self.population, self.tasks, self.fitness = population, tasks, fitness
        self.batches = [Batches(task) for task in tasks]
        self.steps_left, self.chunks = tasks[0].total_steps, list[Tensor]()
        self._result: Trained | None = None
        population.side_stream.begin(tasks[0].seed)
        with population.side_stream.part():
            population.begin(tasks)

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self._result is not None

    @property
    def result(self) -> Trained:
        """What came out; only when `done`."""
        if self._result is None:
            raise RuntimeError(f"the training has {self.steps_left} steps left: call advance() until it is done")
        return self._result

    def advance(self) -> None:
        """Take the next chunk of steps or, when none is left, judge the result."""
        if self.done:
            raise RuntimeError("the training is done: read its result")
        with self.population.side_stream.part():
            if self.steps_left:
                count = min(CHUNK, self.steps_left)
                self.chunks.append(self.population.advance(self.batches, count))
                self.steps_left -= count
            else:
                self._result = self._judge()
        if self.done:
            self.population.side_stream.end()

    def run(self) -> Trained:
        """Advance to the end."""
        while not self.done:
            self.advance()
        return self.result

    def _judge(self) -> Trained:
        losses, lrs = torch.cat(self.chunks, dim=2)  # each chunk: (2, trainings, steps)
        fitness = self.fitness(*self.population.evaluate(self.tasks))
        if not isinstance(fitness, Tensor) or fitness.shape != losses.shape[:1]:
            raise ValueError(
                f"fitness must return one number per training, a tensor of shape ({len(losses)},), got {fitness!r}"
            )
        return Trained(fitness, losses, lrs)
