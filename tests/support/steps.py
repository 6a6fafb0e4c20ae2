"""Steps of small trainings, and the LRs that they took."""

import io

import torch
from torch.optim import SGD

LOSSES = [1.6, 1.5, 1.3, 1.2, 1.0, 0.9, 0.8, 0.7, 0.6]


def sgd(lr=0.1, **options):
    """An optimizer of a weight that has no gradient: what decides an LR is the loss, and how far the training is."""
    return SGD([torch.nn.Parameter(torch.ones(2))], lr=lr, **options)


def lrs_for(lr, losses):
    """The LR of a step for each loss; None tells none."""
    used = []
    for loss in losses:
        lr.step(loss)
        lr.optimizer.step()
        used.append(float(lr.get_last_lr()[lr.main_group]))
    return used


def through_a_file(state):
    """What a checkpoint gives back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def exactly(state):
    """All of a state as text, with every digit."""
    if isinstance(state, dict):
        return {name: exactly(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return [exactly(value) for value in state]
    return repr(state.tolist() if isinstance(state, torch.Tensor) else state)
