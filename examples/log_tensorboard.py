"""Log every step's loss and LR to TensorBoard: `tensorboard --logdir runs` shows them."""

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.tensorboard import SummaryWriter

import mlrsnet

torch.manual_seed(0)
images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
batches = list(zip((images.float() / 16).split(100), labels.split(100), strict=True))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters())
lr = mlrsnet.LearnedLR(optimizer, total_steps=10 * len(batches))

with SummaryWriter("runs") as writer:
    for epoch in range(10):
        for step, (x, y) in enumerate(batches, start=epoch * len(batches)):
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            lr.step(loss)
            optimizer.step()
            writer.add_scalar("loss", loss.item(), step)
            writer.add_scalar("lr", lr.get_last_lr()[0], step)
        print(f"epoch {epoch}: loss {loss.item():.3f}, LR {lr.get_last_lr()[0]:.5f}")
