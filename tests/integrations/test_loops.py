"""Loops of users and of trainers that know nothing of LearnedLR: it ends with the training, whoever calls `step` how often."""

import importlib

import pytest
import torch
from hand_loops import Batches, assert_ended, batch_loss, by_hand, momentum, new_net, record, weights


def test_one_line_trains_a_tutorials_loop_from_its_first_step_to_its_last():
    _, used, lr = by_hand()
    assert_ended(lr, used)
    assert len(used) == 21


class Trainer:
    """As in many training repositories: the scheduler comes by its path from a config, and steps after the optimizer.

    calls: how often `step` is called after an optimizer step, a micro-batch and an epoch.
    """

    def __init__(self, config, calls, accumulate):
        self.net, self.used, self.calls, self.accumulate = new_net(), [], calls, accumulate
        self.optimizer = momentum(self.net)
        module, name = config["name"].rsplit(".", 1)
        self.scheduler = getattr(importlib.import_module(module), name)(self.optimizer, **config["params"])
        record(self.optimizer, self.used)

    def call(self, when):
        for _ in range(self.calls.get(when, 0)):
            self.scheduler.step()

    def train(self, epochs=3):
        for _ in range(epochs):
            for i, batch in enumerate(batches := list(Batches())):
                (batch_loss(self.net, batch) / self.accumulate).backward()
                if (i + 1) % self.accumulate == 0 or i + 1 == len(batches):
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    self.call("step")
                self.call("micro-batch")
            self.call("epoch")
        return self


@pytest.mark.parametrize(
    "calls", [{}, {"step": 1}, {"step": 2}, {"micro-batch": 1}, {"epoch": 1}, {"step": 1, "epoch": 1}]
)
@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_trainer_that_imports_it_by_its_path_may_step_it_as_it_likes(calls, accumulate):
    steps = 3 * -(-7 // accumulate)
    trainer = Trainer({"name": "mlrsnet.LearnedLR", "params": {"total_steps": steps}}, calls, accumulate).train()
    assert_ended(trainer.scheduler, trainer.used)
    net, used, _ = by_hand(accumulate=accumulate)
    assert trainer.used == used
    assert torch.equal(weights(trainer.net), weights(net))


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_losses_that_are_observed_reach_their_own_step_though_the_scheduler_steps_after_the_optimizer(paper, calls):
    """The habit of torch's own schedulers, with a network that needs the loss."""
    _, used, _ = by_hand(paper, accumulate=3, tells=True, num_classes=5)
    trainer = Trainer(
        {"name": "mlrsnet.LearnedLR", "params": {"schedule": paper, "total_steps": 9, "num_classes": 5}}, {}, 3
    )
    net, optimizer, lr = trainer.net, trainer.optimizer, trainer.scheduler
    for _ in range(3):
        for i, batch in enumerate(Batches()):
            loss = batch_loss(net, batch)
            (loss / 3).backward()
            lr.observe(loss)
            if i in (2, 5, 6):
                optimizer.step()
                optimizer.zero_grad()
                for _ in range(calls):
                    lr.step()
    assert trainer.used == used


def test_a_loader_tells_how_many_steps_there_are():
    """Seven batches, four to a step: two steps an epoch."""
    net, used = new_net(), []
    optimizer = momentum(net)
    loader = torch.utils.data.DataLoader(list(Batches()), batch_size=None)
    learned = importlib.import_module("mlrsnet").LearnedLR
    lr = learned.for_loader(optimizer, loader, epochs=3, accumulate=4)
    record(optimizer, used)
    for _ in range(3):
        for i, batch in enumerate(loader):
            (batch_loss(net, batch) / 4).backward()
            if (i + 1) % 4 == 0 or i + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()
    assert_ended(lr, used)
    assert used == by_hand(accumulate=4)[1]
