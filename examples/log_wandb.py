"""Log every step's loss and LR to Weights & Biases: offline, unless you set WANDB_MODE=online."""

import os

import torch
import wandb
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import mlrsnet

torch.manual_seed(0)
images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
batches = list(zip((images.float() / 16).split(100), labels.split(100), strict=True))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters())
lr = mlrsnet.LearnedLR(optimizer, total_steps=10 * len(batches))

with wandb.init(project="digits", mode=os.environ.get("WANDB_MODE", "offline")) as run:
    run.config.update({"schedule": lr.law.name, "total_steps": lr.total_steps})
    for epoch in range(10):
        for x, y in batches:
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            lr.step(loss)
            optimizer.step()
            run.log({"loss": loss.item(), "lr": lr.get_last_lr()[0]})
        print(f"epoch {epoch}: loss {loss.item():.3f}, LR {lr.get_last_lr()[0]:.5f}")
