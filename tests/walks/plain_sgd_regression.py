"""How far will diabetes progress? Regression with scaled targets: plain PyTorch, SGD with Nesterov's momentum."""

import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from mlrsnet import LearnedLR

EPOCHS = 20


def load(seed):
    x, y = (torch.tensor(part, dtype=torch.float32) for part in load_diabetes(return_X_y=True, scaled=False))
    train_x, test_x, train_y, test_y = train_test_split(x, y, train_size=0.5, random_state=seed)
    mean, std = train_x.mean(0), train_x.std(0)
    low, unit = train_y.mean(), train_y.std()
    return (train_x - mean) / std, (test_x - mean) / std, (train_y - low) / unit, (test_y - low) / unit


def train(schedule, seed):
    """The mean squared error of the test rows; about 1 is guessing."""
    torch.manual_seed(seed)
    train_x, test_x, train_y, test_y = load(seed)
    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=16, shuffle=True)
    steps = EPOCHS * len(loader)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-3)
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
        return nn.functional.mse_loss(model(test_x), test_y).item()


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: mean squared error {train(schedule, seed=0):.3f}")
