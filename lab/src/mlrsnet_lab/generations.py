"""The tasks of a generation over several processes. Tasks and directions are drawn from seeds there, and only numbers come back."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mlrsnet_lab import datasets
from mlrsnet_lab.devices import resolve
from mlrsnet_lab.executors import Crew, Place, Work
from mlrsnet_lab.horizon import Comparison, HorizonTrainer
from mlrsnet_lab.horizon.judging import Judged
from mlrsnet_lab.horizon.pool import AT_ONCE
from mlrsnet_lab.meta_building import build
from mlrsnet_lab.meta_specs import HorizonSpec


@dataclass(frozen=True)
class Order:
    """What a process needs to take part in a generation: the spec, where the data is, and the state of the trainer."""

    spec: HorizonSpec
    root: Path
    state: dict[str, Any]


class CrewHelpers:
    """Trains for a `HorizonTrainer` in the processes of a crew. See `horizon.judging.Helpers`."""

    def __init__(self, crew: Crew, spec: HorizonSpec, root: Path | None) -> None:
        self.crew, self.spec, self.root = crew, spec, datasets.data_root(root)

    def judge(self, trainer: HorizonTrainer) -> Iterator[Judged]:
        """Train the groups of the next generation, the longest first."""
        steps = [task.total_steps for task in trainer.next_tasks()]
        groups = sorted(trainer.groups(), key=lambda group: -steps[group[0]] * len(group))
        size = self._groups_at_once(len(groups))
        parts = [groups[first : first + size] for first in range(0, len(groups), size)]
        for found in self._ask(trainer, train_groups, [(part,) for part in parts]):
            yield from found

    def compare(self, trainer: HorizonTrainer) -> Comparison:
        """Compare in one process, and keep what it learns about the rivals."""
        [(found, grids)] = self._ask(trainer, compare, [()])
        assert trainer.held_out is not None
        trainer.held_out.grid_fitness = grids
        return Comparison(**found)

    def _groups_at_once(self, count: int) -> int:
        """On a GPU a process trains several groups at once; elsewhere one group after the other, so that none waits long."""
        if not self.crew.workers.device.startswith("cuda"):
            return 1
        return min(AT_ONCE, -(-count // self.crew.workers.size))

    def _ask(
        self, trainer: HorizonTrainer, function: Callable[..., Any], arguments: list[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """Call a function with an order, in any process, and with each of these arguments."""
        order, name = Order(self.spec, self.root, trainer.state_dict()), f"generation {trainer.number + 1}"
        queue = deque(
            Work(f"{name}, {function.__name__} {index}", function, (order, *more))
            for index, more in enumerate(arguments)
        )
        for done in self.crew.run(lambda: queue.popleft() if queue else None, stoppable=False):
            if done.lost is not None:
                raise done.lost
            yield done.value


def train_groups(place: Place, order: Order, groups: list[list[int]]) -> list[Judged]:
    """Train groups of a generation, in whichever process."""
    return list(_replica(place, order).judge(groups))


def compare(place: Place, order: Order) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The comparison after a generation, and the fitness of the rivals, in whichever process."""
    trainer = _replica(place, order)
    assert trainer.held_out is not None
    return vars(trainer.held_out.compare(trainer.number, trainer.schedule())), trainer.held_out.grids()


_replicas: dict[str, HorizonTrainer] = {}


def _replica(place: Place, order: Order) -> HorizonTrainer:
    """The trainer of this process, made once, in the state of the one that gives the order."""
    key = f"{order.spec!r} {order.root} {place.device}"
    if key not in _replicas:
        _replicas.clear()  # before another one is made: each holds data and populations
        _replicas[key] = build(order.spec, resolve(place.device), order.root)
    _replicas[key].load_state_dict(order.state)
    return _replicas[key]
