"""Laws for the size of a step on the table of trainings: what each costs on families that it was not fitted on.

python -m experiments.laws        measures them anew, in minutes, and writes results/table/laws.json

The record also has laws that know what the first tenth of a training shows. The program that watched it is gone (commit 239a254 has
it), so measuring anew leaves them out.
"""

import json
from typing import Any

import numpy as np

from experiments import markdown, results, shipped_law
from lab.studies.rows import r_tables
from mlrsnet_lab.table.columns import READING
from mlrsnet_lab.table.compare import LAWS
from mlrsnet_lab.table.file import TrainingTable
from mlrsnet_lab.table.law import cross_validated, features, fit, gaps, network_cross_validated, responses

RECORD = results.RESULTS / "table" / "laws.json"
LONGER = results.RESULTS / "table" / "horizons.npz"
SMALL = results.RESULTS / "table" / "rows.npz"
USUAL = "absolute|0.1|0|0|1"
"""0.1 for SGD, carried over to 0.01 with momentum and 0.001 for Adam."""

CLEARLY = 0.05
"""The difference of log gaps from which one is better: about 5 % of the loss."""

READS, PLAIN, ABSOLUTE = ("weighted", *READING), ("weighted", 0.0, 0.0), ("absolute", 0.0, 0.0)
NAMES = {
    READS: "relative steps that read the loss",
    PLAIN: "relative steps, linear decay",
    ABSOLUTE: "absolute LR, linear decay",
}
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


def measure() -> list[dict[str, Any]]:
    """Mean, median and worst gap of every law; on the families left out, except for the shipped law."""
    rows = shipped_law.table()
    families = [kind["family"] for kind in rows.kinds]
    found = []
    for key, response in ((key, responses(rows)[key]) for key in NAMES):
        for knows in {READS: LAWS, PLAIN: LAWS, ABSOLUTE: LAWS[:2]}[key]:
            x = features(rows, knows)
            theta = fit(x, response).tolist()
            found.append(_line(NAMES[key], knows, cross_validated(x, response, families), theta))
    x = features(rows, LAWS[-1])
    reading = responses(rows)[READS]
    found.append(_line("a small network on what is known before", (), network_cross_validated(x, reading, families)))
    found.append(_line("the best size of each training (oracle)", (), reading.gaps.min(dim=1).values))
    x = features(rows, shipped_law.KNOWS)
    free = fit(x, reading)
    name = "the same law as the shipped one, fitted freely to all families"
    found.append(_line(name, shipped_law.KNOWS, reading.at(x @ free), free.tolist()))
    found.append(_line("the shipped law", shipped_law.KNOWS, shipped_law.gaps_of()))
    return [{"rows": len(rows), **one} for one in found]


def _line(name: str, knows: Any, gap: Any, theta: list[float] | None = None) -> dict[str, Any]:
    numbers = {"mean": float(gap.mean()), "median": float(gap.median()), "worst": float(gap.max())}
    return {"name": name, "knows": list(knows), **numbers, "theta": theta}


def table() -> list[str]:
    """The comparison, from its record."""
    found = json.loads(RECORD.read_text())
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
    for name, rows in (("fitted to", shipped_law.table()), ("longer", TrainingTable.load(LONGER))):
        steps = [kind["total_steps"] for kind in rows.kinds]
        cells = [f"{float(shipped_law.gaps_of(rows, times).mean()):.3f}" for times in (0.3, 1.0, 2.0)]
        oracle = float(responses(rows)[READS].gaps.min(dim=1).values.mean())
        lines.append([name, f"{min(steps):,} to {max(steps):,}", str(len(rows)), *cells, f"{oracle:.3f}"])
    heads = ["runs", "steps", "number", "0.3 times the law", "the law", "twice the law", "best size of each"]
    return markdown.table(heads, lines)


def small_tables() -> list[str]:
    """Small real tables, which the law was not fitted to: the default beside the usual LR and the best single one."""
    rows = TrainingTable.load(SMALL)
    found, law = gaps(rows), shipped_law.gaps_of(rows).numpy()
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
    rows = TrainingTable.load(results.RESULTS / "table" / "tuning.npz")
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


def main() -> None:
    """Measure and write."""
    RECORD.write_text(json.dumps(measure(), indent=1) + "\n")


if __name__ == "__main__":
    main()
