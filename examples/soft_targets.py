"""Label smoothing and mixup: tell the schedule the loss you call backward() on, whatever its targets."""

import torch
from sklearn.datasets import load_digits
from torch.distributions import Beta
from torch.nn.functional import cross_entropy, one_hot

import mlrsnet

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
images, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
train_x, test_x, train_y, test_y = images[:1408], images[1408:], labels[:1408], labels[1408:]

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
lr = mlrsnet.LearnedLR(optimizer, total_steps=10 * 22)
share_of_first = Beta(0.2, 0.2)

for epoch in range(10):
    for batch in torch.randperm(1408).split(64):
        x, y = train_x[batch], one_hot(train_y[batch], 10).float()
        share = share_of_first.sample()
        x, y = share * x + (1 - share) * x.flip(0), share * y + (1 - share) * y.flip(0)
        loss = cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        lr.step(loss)
        optimizer.step()
    accuracy = (model(test_x).argmax(1) == test_y).float().mean()
    print(f"epoch {epoch}: loss {loss.item():.3f}, LR {lr.get_last_lr()[0]:.4f}, accuracy {100 * accuracy:.1f} %")
