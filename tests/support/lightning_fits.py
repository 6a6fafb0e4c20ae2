"""Small Lightning trainings, and typical modules."""

import torch
from hand_loops import Batches, batch_loss, momentum, new_net, record, weights
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from mlrsnet import LearnedLR

QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class Module(LightningModule):
    """A typical module. `used` holds the LRs of all optimizer steps."""

    def __init__(self, make=momentum, seed=0):
        super().__init__()
        self.net, self.make, self.used = new_net(seed), make, []

    def training_step(self, batch, batch_idx):
        return batch_loss(self.net, batch)

    def configure_optimizers(self):
        return record(self.make(self.net), self.used)


class Learned(Module):
    """The documented way: `LearnedLR` is the module's scheduler."""

    def __init__(self, schedule="universal", interval="epoch", make=momentum, total_steps=None, **options):
        super().__init__(make)
        self.schedule, self.interval, self.total_steps, self.options = schedule, interval, total_steps, options

    def configure_optimizers(self):
        optimizer = self.make(self.net)
        steps = self.total_steps or self.trainer.estimated_stepping_batches
        lr = LearnedLR(optimizer, self.schedule, total_steps=steps, **self.options)
        record(optimizer, self.used)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lr, "interval": self.interval}}


class Tells(Learned):
    """The same, and the schedule reads the loss."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.lr_schedulers().observe(loss)
        return loss


def fit(module, callbacks=(), data=None, ckpt_path=None, val_data=None, **options):
    trainer = Trainer(callbacks=list(callbacks), **{**QUIET, "max_epochs": 3, **options})
    trainer.fit(module, Batches() if data is None else data, val_data, ckpt_path=ckpt_path)
    return trainer


def assert_same(module, net, used, *_):
    assert module.used == used
    assert torch.equal(weights(module.net), weights(net))


class SaveAt(Callback):
    """Saves a checkpoint at the end of a batch, counted from the start of training."""

    def __init__(self, path, batch):
        self.path, self.batch = path, batch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.fit_loop.total_batch_idx == self.batch:
            trainer.save_checkpoint(self.path)
