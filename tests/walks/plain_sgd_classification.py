"""A convolutional network with batch norm learns handwritten digits: plain PyTorch, SGD with momentum."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from mlrsnet import LearnedLR

EPOCHS = 15


def load(seed):
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    return train_test_split(images, labels, train_size=0.3, random_state=seed)


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
    torch.manual_seed(seed)
    train_x, test_x, train_y, test_y = load(seed)
    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=32, shuffle=True)
    steps = EPOCHS * len(loader)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    if schedule == "learned":
        lr = LearnedLR(optimizer, total_steps=steps)
    else:
        lr = OneCycleLR(optimizer, max_lr=0.1, total_steps=steps, pct_start=0.05, cycle_momentum=False)

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
