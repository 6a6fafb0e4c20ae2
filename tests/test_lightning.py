"""LearnedLR and MetaTrainer inside real Lightning Trainers, against loops written by hand."""

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler, LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from mlrsnet import LearnedLR, LSTMNet, MetaTrainer, Schedule
from mlrsnet.integrations import lightning as integration
from mlrsnet.integrations.lightning import LearnedLRCallback, LossFeed, MetaTrainCallback

QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class Batches:
    """The same few batches in every epoch; in the middle of one, its place is part of a checkpoint."""

    def __init__(self, number=7, seed=0, nan_at=None):
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(number, 16, 6, generator=generator)
        self.labels = torch.randint(5, (number, 16), generator=generator)
        if nan_at is not None:
            self.inputs[nan_at] = float("nan")
        self.place = self.start = 0

    def __len__(self):
        return len(self.inputs)

    def __iter__(self):
        start, self.start = self.start, 0
        for i in range(start, len(self.inputs)):
            self.place = i + 1
            yield self.inputs[i], self.labels[i]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.start = state["place"] % len(self.inputs)


class Endless(Batches):
    """Batches without a length."""

    __len__ = None


def two_groups(net, make=SGD):
    return make([{"params": net[0].parameters(), "lr": 0.1}, {"params": net[2].parameters(), "lr": 0.02}])


def momentum(net):
    return SGD(net.parameters(), lr=0.1, momentum=0.9)


def fused(net):
    """It unscales gradients, and leaves out steps, itself."""
    return AdamW(net.parameters(), lr=0.1, fused=True)


def batch_loss(net, batch):
    return nn.functional.cross_entropy(net(batch[0]), batch[1])


def new_net(seed=0):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
    for parameter in net.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
    return net


def record(optimizer, used):
    """Write down the LRs that the optimizer really steps with."""
    optimizer.register_step_post_hook(lambda o, *_: used.append([float(g["lr"]) for g in o.param_groups]))
    return optimizer


class Module(LightningModule):
    """What a user writes; `used` holds the LRs of all optimizer steps."""

    def __init__(self, make=momentum, seed=0):
        super().__init__()
        self.net, self.make, self.used = new_net(seed), make, []

    def training_step(self, batch, batch_idx):
        return batch_loss(self.net, batch)

    def test_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return record(self.make(self.net), self.used)


def fit(module, callbacks=(), data=None, ckpt_path=None, **options):
    trainer = Trainer(callbacks=list(callbacks), **{**QUIET, "max_epochs": 3, **options})
    trainer.fit(module, Batches() if data is None else data, ckpt_path=ckpt_path)
    return trainer


def weights(net):
    return torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])


def assert_same(module, net, used):
    assert module.used == used
    assert torch.equal(weights(module.net), weights(net))


def by_hand(schedule, make=momentum, data=None, epochs=3, accumulate=1, clip=None, autocast=False, **options):
    """The loop without Lightning; the last window of an epoch may be short, and Lightning divides it all the same."""
    net, data, used = new_net(), data or Batches(), []
    optimizer = record(make(net), used)
    steps = epochs * -(-len(data) // accumulate)
    lr = LearnedLR(optimizer, schedule, total_steps=steps, num_classes=5, **options)
    for _ in range(epochs):
        for i, batch in enumerate(data):
            if i % accumulate == 0:
                optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast, cache_enabled=False):
                loss = batch_loss(net, batch)
            (loss / accumulate).backward()
            lr.observe(loss)
            if (i + 1) % accumulate == 0 or i + 1 == len(data):
                if clip:
                    nn.utils.clip_grad_norm_(net.parameters(), clip)
                lr.step()
                optimizer.step()
    return net, used


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_clip_val": 0.5}, "Lightning clips them afterwards: train without clipping"),
        ({"plugins": [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))]}, "Lightning scales them"),
    ],
)
def test_a_relative_range_needs_gradients_as_they_are_used(options, message):
    class Own(Module):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            return [optimizer], [LearnedLR(optimizer, "universal-relative", total_steps=9)]

    with pytest.raises(ValueError, match=message):
        fit(Module(), [LearnedLRCallback("universal-relative")], **options)
    with pytest.raises(ValueError, match=message):
        fit(Own(), [LossFeed()], **options)


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


def scaled_by_hand(take, net, optimizer, scaler, data, epochs):
    for _ in range(epochs):
        for batch in data:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.half, cache_enabled=False):
                loss = batch_loss(net, batch)
            scaler.scale(loss).backward()
            take(loss)


def grad_scaler():
    """One that starts too high: the first steps overflow."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=5)


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
    assert 10 < len(used) < 18  # of 21: the first ones and one batch an epoch were skipped


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
    callback._use = lambda lr: (seen.append(len(lr._pending)), LossFeed._use(callback, lr))
    fit(module, [callback], accumulate_grad_batches=2)
    assert seen == [2, 2, 2]  # the third batch of every epoch never reaches a step


class Skips(Module):
    def training_step(self, batch, batch_idx):
        return None if batch_idx == 3 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_a_step_that_is_left_out_leaves_the_lr_alone(paper):
    module = Skips()
    fit(module, [LearnedLRCallback(paper, num_classes=5)])
    assert module.used[3] == module.used[2] != module.used[4]


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
    assert "on_train_batch_start" not in vars(monitor)  # ready for trainings without us


class SaveAt(Callback):
    """A checkpoint at the end of a batch, counted from the start of training."""

    def __init__(self, path, batch):
        self.path, self.batch = path, batch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx == self.batch:
            trainer.save_checkpoint(self.path)


def feed_callback(schedule):
    return LossFeed()


def own_callback(schedule):
    return LearnedLRCallback(schedule, num_classes=5)


class Configured(Module):
    """LearnedLR as the module's own scheduler."""

    def __init__(self, schedule, total_steps=None):
        super().__init__()
        self.schedule, self.total_steps = schedule, total_steps

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        steps = self.total_steps or self.trainer.estimated_stepping_batches
        lr = LearnedLR(optimizer, self.schedule, total_steps=steps, num_classes=5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lr, "interval": "step"}}


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


@pytest.mark.parametrize("kind", [own_callback, feed_callback])
@pytest.mark.parametrize("batch", [6, 9])  # at the end of an epoch, and in the middle of one
def test_a_resumed_training_goes_on_bit_for_bit(paper, tmp_path, kind, batch):
    # estimated_stepping_batches in configure_optimizers starts the data before Lightning restores its place
    new = Module if kind is own_callback else lambda: Configured(paper, total_steps=21)
    whole, path = new(), tmp_path / "middle.ckpt"
    fit(whole, [kind(paper), SaveAt(path, batch)])
    resumed = new()
    fit(resumed, [kind(paper)], ckpt_path=path)
    assert resumed.used == whole.used[batch + 1 :]
    assert torch.equal(weights(resumed.net), weights(whole.net))


def test_a_checkpoint_in_the_middle_of_a_window_keeps_the_losses_seen(paper, tmp_path):
    whole, path = Module(), tmp_path / "middle.ckpt"
    fit(whole, [own_callback(paper), SaveAt(path, 8)], accumulate_grad_batches=4)
    resumed = Module()
    fit(resumed, [own_callback(paper)], ckpt_path=path, accumulate_grad_batches=4)
    assert resumed.used[0] == whole.used[2]  # Lightning loses the gradients, so later weights differ


def test_a_longer_training_moves_the_horizon_and_says_so(horizon, tmp_path):
    path = tmp_path / "end.ckpt"
    fit(Module(), [own_callback(horizon)]).save_checkpoint(path)
    resumed, callback = Module(), own_callback(horizon)
    with pytest.warns(UserWarning, match="longer, from 21 to 35 steps"):
        fit(resumed, [callback], ckpt_path=path, max_epochs=5)
    assert (callback.lr.total_steps, callback.lr.last_epoch, len(resumed.used)) == (35, 35, 14)
    assert resumed.used[0] > resumed.used[-1]  # an annealed schedule at its end would stay there


def test_a_horizon_never_shrinks_in_silence(horizon, tmp_path):
    path = tmp_path / "middle.ckpt"
    fit(Module(), [own_callback(horizon), SaveAt(path, 6)])
    callback = own_callback(horizon)
    with pytest.warns(UserWarning, match="total_steps=21, which is kept instead of 14"):
        fit(Module(), [callback], ckpt_path=path, max_epochs=2)
    assert callback.lr.total_steps == 21


def test_a_checkpoint_from_before_the_callback_starts_a_schedule_for_the_rest(horizon, tmp_path):
    path = tmp_path / "plain.ckpt"
    fit(Module(), [SaveAt(path, 6)])
    module, callback = Module(), own_callback(horizon)
    with pytest.warns(UserWarning, match="goes on at step 7 from a checkpoint without a state of LearnedLRCallback"):
        fit(module, [callback], ckpt_path=path)
    assert callback.lr.total_steps == callback.lr.last_epoch == len(module.used) == 14


def test_fitting_again_goes_on_and_a_new_trainer_begins_anew(horizon):
    module, callback = Module(), own_callback(horizon)
    trainer = fit(module, [callback])
    trainer.fit_loop.max_epochs = 5
    with pytest.warns(UserWarning, match="longer, from 21 to 35 steps"):
        trainer.fit(module, Batches())
    assert (callback.lr.last_epoch, callback.lr.total_steps) == (35, 35)
    again = Module()
    fit(again, [callback])
    assert_same(again, *by_hand(horizon))


def test_a_checkpoint_loaded_for_a_test_does_not_reach_the_next_training(horizon, tmp_path):
    path, callback = tmp_path / "end.ckpt", own_callback(horizon)
    fit(Module(), [callback]).save_checkpoint(path)
    module, fresh = Module(), own_callback(horizon)
    trainer = Trainer(callbacks=[fresh], **{**QUIET, "max_epochs": 3})
    trainer.test(Module(seed=1), Batches(), ckpt_path=path, verbose=False)
    trainer.fit(module, Batches())
    assert_same(module, *by_hand(horizon))


@pytest.mark.parametrize(
    ("data", "options"),
    [(Batches(), {"max_epochs": -1}), (Endless(), {"max_epochs": 2}), (Batches(), {"changing": True})],
)
def test_a_training_without_a_known_end_asks_for_total_steps(paper, data, options):
    changing = options.pop("changing", False)
    more = [GradientAccumulationScheduler({0: 2, 1: 1})] if changing else []
    module = Module()
    with pytest.raises(ValueError, match="total_steps must be given to LearnedLRCallback"):
        fit(module, [own_callback(paper), *more], data, **options)
    callback = LearnedLRCallback(paper, total_steps=9, num_classes=5)
    fit(module, [callback, *more], data, **{**options, "max_steps": 9})
    assert (callback.lr.total_steps, callback.lr.last_epoch) == (9, 9)


class TwoOptimizers(Module):
    """Manual optimization, an optimizer for each layer."""

    def __init__(self, schedule=None):
        super().__init__()
        self.automatic_optimization, self.schedule = False, schedule

    def configure_optimizers(self):
        optimizers = [record(SGD(self.net[i].parameters(), lr=0.1), self.used) for i in (0, 2)]
        if self.schedule is None:
            return optimizers
        return optimizers, [LearnedLR(o, self.schedule, total_steps=21, num_classes=5) for o in optimizers]

    def training_step(self, batch, batch_idx):
        for optimizer, lr in zip(self.optimizers(), self.lr_schedulers() or (), strict=True):
            loss = batch_loss(self.net, batch)
            self.net.zero_grad()
            self.manual_backward(loss)
            lr.step(loss)
            optimizer.step()


class WithCosine(Module):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return [optimizer], [CosineAnnealingLR(optimizer, 10)]


@pytest.mark.parametrize(
    ("new", "callbacks", "message"),
    [
        (WithCosine, ["own"], "no LR scheduler with LearnedLRCallback, got CosineAnnealingLR"),
        (Configured, ["own"], r"no LR scheduler with LearnedLRCallback, got LearnedLR.*LossFeed\(\) instead"),
        (WithCosine, ["feed"], "one LearnedLR as its scheduler, got CosineAnnealingLR"),
        (Module, ["feed"], "one LearnedLR as its scheduler, got none"),
        (TwoOptimizers, ["own"], "one optimizer for LearnedLRCallback, got 2: for several, give each"),
        (TwoOptimizers, ["feed"], "one optimizer for LossFeed, got 2"),
        (lambda: Module(lambda net: torch.optim.LBFGS(net.parameters())), ["own"], "got LBFGS"),
        (Module, ["own", "feed"], "only one callback can set the LR, got LearnedLRCallback and LossFeed"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_step(paper, new, callbacks, message):
    module = new(paper) if new is Configured else new()
    kinds = {"own": own_callback, "feed": feed_callback}
    with pytest.raises(ValueError, match=message):
        fit(module, [kinds[name](paper) for name in callbacks])
    assert not module.used


class NoOptimizer(Module):
    def configure_optimizers(self):
        return None


def test_a_module_without_an_optimizer_is_refused(paper):
    with (
        pytest.warns(UserWarning, match="no optimizer"),
        pytest.raises(ValueError, match="one optimizer for LearnedLRCallback, got 0"),
    ):
        fit(NoOptimizer(), [own_callback(paper)])


def test_several_optimizers_work_with_schedules_stepped_by_the_module(paper):
    module = TwoOptimizers(paper)
    fit(module)
    assert len(module.used) == 42
    assert module.used[0] != [0.1]
    assert [lr.last_epoch for lr in module.lr_schedulers()] == [21, 21]


class Manual(Module):
    def __init__(self, raw=False):
        super().__init__()
        self.automatic_optimization, self.raw = False, raw

    def training_step(self, batch, batch_idx):
        optimizer, loss = self.optimizers(), batch_loss(self.net, batch)
        optimizer.zero_grad()
        loss.backward() if self.raw else self.manual_backward(loss)
        optimizer.step()


def test_manual_optimization_trains_as_a_hand_written_loop_does(paper):
    module = Manual()
    fit(module, [own_callback(paper)])
    assert_same(module, *by_hand(paper))


def test_a_loss_that_never_arrives_is_told(paper):
    module = Manual(raw=True)
    with pytest.warns(UserWarning, match=r"no loss reached LearnedLR.*manual_backward\(loss\)"):
        fit(module, [own_callback(paper)], max_steps=1)
    assert module.used == [[0.1]]


def test_a_loss_that_is_not_finite_can_stop_the_training(paper):
    module, callback = Module(), LearnedLRCallback(paper, num_classes=5, on_nonfinite="raise")
    with pytest.raises(FloatingPointError, match="loss must be finite"):
        fit(module, [callback], Batches(nan_at=3))
    assert len(module.used) == 3


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"schedule": "no-such-schedule"}, ValueError, "no schedule named"),
        ({"num_classes": None}, ValueError, "num_classes must be given"),
        ({"total_steps": 0}, ValueError, "total_steps must be a whole number >= 1, got 0"),
        ({"max_lr": -1}, ValueError, "min_lr and max_lr"),
        ({"on_nonfinite": "stop"}, ValueError, "on_nonfinite must be one of"),
        ({"momentum": 0.9}, TypeError, "momentum"),
    ],
)
def test_a_mistaken_argument_is_told_before_anything_is_built(paper, arguments, error, message):
    with pytest.raises(error, match=message):
        LearnedLRCallback(**{"schedule": paper, "num_classes": 5, **arguments})


def test_those_who_import_pytorch_lightning_are_served_as_well(paper, tmp_path, monkeypatch):
    twin = pytest.importorskip("pytorch_lightning")
    monkeypatch.delitem(sys.modules, "lightning.pytorch")  # as in a program that has never imported it
    spec = importlib.util.spec_from_file_location("twin", integration.__file__)
    module_of_twin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module_of_twin)

    class TwinModule(twin.LightningModule):
        training_step, configure_optimizers = Module.training_step, Module.configure_optimizers

        def __init__(self):
            super().__init__()
            self.net, self.make, self.used = new_net(), momentum, []

    callback = module_of_twin.LearnedLRCallback(paper, num_classes=5)
    module, monitor = TwinModule(), twin.callbacks.LearningRateMonitor(logging_interval="step")
    options = {**QUIET, "logger": twin.loggers.CSVLogger(tmp_path), "log_every_n_steps": 1, "max_epochs": 3}
    twin.Trainer(callbacks=[callback, monitor], **options).fit(module, Batches())
    assert isinstance(callback, twin.Callback)
    assert_same(module, *by_hand(paper))
    assert monitor.lrs["lr-SGD"] == [rate for (rate,) in module.used]


def test_a_missing_lightning_is_told_in_one_sentence():
    code = "import sys\nsys.modules['lightning'] = sys.modules['pytorch_lightning'] = None\n"
    code += "import mlrsnet.integrations.lightning"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert last.endswith("pip install 'mlrsnet[lightning]'")


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
    """One optimizer for all trainings."""

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
        ({"val_dataloader": 3}, TypeError, "val_dataloader must give its batches again and again, got 3"),
        ({"val_dataloader": iter([1])}, TypeError, "val_dataloader must give its batches again"),
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
import torch
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
from test_lightning import *

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
os._exit(0)  # the result is on disk; gloo's threads may abort an ordinary exit
"""


def test_two_processes_have_one_lr_and_learn_one_network(paper, tmp_path):
    paper.save(tmp_path / "s.safetensors")
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, tmp_path / "worker.py", Path(__file__).parent, tmp_path]
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
    _, used, meta = meta_by_hand(epochs=2)  # halves of equal size: the mean gradient is that of the whole batch
    torch.testing.assert_close(first["meta"][0], torch.tensor(used, dtype=torch.float64), rtol=1e-4, atol=0)
    torch.testing.assert_close(first["meta"][3], weights(meta.net), rtol=0, atol=1e-5)
