"""Settings and fixtures of all tests: one thread, repeatable hypothesis, fixtures from `support/`."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cases import OPTIMIZERS, SCHEDULES, Task
from hypothesis import settings
from torch.optim import Optimizer

from mlrsnet import Schedule

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")
torch.set_num_threads(1)
pytest_plugins = ("commands", "engines", "methods", "runs")  # their fixtures
pytest.register_assert_rewrite("lightning_fits")  # so that its failed asserts show values


@pytest.fixture(params=SCHEDULES)
def schedule(request: pytest.FixtureRequest) -> Schedule:
    torch.manual_seed(1)
    return SCHEDULES[request.param]()


@pytest.fixture(params=OPTIMIZERS)
def make_optimizer(request: pytest.FixtureRequest) -> Callable[..., Optimizer]:
    return OPTIMIZERS[request.param]


@pytest.fixture
def paper() -> Schedule:
    torch.manual_seed(1)
    return SCHEDULES["paper"]()


@pytest.fixture
def horizon() -> Schedule:
    torch.manual_seed(1)
    return SCHEDULES["horizon"]()


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
