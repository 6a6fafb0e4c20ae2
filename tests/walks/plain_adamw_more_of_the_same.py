"""A network that knows the digits gets a few more of the same kind, and must not get worse: plain PyTorch, AdamW."""

import copy
from functools import cache

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from mlrsnet import LearnedLR

EPOCHS = 10


@cache
def load():
    """The first 600 images, which the network knows, and the others."""
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    return train_test_split(images, labels, train_size=600, random_state=0)


@cache
def pretrained():
    """As it might come from a file."""
    torch.manual_seed(0)
    model = nn.Sequential(
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
    x, _, y, _ = load()
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    lr = OneCycleLR(optimizer, max_lr=0.1, total_steps=15 * len(loader), cycle_momentum=False)
    for _ in range(15):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            lr.step()
    return model


def new_images(seed):
    """200 to go on with, and 997 to test on."""
    _, images, _, labels = load()
    return train_test_split(images, labels, train_size=200, random_state=seed)


@torch.no_grad()
def wrong(model, x, y):
    return 100 * (model.eval()(x).argmax(1) != y).float().mean().item()


def untouched(seed):
    """What `train` returns if nothing is trained."""
    _, test_x, _, test_y = new_images(seed)
    return wrong(copy.deepcopy(pretrained()), test_x, test_y)


def train(schedule, seed):
    """The share of wrong test images, in percent."""
    model = copy.deepcopy(pretrained())
    torch.manual_seed(seed)
    train_x, test_x, train_y, test_y = new_images(seed)
    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=32, shuffle=True, drop_last=True)
    steps = EPOCHS * len(loader)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    if schedule == "learned":
        lr = LearnedLR(optimizer, total_steps=steps)
    else:
        lr = OneCycleLR(optimizer, max_lr=1e-4, total_steps=steps, pct_start=0.05, cycle_momentum=False)

    model.train()
    for _ in range(EPOCHS):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if schedule == "learned":
                lr.step(loss)
            optimizer.step()
            if schedule == "cosine":
                lr.step()
    return wrong(model, test_x, test_y)


if __name__ == "__main__":
    print(f"untouched: {untouched(seed=0):.2f} % wrong")
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: {train(schedule, seed=0):.2f} % wrong")
