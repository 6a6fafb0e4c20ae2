"""Several optimizers in one Lightning module: a GAN whose two losses set two LRs, and one loss for two optimizers."""

import csv

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning_fits import Batches, SaveAt, TwoOptimizers, fit, record, weights
from torch import nn
from torch.nn.functional import softplus
from torch.optim import SGD, Adam

from mlrsnet import LearnedLR
from mlrsnet.integrations.lightning import LearnedLRCallback, LossFeed, MetaTrainCallback

STEPS = 21


def networks():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6)), nn.Sequential(
        nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)
    )


def judge_loss(maker, judge, real):
    return softplus(-judge(real)).mean() + softplus(judge(maker(real.flip(1)).detach())).mean()


def maker_loss(maker, judge, real):
    return softplus(-judge(maker(real.flip(1)))).mean()


def schedules(optimizers):
    return [LearnedLR(optimizer, total_steps=STEPS) for optimizer in optimizers]


class Gan(LightningModule):
    """Two networks with a loss each. `forget` leaves out one schedule's step."""

    def __init__(self, make=schedules, forget=None):
        super().__init__()
        self.automatic_optimization, self.make, self.forget = False, make, forget
        self.maker, self.judge = networks()
        self.used = [], []

    def configure_optimizers(self):
        optimizers = SGD(self.maker.parameters(), lr=0.1, momentum=0.9), Adam(self.judge.parameters(), lr=1e-3)
        for optimizer, used in zip(optimizers, self.used, strict=True):
            record(optimizer, used)
        return list(optimizers), self.make(optimizers)

    def training_step(self, batch, batch_idx):
        for index in (1, 0):
            optimizer, loss = (
                self.optimizers()[index],
                (maker_loss, judge_loss)[index](self.maker, self.judge, batch[0]),
            )
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(loss)
            if index != self.forget:
                self.lr_schedulers()[index].step(loss)
            optimizer.step()
            self.untoggle_optimizer(optimizer)


def by_hand():
    maker, judge = networks()
    optimizers = SGD(maker.parameters(), lr=0.1, momentum=0.9), Adam(judge.parameters(), lr=1e-3)
    used = [], []
    for optimizer, lrs in zip(optimizers, used, strict=True):
        record(optimizer, lrs)
    lrs = schedules(optimizers)
    for _ in range(3):
        for real, _ in Batches():
            for index in (1, 0):
                loss = (maker_loss, judge_loss)[index](maker, judge, real)
                optimizers[index].zero_grad()
                loss.backward()
                lrs[index].step(loss)
                optimizers[index].step()
    return maker, judge, used


@pytest.mark.parametrize("callbacks", [[], [LossFeed]])
def test_each_network_of_a_gan_follows_its_own_loss_as_in_a_hand_written_loop(callbacks):
    module = Gan()
    fit(module, [make() for make in callbacks])
    maker, judge, used = by_hand()
    assert module.used == used
    assert module.used[0] != module.used[1]
    assert torch.equal(weights(module.maker), weights(maker))
    assert torch.equal(weights(module.judge), weights(judge))


def test_a_gan_that_is_resumed_is_the_uninterrupted_one(tmp_path):
    whole, resumed = Gan(), Gan()
    fit(whole, [LossFeed(), SaveAt(tmp_path / "at10.ckpt", 9)])
    fit(resumed, [LossFeed()], ckpt_path=tmp_path / "at10.ckpt")
    assert [len(used) for used in resumed.used] == [STEPS - 10] * 2
    for part, all_of_it in zip(resumed.used, whole.used, strict=True):
        assert part == all_of_it[10:]
    assert torch.equal(weights(resumed), weights(whole))


def test_the_monitor_shows_both_lrs_at_the_step_that_used_them(tmp_path):
    module, callbacks = Gan(), [LearningRateMonitor(logging_interval="step"), LossFeed()]
    fit(module, callbacks, logger=CSVLogger(tmp_path, "", ""), log_every_n_steps=1)
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["lr-SGD"]]
    assert [float(row["lr-SGD"]) for row in rows] == pytest.approx([lr for (lr,) in module.used[0]], rel=1e-6)
    assert [float(row["lr-Adam"]) for row in rows] == pytest.approx([lr for (lr,) in module.used[1]], rel=1e-6)


def test_one_loss_can_set_the_lrs_of_two_optimizers(paper):
    module = TwoOptimizers(paper)
    fit(module, [LossFeed()])
    assert [lr.last_epoch for lr in module.lr_schedulers()] == [STEPS, STEPS]


@pytest.mark.parametrize("index", [0, 1])
def test_an_optimizer_whose_loss_is_forgotten_is_told_before_it_steps(index):
    module = Gan(forget=index)
    with pytest.raises(
        RuntimeError, match=rf"got none for the first step of optimizer {index} .*\(\)\[{index}\]\.step\(loss\)"
    ):
        fit(module, [LossFeed()])
    assert not module.used[index]


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizers: [],
        lambda optimizers: schedules(optimizers)[:1],
        lambda optimizers: schedules([optimizers[0], optimizers[0]]),
        lambda optimizers: [torch.optim.lr_scheduler.ConstantLR(optimizer) for optimizer in optimizers],
    ],
)
def test_a_feed_for_several_optimizers_needs_a_schedule_for_each(make):
    module = Gan(make)
    with pytest.raises(
        ValueError, match=r"a LearnedLR for each of 2 optimizers, got .*lr_schedulers\(\)\[i\].step\(loss\)"
    ):
        fit(module, [LossFeed()])
    assert not any(module.used)


@pytest.mark.parametrize(
    "make", [LearnedLRCallback, lambda: MetaTrainCallback(lambda module, batch: None, [0], num_classes=2)]
)
def test_callbacks_that_cannot_know_whose_loss_it_is_name_the_way_that_works(make):
    module = Gan()
    with pytest.raises(
        ValueError, match=r"got 2: for several, pass LossFeed\(\) instead.*lr_schedulers\(\)\[i\].step\(loss\)"
    ):
        fit(module, [make()])
    assert not any(module.used)
