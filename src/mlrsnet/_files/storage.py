"""Schedules on disk: one safetensors file, with the card, the network description and a digest in its metadata.

Reading never runs code from the file. safetensors holds only numbers and text, and pickles are refused unopened.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors import torch as safetensors_torch
from torch import Tensor

FORMAT = "mlrsnet.schedule"
KEY = "mlrsnet"  # a single entry, because safetensors writes several in arbitrary order
VERSION = 1
LARGEST_FILE = 64 * 2**20


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


def write_atomically(target: Path, content: bytes) -> None:
    """Write to a temporary file beside `target`, flush it to disk, and rename."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and tensors of a file written by `write`, or one `ScheduleError`."""
    source = Path(path)
    _refuse_foreign(source)
    try:
        with safe_open(source, framework="pt") as file:
            metadata = file.metadata() or {}
            # Clone: the last bit of a result can depend on memory alignment.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise ScheduleError(
            f"{source} is damaged or not a safetensors file ({error}): copy it again from its source"
        ) from None
    header = _header(metadata)
    if header.get("format") != FORMAT:
        raise ScheduleError(
            f"{source} is a safetensors file but not a schedule: pass a file written by Schedule.save, or a name that "
            "`mlrsnet schedules list` shows"
        )
    if header.get("version") != VERSION:
        raise ScheduleError(
            f"{source} has format version {header.get('version')!r}, this mlrsnet reads {VERSION}: upgrade mlrsnet"
        )
    description = header.get("description")
    if not isinstance(description, dict) or header.get("sha256") != digest(description, tensors):
        raise ScheduleError(
            f"{source} was changed after it was saved (its digest does not match): copy it again from its source"
        )
    return description, tensors


def _header(metadata: dict[str, str]) -> dict[str, Any]:
    try:
        header = json.loads(metadata.get(KEY, ""))
    except (ValueError, RecursionError):
        return {}
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
    with open(source, "rb") as file:
        start = file.read(9)
    is_safetensors = start[8:] == b"{"  # the first eight bytes are a length and can have any value
    if not is_safetensors and start.startswith((b"PK", b"\x80")):
        raise ScheduleError(
            f"{source} is a pickle (torch.save) and was not opened, because reading one can run code: pass a .safetensors "
            "schedule; the authors' .pth checkpoints go through Schedule.from_official or `mlrsnet schedules import`"
        )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
