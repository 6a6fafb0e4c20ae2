"""Which examples are in which batch of a task. Drawn on the host, so it is the same on every device."""

import torch
from torch import Tensor

from mlrsnet_lab.horizon.seeds import generator
from mlrsnet_lab.horizon.task import Task


class Batches:
    """The batches of a task, one after another.

    The training examples are shuffled before every pass. Examples left over after the last whole batch are dropped.
    """

    def __init__(self, task: Task) -> None:
        assert task.train is not None
        self.examples, self.batch_size, self.mirrored = task.train, task.batch_size, task.data.mirrored
        self.shuffling, self.mirroring = generator("order", task.seed), generator("mirroring", task.seed)
        self.queue = torch.empty(0, self.batch_size, dtype=torch.long)

    def take(self, count: int) -> tuple[Tensor, Tensor]:
        """Indices of the examples in the next `count` batches, and whether each is mirrored; both (count, batch)."""
        while len(self.queue) < count:
            self.queue = torch.cat((self.queue, self._one_pass()))
        taken, self.queue = self.queue[:count], self.queue[count:]
        if not self.mirrored:
            return taken, torch.zeros(taken.shape, dtype=torch.bool)
        return taken, torch.rand(taken.shape, generator=self.mirroring) < 0.5

    def _one_pass(self) -> Tensor:
        """(batches, batch) of one pass over the training examples."""
        whole = len(self.examples) // self.batch_size * self.batch_size
        shuffled = torch.randperm(len(self.examples), generator=self.shuffling)[:whole]
        return self.examples[shuffled].view(-1, self.batch_size)
