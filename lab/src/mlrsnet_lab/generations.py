"""The tasks of a generation over several processes. Weights and directions travel as seeds, and only numbers come back.

Every process has a trainer of its own and takes the same steps: it draws tasks and directions from the seeds, and after a
generation learns from the fitness of all members, tasks x members numbers. So the network's weights are sent only to a process that
begins in the middle, or whose own differ.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from mlrsnet_lab import datasets
from mlrsnet_lab.devices import resolve
from mlrsnet_lab.executors import Crew, Done, Place, Work
from mlrsnet_lab.horizon import Comparison, HorizonTrainer
from mlrsnet_lab.horizon.judging import Judged
from mlrsnet_lab.meta_building import build
from mlrsnet_lab.meta_specs import HorizonSpec


@dataclass(frozen=True)
class Order:
    """What a process needs to know to take part in a generation.

    digest: of the weights that it must have. last: what came out of the generation before, to learn from. state: for a process that
    does not have these weights.
    """

    spec: HorizonSpec
    root: Path
    number: int
    digest: str
    last: tuple[Judged, ...] = ()
    state: dict[str, Any] | None = None


class Behind:
    """Says that a process cannot take part without the state."""


class CrewHelpers:
    """Trains for a `HorizonTrainer` in the processes of a crew. See `horizon.judging.Helpers`."""

    def __init__(self, crew: Crew, spec: HorizonSpec, root: Path | None) -> None:
        self.crew, self.spec, self.root = crew, spec, datasets.data_root(root)
        self.last: tuple[Judged, ...] = ()
        self.last_number = -1
        self.states_sent = 0

    def judge(self, trainer: HorizonTrainer) -> Iterator[Judged]:
        """Train the groups of the next generation, the longest first."""
        steps = [task.total_steps for task in trainer.next_tasks()]
        groups = sorted(trainer.groups(), key=lambda group: -steps[group[0]] * len(group))
        found: list[Judged] = []
        for part in self._ask(trainer, [(train_groups, ([group],)) for group in groups]):
            found += part
        self.last, self.last_number = tuple(found), trainer.number
        yield from found

    def compare(self, trainer: HorizonTrainer) -> Comparison:
        """Compare in one process, and keep what it learns about the rivals."""
        [(found, grids)] = self._ask(trainer, [(compare, ())])
        assert trainer.held_out is not None
        trainer.held_out.grid_fitness = grids
        return Comparison(**found)

    def _ask(self, trainer: HorizonTrainer, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Iterator[Any]:
        """Call each function with an order, in any process; again with the state where a process is behind."""
        last = self.last if self.last_number == trainer.number - 1 else ()
        order = Order(self.spec, self.root, trainer.number, digest_of(trainer), last)
        name = f"generation {trainer.number + 1}"
        queue = deque(
            Work(f"{name}, {call.__name__} {index}", call, (order, *more)) for index, (call, more) in enumerate(calls)
        )
        for done in self.crew.run(lambda: queue.popleft() if queue else None, stoppable=False):
            if isinstance(value := _value(done), Behind):
                work, self.states_sent = done.work, self.states_sent + 1
                informed = replace(order, state=trainer.state_dict())
                queue.append(replace(work, arguments=(informed, *work.arguments[1:])))
            else:
                yield value


def _value(done: Done) -> Any:
    if done.lost is not None:
        raise done.lost
    return done.value


def train_groups(place: Place, order: Order, groups: list[list[int]]) -> list[Judged] | Behind:
    """Train groups of a generation, in whichever process."""
    trainer = _in_step(place, order)
    return Behind() if trainer is None else list(trainer.judge(groups))


def compare(place: Place, order: Order) -> tuple[dict[str, Any], dict[str, Tensor]] | Behind:
    """The comparison after a generation, and the fitness of the rivals, in whichever process."""
    trainer = _in_step(place, order)
    if trainer is None:
        return Behind()
    assert trainer.held_out is not None
    return vars(trainer.held_out.compare(trainer.number, trainer.schedule())), trainer.held_out.grids()


def _in_step(place: Place, order: Order) -> HorizonTrainer | None:
    """This process's trainer, as far as the one that gives the order; None if it cannot get there by itself."""
    trainer = _replica(order.spec, order.root, place.device)
    if order.state is not None and not _has(trainer, order):
        trainer.load_state_dict(order.state)
    if order.last and trainer.number == order.number - 1:
        trainer.finish(order.last)
    return trainer if _has(trainer, order) else None


def _has(trainer: HorizonTrainer, order: Order) -> bool:
    return trainer.number == order.number and digest_of(trainer) == order.digest


_replicas: dict[str, HorizonTrainer] = {}


def _replica(spec: HorizonSpec, root: Path, device: str) -> HorizonTrainer:
    """The trainer of this process, made once."""
    key = f"{spec!r} {root} {device}"
    if key not in _replicas:
        _replicas.clear()  # before another one is made: each holds data and populations
        _replicas[key] = build(spec, resolve(device), root)
    return _replicas[key]


def digest_of(trainer: HorizonTrainer) -> str:
    """Tells whether two trainers have networks of the same bits."""
    both = trainer.weights.numpy().tobytes() + trainer.mean_weights.numpy().tobytes()
    return hashlib.blake2b(both, digest_size=8).hexdigest()
