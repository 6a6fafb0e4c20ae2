"""Fixtures of the tests that break things."""

from commands import own_folder  # noqa: F401
