"""Fixtures of the lab's tests."""

from commands import own_folder, pictures  # noqa: F401
from methods import make  # noqa: F401
from runs import schedule_file, texts  # noqa: F401
