"""MetaTrainer inside real Lightning Trainers, against loops written by hand; both callbacks in two processes."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning_fits import (
    Batches,
    Module,
    SaveAt,
    Skips,
    WithCosine,
    assert_same,
    batch_loss,
    by_hand,
    fit,
    grad_scaler,
    momentum,
    new_net,
    record,
    scaled_by_hand,
    two_groups,
    weights,
)
from torch import nn
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR, LSTMNet, MetaTrainer, Schedule
from mlrsnet.integrations.lightning import LearnedLRCallback, MetaTrainCallback


def fused(net):
    """An optimizer that unscales gradients and skips steps itself."""
    return AdamW(net.parameters(), lr=0.1, fused=True)


VAL = Batches(4, seed=3)


def val_loss(module, batch):
    return batch_loss(module.net, batch)


def new_schedule_net(seed=5):
    torch.manual_seed(seed)
    return LSTMNet(8)


def meta_callback(**options):
    return MetaTrainCallback(val_loss, VAL, **{"every": 3, "net": new_schedule_net(), "num_classes": 5, **options})


def meta_by_hand(make=momentum, epochs=3, accumulate=1, clip=None, **options):
    net, data, used, val = new_net(), Batches(), [], []
    optimizer = record(make(net), used)

    def next_val_loss():
        if not val:
            val.extend(VAL)
        return batch_loss(net, val.pop(0))

    steps = epochs * -(-len(data) // accumulate)
    options = {"every": 3, "net": new_schedule_net(), "num_classes": 5, **options}
    meta = MetaTrainer(net, optimizer, total_steps=steps, val_loss=next_val_loss, **options)
    for _ in range(epochs):
        for i, batch in enumerate(data):
            if i % accumulate == 0:
                optimizer.zero_grad()
            loss = batch_loss(net, batch)
            (loss / accumulate).backward()
            meta.observe(loss)
            if (i + 1) % accumulate == 0 or i + 1 == len(data):
                if clip:
                    nn.utils.clip_grad_norm_(net.parameters(), clip)
                meta.step()
    return net, used, meta


def assert_same_meta(module, callback, net, used, meta):
    assert_same(module, net, used)
    assert_same_schedule(callback, meta)


def assert_same_schedule(callback, meta):
    assert torch.equal(callback.lr.state_dict()["history"], meta.lr.state_dict()["history"])
    assert callback.meta.num_updates == meta.num_updates > 2
    assert torch.equal(weights(callback.net), weights(meta.net))
    assert callback.schedule().fingerprint() == meta.schedule().fingerprint()


@pytest.mark.parametrize("make", [momentum, two_groups])
def test_meta_training_learns_what_a_hand_written_loop_learns(make):
    module, callback = Module(make), meta_callback()
    fit(module, [callback])
    assert_same_meta(module, callback, *meta_by_hand(make))


def test_meta_training_works_with_accumulation_clipping_and_more_options():
    module, callback = Module(), meta_callback(bptt=2, num_phases=2)
    fit(module, [callback], accumulate_grad_batches=2, gradient_clip_val=0.2)
    assert_same_meta(module, callback, *meta_by_hand(accumulate=2, clip=0.2, bptt=2, num_phases=2))


def test_the_monitor_shows_the_lrs_of_meta_training(tmp_path):
    monitor, callback = LearningRateMonitor(logging_interval="step"), meta_callback()
    fit(Module(), [monitor, callback], logger=CSVLogger(tmp_path), log_every_n_steps=1)
    replay = callback.lr.export_lambda(SGD(new_net().parameters(), lr=0.1))
    for shown in monitor.lrs["lr-SGD"]:
        assert shown == pytest.approx(replay.get_last_lr()[0], rel=1e-6)
        replay.optimizer.step()
        replay.step()
    assert len(monitor.lrs["lr-SGD"]) == 21


def test_a_learned_schedule_can_be_saved_and_used(tmp_path):
    callback, module = meta_callback(name="mine"), Module()
    fit(Module(), [callback])
    callback.schedule().save(tmp_path / "mine.safetensors")
    fit(module, [LearnedLRCallback(tmp_path / "mine.safetensors", num_classes=5)])
    assert_same(module, *by_hand(callback.schedule()))
    assert Schedule.load(tmp_path / "mine.safetensors").card.name == "mine"


@pytest.mark.parametrize("batch", [6, 9])
def test_resumed_meta_training_goes_on_bit_for_bit(tmp_path, batch):
    whole, path, callback = Module(), tmp_path / "middle.ckpt", meta_callback()
    fit(whole, [callback, SaveAt(path, batch)])
    resumed, again = Module(), meta_callback(net=new_schedule_net(seed=6))
    fit(resumed, [again], ckpt_path=path)
    assert resumed.used == whole.used[batch + 1 :]
    assert torch.equal(weights(resumed.net), weights(whole.net))
    assert again.schedule().fingerprint() == callback.schedule().fingerprint()


def test_meta_training_goes_on_where_fit_is_called_again():
    module, callback = Module(), meta_callback()
    trainer = fit(module, [callback])
    updates, trainer.fit_loop.max_epochs = callback.meta.num_updates, 5
    with pytest.warns(UserWarning, match="longer, from 21 to 35 steps"):
        trainer.fit(module, Batches())
    assert callback.meta.step_count == callback.meta.total_steps == 35
    assert callback.meta.num_updates == updates + 5


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_meta_training_survives_a_step_that_is_left_out():
    module, callback = Skips(), meta_callback()
    fit(module, [callback])
    assert callback.meta.step_count == 18
    assert len(module.used) == 21


def test_validation_batches_take_the_precision_of_the_training():
    callback = meta_callback()
    fit(Module(), [callback], precision="64-true")  # a float32 batch would not fit float64 weights
    assert callback.meta.num_updates == 7


@pytest.mark.filterwarnings("ignore:a loss was not finite", "ignore:a meta-update was skipped")
@pytest.mark.parametrize("make", [momentum, fused])
def test_meta_training_under_a_grad_scaler_skips_what_it_skips(make):
    module, callback, data = Module(make), meta_callback(), Batches(nan_at=3)
    fit(module, [callback], data, plugins=[MixedPrecision("16-mixed", "cpu", grad_scaler())])
    net, val, scaler = new_net(), [], grad_scaler()
    optimizer = make(net)

    def next_val_loss():
        if not val:
            val.extend(VAL)
        with torch.autocast("cpu", torch.half, cache_enabled=False):
            return batch_loss(net, val.pop(0))

    options = {"every": 3, "net": new_schedule_net(), "num_classes": 5, "scaler": scaler}
    meta = MetaTrainer(net, optimizer, total_steps=21, val_loss=next_val_loss, **options)
    scaled_by_hand(meta.step, net, optimizer, scaler, data, epochs=3)
    assert torch.equal(weights(module.net), weights(net))
    assert_same_schedule(callback, meta)
    assert callback.meta.skipped_updates == meta.skipped_updates > 1
    assert callback.meta.step_count == 21


class Keeps(Module):
    """A module that uses one optimizer for all trainings."""

    optimizer, broken = None, False

    def configure_optimizers(self):
        self.optimizer = self.optimizer or super().configure_optimizers()
        return self.optimizer

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.broken:
            raise RuntimeError("the power is out")


def test_an_optimizer_steps_as_before_after_meta_training():
    module = Keeps()
    fit(module, [meta_callback()])
    module.broken = True
    with pytest.raises(RuntimeError, match="the power is out"):
        fit(module, [meta_callback()])
    assert "step" not in vars(module.optimizer)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"val_loss": None}, TypeError, "val_loss must be a function"),
        ({"val_dataloader": 3}, TypeError, "val_dataloader must be iterable more than once, got 3"),
        ({"val_dataloader": iter([1])}, TypeError, "val_dataloader must be iterable more than once"),
        ({"every": 0}, ValueError, "every must be a whole number"),
        ({"num_classes": None}, ValueError, "num_classes must be given"),
        ({"scaler": None}, TypeError, "scaler"),
    ],
)
def test_a_mistaken_argument_of_meta_training_is_told_at_once(arguments, error, message):
    with pytest.raises(error, match=message):
        MetaTrainCallback(**{"val_loss": val_loss, "val_dataloader": VAL, "num_classes": 5, **arguments})


def test_meta_training_says_what_it_lacks():
    with pytest.raises(RuntimeError, match="schedule\\(\\) needs a training"):
        meta_callback().schedule()
    with pytest.raises(ValueError, match="val_dataloader must have at least one batch"):
        fit(Module(), [MetaTrainCallback(val_loss, [], num_classes=5)])
    with pytest.raises(ValueError, match="no LR scheduler with MetaTrainCallback, got CosineAnnealingLR"):
        fit(WithCosine(), [meta_callback()])
    trainer = SimpleNamespace(strategy=nn.Linear(1, 1), lr_scheduler_configs=[])
    with pytest.raises(ValueError, match="whole weights in every process, got Linear"):
        meta_callback()._prepare(trainer, None, momentum(new_net()))
    with pytest.raises(TypeError, match="linear in its LR"):
        fit(Module(lambda net: torch.optim.Rprop(net.parameters())), [meta_callback()])


WORKER = """
import os, sys, warnings
from pathlib import Path
import torch
warnings.simplefilter("ignore")
sys.path[:0] = sys.argv[1].split(os.pathsep)
from lightning_fits import Batches, Module, fit, own_callback, weights
from test_lightning_meta import meta_callback

folder, losses = Path(sys.argv[2]), []

class Halves(Batches):
    def __iter__(self):
        rank = torch.distributed.get_rank()
        return ((x[8 * rank:][:8], y[8 * rank:][:8]) for x, y in super().__iter__())

class Watched(Module):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        losses.append(float(loss))
        return loss

found = {}
for kind in ("learned", "meta"):
    module = Watched()
    callback = own_callback(folder / "s.safetensors") if kind == "learned" else meta_callback()
    if kind == "meta":
        callback.val_dataloader = Halves(4, seed=3)
    fit(module, [callback], Halves(), strategy="ddp", devices=2, max_epochs=2)
    found[kind] = [torch.tensor(module.used, dtype=torch.float64), weights(module.net), torch.tensor(losses)]
    losses.clear()
    if kind == "meta":
        found[kind].append(weights(callback.net))
rank = torch.distributed.get_rank()
torch.save(found, folder / f"rank{rank}.pt")
torch.distributed.barrier()
sys.stdout.flush()
os._exit(0)  # the result is on disk; gloo's threads can abort a normal exit
"""


def test_two_processes_have_one_lr_and_learn_one_network(paper, tmp_path):
    paper.save(tmp_path / "s.safetensors")
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, tmp_path / "worker.py", os.pathsep.join(sys.path), tmp_path]
    assert subprocess.run(command, timeout=180).returncode == 0
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    lr = LearnedLR(momentum(new_net()), paper, total_steps=14, num_classes=5)
    expected = []
    for losses in zip(first["learned"][2].tolist(), second["learned"][2].tolist(), strict=True):
        assert losses[0] != losses[1]
        lr.step(sum(losses) / 2)
        expected.append(lr.get_last_lr())
    torch.testing.assert_close(first["learned"][0], torch.tensor(expected, dtype=torch.float64))
    for kind in ("learned", "meta"):
        used, trained = first[kind][:2]
        assert torch.equal(used, second[kind][0])
        assert torch.equal(trained, second[kind][1])
    assert torch.equal(first["meta"][3], second["meta"][3])
    _, used, meta = meta_by_hand(epochs=2)  # equal halves: their mean gradient is the whole batch's
    torch.testing.assert_close(first["meta"][0], torch.tensor(used, dtype=torch.float64), rtol=1e-4, atol=0)
    torch.testing.assert_close(first["meta"][3], weights(meta.net), rtol=0, atol=1e-5)
