"""A network that reads upright digits learns to read lying ones: Lightning, SGD with momentum, clipped gradients."""

import copy
from functools import cache

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

import mlrsnet


def make_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


class Reader(LightningModule):
    def __init__(self, net, schedule, max_lr):
        super().__init__()
        self.net, self.schedule, self.max_lr = net, schedule, max_lr

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        if self.schedule == "learned":
            self.lr_schedulers().observe(loss)
        return loss

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("wrong", 100 * (self.net(x).argmax(1) != y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.max_lr, momentum=0.9, weight_decay=5e-4)
        steps = self.trainer.estimated_stepping_batches
        if self.schedule == "learned":
            return [optimizer], [mlrsnet.LearnedLR(optimizer, total_steps=steps)]
        lr = OneCycleLR(optimizer, max_lr=self.max_lr, total_steps=steps, pct_start=0.05, cycle_momentum=False)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lr, "interval": "step"}}


def make_trainer(epochs):
    return Trainer(
        max_epochs=epochs,
        gradient_clip_val=1.0,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


@cache
def load():
    """A third of the images stands upright, for the network to begin with. The others lie."""
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    upright, lying, upright_labels, lying_labels = train_test_split(images, labels, train_size=0.3, random_state=0)
    return (upright, upright_labels), (lying.rot90(dims=(2, 3)), lying_labels)


@cache
def pretrained():
    """As it might come from a file."""
    seed_everything(0, verbose=False)
    model = Reader(make_net(), "cosine", 0.1)
    make_trainer(10).fit(model, DataLoader(TensorDataset(*load()[0]), batch_size=32, shuffle=True))
    return model.net


def train(schedule, seed):
    """The share of wrong test images, in percent."""
    net = copy.deepcopy(pretrained())
    seed_everything(seed, verbose=False)
    train_x, test_x, train_y, test_y = train_test_split(*load()[1], train_size=200, random_state=seed)
    model = Reader(net, schedule, 0.01)
    trainer = make_trainer(40)
    trainer.fit(model, DataLoader(TensorDataset(train_x, train_y), batch_size=20, shuffle=True))
    (result,) = trainer.test(model, DataLoader(TensorDataset(test_x, test_y), batch_size=len(test_y)), verbose=False)
    return result["wrong"]


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: {train(schedule, seed=0):.2f} % wrong")
