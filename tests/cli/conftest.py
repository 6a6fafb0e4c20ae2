"""Fixtures of the commands' tests."""

from commands import own_folder  # noqa: F401
