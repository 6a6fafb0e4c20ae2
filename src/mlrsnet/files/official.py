"""The authors' published checkpoints: `mlr_snet_{1,100,200}.pth`."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from mlrsnet import _check
from mlrsnet.card import Card
from mlrsnet.files import checkpoints
from mlrsnet.files.storage import ScheduleError
from mlrsnet.files.untrusted import one_line, reason
from mlrsnet.nets import LAYOUTS, LSTMNet
from mlrsnet.ranges import Gamma, PhaseGamma

KEYS = {
    f"layer1.fc_{branch}.{layer}.{kind}": f"cells.0.{branch}.{layer}.{kind}"
    for branch in ("i2h", "h2h")
    for layer in (0, 2)
    for kind in ("weight", "bias")
} | {f"layer3.{kind}": f"out.{kind}" for kind in ("weight", "bias")}
"""The authors' names -> ours."""

CARD = Card(
    name="official",
    description="Checkpoints published by the authors of MLR-SNet, imported. Transferred, they act as a step schedule.",
    learned_on="CIFAR-10, ResNet-18 (the authors' meta-training, 200 epochs; epochs 1, 100 and 200 when all three are given)",
    optimizer="SGD",
    gamma=PhaseGamma(),
    versions={},
)


GAMMAS = {"per-phase": PhaseGamma(), "initial": Gamma()}
"""Ranges that suit the checkpoints; see `Schedule.from_official`."""


def make_card(name: str, gamma: str) -> Card:
    """What is known about the checkpoints, with a range out of `GAMMAS`."""
    return replace(CARD, name=name, gamma=GAMMAS[_check.one_of("gamma", gamma, GAMMAS)])


def read_nets(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], layout: str) -> list[LSTMNet]:
    """One network per file; see `Schedule.from_official`."""
    _check.one_of("layout", layout, LAYOUTS)
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not files:
        raise ScheduleError(
            "paths must name at least one checkpoint, got none: pass the .pth files in the order of training"
        )
    return [_read_net(Path(file), layout) for file in files]


def _read_net(path: Path, layout: str) -> LSTMNet:
    tensors = _read_tensors(path)
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ScheduleError(f"{name} of {path} must be finite, got other numbers: pass the authors' file")
    try:
        with torch.device("meta"):  # shapes are compared before anything is allocated
            net = LSTMNet(tensors["layer3.weight"].shape[-1], layout=layout)
        net.load_state_dict({KEYS[name]: tensor.float() for name, tensor in tensors.items()}, assign=True)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        raise ScheduleError(
            f"{path} does not fit the layout {layout!r} ({reason(error)}): pass layout= one of {', '.join(LAYOUTS)}"
        ) from None
    return net


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ScheduleError(f"there is no checkpoint {path}: check the path")
    try:
        with warnings.catch_warnings(action="ignore"):
            state = checkpoints.load(path, legacy=True)
    except Exception as error:  # arbitrary bytes can fail in any way
        raise ScheduleError(
            f"{path} is not a checkpoint of plain tensors ({reason(error)}): nothing in it was executed; pass the authors' file"
        ) from None
    if not isinstance(state, dict) or set(state) != set(KEYS) or not all(isinstance(t, Tensor) for t in state.values()):
        found = one_line(", ".join(sorted(map(str, state)))) if isinstance(state, dict) else type(state).__name__
        raise ScheduleError(
            f"{path} must hold the authors' tensors {', '.join(sorted(KEYS))}, got {found}: pass their file"
        )
    return state
