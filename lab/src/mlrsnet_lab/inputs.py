"""Digests of the user's own files that a run reads, so that it is not resumed with other ones."""

import hashlib
from pathlib import Path

from mlrsnet.files import names
from mlrsnet_lab import datasets
from mlrsnet_lab.methods import learned
from mlrsnet_lab.spec import RunSpec


def files(spec: RunSpec, folder: Path | None) -> dict[str, Path]:
    """The paths that exist of an .npz ("task") and of a schedule that is not shipped ("schedule")."""
    found = {}
    if spec.task not in datasets.KNOWN:
        found["task"] = Path(spec.task).expanduser()
    if spec.schedule == "learned" and (schedule := spec.schedule_options.get("schedule")) is not None:
        place = learned.find(schedule, folder)
        found["schedule"] = place if isinstance(place, Path) else names.available().get(place, Path(place))
    return {name: path for name, path in found.items() if path.is_file() and path.parent != names.SHIPPED}


def digests(spec: RunSpec, folder: Path | None) -> dict[str, str]:
    """The digest of each file."""
    return {name: digest(path) for name, path in files(spec, folder).items()}


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
