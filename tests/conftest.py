"""Fixtures of the library's tests."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import NETWORKS, OPTIMIZERS, SCHEDULES, Task
from torch import Tensor
from torch.optim import Optimizer

from mlrsnet import Schedule, _groups
from mlrsnet.law import Law


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensor LRs on a CPU are served like those on a GPU: nothing is read back."""

    def device_of(groups: list[dict[str, Any]]) -> torch.device | None:
        return next((group["lr"].device for group in groups if isinstance(group["lr"], Tensor)), None)

    monkeypatch.setattr(_groups, "device_of", device_of)


@pytest.fixture(params=["float", "tensor", "device"])
def kind(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes an LR: a float, a tensor on the CPU, or a tensor that is served as on a GPU."""
    if request.param == "device":
        request.getfixturevalue("on_device")
    return (lambda lr=0.1: lr) if request.param == "float" else (lambda lr=0.1: torch.tensor(lr))


@pytest.fixture(params=SCHEDULES)
def schedule(request: pytest.FixtureRequest) -> Law:
    torch.manual_seed(1)
    return SCHEDULES[request.param]()


@pytest.fixture(params=OPTIMIZERS)
def make_optimizer(request: pytest.FixtureRequest) -> Callable[..., Optimizer]:
    return OPTIMIZERS[request.param]


@pytest.fixture
def paper() -> Schedule:
    torch.manual_seed(1)
    return NETWORKS["paper"]()


@pytest.fixture
def horizon() -> Schedule:
    torch.manual_seed(1)
    return NETWORKS["horizon"]()


@pytest.fixture
def official_folder() -> Path:
    """The folder with the authors' published files, if this machine has them."""
    folder = os.environ.get("MLRSNET_OFFICIAL")
    if not folder:
        pytest.skip("set MLRSNET_OFFICIAL to the folder with the authors' mlr_snet_{1,100,200}.pth and trace.json")
    return Path(folder)


@pytest.fixture
def task() -> Task:
    return Task()
