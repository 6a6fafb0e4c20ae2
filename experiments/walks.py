"""A newcomer's walk: whole scripts of users, each under the default and under a cosine with warm-up at the usual LR.

The scripts are in tests/walks/. Each has `train(schedule, seed)`, which trains with the schedule `learned` or `cosine` and returns
what it ends with on held-out data; lower is better. Both train on the same data from the same weights. The tests train every one
with a few seeds, and take from the records how much that varies.

    python -m experiments.walks [--only plain_muon_language] [--seeds 16]
"""

import argparse
import ast
import importlib.util
import json
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from experiments import markdown, results
from mlrsnet import LearnedLR
from mlrsnet.card import versions
from mlrsnet_lab.devices import device_name
from mlrsnet_lab.records import commit
from mlrsnet_lab.report.numbers import short_text

FOLDER = results.ROOT / "tests" / "walks"
LEARNED, COSINE = "learned", "cosine"
UNTOUCHED = "untouched"
"""What a network to fine-tune has before any step."""

WORSE = ("plain_adamw_more_of_the_same", "plain_adamw_table", "plain_sgd_regression")
"""Where the default is worse than the cosine, by more than noise. All three have a few hundred examples."""

SCALE = 0.3
SHORTER = f"scale {SCALE}"
"""The default with shorter steps, for those."""


@dataclass(frozen=True)
class Comparison:
    """Results of the same trainings, seed by seed, under two schedules; lower is better.

    >>> Comparison([1.0, 1.2], [1.0, 1.0]).ratio
    1.1
    """

    mine: Sequence[float]
    rival: Sequence[float]

    @property
    def ratio(self) -> float:
        """Of the means."""
        return mean(self.mine) / mean(self.rival)

    @property
    def spread(self) -> float:
        """How much the difference varies from seed to seed, relative to the rival's mean."""
        return stdev(mine - rival for mine, rival in zip(self.mine, self.rival, strict=True)) / mean(self.rival)

    @property
    def standard_error(self) -> float:
        """Of a ratio near 1."""
        return self.spread / len(self.mine) ** 0.5


def names() -> list[str]:
    """The walks, by the names of their files."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith(("test_", "conftest")))


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


def record(name: str) -> dict[str, Any]:
    """What was measured with many seeds."""
    return results.data(f"walks/{name}.json")["ends"]


def table() -> list[str]:
    """Default and cosine, walk by walk."""
    heads = ["script", "on held-out data", "default", "cosine", "default / cosine", "seeds"]
    return [
        *markdown.table(heads, map(_line, names())),
        "",
        "Lower is better; ± standard error over paired seeds, which also split pictures and tables anew. One CPU thread.",
    ]


def shorter() -> list[str]:
    """Shorter steps, where the default is worse."""
    lines = []
    for name in WORSE:
        ends = record(name)
        ratios = (Comparison(ends[one], ends[COSINE]) for one in (LEARNED, SHORTER))
        untouched = short_text(mean(ends[UNTOUCHED])) if UNTOUCHED in ends else ""
        lines.append([f"`{name}`", *map(_ratio, ratios), short_text(mean(ends[COSINE])), untouched])
    heads = ["", "default / cosine", f"with `scale={SCALE}` / cosine", "cosine", "before any step"]
    return markdown.table(heads, lines)


def _line(name: str) -> list[str]:
    """Of a walk, in the table."""
    ends, found = record(name), [f"[{name}](../results/walks/{name}.json)", _unit(name)]
    means = (short_text(mean(ends[one])) for one in (LEARNED, COSINE))
    return [*found, *means, _ratio(Comparison(ends[LEARNED], ends[COSINE])), str(len(ends[LEARNED]))]


def _ratio(found: Comparison) -> str:
    return f"{found.ratio:.3f} ± {found.standard_error:.3f}"


def _unit(name: str) -> str:
    """What a walk measures: the docstring of its `train`, as far as a colon or semicolon."""
    body = ast.parse((FOLDER / f"{name}.py").read_text()).body
    (train,) = [one for one in body if isinstance(one, ast.FunctionDef) and one.name == "train"]
    return re.split(r"[:;.]", ast.get_docstring(train) or "")[0].removeprefix("The ")


def main() -> None:
    """Measure, and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=names(), nargs="+", default=names())
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--out", type=Path, default=results.RESULTS / "walks")
    words = parser.parse_args()
    torch.set_num_threads(1)
    words.out.mkdir(parents=True, exist_ok=True)
    for name in words.only:
        ends = measure(name, words.seeds)
        told = {
            "versions": versions(),
            "machine": {"system": platform.platform(), "device": device_name(torch.device("cpu"))},
            "commit": commit(),
            "ends": ends,
        }
        (words.out / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
        found = Comparison(ends[LEARNED], ends[COSINE])
        print(f"{name}: {found.ratio:.3f} ± {found.standard_error:.3f}, spread {found.spread:.3f}", flush=True)


if __name__ == "__main__":
    main()
