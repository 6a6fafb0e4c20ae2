"""Small Lightning trainings, the same loops written by hand, and typical modules."""

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR

from mlrsnet import LearnedLR
from mlrsnet.integrations.lightning import LearnedLRCallback, LossFeed

QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class Batches:
    """The same few batches in every epoch. A checkpoint in the middle of an epoch saves the position."""

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


def two_groups(net, make=SGD):
    return make([{"params": net[0].parameters(), "lr": 0.1}, {"params": net[2].parameters(), "lr": 0.02}])


def momentum(net):
    return SGD(net.parameters(), lr=0.1, momentum=0.9)


def batch_loss(net, batch):
    return nn.functional.cross_entropy(net(batch[0]), batch[1])


def new_net(seed=0):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
    for parameter in net.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
    return net


def record(optimizer, used):
    """Record the LRs that the optimizer really steps with."""
    optimizer.register_step_post_hook(lambda o, *_: used.append([float(g["lr"]) for g in o.param_groups]))
    return optimizer


class Module(LightningModule):
    """A typical module. `used` holds the LRs of all optimizer steps."""

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
    """The loop without Lightning. Like Lightning, it divides by `accumulate` even if an epoch's last window is shorter."""
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


def scaled_by_hand(take, net, optimizer, scaler, data, epochs):
    for _ in range(epochs):
        for batch in data:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.half, cache_enabled=False):
                loss = batch_loss(net, batch)
            scaler.scale(loss).backward()
            take(loss)


def grad_scaler():
    """A scaler that starts too high, so the first steps overflow."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=5)


class Skips(Module):
    def training_step(self, batch, batch_idx):
        return None if batch_idx == 3 else super().training_step(batch, batch_idx)


class SaveAt(Callback):
    """Saves a checkpoint at the end of a batch, counted from the start of training."""

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
    """A module that returns LearnedLR as its scheduler."""

    def __init__(self, schedule, total_steps=None):
        super().__init__()
        self.schedule, self.total_steps = schedule, total_steps

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        steps = self.total_steps or self.trainer.estimated_stepping_batches
        lr = LearnedLR(optimizer, self.schedule, total_steps=steps, num_classes=5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lr, "interval": "step"}}


class TwoOptimizers(Module):
    """Manual optimization with one optimizer per layer."""

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


class Manual(Module):
    def __init__(self, raw=False):
        super().__init__()
        self.automatic_optimization, self.raw = False, raw

    def training_step(self, batch, batch_idx):
        optimizer, loss = self.optimizers(), batch_loss(self.net, batch)
        optimizer.zero_grad()
        loss.backward() if self.raw else self.manual_backward(loss)
        optimizer.step()
