"""Regression: the same line with a squared error."""

import torch
from sklearn.datasets import load_diabetes
from torch.nn.functional import mse_loss

import mlrsnet

torch.manual_seed(0)
x, y = (torch.tensor(part, dtype=torch.float32) for part in load_diabetes(return_X_y=True))
x, y = (x - x.mean(0)) / x.std(0), ((y - y.mean()) / y.std()).unsqueeze(1)
train_x, test_x, train_y, test_y = x[:352], x[352:], y[:352], y[352:]

model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-2)
lr = mlrsnet.LearnedLR(optimizer, total_steps=10 * 11)

for epoch in range(10):
    order = torch.randperm(352)
    for batch in order.split(32):
        loss = mse_loss(model(train_x[batch]), train_y[batch])
        optimizer.zero_grad()
        loss.backward()
        lr.step(loss)
        optimizer.step()
    with torch.no_grad():
        explained = 1 - mse_loss(model(test_x), test_y) / test_y.var()
    print(f"epoch {epoch}: loss {loss.item():.3f}, LR {lr.get_last_lr()[0]:.5f}, variance explained {explained:.2f}")
