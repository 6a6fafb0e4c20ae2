"""A newcomer's walk: whole scripts of users, each under the default and under a cosine with warm-up at the usual LR.

The scripts are in tests/walks/. Each has `train(schedule, seed)`, which trains with the schedule `learned` or `cosine` and returns
what it ends with on held-out data; lower is better. Both train on the same data from the same weights. The tests train every one
with a few seeds, and take from the records how much that varies.

    python -m tools.walks [--only plain_muon_language] [--seeds 16]
"""

import argparse
import importlib.util
import json
import platform
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from experiments import results
from experiments.walks import COSINE, FOLDER, LEARNED, SCALE, SHORTER, UNTOUCHED, WORSE, Comparison, names
from mlrsnet import LearnedLR
from mlrsnet.card import versions
from mlrsnet_lab.devices import device_name
from mlrsnet_lab.records import commit


@cache
def load(name: str) -> Any:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(f"walk_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(name: str, seeds: int) -> dict[str, list[float]]:
    """What a walk ends with, under both schedules; where that is known to differ, with shorter steps too."""
    walk = load(name)
    found = {schedule: [walk.train(schedule, seed) for seed in range(seeds)] for schedule in (LEARNED, COSINE)}
    if hasattr(walk, UNTOUCHED):
        found[UNTOUCHED] = [walk.untouched(seed) for seed in range(seeds)]
    if name in WORSE:
        walk.LearnedLR = partial(LearnedLR, scale=SCALE)
        found[SHORTER] = [walk.train(LEARNED, seed) for seed in range(seeds)]
        walk.LearnedLR = LearnedLR
    return found


def main() -> None:
    """Measure, and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=names(), nargs="+", default=names())
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--out", type=Path, default=results.RESULTS / "walks" / "ends.json")
    words = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.loads(words.out.read_text()) if words.out.is_file() else {}
    for name in words.only:
        ends = measure(name, words.seeds)
        kept[name] = {
            "versions": versions(),
            "machine": {"system": platform.platform(), "device": device_name(torch.device("cpu"))},
            "commit": commit(),
            "ends": ends,
        }
        words.out.write_text(json.dumps(kept, indent=1) + "\n")
        found = Comparison(ends[LEARNED], ends[COSINE])
        print(f"{name}: {found.ratio:.3f} ± {found.standard_error:.3f}, spread {found.spread:.3f}", flush=True)


if __name__ == "__main__":
    main()
