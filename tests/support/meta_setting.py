"""A small model with data, an optimizer and a MetaTrainer."""

from dataclasses import fields

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mlrsnet import MetaTrainer
from mlrsnet.meta import Learning
from mlrsnet.nets import LSTMNet

CLASSES = 5
LEARNING = [field.name for field in fields(Learning)]


def make_model(batch_norm=True, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    layers = [nn.Linear(6, 12), nn.BatchNorm1d(12) if batch_norm else nn.Identity(), nn.Tanh()]
    layers += [nn.Dropout(0.3) if batch_norm else nn.Identity(), nn.Linear(12, CLASSES)]
    return nn.Sequential(*layers).to(dtype)


def make_data(dtype=torch.float64, batches=400, size=16):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batches, size, 6, generator=generator, dtype=torch.float64).to(dtype)
    return x, (x[..., :CLASSES] + 0.5 * torch.randn(batches, size, CLASSES, generator=generator).to(dtype)).argmax(-1)


def batch_loss(model, data, index):
    return cross_entropy(model(data[0][index]), data[1][index])


class Setting:
    """A model, an optimizer with two groups of different LRs, and a MetaTrainer."""

    def __init__(self, make_optimizer, batch_norm=True, dtype=torch.float64, lrs=(0.1, 0.025), **options):
        self.model, self.data = make_model(batch_norm, dtype), make_data(dtype)
        parameters = list(self.model.parameters())
        groups = [{"params": parameters[:3], "lr": lrs[0]}, {"params": parameters[3:], "lr": lrs[1]}]
        self.optimizer = make_optimizer(groups)
        for group in self.optimizer.param_groups:
            group["weight_decay"] = 0.01
        self.val_calls = 0
        torch.manual_seed(2)
        learning = {"every": 3} | {name: options.pop(name) for name in LEARNING if name in options}
        options = {"net": LSTMNet(8).to(dtype), "total_steps": 30, "num_classes": CLASSES, **options}
        self.meta = MetaTrainer(
            self.model, self.optimizer, val_loss=self.val_loss, learning=Learning(**learning), **options
        )

    def val_loss(self):
        self.val_calls += 1
        return batch_loss(self.model, self.data, -self.val_calls)

    def backward(self, index):
        loss = batch_loss(self.model, self.data, index)
        self.optimizer.zero_grad()
        loss.backward()
        return loss

    def train(self, steps):
        used = []
        for index in steps:
            self.meta.step(self.backward(index))
            used.append(float(self.optimizer.param_groups[0]["lr"]))
        return used

    def weights(self):
        return torch.cat([p.detach().reshape(-1) for p in (*self.model.parameters(), *self.meta.net.parameters())])
