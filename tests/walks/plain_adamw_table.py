"""A small network on a table, breast cancer: plain PyTorch, AdamW, a loss for two classes."""

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from mlrsnet import LearnedLR

EPOCHS = 20


def load(seed):
    x, y = load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(x, y, train_size=0.5, random_state=seed)
    scaler = StandardScaler().fit(train_x)
    parts = scaler.transform(train_x), scaler.transform(test_x), train_y, test_y
    return [torch.tensor(part, dtype=torch.float32) for part in parts]


def train(schedule, seed):
    """The loss of the test rows: 284 rows are too few to count the wrong ones."""
    torch.manual_seed(seed)
    train_x, test_x, train_y, test_y = load(seed)
    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=16, shuffle=True)
    steps = EPOCHS * len(loader)
    model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1), nn.Flatten(0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    if schedule == "learned":
        lr = LearnedLR(optimizer, total_steps=steps)
    else:
        lr = OneCycleLR(optimizer, max_lr=1e-3, total_steps=steps, pct_start=0.05, cycle_momentum=False)

    for _ in range(EPOCHS):
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if schedule == "learned":
                lr.step(loss)
            optimizer.step()
            if schedule == "cosine":
                lr.step()

    model.eval()
    with torch.no_grad():
        return nn.functional.binary_cross_entropy_with_logits(model(test_x), test_y).item()


if __name__ == "__main__":
    for schedule in ("learned", "cosine"):
        print(f"{schedule}: loss {train(schedule, seed=0):.4f}")
