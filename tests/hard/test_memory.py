"""Memory stays flat, however long a training is."""

import gc
import resource
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch
from torch.optim import SGD

from mlrsnet import LearnedLR

LONG, BEFORE = 100_000, 20_000
"""Steps, and those after which memory is looked at first, when everything that is made once is there."""

MOST, SMALLEST = 8, 24
"""Bytes a step: what may stay over a long training, and the smallest object of Python. In a short one, caches still fill."""


class Training:
    """The cheapest steps there are: gradients that stay, and a loss that falls."""

    def __init__(self, lr, total_steps):
        weight = torch.nn.Parameter(torch.ones(16, 4))
        weight.grad = torch.full_like(weight, 0.01)
        self.optimizer, self.total = SGD([weight], lr=lr), total_steps
        self.lr, self.done = LearnedLR(self.optimizer, total_steps=total_steps), 0

    def go_on(self, steps):
        for step in range(self.done, self.done + steps):
            self.lr.step(torch.tensor(2 - step / self.total))
            self.optimizer.step()
        self.done += steps


def resident():
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def allocated():
    """Bytes that Python has allocated since tracemalloc began."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_hundred_thousand_steps_need_no_more_memory_than_the_first_ones(kind):
    training = Training(kind(), LONG)
    training.go_on(BEFORE)
    before = resident()
    training.go_on(LONG - BEFORE)
    assert resident() - before < MOST * (LONG - BEFORE)


def test_a_step_leaves_no_objects_behind(kind):
    """The same in seconds, for what Python allocates; of a training as long, whose history keeps an LR every 16 steps."""
    training = Training(kind(), LONG)
    tracemalloc.start()
    training.go_on(700)
    before = allocated()
    training.go_on(1000)
    grown = allocated() - before
    tracemalloc.stop()
    assert grown < SMALLEST * 1000
