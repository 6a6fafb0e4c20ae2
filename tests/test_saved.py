"""A training that another version saved goes on as it would have there. `tools/saved.py` made the file, see there."""

from typing import Any

import pytest
import torch

from tools import saved

CLOSE = 1e-6
"""Of LRs on other CPUs and other versions of torch, whose rounding differs in double precision."""


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """What is in the file; `weights_only=True` reads no classes, which the next version may have moved."""
    return dict(torch.load(saved.FILE, weights_only=True)["trainings"])


@pytest.mark.parametrize("name", saved.TRAININGS)
def test_a_saved_training_goes_on_with_the_same_lrs(name: str, kept: dict[str, Any]) -> None:
    training = saved.restored(name, kept[name])
    assert saved.steps(training, saved.BEFORE, saved.TOTAL) == pytest.approx(kept[name]["lrs"], rel=CLOSE)


@pytest.mark.filterwarnings("ignore:validate.loss. got nothing below its first loss")
@pytest.mark.parametrize("name", saved.TRAININGS)
def test_it_would_go_on_with_other_lrs_without_what_was_saved(name: str, kept: dict[str, Any]) -> None:
    """Else the test above could not fail."""
    fresh = saved.steps(saved.begin(name), saved.BEFORE, saved.TOTAL)
    assert fresh != pytest.approx(kept[name]["lrs"], rel=100 * CLOSE)


def test_every_training_of_the_file_is_gone_on_with(kept: dict[str, Any]) -> None:
    assert set(kept) == set(saved.TRAININGS)
