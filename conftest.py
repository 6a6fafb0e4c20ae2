"""Settings of all tests, the library's and the lab's: one thread, repeatable hypothesis."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")
torch.set_num_threads(1)
pytest.register_assert_rewrite(
    "commands", "hostile", "lab_commands", "lightning_fits", "methods", "runs"
)  # so that their failed asserts show values
