"""LearnedLR's two engines, on the host and on a device, and the LRs they give."""

import pytest
import torch
from torch.optim import SGD

LOSSES = [1.6, 1.5, 1.3, 1.2, 1.0, 0.9, 0.8, 0.7, 0.6]


def sgd(lr=0.1, **options):
    return SGD([torch.nn.Parameter(torch.ones(2))], lr=lr, **options)


def lrs_for(lr, losses):
    used = []
    for loss in losses:
        lr.step(loss)
        used.append(float(lr.get_last_lr()[0]))
    return used


@pytest.fixture(params=["float", "tensor"])
def kind(request):
    """Each engine: a float LR selects the host, a tensor LR the device."""
    return (lambda lr=0.1: lr) if request.param == "float" else (lambda lr=0.1: torch.tensor(lr))
