"""Laws for the size of a step on the table of trainings: what each costs on families that it was not fitted on.

The shipped law, r = 0.13 (T / 500)^-0.1 (n / 10,000)^-0.19 max(1, L / 4)^-1.2, was chosen by hand from a coarse grid of laws,
by their mean gap on results/table (short.npz and long.npz), among those that give 0.025 to 0.045 on five networks 100 to 1,000
times larger than any in the table: ResNet-18 at 10 and 30 epochs, MobileNetV2, an LSTM and a transformer on Penn Treebank.
There, sizes near 0.03 had been level with or better than decays of two or three LRs, in runs that left no records. Powers of
the loss were chosen on another table (powers.npz, at commit 96fdb0853c23). The share for trained networks is a judgement;
results/table/tuning.npz speaks against it. laws.json was written at that commit, too; `mlrsnet table fit` compares laws on any
table.
"""

import math

import numpy as np
from torch import Tensor

from experiments import markdown, results
from lab.studies.rows import r_tables
from mlrsnet.default import Default
from mlrsnet_lab.table.columns import READING
from mlrsnet_lab.table.file import TrainingTable, merged
from mlrsnet_lab.table.law import features, gaps, responses

USUAL = "absolute|0.1|0|0|1"
"""0.1 for SGD, carried over to 0.01 with momentum and 0.001 for Adam."""

CLEARLY = 0.05
"""The difference of log gaps from which one is better: about 5 % of the loss."""

READS, KNOWS = ("weighted", *READING), ("horizon", "parameters", "depth")
"""How the default's LR falls, and what its law knows beside a constant."""

WORDS = {
    "horizon": "steps",
    "parameters": "size",
    "depth": "depth without normalisation",
    "trained": "trained",
    "epochs": "epochs",
    "cosine": "cosine of early steps",
    "growth": "early growth of the weights",
    "step": "length of early steps",
    "level": "early level of the loss",
    "trend": "early trend of the loss",
}


def fitted_to() -> TrainingTable:
    """The table that the law was fitted to."""
    return merged([_kept("short"), _kept("long")])


def _kept(name: str) -> TrainingTable:
    return TrainingTable.load(results.RESULTS / "table" / f"{name}.npz")


def gaps_of(rows: TrainingTable, times: float = 1.0) -> Tensor:
    """(rows,) of the default's law with its sizes multiplied."""
    law, x = Default(), features(rows, KNOWS)
    theta = x.new_tensor([math.log(times * law.size), law.horizon_power, law.size_power, law.depth_power])
    return responses(rows)[("weighted", law.fall, law.rise)].at(x @ theta)


def table() -> list[str]:
    """The comparison, from its record."""
    found = results.data("table/laws.json")["laws"]
    lines = [
        [
            one["name"],
            ", ".join(WORDS[name] for name in one["knows"]) or ("one number" if one["theta"] else ""),
            *(f"{one[key]:.3f}" for key in ("mean", "median", "worst")),
        ]
        for one in found
    ]
    heads = ["", "the law knows", "mean gap", "median", "worst"]
    return [
        *markdown.table(heads, lines),
        "",
        f"{found[0]['rows']} trainings; gap = log((f + 0.05) / (best + 0.05)), best: of eight absolute decays on it.",
    ]


def longer() -> list[str]:
    """The shipped law on runs longer than any that it was fitted to."""
    lines = []
    for name, rows in (("fitted to", fitted_to()), ("longer", _kept("horizons"))):
        steps = [kind["total_steps"] for kind in rows.kinds]
        cells = [f"{float(gaps_of(rows, times).mean()):.3f}" for times in (0.3, 1.0, 2.0)]
        oracle = float(responses(rows)[READS].gaps.min(dim=1).values.mean())
        lines.append([name, f"{min(steps):,} to {max(steps):,}", str(len(rows)), *cells, f"{oracle:.3f}"])
    heads = ["runs", "steps", "number", "0.3 times the law", "the law", "twice the law", "best size of each"]
    return markdown.table(heads, lines)


def small_tables() -> list[str]:
    """Small real tables, which the law was not fitted to: the default beside the usual LR and the best single one."""
    rows = _kept("rows")
    found, law = gaps(rows), gaps_of(rows).numpy()
    usual = found[:, rows.columns.index(USUAL)]
    absolute = found[:, [place for place, name in enumerate(rows.columns) if name.startswith("absolute")]]
    numbers = np.array([r_tables.TABLES[kind["source"]] in r_tables.NUMBERS for kind in rows.kinds])
    best = responses(rows)[READS].gaps.min(dim=1).values.numpy()
    lines = []
    for name, own in (("numbers", numbers), ("classes", ~numbers)):
        single = absolute[own].mean(0).min()
        means = [f"{values[own].mean():.3f}" for values in (law, usual, best)]
        worse, better = (f"{np.mean(sign * (law - usual)[own] > CLEARLY):.0%}" for sign in (1, -1))
        lines.append([name, str(own.sum()), means[0], means[1], f"{single:.3f}", means[2], better, worse])
    heads = ["to predict", "runs", "default", "usual LR", "best LR for all", "best size of each"]
    return markdown.table([*heads, "default clearly better than the usual LR", "clearly worse"], lines)


def tuning() -> list[str]:
    """Fine-tuning: the median over trainings of the log gap to the best decay, with and without waiting."""
    rows = _kept("tuning")
    found = gaps(rows)
    lines = []
    for wait in (1.0, 0.1, 0.03):
        cells = []
        for shift in ("same", "inverted", "classes"):
            own = [place for place, kind in enumerate(rows.kinds) if kind["start"]["shift"] == shift]
            column = rows.columns.index(f"each|0.16|0.25|3|{wait:g}")
            cells.append(f"{np.mean(found[own, column]):.3f} ({len(own)})")
        lines.append(["all" if wait == 1 else f"{wait:g}", *cells])
    return markdown.table(["share of the LR at the start", "same data", "inverted pictures", "other classes"], lines)
