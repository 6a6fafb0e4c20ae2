"""Fixtures of the commands' tests."""

from commands import break_schedule, ctrl_c, own_folder, pictures  # noqa: F401
