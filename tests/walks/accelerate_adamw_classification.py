"""A convolutional network learns handwritten digits: Accelerate, AdamW, two micro-batches to a step, clipped gradients."""

import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

import mlrsnet

EPOCHS = 20


def make_model():
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


def train(schedule, seed):
    """The share of wrong test images, in percent."""
    set_seed(seed)
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    train_x, test_x, train_y, test_y = train_test_split(images, labels, train_size=0.3, random_state=seed)

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = EPOCHS * math.ceil(len(loader) / accelerator.gradient_accumulation_steps)
    if schedule == "learned":
        lr = mlrsnet.LearnedLR(optimizer, total_steps=steps)
    else:
        cosine = OneCycleLR(optimizer, max_lr=1e-3, total_steps=steps, pct_start=0.05, cycle_momentum=False)
        lr = accelerator.prepare(cosine)

    for _ in range(EPOCHS):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                if schedule == "learned":
                    lr.observe(loss)
                optimizer.step()
                if schedule == "cosine":
                    lr.step()
                optimizer.zero_grad()

    model.eval()
    with torch.no_grad():
        return 100 * (model(test_x).argmax(1) != test_y).float().mean().item()


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: {train(schedule, seed=0):.2f} % wrong")
