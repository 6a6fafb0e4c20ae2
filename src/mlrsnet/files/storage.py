"""Schedules on disk: one safetensors file, with the card, the network description and a digest in its metadata.

Reading never runs code from the file. safetensors holds only numbers and text, and pickles are refused unopened.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors import torch as safetensors_torch
from torch import Tensor

from mlrsnet import _check
from mlrsnet.files.untrusted import one_line, open_regular, parse_json, reason
from mlrsnet.files.writing import copy_of, write_atomically

FORMAT = "mlrsnet.schedule"
KEY = "mlrsnet"  # a single entry, because safetensors writes several in arbitrary order
VERSION = 1
LARGEST_FILE, LARGEST_HEADER, MOST_TENSORS = 64 * 2**20, 4 * 2**20, 10_000
"""Far above what a schedule has: some kilobytes, and ten tensors per phase."""


class ScheduleError(ValueError):
    """A schedule cannot be found, read or built."""


def digest(description: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """SHA-256 over the description and every tensor's name, type, shape and bytes."""
    sha = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def write(path: str | os.PathLike[str], description: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Write atomically: after a crash, the file is either complete or unchanged."""
    target = Path(path)
    header = {"format": FORMAT, "version": VERSION, "sha256": digest(description, tensors), "description": description}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(target, safetensors_torch.save(plain, metadata={KEY: json.dumps(header, sort_keys=True)}))
    return target


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and tensors of a file written by `write`, or of its copy if it is damaged; else one `ScheduleError`."""
    source = Path(path)
    try:
        return _read(source)
    except ScheduleError as error:
        if not (spare := copy_of(source)).is_file():
            raise
        try:
            found = _read(spare)
        except ScheduleError:
            raise error from None
        _check.warn(f"{error}; going on with {spare}, which is good")
        return found


def _read(source: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    _refuse_foreign(source)
    try:
        with safe_open(source, framework="pt") as file:
            metadata, names = file.metadata() or {}, file.keys()
            if len(names) > MOST_TENSORS:
                raise ValueError(f"it must have at most {MOST_TENSORS:,} tensors, got {len(names):,}")
            # Clone: the last bit of a result can depend on memory alignment.
            tensors = {name: file.get_tensor(name).clone() for name in names}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ScheduleError(
            f"{source} is damaged or not a safetensors file ({reason(error)}): copy it again from its source"
        ) from None
    header = _header(source, metadata)
    if header.get("format") != FORMAT:
        raise ScheduleError(
            f"{source} is a safetensors file but not a schedule: pass a file written by Schedule.save, or a name that "
            "`mlrsnet schedules list` shows"
        )
    if header.get("version") != VERSION:
        raise ScheduleError(
            f"{source} has format version {one_line(str(header.get('version')))}, this mlrsnet reads {VERSION}: upgrade mlrsnet"
        )
    description = header.get("description")
    if not isinstance(description, dict) or header.get("sha256") != digest(description, tensors):
        raise ScheduleError(
            f"{source} was changed after it was saved (its digest does not match): copy it again from its source"
        )
    return description, tensors


def _header(source: Path, metadata: dict[str, str]) -> dict[str, Any]:
    try:
        header = parse_json(metadata.get(KEY, "{}"), finite=False)  # results of a card may be NaN
    except ValueError as error:
        raise ScheduleError(f"{source} does not hold a valid schedule ({reason(error)}): save it again") from None
    return header if isinstance(header, dict) else {}


def _refuse_foreign(source: Path) -> None:
    if not source.is_file():
        raise ScheduleError(
            f"there is no schedule file {source}: check the path, or `mlrsnet schedules list` for names"
        )
    size = source.stat().st_size
    if size > LARGEST_FILE:
        raise ScheduleError(
            f"{source} has {size:,} bytes, but a schedule has at most {LARGEST_FILE:,}: pass a file written by Schedule.save"
        )
    with open_regular(source) as file:
        start = file.read(9)
    is_safetensors = start[8:] == b"{"  # the first eight bytes are a length and can have any value
    header = int.from_bytes(start[:8], "little")
    if is_safetensors and header > LARGEST_HEADER:
        raise ScheduleError(
            f"{source} claims a header of {header:,} bytes, but a schedule's has at most {LARGEST_HEADER:,}: pass a file written "
            "by Schedule.save"
        )
    if not is_safetensors and start.startswith((b"PK", b"\x80")):
        raise ScheduleError(
            f"{source} is a pickle (torch.save) and was not opened, because reading one can run code: pass a .safetensors "
            "schedule; the authors' .pth checkpoints go through Schedule.from_official or `mlrsnet schedules import`"
        )
