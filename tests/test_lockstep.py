"""Today's core plays cases whose LRs the core of 239a254 wrote down, see `tools/golden.py`.

The default runs freely here, with LRs that it writes itself: gradients do not depend on weights, so nothing that differs grows.
"""

import math
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tools import golden

PAPER, OFFICIAL, DEFAULT = golden.paper_cases(), golden.official_cases(), golden.watched_cases()
EQUAL, SINGLE = 1e-6, 1e-5
"""In double precision, and in float32, whose own rounding is 4e-6 here."""

SAMPLED, MOST = 0.05, 0.99
"""Where not all entries are seen, LRs are as close as this, in so many steps."""

CLOSE = 1e-5
LESS_CLOSE = {"small gradients": 0.03, "extend": 0.02, "groups": 2e-5, "muon": 1e-3}
"""How close the others are, to `CLOSE`. The first two see something else on purpose, for a few steps: weights are compared, and
a step shorter than a weight's last digit can not be seen; a step is counted when the next one begins, so `extend` changes the
window of one step more. The steps of the third are so short that float32 rounds them to five digits. Muon computes its own
steps in bfloat16, so they differ from CPU to CPU.
"""


@cache
def recorded(name: str) -> Any:
    return np.load(golden.FOLDER / f"{name}.npz")


def error(now: np.ndarray, then: np.ndarray) -> np.ndarray:
    """|log(now / then)|; 0 where both are 0, or both are missing since a group came later."""
    with np.errstate(all="ignore"):
        found = np.abs(np.log(now / then))
    return np.where((now == then) | (np.isnan(now) & np.isnan(then)), 0.0, found)


def check_paper(name: str, case: golden.Paper, lr: Any, prepare: Callable[[Any], Any], most: float) -> None:
    file = recorded("official" if name in OFFICIAL else "paper")
    found = golden.play_paper(case, file[f"losses/{case.losses}"], lr, prepare)
    assert error(found, file[f"lrs/{name}"]).max() < most


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_schedules_give_the_lrs_that_they_always_gave(name: str) -> None:
    check_paper(name, PAPER[name], 0.1, golden.in_double, EQUAL)


@pytest.mark.parametrize("name", [name for name in PAPER if name.endswith(("/sgd", "/anneal", "/extend", "/wild"))])
@pytest.mark.parametrize("lr", ["float", "tensor"])
def test_networks_in_single_precision_give_the_same(name: str, lr: str, on_device: None) -> None:
    check_paper(name, PAPER[name], 0.1 if lr == "float" else torch.tensor(0.1), lambda schedule: schedule, SINGLE)


@pytest.mark.skipif(
    golden.OFFICIAL not in os.environ, reason=f"set {golden.OFFICIAL} to the folder with the authors' files"
)
@pytest.mark.parametrize("name", OFFICIAL)
def test_the_authors_checkpoints_give_the_lrs_that_they_always_gave(name: str) -> None:
    check_paper(name, OFFICIAL[name], 0.1, golden.in_double, EQUAL)


CHANGED = "a trained network"
"""It keeps to half of its steps now."""


@pytest.mark.parametrize("name", [name for name in DEFAULT if name != CHANGED])
def test_the_default_gives_the_lrs_that_it_always_gave_on_the_host_and_on_a_device(name: str, on_device: None) -> None:
    case, file = DEFAULT[name], recorded("default")
    losses, then = file[f"losses/{case.losses}"][: case.steps], file[f"lrs/{name}"].astype(np.float64)
    host, device = (golden.play_watched(case, losses, lr) for lr in (float, torch.tensor))
    wrong = error(host, then)
    if name.startswith("sampled"):
        assert (wrong < SAMPLED).mean() >= MOST
    else:
        assert wrong.max() < LESS_CLOSE.get(name, CLOSE)
    assert error(device, host).max() < (CLOSE if name == "groups" else EQUAL)


def test_what_was_recorded_is_what_is_played() -> None:
    for name, cases in (("paper", PAPER), ("official", OFFICIAL), ("default", DEFAULT)):
        assert {key.removeprefix("lrs/") for key in recorded(name) if key.startswith("lrs/")} == set(cases)
        for kind in ("falling", "wild"):
            steps = len(told := recorded(name)[f"losses/{kind}"])
            assert np.allclose(told, golden.losses(kind, steps), rtol=1e-14, equal_nan=True) or math.isnan(told[0])
