"""LearnedLR inside real Lightning Trainers, against loops written by hand."""

import csv
import importlib
import sys

import pytest
import torch
from cases import SCHEDULES
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning_fits import (
    QUIET,
    Batches,
    Configured,
    Manual,
    Module,
    Skips,
    TwoOptimizers,
    assert_same,
    batch_loss,
    by_hand,
    fit,
    grad_scaler,
    momentum,
    new_net,
    own_callback,
    record,
    scaled_by_hand,
    two_groups,
)
from torch.optim import AdamW

from mlrsnet import Card, Gamma, LearnedLR, LSTMNet, Schedule, integrations
from mlrsnet.integrations.lightning import LearnedLRCallback, LossFeed


@pytest.mark.parametrize("make", [momentum, two_groups, lambda net: two_groups(net, AdamW)])
def test_the_callback_trains_as_a_hand_written_loop_does(paper, make):
    module = Module(make)
    callback = LearnedLRCallback(paper, num_classes=5)
    fit(module, [callback])
    assert_same(module, *by_hand(paper, make))
    assert callback.lr.last_epoch == callback.lr.total_steps == 21


@pytest.mark.parametrize("accumulate", [2, 3])
def test_accumulated_and_clipped_steps_use_the_mean_loss_of_their_window(paper, accumulate):
    module = Module()
    fit(module, [LearnedLRCallback(paper, num_classes=5)], accumulate_grad_batches=accumulate, gradient_clip_val=0.2)
    assert_same(module, *by_hand(paper, accumulate=accumulate, clip=0.2))
    assert len(module.used) == 3 * -(-7 // accumulate)


def test_options_reach_the_schedule(horizon):
    module = Module()
    options = {"scale": 0.5, "min_lr": 0.01, "max_lr": 0.03, "initial_loss": 1.6}
    fit(module, [LearnedLRCallback(horizon, num_classes=5, **options)])
    assert_same(module, *by_hand(horizon, **options))
    assert min(module.used) == [0.01]


def test_bf16_mixed_training_reads_the_same_loss(paper):
    module = Module()
    fit(module, [LearnedLRCallback(paper, num_classes=5)], precision="bf16-mixed")
    assert_same(module, *by_hand(paper, autocast=True))


def test_a_relative_range_moves_the_weights_by_a_part_of_their_length():
    module, data = Module(), Batches()
    fit(module, [LearnedLRCallback("universal-relative", num_classes=5)], data)
    net, used = new_net(), []
    optimizer = record(momentum(net), used)
    lr = LearnedLR(optimizer, "universal-relative", total_steps=len(module.used), num_classes=5)
    for _ in range(3):
        for batch in data:
            optimizer.zero_grad()
            loss = batch_loss(net, batch)
            loss.backward()
            lr.step(loss)
            optimizer.step()
    assert_same(module, net, used)


def test_a_measured_range_sees_gradients_that_are_clipped_later():
    module, data, schedule = Module(), Batches(), SCHEDULES["measured"]()
    fit(module, [LearnedLRCallback(schedule, num_classes=5)], data, gradient_clip_val=0.05)
    net, used = new_net(), []
    optimizer = record(momentum(net), used)
    lr = LearnedLR(optimizer, schedule, total_steps=len(module.used), num_classes=5)
    for _ in range(3):
        for batch in data:
            optimizer.zero_grad()
            loss = batch_loss(net, batch)
            loss.backward()
            lr.step(loss)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            optimizer.step()
    assert_same(module, net, used)


@pytest.mark.filterwarnings("ignore:a loss was not finite")
def test_the_amp_scale_does_not_reach_the_schedule_and_a_skipped_step_is_no_harm(paper):
    module, data = Module(), Batches(nan_at=3)
    scaler = grad_scaler()
    fit(module, [LearnedLRCallback(paper, num_classes=5)], data, plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    net, used, expected = new_net(), [], grad_scaler()
    optimizer = record(momentum(net), used)
    lr = LearnedLR(optimizer, paper, total_steps=21, num_classes=5)

    def take(loss):
        lr.step(loss)
        expected.step(optimizer)
        expected.update()

    scaled_by_hand(take, net, optimizer, expected, data, epochs=3)
    assert_same(module, net, used)
    assert scaler.get_scale() == expected.get_scale() < 2.0**22
    assert 10 < len(used) < 18  # of 21: the first ones and one batch per epoch were skipped


@pytest.mark.gpu
def test_16_mixed_on_a_gpu_uses_the_lr_of_the_true_loss(paper):
    module, losses = Module(), []
    module.on_train_batch_end = lambda outputs, batch, batch_idx: losses.append(float(outputs["loss"]))
    fit(module, [own_callback(paper)], accelerator="gpu", devices=1, precision="16-mixed")
    lr = LearnedLR(momentum(new_net()), paper, total_steps=21, num_classes=5)
    expected = []
    for loss in losses:
        lr.step(loss)
        expected.append(lr.get_last_lr()[0])
    used = [rate for (rate,) in module.used]  # the first steps may be skipped, until the scale fits
    assert len(used) > 10
    assert expected[-len(used) :] == pytest.approx(used, rel=1e-6)


def test_a_loss_whose_gradients_are_thrown_away_is_thrown_away_too(paper):
    class LeavesEarly(Module):
        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx == 3 else None

    module, seen = LeavesEarly(), []
    callback = LearnedLRCallback(paper, num_classes=5)
    callback._use = lambda lr: (seen.append(len(lr.engine.losses.pending)), LossFeed._use(callback, lr))
    fit(module, [callback], accumulate_grad_batches=2)
    assert seen == [2, 2, 2]  # the third batch of every epoch never reaches a step


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_a_step_that_is_left_out_leaves_the_lr_alone(paper):
    module = Skips()
    fit(module, [LearnedLRCallback(paper, num_classes=5)])
    assert module.used[3] == module.used[2] != module.used[4]


RANGES = ("universal-relative", "universal-2")


@pytest.mark.parametrize("schedule", RANGES)
def test_gradients_that_are_clipped_after_the_loss_has_come_train_as_in_a_hand_written_loop(schedule):
    module = Module()
    fit(module, [LearnedLRCallback(schedule, num_classes=5)], gradient_clip_val=0.05)
    assert_same(module, *by_hand(schedule, clip=0.05))


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("schedule", RANGES)
def test_fp16_trains_as_a_hand_written_loop_that_scales_nothing(schedule, clip):
    plugins = [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=256.0))]
    module, net, used = Module(), new_net(), []
    fit(module, [LearnedLRCallback(schedule, num_classes=5)], plugins=plugins, gradient_clip_val=clip)
    optimizer = record(momentum(net), used)
    lr = LearnedLR(optimizer, schedule, total_steps=21, num_classes=5)

    def take(loss):
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        lr.step(loss)
        optimizer.step()

    scaled_by_hand(take, net, optimizer, torch.amp.GradScaler("cpu", enabled=False), Batches(), 3)
    assert len(module.used) == len(used) == 21
    torch.testing.assert_close(torch.tensor(module.used), torch.tensor(used), rtol=0.05, atol=0)  # half precision


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_monitor_shows_an_lr_at_the_step_that_used_it(paper, tmp_path, accumulate):
    module, monitor = Module(two_groups), LearningRateMonitor(logging_interval="step")
    logger = CSVLogger(tmp_path, "", "")
    callbacks = [monitor, LearnedLRCallback(paper, num_classes=5)]
    fit(module, callbacks, logger=logger, log_every_n_steps=1, accumulate_grad_batches=accumulate)
    with (tmp_path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["lr-SGD/pg1"]]
    assert [int(row["step"]) for row in rows] == list(range(len(module.used)))
    shown = [[float(row[f"lr-SGD/pg{group}"]) for group in (1, 2)] for row in rows]
    torch.testing.assert_close(torch.tensor(shown), torch.tensor(module.used), rtol=1e-6, atol=0)
    assert monitor.lrs["lr-SGD/pg1"] == [first for first, _ in module.used]
    assert "on_train_batch_start" not in vars(monitor)  # restored for other trainings


def test_a_scheduler_from_configure_optimizers_trains_as_a_hand_written_loop_does(paper):
    module, callback = Configured(paper), LossFeed()
    fit(module, [callback], accumulate_grad_batches=2)
    assert_same(module, *by_hand(paper, accumulate=2))
    assert module.lr_schedulers() is callback.lr


def test_a_module_can_bring_its_own_feed(paper):
    class WholeModule(Configured):
        def configure_callbacks(self):
            return [LossFeed()]

    module = WholeModule(paper)
    fit(module)
    assert_same(module, *by_hand(paper))


def test_several_optimizers_work_with_schedules_stepped_by_the_module(paper):
    module = TwoOptimizers(paper)
    fit(module)
    assert len(module.used) == 42
    assert module.used[0] != [0.1]
    assert [lr.last_epoch for lr in module.lr_schedulers()] == [21, 21]


def test_manual_optimization_trains_as_a_hand_written_loop_does(paper):
    module = Manual()
    fit(module, [own_callback(paper)])
    assert_same(module, *by_hand(paper))


def test_those_who_import_pytorch_lightning_are_served_as_well(paper, tmp_path, monkeypatch):
    twin = pytest.importorskip("pytorch_lightning")
    for name in [name for name in sys.modules if name.startswith("mlrsnet.integrations.lightning")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "lightning.pytorch")  # as in a program that has never imported it
    monkeypatch.setattr(integrations, "lightning", integrations.lightning)  # the import below replaces it
    integration_of_twin = importlib.import_module("mlrsnet.integrations.lightning")

    class TwinModule(twin.LightningModule):
        training_step, configure_optimizers = Module.training_step, Module.configure_optimizers

        def __init__(self):
            super().__init__()
            self.net, self.make, self.used = new_net(), momentum, []

    callback = integration_of_twin.LearnedLRCallback(paper, num_classes=5)
    module, monitor = TwinModule(), twin.callbacks.LearningRateMonitor(logging_interval="step")
    options = {**QUIET, "logger": twin.loggers.CSVLogger(tmp_path), "log_every_n_steps": 1, "max_epochs": 3}
    twin.Trainer(callbacks=[callback, monitor], **options).fit(module, Batches())
    assert isinstance(callback, twin.Callback)
    assert_same(module, *by_hand(paper))
    assert monitor.lrs["lr-SGD"] == [rate for (rate,) in module.used]


class Validated(Module):
    """Logs these validation losses, one an epoch."""

    def __init__(self, losses):
        super().__init__()
        self.losses = iter(losses)

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", torch.tensor(9.0 if self.trainer.sanity_checking else next(self.losses)))


def test_a_validation_loss_that_stops_falling_shortens_the_steps_if_it_is_monitored(paper):
    gammas = {}
    for monitor in ("val_loss", None):
        callback = LearnedLRCallback(paper, num_classes=5, monitor=monitor)
        module = Validated([2.0, 1.5, 1.2, 1.3, 1.45, 1.6, 1.6])
        Trainer(callbacks=[callback], **QUIET, max_epochs=7).fit(module, Batches(), Batches(1))
        gammas[monitor] = callback.lr.status()["gamma"]
    assert gammas["val_loss"] == pytest.approx(0.1 * gammas[None])


def test_a_metric_that_is_not_logged_is_told_with_those_that_are(paper):
    callback = LearnedLRCallback(paper, num_classes=5, monitor="validation_loss")
    trainer = Trainer(callbacks=[callback], **QUIET, max_epochs=2)
    with pytest.raises(ValueError, match=r"monitor must be a metric that validation_step logs, .*\['val_loss'\]"):
        trainer.fit(Validated([1.0, 1.0]), Batches(), Batches(1))


def test_validations_outside_of_the_training_are_not_read(paper):
    callback = LearnedLRCallback(paper, num_classes=5, monitor="val_loss")
    module = Validated([2.0, *[2.1, 2.2, 2.3] * 2])
    trainer = Trainer(callbacks=[callback], **QUIET, max_epochs=1)
    trainer.fit(module, Batches(), Batches(1))
    for _ in range(6):
        trainer.validate(module, Batches(1), verbose=False)
    assert callback.lr.engine.validation.cuts == 0


def test_a_monitor_with_nothing_to_read_is_told_before_the_training(paper):
    with pytest.raises(ValueError, match="monitor='val_loss' needs validation data"):
        fit(Module(), [LearnedLRCallback(paper, num_classes=5, monitor="val_loss")])


def test_a_schedule_that_cannot_be_validated_is_refused_when_the_callback_is_made():
    phases = Schedule([LSTMNet(4), LSTMNet(4)], Card(gamma=Gamma("per-phase")))
    with pytest.raises(ValueError, match="need a schedule that keeps its range"):
        LearnedLRCallback(phases, num_classes=5, monitor="val_loss")


def test_a_resumed_training_knows_its_validation_losses(paper, tmp_path):
    losses = [2.0, 1.5, 1.6, 1.7, 1.8, 1.9]

    def trained(epochs, place, ckpt_path=None):
        callback = LearnedLRCallback(paper, num_classes=5, monitor="val_loss", total_steps=6 * 7)
        trainer = Trainer(callbacks=[callback], **QUIET, max_epochs=epochs)
        trainer.fit(Validated(losses[place:]), Batches(), Batches(1), ckpt_path=ckpt_path)
        trainer.save_checkpoint(tmp_path / f"{epochs}.ckpt")
        return callback.lr

    trained(4, 0)
    again, whole = trained(6, 4, tmp_path / "4.ckpt"), trained(6, 0)
    assert again.engine.validation == whole.engine.validation
    assert again.status()["gamma"] == whole.status()["gamma"]
    assert whole.engine.validation.cuts == 1
