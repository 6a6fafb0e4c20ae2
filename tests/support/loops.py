"""A small training as users write it: a network, its batches, a loop."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

_random = torch.Generator().manual_seed(5)
INPUTS = torch.randn(32, 16, 6, generator=_random)
LABELS = torch.randint(5, (32, 16), generator=_random)


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5)).to(dtype)


def loss_of(model, step):
    """The loss of one batch."""
    dtype = next(model.parameters()).dtype
    return cross_entropy(model(INPUTS[step % 32].to(dtype)), LABELS[step % 32])


def backward(model, step):
    """Gradients of one batch; its loss."""
    loss = loss_of(model, step)
    loss.backward()
    return loss


def train(model, optimizer, steps, begin=0, lr=None):
    """The plain loop; the LRs of each step. `lr` is told the losses."""
    used = []
    for step in range(begin, begin + steps):
        optimizer.zero_grad()
        loss = backward(model, step)
        if lr is not None:
            lr.step(loss)
        optimizer.step()
        used.append(lrs_of(optimizer))
    return used


def lrs_of(optimizer):
    return [float(group["lr"]) for group in optimizer.param_groups]


def weights_of(model):
    return torch.cat([weight.detach().reshape(-1) for weight in model.parameters()])
