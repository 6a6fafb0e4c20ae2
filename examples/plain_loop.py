"""A plain PyTorch loop: one line, and the optimizer sets the learning rate of every step."""

import torch
from torch.nn.functional import cross_entropy

import mlrsnet

torch.manual_seed(0)
images, labels = torch.randn(640, 20), torch.randint(10, (640,))
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # this LR is ignored

lr = mlrsnet.LearnedLR(optimizer, total_steps=10 * 10)  # all that is needed

for epoch in range(10):
    for x, y in zip(images.split(64), labels.split(64), strict=True):
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        lr.step(loss)  # may be left out: it tells the loss of this step
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}, LR {lr.get_last_lr()[0]:.3f}")
