"""Fixtures of the lab's tests."""

from commands import own_folder  # noqa: F401
from lab_commands import break_schedule, ctrl_c, pictures  # noqa: F401
from methods import make  # noqa: F401
from runs import schedule_file, texts  # noqa: F401
