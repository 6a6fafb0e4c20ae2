"""Where a run is saved unless the user says where."""

import hashlib
import os
import shutil
from pathlib import Path

from mlrsnet_lab.sheets import slug
from mlrsnet_lab.spec import RunSpec


def run_folder(spec: RunSpec, parent: Path = Path("runs")) -> Path:
    """A folder below `parent` that no other spec uses: its name says what is trained and ends in a digest of the spec.

    >>> run_folder(RunSpec(task="digits", model="mlp")).name[:28]
    'digits-mlp-sgd-cosine-seed0-'
    """
    words = [Path(spec.task).stem if "/" in spec.task else spec.task, spec.model, spec.optimizer, spec.schedule]
    digest = hashlib.sha256(spec.to_json().encode()).hexdigest()[:6]
    return parent / ("-".join(map(slug, words)) + f"-seed{spec.seed}-{digest}")


def learning_folder(out: Path) -> Path:
    """Where a meta-training keeps its files until it can write the schedule `out`, which must not exist yet."""
    if out.is_dir():
        raise ValueError(f"out must be a file, got the folder {out}: add a name such as learned.safetensors")
    folder = out.with_name(out.name + ".run")
    shutil.rmtree(_going(folder), ignore_errors=True)
    if out.exists() and not folder.exists():
        raise ValueError(f"out must be a new file, but {out} exists: choose another name, or delete it")
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder at once: a kill on the way does not leave one that looks like a run with files missing."""
    shutil.rmtree(_going(folder), ignore_errors=True)
    os.replace(folder, _going(folder))
    shutil.rmtree(_going(folder), ignore_errors=True)


def _going(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.removed")
