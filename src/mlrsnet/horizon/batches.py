"""The order of a task's batches, on the host: the same on every device."""

import torch
from torch import Tensor

from mlrsnet.horizon.seeds import generator
from mlrsnet.horizon.tasks import Task


class Batches:
    """Shuffled anew in every pass over the training examples; what is left of a pass is dropped."""

    def __init__(self, task: Task) -> None:
        assert task.train is not None
        self.examples, self.batch_size, self.mirrored = task.train, task.batch_size, task.data.mirrored
        self.random, self.mirroring = generator("order", task.seed), generator("mirroring", task.seed)
        self.left = torch.empty(0, self.batch_size, dtype=torch.long)

    def take(self, count: int) -> tuple[Tensor, Tensor]:
        """The next `count` batches: which examples, and which of them are mirrored; both (count, batch)."""
        while len(self.left) < count:
            whole = len(self.examples) // self.batch_size * self.batch_size
            order = self.examples[torch.randperm(len(self.examples), generator=self.random)[:whole]]
            self.left = torch.cat((self.left, order.view(-1, self.batch_size)))
        taken, self.left = self.left[:count], self.left[count:]
        if not self.mirrored:
            return taken, torch.zeros(taken.shape, dtype=torch.bool)
        return taken, torch.rand(taken.shape, generator=self.mirroring) < 0.5
