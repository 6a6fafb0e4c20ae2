"""The walks of users beside a cosine with warm-up at the usual LR: `tools/walks.py` measures them, see there."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from experiments import markdown, results
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


def record(name: str) -> dict[str, Any]:
    """What was measured with many seeds."""
    return results.data("walks/ends.json")[name]["ends"]


def table() -> list[str]:
    """Default and cosine, walk by walk."""
    heads = ["script", "on held-out data", "default", "cosine", "default / cosine", "seeds"]
    return [
        *markdown.table(heads, map(_line, names())),
        "",
        "Lower is better; ± standard error over paired seeds, which also split pictures and tables anew. One CPU thread "
        "([records](../results/walks/ends.json)).",
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
    ends, found = record(name), [f"`{name}`", _unit(name)]
    means = (short_text(mean(ends[one])) for one in (LEARNED, COSINE))
    return [*found, *means, _ratio(Comparison(ends[LEARNED], ends[COSINE])), str(len(ends[LEARNED]))]


def _ratio(found: Comparison) -> str:
    return f"{found.ratio:.3f} ± {found.standard_error:.3f}"


def _unit(name: str) -> str:
    """What a walk measures: the docstring of its `train`, as far as a colon or semicolon."""
    body = ast.parse((FOLDER / f"{name}.py").read_text()).body
    (train,) = [one for one in body if isinstance(one, ast.FunctionDef) and one.name == "train"]
    return re.split(r"[:;.]", ast.get_docstring(train) or "")[0].removeprefix("The ")
