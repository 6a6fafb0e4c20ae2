"""Weights to fine-tune: a training that a RunSpec describes under `start`, made once and kept in the data folder.

The file's name is a digest of all that decides the weights: the spec, the user's own files that it reads, the kind of device and
torch's version.
"""

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mlrsnet.files import checkpoints
from mlrsnet.files.untrusted import reason
from mlrsnet.files.writing import write_atomically
from mlrsnet_lab import checks, datasets, inputs
from mlrsnet_lab.files import seals
from mlrsnet_lab.spec import RunSpec

FOLDER = "starts"
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Start:
    """A trained network's state, and the SHA-256 of its numbers."""

    weights: Weights
    digest: str

    def new(self, model: nn.Module) -> list[str]:
        """The tensors of a model that the start does not have in that shape, such as a layer for other classes."""
        return [name for name, tensor in model.state_dict().items() if not self._fits(name, tensor)]

    @torch.no_grad()
    def put_into(self, model: nn.Module) -> None:
        """Copy every tensor of the same name and shape. The others stay as they were initialised."""
        fitting = {name: tensor for name, tensor in model.state_dict().items() if self._fits(name, tensor)}
        if not fitting:
            raise ValueError("start must train a network like the spec's model, got one without a tensor in common")
        for name, tensor in fitting.items():
            tensor.copy_(self.weights[name])

    def _fits(self, name: str, tensor: Tensor) -> bool:
        return name in self.weights and self.weights[name].shape == tensor.shape


def find(spec: RunSpec, device: torch.device, root: Path | None, train: Callable[[], Weights]) -> Start:
    """The kept weights of this training, or those that `train` returns, which are kept from now on."""
    path = datasets.data_root(root) / FOLDER / f"{_name(spec, device)}.pt"
    kept = _kept(path)
    if kept is not None:
        return kept
    content, weights = io.BytesIO(), train()
    torch.save(weights, content)
    write_atomically(path, seals.sealed(content))
    return Start(weights, _digest(weights))


def _kept(path: Path) -> Start | None:
    """The weights of a file; None if there is none, or it is damaged."""
    if not path.is_file():
        return None
    try:
        seals.check(path)
        weights: Weights = checkpoints.load(path)
        return Start(weights, _digest(weights))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        checks.warn(f"{path} is damaged ({type(error).__name__}: {reason(error)}): the weights are trained again")
        return None


def _name(spec: RunSpec, device: torch.device) -> str:
    decides: dict[str, Any] = {
        "spec": spec.to_dict(),
        "files": inputs.digests(spec, None),
        "device": device.type,
        "torch": torch.__version__,
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def _digest(weights: Weights) -> str:
    total = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        total.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return total.hexdigest()[:16]
