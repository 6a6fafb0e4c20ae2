"""Flip bits of the lab's files and cut them off at random places: how often is something else read, and nobody told?

Each kind of file is read by the lab, and by its format's own reader alone: `torch.load`, safetensors, `json.loads`.

    python -m tools.damage [--times 400]
"""

import argparse
import io
import json
import random
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from mlrsnet import Schedule
from mlrsnet.card import versions
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import checkpoint, records
from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.watch import Watcher

RECORD = Path(__file__).parents[1] / "results" / "faults" / "damage.json"
Reader = Callable[[Path], Any]


@dataclass(frozen=True)
class Kind:
    """A file, and what two readers make of it, in a form that can be compared."""

    path: Path
    lab: Reader
    alone: Reader


class _Stop(Watcher):
    def epoch(self, line: dict[str, Any], losses: list[float], lrs: list[float]) -> None:
        raise KeyboardInterrupt


def make_files(root: Path) -> dict[str, Kind]:
    """One file of each kind, without a good one before it or beside it: damage must be told."""
    spec = RunSpec(model="mlp", model_options={"width": 8, "depth": 1}, epochs=2)
    try:
        run(spec, root / "run", Settings(device="cpu", checkpoint_seconds=0), watchers=[_Stop()])
    except KeyboardInterrupt:
        run_folder = root / "run"
    state = {"weights": torch.randn(2000, generator=torch.Generator().manual_seed(0)), "step": 7}
    checkpoint.write(root, state)
    torch.manual_seed(0)
    Schedule(LSTMNet(20)).save(root / "schedule.safetensors")
    return {
        "checkpoint": Kind(root / records.CHECKPOINT, lambda path: _bits(checkpoint.read(path.parent)), _torch),
        "schedule": Kind(root / "schedule.safetensors", lambda path: Schedule.load(path).fingerprint(), _tensors),
        "record": Kind(run_folder / records.RECORD, _record, lambda path: json.loads(path.read_text())),
    }


def _bits(state: Any) -> bytes:
    content = io.BytesIO()
    torch.save(state, content)
    return content.getvalue()


def _torch(path: Path) -> bytes:
    with warnings.catch_warnings(action="ignore"):  # a flipped bit can look like another version of pickle
        return _bits(torch.load(path, weights_only=True))


def _tensors(path: Path) -> list[Any]:
    return [(name, tensor.tolist()) for name, tensor in sorted(safetensors.torch.load_file(path).items())]


def _record(path: Path) -> Any:
    """The record; its copy would be read instead of a damaged one, with a warning."""
    with warnings.catch_warnings(action="error"):
        return records.read(path.parent).data


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """One flipped bit, or in one of five cases only a part from the beginning."""
    if chance.random() < 0.2:
        return raw[: chance.randrange(len(raw))]
    changed = bytearray(raw)
    changed[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def outcome(read: Reader, path: Path, whole: Any) -> str:
    """`told`, `same` (nothing that counts was hit) or `other`: something else was read, and nobody was told."""
    try:
        return "same" if read(path) == whole else "other"
    except Exception:
        return "told"


def measure(times: int, seed: int) -> dict[str, Any]:
    """Damage each kind of file so often, and count outcomes."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as root:
        for name, kind in make_files(Path(root)).items():
            chance, raw = random.Random(f"{seed} {name}"), kind.path.read_bytes()
            whole = {"lab": kind.lab(kind.path), "alone": kind.alone(kind.path)}
            counts = {reader: dict.fromkeys(("told", "same", "other"), 0) for reader in whole}
            for _ in range(times):
                kind.path.write_bytes(damaged(raw, chance))
                for reader, expected in whole.items():
                    counts[reader][outcome(getattr(kind, reader), kind.path, expected)] += 1
            kind.path.write_bytes(raw)
            found[name] = {"bytes": len(raw), **counts}
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RECORD)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    told = {
        "about": __doc__.splitlines()[0],
        "times": arguments.times,
        "seed": arguments.seed,
        "files": measure(arguments.times, arguments.seed),
        "versions": versions(),
        "commit": records.commit(),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
