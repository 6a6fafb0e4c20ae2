"""Trainings of any mix of tasks. Tasks with the same data, model, optimizer and batch size train in one population."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from mlrsnet_lab.horizon.compute import Compute
from mlrsnet_lab.horizon.data import Data
from mlrsnet_lab.horizon.fitness import Fitness
from mlrsnet_lab.horizon.policies import Policy
from mlrsnet_lab.horizon.population import Population
from mlrsnet_lab.horizon.task import Task
from mlrsnet_lab.horizon.training import Trained, Training

MOST_POPULATIONS = 64
"""Populations that are kept for reuse. Each holds the memory of its trainings and of its captured step."""

AT_ONCE = 8
"""Populations that train at the same time on a GPU."""

P = TypeVar("P", bound=Policy)


@dataclass(frozen=True)
class TaskGroup(Generic[P]):
    """Tasks that train in one population, by their indices, and what sets their LRs."""

    indices: list[int]
    policy: P
    training: Training

    @property
    def trained(self) -> Trained:
        """The result; only when the training is done."""
        return self.training.result


class Pool(Generic[P]):
    """Populations by what their tasks share, made when first needed and then reused.

    Args:
        make_policy: makes the policy for a number of trainings.
        run: where and how to train.
    """

    def __init__(self, make_policy: Callable[[int], P], run: Compute) -> None:
        self.make_policy, self.run = make_policy, run
        self.data: dict[Data, Data] = {}
        self.populations: OrderedDict[Any, tuple[Population, P]] = OrderedDict()
        self.at_once = AT_ONCE if run.device.type == "cuda" else 1

    def train(self, tasks: Sequence[Task], values: Sequence[Tensor], fitness: Fitness) -> Iterator[TaskGroup[P]]:
        """Train the tasks to their end. Yields each group of tasks as it finishes.

        On a GPU several groups train at the same time, taking turns: a step of small networks does not fill it.

        Args:
            tasks: of any kinds.
            values: for each task (members, ...), what its policy is configured with, one row per training.
            fitness: judges the outputs on the held-out examples.
        """
        yield from self.train_groups(grouped(tasks), tasks, dict(enumerate(values)), fitness)

    def train_groups(
        self, groups: Sequence[Sequence[int]], tasks: Sequence[Task], values: Mapping[int, Tensor], fitness: Fitness
    ) -> Iterator[TaskGroup[P]]:
        """Train some tasks, those of a group side by side. `values` are by the index of the task."""
        waiting, running = [list(group) for group in groups], deque[TaskGroup[P]]()
        while waiting or running:
            for indices in waiting[:]:
                if len(running) == self.at_once:
                    break
                started = self._start(indices, tasks, values, fitness, running)
                if started is not None:
                    running.append(started)
                    waiting.remove(indices)
            group = running.popleft()
            group.training.advance()
            if group.training.done:
                yield group
            else:
                running.append(group)

    def _start(
        self,
        indices: list[int],
        tasks: Sequence[Task],
        values: Mapping[int, Tensor],
        fitness: Fitness,
        running: deque[TaskGroup[P]],
    ) -> TaskGroup[P] | None:
        """Start a group; None if its population cannot train beside those that are running."""
        own = [tasks[index] for index in indices]
        population, policy = self._population(own, members=len(values[indices[0]]))
        if any(population.conflicts_with(other.training.population) for other in running):
            return None
        policy.configure(torch.cat([values[index] for index in indices]))
        return TaskGroup(indices, policy, Training(population, own, fitness))

    def _population(self, tasks: Sequence[Task], members: int) -> tuple[Population, P]:
        key = (*tasks[0].kind, len(tasks), members)
        if key not in self.populations:
            data, policy = self._on_device(tasks[0].data), self.make_policy(len(tasks) * members)
            self.populations[key] = Population(tasks[0], len(tasks), members, policy, self.run, data), policy
        self.populations.move_to_end(key)
        while len(self.populations) > MOST_POPULATIONS:
            self.populations.popitem(last=False)
            used = {key[0] for key in self.populations}  # a sampler may make new data for every generation
            self.data = {data: copy for data, copy in self.data.items() if data in used}
        return self.populations[key]

    def _on_device(self, data: Data) -> Data:
        """The data in the device's memory, copied once."""
        if data not in self.data:
            self.data[data] = data.to(self.run.device, self.run.dtype)
        return self.data[data]


def grouped(tasks: Sequence[Task], most: int = 0) -> list[list[int]]:
    """Indices of the tasks that train side by side: of one kind, with equal numbers of steps; `most` at a time, 0 for all."""
    groups: dict[Any, list[int]] = {}
    for index, task in enumerate(tasks):
        groups.setdefault((*task.kind, task.total_steps), []).append(index)
    size = most or len(tasks)
    return [group[first : first + size] for group in groups.values() for first in range(0, len(group), size)]
