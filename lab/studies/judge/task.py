"""A training that is fixed in everything but what sets its learning rate: data in three parts, a network and a plan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Judged = tuple[float, float]
"""The share of wrong answers (or the loss, where there is none to be wrong), and the loss."""

Cost = Callable[..., tuple[Tensor, Tensor | None]]
"""cost(model, *examples): their mean loss, and whether each answer is wrong, if there are answers."""

AT_ONCE = 250


@dataclass(frozen=True)
class Plan:
    """How a network is trained.

    lr: where its users begin. examples: the first ones, to train on. clip: the largest norm of gradients.
    """

    optimizer: str
    lr: float
    steps: int
    batch: int
    examples: int
    weight_decay: float = 0.0
    clip: float | None = None

    @property
    def is_adaptive(self) -> bool:
        """Whether it is Adam or AdamW."""
        return self.optimizer.startswith("adam")

    @property
    def epochs(self) -> float:
        """How often each example is seen.

        >>> Plan("adam", 1e-3, steps=100, batch=16, examples=800).epochs
        2.0
        """
        return self.steps * self.batch / self.examples


@dataclass(frozen=True)
class Task:
    """build: the network at the start. loss: of some of the training examples. judge: on "train", "validation" or "test"."""

    plan: Plan
    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Tensor], Tensor]
    judge: Callable[[nn.Module, str], Judged]


def task(
    plan: Plan, build: Callable[[], nn.Module], cost: Cost, examples: Sequence[Tensor], validation: int, test: int
) -> Task:
    """The last `test` of the examples are for judging, those before them for choosing; what is random there is always the same."""
    count, held = len(examples[0]), validation + test
    if plan.examples > count - held:
        raise ValueError(f"examples must be at most {count - held}, beside those held out, got {plan.examples}")
    places = {"train": (0, plan.examples), "validation": (count - held, count - test), "test": (count - test, count)}

    def loss(model: nn.Module, index: Tensor) -> Tensor:
        return cost(model, *(part[index] for part in examples))[0]

    @torch.no_grad()
    def judge(model: nn.Module, part: str) -> Judged:
        begin, end = places[part]
        error = total = 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for index in torch.arange(begin, end).split(AT_ONCE):
                found, wrong = cost(model, *(part[index] for part in examples))
                total += float(found) * len(index)
                error += float(found if wrong is None else wrong.float().mean()) * len(index)
        return error / (end - begin), total / (end - begin)

    return Task(plan, build, loss, judge)
