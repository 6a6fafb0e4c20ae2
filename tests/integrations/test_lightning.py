"""LearnedLR as the scheduler of real Lightning modules, against the loop written by hand."""

import pytest
import torch
from hand_loops import (
    Batches,
    assert_ended,
    by_hand,
    grad_scaler,
    record,
    two_groups,
    weights,
)
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning_fits import Learned, Module, SaveAt, Tells, assert_same, fit
from torch.nn.functional import softplus
from torch.optim import SGD, Adam, AdamW

from mlrsnet import LearnedLR

BOTH = {"each-step": "step", "each-epoch": "epoch"}


@pytest.mark.parametrize("interval", BOTH.values(), ids=BOTH)
@pytest.mark.parametrize(("accumulate", "clip"), [(1, None), (4, 0.2)])
def test_however_often_lightning_steps_the_scheduler_it_ends_with_the_training(interval, accumulate, clip):
    module = Learned(interval=interval)
    fit(module, accumulate_grad_batches=accumulate, gradient_clip_val=clip)
    assert_same(module, *by_hand(accumulate=accumulate, clip=clip))
    assert_ended(module.lr_schedulers(), module.used)
    assert len(module.used) == 3 * -(-7 // accumulate)


@pytest.mark.parametrize("make", [two_groups, lambda net: two_groups(net, AdamW)])
def test_groups_and_adamw_train_as_in_a_hand_written_loop(make):
    module = Learned(make=make)
    fit(module)
    assert_same(module, *by_hand(make=make))


class OneLine(Module):
    """The LearnedLR has no name, and Lightning never hears of it."""

    def configure_optimizers(self):
        optimizer = self.make(self.net)
        LearnedLR(optimizer, total_steps=21)
        return record(optimizer, self.used)


def test_one_line_in_configure_optimizers_is_enough():
    module = OneLine()
    fit(module)
    assert_same(module, *by_hand())


def test_bf16_mixed_trains_as_a_hand_written_loop_with_autocast():
    module = Learned()
    fit(module, precision="bf16-mixed")
    assert_same(module, *by_hand(autocast=True))


def test_a_step_that_the_scaler_skips_does_not_count():
    module = Learned()
    fit(module, data=Batches(nan_at=3), plugins=[MixedPrecision("16-mixed", "cpu", grad_scaler())])
    assert module.lr_schedulers().status()["step"] == len(module.used)
    assert 10 < len(module.used) < 18  # of 21: the first ones and one batch per epoch were skipped


@pytest.mark.gpu
def test_16_mixed_on_a_gpu_counts_the_steps_that_were_taken():
    module = Learned()
    fit(module, accelerator="gpu", devices=1, precision="16-mixed")
    assert 10 < module.lr_schedulers().status()["step"] == len(module.used) <= 21


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("name", ["paper", "universal"])
def test_a_loss_that_is_observed_in_training_step_reaches_its_step(request, name, accumulate):
    schedule = request.getfixturevalue(name) if name == "paper" else name
    module = Tells(schedule, num_classes=5)
    fit(module, accumulate_grad_batches=accumulate, gradient_clip_val=0.2)
    assert_same(module, *by_hand(schedule, accumulate=accumulate, clip=0.2, tells=True, num_classes=5))


def test_a_network_that_nobody_tells_a_loss_says_what_to_call(paper):
    module = Learned(paper, num_classes=5)
    with pytest.raises(RuntimeError, match=r"call step\(loss\) before optimizer\.step\(\), or use 'universal'"):
        fit(module)
    assert not module.used


def networks():
    torch.manual_seed(0)
    maker = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 6))
    return maker, torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def gan_loss(index, maker, judge, real):
    """Of the maker (0) or the judge (1)."""
    if index == 0:
        return softplus(-judge(maker(real.flip(1)))).mean()
    return softplus(-judge(real)).mean() + softplus(judge(maker(real.flip(1)).detach())).mean()


def gan_optimizers(maker, judge, used):
    optimizers = [SGD(maker.parameters(), lr=0.1, momentum=0.9), Adam(judge.parameters(), lr=1e-3)]
    lrs = [LearnedLR(optimizer, total_steps=21) for optimizer in optimizers]
    return [record(optimizer, lrs) for optimizer, lrs in zip(optimizers, used, strict=True)], lrs


class Gan(LightningModule):
    """Two networks with a loss each, in manual optimization."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization, self.used = False, ([], [])
        self.maker, self.judge = networks()

    def configure_optimizers(self):
        return gan_optimizers(self.maker, self.judge, self.used)

    def training_step(self, batch, batch_idx):
        for index in (1, 0):
            optimizer, loss = self.optimizers()[index], gan_loss(index, self.maker, self.judge, batch[0])
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            self.manual_backward(loss)
            self.lr_schedulers()[index].step(loss)
            optimizer.step()
            self.untoggle_optimizer(optimizer)


def test_each_network_of_a_gan_has_a_schedule_of_its_own():
    module = Gan()
    fit(module)
    (maker, judge), used = networks(), ([], [])
    optimizers, lrs = gan_optimizers(maker, judge, used)
    for _ in range(3):
        for real, _ in Batches():
            for index in (1, 0):
                loss = gan_loss(index, maker, judge, real)
                optimizers[index].zero_grad()
                loss.backward()
                lrs[index].step(loss)
                optimizers[index].step()
    assert module.used == used
    assert used[0] != used[1]
    assert torch.equal(weights(module.maker), weights(maker))
    assert [lr.status()["step"] for lr in module.lr_schedulers()] == [21, 21]


# Reading estimated_stepping_batches in configure_optimizers would start the data before Lightning restores its place.
@pytest.mark.parametrize("batch", [6, 9])  # at the end of an epoch, and in the middle of one
@pytest.mark.parametrize("kind", [Learned, Tells])
def test_a_resumed_training_goes_on_bit_for_bit(tmp_path, kind, batch):
    whole, resumed, path = kind(total_steps=21), kind(total_steps=21), tmp_path / "middle.ckpt"
    fit(whole, [SaveAt(path, batch)])
    fit(resumed, ckpt_path=path)
    assert resumed.used == whole.used[batch + 1 :]
    assert torch.equal(weights(resumed.net), weights(whole.net))


def test_a_checkpoint_in_the_middle_of_a_window_keeps_the_losses_seen(paper, tmp_path):
    whole, resumed = (Tells(paper, total_steps=6, num_classes=5) for _ in range(2))
    fit(whole, [SaveAt(tmp_path / "middle.ckpt", 8)], accumulate_grad_batches=4)
    fit(resumed, ckpt_path=tmp_path / "middle.ckpt", accumulate_grad_batches=4)
    assert resumed.used[0] == whole.used[2]  # Lightning does not save gradients, so later weights differ


class Longer(Learned):
    def on_train_start(self):
        self.lr_schedulers().extend(self.trainer.estimated_stepping_batches)


@pytest.mark.filterwarnings("ignore:the saved run had total_steps=21, which replaces 35")
def test_a_training_that_is_resumed_with_more_epochs_can_be_extended(tmp_path):
    fit(Learned()).save_checkpoint(tmp_path / "end.ckpt")
    module = Longer()
    fit(module, ckpt_path=tmp_path / "end.ckpt", max_epochs=5)
    status = module.lr_schedulers().status()
    assert (status["step"], status["total_steps"], len(module.used)) == (35, 35, 14)
    assert module.used[0][0] > 3 * module.used[-1][0]


class Validated(Learned):
    """Logs these validation losses, one an epoch, and lets the schedule read them."""

    def __init__(self, losses):
        super().__init__()
        self.losses = iter(losses)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", torch.tensor(9.0 if self.trainer.sanity_checking else next(self.losses)))

    def on_train_epoch_end(self):
        self.lr_schedulers().validate(self.trainer.callback_metrics["val_loss"])


def test_a_validation_loss_that_stops_falling_shortens_the_steps():
    module = Validated([2.0, 1.5, 1.2, 1.3, 1.45, 1.6, 1.6])
    fit(module, val_data=Batches(1), max_epochs=7)
    assert module.lr_schedulers().status()["share"] == pytest.approx(0.1)
