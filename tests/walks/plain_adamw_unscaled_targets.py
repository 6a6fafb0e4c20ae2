"""Regression by someone who left the targets as they are, between 25 and 346: plain PyTorch, AdamW.

An LR of 0.001 is far too small for that, so the cosine has 0.01.
"""

import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from mlrsnet import LearnedLR

EPOCHS = 30


def load(seed):
    x, y = load_diabetes(return_X_y=True, scaled=False)
    train_x, test_x, train_y, test_y = train_test_split(x, y, train_size=0.5, random_state=seed)
    scaler = StandardScaler().fit(train_x)
    parts = scaler.transform(train_x), scaler.transform(test_x), train_y, test_y
    return [torch.tensor(part, dtype=torch.float32) for part in parts]


def train(schedule, seed):
    """The root of the mean squared error of the test rows, in the unit of the targets; 77 is guessing their mean."""
    torch.manual_seed(seed)
    train_x, test_x, train_y, test_y = load(seed)
    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=16, shuffle=True)
    steps = EPOCHS * len(loader)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
    if schedule == "learned":
        lr = LearnedLR(optimizer, total_steps=steps)
    else:
        lr = OneCycleLR(optimizer, max_lr=0.01, total_steps=steps, pct_start=0.05, cycle_momentum=False)

    for _ in range(EPOCHS):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if schedule == "learned":
                lr.step(loss)
            optimizer.step()
            if schedule == "cosine":
                lr.step()

    with torch.no_grad():
        return nn.functional.mse_loss(model(test_x), test_y).sqrt().item()


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: off by {train(schedule, seed=0):.1f}")
