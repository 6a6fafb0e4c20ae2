"""A network that knows the digits 0 to 4 learns 5 to 9 from 20 images each: plain PyTorch, AdamW, ten times the LR for the head."""

import copy
from functools import cache

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from mlrsnet import LearnedLR

EPOCHS = 60


def load(classes):
    digits = load_digits()
    wanted = torch.isin(torch.tensor(digits.target), torch.tensor(classes))
    images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    return images[wanted], labels[wanted] - min(classes)


@cache
def pretrained():
    """As it might come from a file."""
    torch.manual_seed(0)
    backbone = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )
    model = nn.Sequential(backbone, nn.Linear(128, 5))
    loader = DataLoader(TensorDataset(*load([0, 1, 2, 3, 4])), batch_size=32, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    lr = OneCycleLR(optimizer, max_lr=0.05, total_steps=10 * len(loader), cycle_momentum=False)
    for _ in range(10):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            lr.step()
    return backbone


def train(schedule, seed):
    """The share of wrong test images, in percent."""
    backbone = copy.deepcopy(pretrained())
    torch.manual_seed(seed)
    images, labels = load([5, 6, 7, 8, 9])
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, train_size=100, stratify=labels, random_state=seed
    )
    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=16, shuffle=True)
    steps = EPOCHS * len(loader)
    head = nn.Linear(128, 5)
    model = nn.Sequential(backbone, head)
    groups = [{"params": backbone.parameters(), "lr": 1e-4}, {"params": head.parameters(), "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    if schedule == "learned":
        lr = LearnedLR(optimizer, total_steps=steps)
    else:
        lr = OneCycleLR(optimizer, max_lr=[1e-4, 1e-3], total_steps=steps, pct_start=0.05, cycle_momentum=False)

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

    model.eval()
    with torch.no_grad():
        return 100 * (model(test_x).argmax(1) != test_y).float().mean().item()


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: {train(schedule, seed=0):.2f} % wrong")
