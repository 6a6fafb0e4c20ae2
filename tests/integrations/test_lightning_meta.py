"""MetaTrainer inside real Lightning Trainers, against loops written by hand."""

import contextlib
import importlib
import sys
from types import SimpleNamespace

import pytest
import torch
from hand_loops import Batches, batch_loss, grad_scaler, momentum, new_net, record, two_groups, weights
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning_fits import Learned, Module, SaveAt, Tells, assert_same, fit
from torch import nn
from torch.optim import AdamW, Rprop

from mlrsnet import MetaTrainer, integrations
from mlrsnet.card import Card
from mlrsnet.integrations.lightning import MetaTrainCallback
from mlrsnet.meta import Learning
from mlrsnet.nets import LSTMNet

VAL = Batches(4, seed=3)


def fused(net):
    """An optimizer that unscales gradients and skips steps itself."""
    return AdamW(net.parameters(), lr=0.1, fused=True)


def val_loss(module, batch):
    return batch_loss(module.net, batch)


def new_schedule_net(seed=5):
    torch.manual_seed(seed)
    return LSTMNet(8)


def options(more):
    return {"net": new_schedule_net(), "num_classes": 5, "learning": Learning(every=3), **more}


def meta_callback(**more):
    return MetaTrainCallback(val_loss, VAL, **options(more))


def meta_by_hand(make=momentum, epochs=3, accumulate=1, clip=None, **more):
    net, data, used, val = new_net(), Batches(), [], []
    optimizer = record(make(net), used)

    def next_val_loss():
        if not val:
            val.extend(VAL)
        return batch_loss(net, val.pop(0))

    steps = epochs * -(-len(data) // accumulate)
    meta = MetaTrainer(net, optimizer, total_steps=steps, val_loss=next_val_loss, **options(more))
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


def assert_learned_the_same(callback, meta):
    assert callback.meta.num_updates == meta.num_updates > 2
    assert callback.meta.lr.history.tolist() == meta.lr.history.tolist()
    assert torch.equal(weights(callback.meta.net), weights(meta.net))
    assert callback.schedule().fingerprint() == meta.schedule().fingerprint()


@pytest.mark.parametrize(
    ("accumulate", "clip", "more"),
    [(1, None, {}), (2, 0.2, {"learning": Learning(every=3, bptt=2, num_phases=2)})],
)
@pytest.mark.parametrize("make", [momentum, two_groups])
def test_meta_training_learns_what_a_hand_written_loop_learns(make, accumulate, clip, more):
    module, callback = Module(make), meta_callback(**more)
    fit(module, [callback], accumulate_grad_batches=accumulate, gradient_clip_val=clip)
    net, used, meta = meta_by_hand(make, accumulate=accumulate, clip=clip, **more)
    assert_same(module, net, used)
    assert_learned_the_same(callback, meta)


def test_a_learned_schedule_can_be_saved_and_used(tmp_path):
    callback, path = meta_callback(card=Card(name="mine")), tmp_path / "mine.safetensors"
    fit(Module(), [callback])
    callback.schedule().save(path)
    module = Tells(path, num_classes=5)
    fit(module)
    assert module.lr_schedulers().status()["schedule"] == "mine"
    assert len(module.used) == 21


@pytest.mark.parametrize("batch", [6, 9])
def test_resumed_meta_training_goes_on_bit_for_bit(tmp_path, batch):
    whole, path, callback = Module(), tmp_path / "middle.ckpt", meta_callback(total_steps=21)
    fit(whole, [callback, SaveAt(path, batch)])
    resumed, again = Module(), meta_callback(net=new_schedule_net(seed=6), total_steps=21)
    fit(resumed, [again], ckpt_path=path)
    assert resumed.used == whole.used[batch + 1 :]
    assert torch.equal(weights(resumed.net), weights(whole.net))
    assert again.schedule().fingerprint() == callback.schedule().fingerprint()


@pytest.mark.filterwarnings("ignore:the saved run had total_steps")
def test_meta_training_that_is_resumed_with_more_epochs_goes_on_to_their_end(tmp_path):
    fit(Module(), [meta_callback()]).save_checkpoint(tmp_path / "end.ckpt")
    callback = meta_callback()
    fit(Module(), [callback], ckpt_path=tmp_path / "end.ckpt", max_epochs=5)
    assert callback.meta.step_count == callback.meta.total_steps == 35
    assert callback.meta.num_updates == 12


class Skips(Module):
    def training_step(self, batch, batch_idx):
        return None if batch_idx == 3 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_meta_training_survives_a_step_that_is_left_out():
    module, callback = Skips(), meta_callback()
    fit(module, [callback])
    assert callback.meta.step_count == len(module.used) == 18


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

    def half_loss(batch):
        with torch.autocast("cpu", torch.half, cache_enabled=False):
            return batch_loss(net, batch)

    def next_val_loss():
        if not val:
            val.extend(VAL)
        return half_loss(val.pop(0))

    meta = MetaTrainer(net, optimizer, total_steps=21, val_loss=next_val_loss, scaler=scaler, **options({}))
    for _ in range(3):
        for batch in data:
            optimizer.zero_grad()
            loss = half_loss(batch)
            scaler.scale(loss).backward()
            meta.step(loss)
    assert torch.equal(weights(module.net), weights(net))
    assert_learned_the_same(callback, meta)
    assert callback.meta.skipped_updates == meta.skipped_updates > 1
    assert callback.meta.step_count == 21


class Breaks(Module):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        if batch_idx == 2:
            raise RuntimeError("the power is out")


def test_an_optimizer_steps_as_before_after_meta_training():
    for kind in (Module, Breaks):
        callback = meta_callback()
        with contextlib.suppress(RuntimeError):
            fit(kind(), [callback])
        assert callback.meta.step_count > 1
        assert "step" not in vars(callback.meta.optimizer)


@pytest.mark.parametrize("batches", [3, iter([1])])
def test_validation_data_that_cannot_be_read_twice_is_refused_at_once(batches):
    with pytest.raises(TypeError, match="val_dataloader must be iterable more than once, got"):
        MetaTrainCallback(val_loss, batches, num_classes=5)


def test_meta_training_says_what_it_lacks():
    with pytest.raises(RuntimeError, match=r"schedule\(\) needs a training"):
        meta_callback().schedule()
    with pytest.raises(ValueError, match="val_dataloader must have at least one batch"):
        fit(Module(), [MetaTrainCallback(val_loss, [], num_classes=5)])
    with pytest.raises(ValueError, match="no scheduler for MetaTrainCallback, got SGD and LearnedLR"):
        fit(Learned(), [meta_callback()])
    with pytest.raises(ValueError, match="total_steps must be given to MetaTrainCallback"):
        fit(Module(), [meta_callback()], max_epochs=-1)
    trainer = SimpleNamespace(strategy=nn.Linear(1, 1), lr_scheduler_configs=[], optimizers=[momentum(new_net())])
    with pytest.raises(ValueError, match="whole weights in every process, got Linear"):
        meta_callback().on_train_start(trainer, None)
    with pytest.raises(TypeError, match="linear in its LR"):
        fit(Module(lambda net: Rprop(net.parameters())), [meta_callback()])


def test_those_who_import_pytorch_lightning_are_served_as_well(monkeypatch):
    twin = pytest.importorskip("pytorch_lightning")
    monkeypatch.delitem(sys.modules, "mlrsnet.integrations.lightning")
    monkeypatch.delitem(sys.modules, "lightning.pytorch")  # as in a program that has never imported it
    monkeypatch.setattr(integrations, "lightning", integrations.lightning)  # the import below replaces it
    assert issubclass(importlib.import_module("mlrsnet.integrations.lightning").MetaTrainCallback, twin.Callback)


def test_a_missing_lightning_is_told_in_one_sentence(monkeypatch):
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"Lightning, which is not installed: pip install 'mlrsnet\[lightning\]'"):
        importlib.reload(integrations.lightning)
