"""Fixtures of the lab's tests."""

import os

import pytest
from commands import own_folder  # noqa: F401
from lab_commands import break_schedule, ctrl_c, pictures  # noqa: F401
from methods import make  # noqa: F401
from runs import schedule_file, texts  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def no_registry(tmp_path_factory):
    """No test fetches data: pip and npm find nothing, in this process and in those that it starts."""
    empty = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "npm_config_offline": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (empty | {"npm_config_cache": str(tmp_path_factory.mktemp("npm"))}).items():
            patch.setenv(name, value)
        yield
