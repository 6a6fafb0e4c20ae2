"""Trainings of any shapes: tasks that can train side by side do, the others one after another."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch

from mlrsnet.horizon.fitness import Fitness
from mlrsnet.horizon.policies import Policy
from mlrsnet.horizon.population import Population, Trained
from mlrsnet.horizon.tasks import Data, Task

MOST_POPULATIONS = 64
"""Captured steps that are kept; each holds the memory of its trainings."""

P = TypeVar("P", bound=Policy)


class Pool(Generic[P]):
    """Populations by what their tasks share, made when they are first needed and used again.

    Args:
        policy: makes what sets the LRs of so many trainings.
        device: where to train.
        precision, capture: see `Population`.
    """

    def __init__(
        self, policy: Callable[[int], P], device: torch.device, precision: str = "fp32", capture: bool = True
    ) -> None:
        self.policy, self.device, self.precision, self.capture = policy, device, precision, capture
        self.data: dict[Data, Data] = {}
        self.populations: OrderedDict[Any, tuple[Population, P]] = OrderedDict()

    def train(
        self, tasks: Sequence[Task], members: int, fitness: Fitness, prepare: Callable[[P, list[int]], None]
    ) -> Iterator[tuple[list[int], P, Trained]]:
        """Whole trainings, one group of tasks after another: their indices, what set their LRs, what they came to.

        `prepare` is told which tasks the policy will drive next.
        """
        groups: dict[Any, list[int]] = {}
        for index, task in enumerate(tasks):
            groups.setdefault((*task.kind, task.total_steps, task.steps), []).append(index)
        for indices in groups.values():
            those = [tasks[index] for index in indices]
            population, policy = self._population(those, members)
            prepare(policy, indices)
            yield indices, policy, population.train(those, fitness)

    def _population(self, tasks: Sequence[Task], members: int) -> tuple[Population, P]:
        key = (*tasks[0].kind, len(tasks), members)
        if key not in self.populations:
            data, policy = self._on_device(tasks[0].data), self.policy(len(tasks) * members)
            made = Population(tasks[0], len(tasks), members, policy, data, self.precision, capture=self.capture)
            self.populations[key] = made, policy
        self.populations.move_to_end(key)
        while len(self.populations) > MOST_POPULATIONS:
            self.populations.popitem(last=False)
            used = {key[0] for key in self.populations}  # a sampler may make new data for every generation
            self.data = {data: there for data, there in self.data.items() if data in used}
        return self.populations[key]

    def _on_device(self, data: Data) -> Data:
        """The data there, copied once."""
        if data not in self.data:
            self.data[data] = data if data.inputs.device == self.device else data.to(self.device)
        return self.data[data]
