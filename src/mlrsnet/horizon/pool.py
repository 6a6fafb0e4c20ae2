"""Trainings of any shapes: tasks that share a step train in one population, and some populations at the same time."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from mlrsnet.horizon.fitness import Fitness
from mlrsnet.horizon.policies import Policy
from mlrsnet.horizon.population import Population, Trained, Training
from mlrsnet.horizon.tasks import Data, Task

MOST_POPULATIONS = 64
"""Captured steps that are kept; each holds the memory of its trainings."""

AT_ONCE = 8
"""Groups of tasks that train at the same time on a GPU."""

P = TypeVar("P", bound=Policy)


@dataclass(frozen=True)
class _Running(Generic[P]):
    indices: list[int]
    population: Population
    policy: P
    training: Training


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
        self.at_once = AT_ONCE if device.type == "cuda" else 1

    def train(
        self, tasks: Sequence[Task], members: int, fitness: Fitness, prepare: Callable[[P, list[int]], None]
    ) -> Iterator[tuple[list[int], P, Trained]]:
        """Whole trainings, group by group of tasks: their indices, what set their LRs, what they came to.

        `prepare` is told which tasks the policy will drive next. On a GPU some groups train at the same time: a step of small
        networks does not fill it.
        """
        groups: dict[Any, list[int]] = {}
        for index, task in enumerate(tasks):
            groups.setdefault((*task.kind, task.total_steps, task.steps), []).append(index)
        waiting, running = list(groups.values()), deque[_Running[P]]()
        while waiting or running:
            for indices in waiting[:]:
                if len(running) == self.at_once:
                    break
                those = [tasks[index] for index in indices]
                population, policy = self._population(those, members)
                if any(population.disturbs(other.population) for other in running):
                    continue
                prepare(policy, indices)
                running.append(_Running(indices, population, policy, population.training(those, fitness)))
                waiting.remove(indices)
            next_one = running.popleft()
            try:
                next(next_one.training)
                running.append(next_one)
            except StopIteration as end:
                yield next_one.indices, next_one.policy, end.value

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
