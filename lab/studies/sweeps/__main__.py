"""Read the tables of a folder, fit, and write results/sweeps/fits.json."""

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from lab.studies.sweeps import (
    adamh,
    clip,
    deberta,
    failures,
    fits,
    joint,
    lora,
    marin,
    opda,
    resnet,
    schaipp,
    steplaw,
    steps,
)
from lab.studies.sweeps.cells import Cell
from lab.studies.sweeps.records import write

ALL_FACTS = tuple(some for number in (1, 2, 3) for some in combinations(fits.FACTS, number))
STARTS = (0.01, 0.02, 0.04)
"""Root mean squares that followed weights may begin with."""

WITHOUT_SIZE = (("steps",), ("batch",), ("steps", "batch"))


def source(cells: Sequence[Cell], facts: Iterable[tuple[str, ...]] = (), **more: Any) -> dict[str, Any]:
    """A source's cells, the powers that it wants, and what each rule costs there."""
    forms = list(facts)
    fixed = (fits.LAW, fits.BEFORE, fits.SMALL_SIZE, fits.USUAL)
    known = [rule for rule in fixed if all(math.isfinite(rule.at(cell)) for cell in cells)]
    rules: list[fits.Rule] = [*known]
    if len(fits.families(cells)) > 1:
        rules += [fits.ONE_SIZE, *([fits.LAW_TIMES] if fits.LAW in known else [])]
        rules += [fits.Power(" ".join(some), some) for some in forms]
    return {
        "cells": [told(cell) for cell in cells],
        "powers": {" ".join(some): fits.exponents(cells, some) for some in forms},
        "rules": [fits.judged(rule, cells) for rule in rules],
        **more,
    }


def told(cell: Cell) -> dict[str, Any]:
    """What a record keeps of a cell. ends: the smallest and largest r that were tried."""
    facts = {fact: getattr(cell, fact) for fact in ("name", "group", "steps", "size", "batch", "best", "law", "before")}
    return {**facts, "ends": [cell.curve[0][0], cell.curve[-1][0]]}


def with_curves(cells: Sequence[Cell]) -> dict[str, Any]:
    """A small source, with every training."""
    found = source(cells)
    curves = [{**one, "curve": list(cell.curve)} for one, cell in zip(found["cells"], cells, strict=True)]
    return {**found, "cells": curves}


def step_law(folder: Path) -> dict[str, Any]:
    """Dense networks and mixtures, by the equilibrium and by the length followed."""
    dense, mixtures = steplaw.dense(folder), steplaw.mixtures(folder)
    followed = steplaw.dense(folder, steplaw.followed)
    kinds = {
        "dense": source(dense, ALL_FACTS, simplest=fits.simplest(dense)),
        "dense, followed": source(followed, ALL_FACTS, simplest=fits.simplest(followed)),
        "experts": source(mixtures, WITHOUT_SIZE),
        "experts, followed": source(steplaw.mixtures(folder, steplaw.followed), WITHOUT_SIZE),
    }
    both = {column: [*dense, *steplaw.mixtures(folder, size=column)] for column in ("params", "params_active")}
    shared = {column: together(cells) for column, cells in both.items()}
    starts = {str(start): _from(steplaw.dense(folder, partial(steplaw.followed, start=start))) for start in STARTS}
    return {**kinds, "one constant": shared, "starts": starts}


def _from(cells: Sequence[Cell]) -> dict[str, Any]:
    return {**fits.exponents(cells, fits.FACTS), "law": fits.judged(fits.LAW, cells)}


def together(cells: Sequence[Cell]) -> dict[str, Any]:
    """The powers of all three facts with one constant for dense networks and mixtures."""
    return fits.exponents([fits.regrouped(cell, "all") for cell in cells], fits.FACTS)


def eleven(folder: Path) -> dict[str, Any]:
    """Marin's eleven optimizers."""
    cells = marin.optimizers(folder)
    pairs = (("steps",), ("size",), ("steps", "size"), fits.FACTS)
    followed = marin.like_adam(marin.optimizers(folder, marin.followed))
    return {
        "all": source(cells, pairs),
        "Adam's kind": source(marin.like_adam(cells), (("steps", "size"),)),
        "Adam's kind, followed": source(followed, (("steps", "size"),)),
        "decays": source(marin.decays(folder)),
        "tuned": marin.tuned(folder),
    }


def tuning(folder: Path) -> dict[str, Any]:
    """The fine-tunings of DeBERTa."""
    runs = deberta.trainings(folder)
    found = {}
    for model in deberta.WEIGHTS:
        some, others = ([run for run in runs if (run.model == model) is this] for this in (True, False))
        found[model] = {
            "by LR": failures.by_lr(some),
            "rules": failures.judged(some, others),
            "bounds": failures.bounds(some),
            "what matters": failures.what_matters(some),
        }
    cells = deberta.cells(folder)
    distances = [steps.distance(cell.best, cell.steps) for cell in cells]
    return {"models": found, "cells": source(cells, WITHOUT_SIZE), "best distances": distances}


def adapters(folder: Path) -> dict[str, Any]:
    """LoRA on Gemma, and the best LRs of other models."""
    return {"Gemma": source(lora.gemma(folder), ALL_FACTS), "others": lora.others(folder)}


def together_by_mapping(folder: Path) -> dict[str, Any]:
    """Four sources under one form, with decayed weights at equilibrium, and followed."""
    found = {}
    for name, law, marins in (
        ("equilibrium", steplaw.equilibrium, marin.equilibrium),
        ("followed", steplaw.followed, marin.followed),
    ):
        sources = {
            "Step Law": [*steplaw.dense(folder, law), *steplaw.mixtures(folder, law)],
            "Marin": marin.like_adam(marin.optimizers(folder, marins)),
            "AdamH": adamh.experts(folder),
            "Adapters": lora.gemma(folder),
        }
        powers = {" ".join(some): joint.powers(sources, some) for some in ALL_FACTS}
        found[name] = {**joint.forms(sources), "powers": powers, "constants": joint.constants(sources)}
    return found


def schedules(folder: Path) -> dict[str, Any]:
    """The sealed judge of language models."""
    kinds = {
        "followed": schaipp.cells(folder),
        "followed, joined": schaipp.cells(folder, joined=True),
        "equilibrium": schaipp.cells(folder, schaipp.equilibrium),
        "no fall": schaipp.cells(folder, falls=False),
    }
    return {name: with_curves(cells) for name, cells in kinds.items()}


RECORDS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "steplaw": step_law,
    "marin": eleven,
    "adamh": lambda folder: source(adamh.experts(folder), (("steps",),), dense=adamh.dense_reference()),
    "deberta": tuning,
    "resnet": lambda folder: {**with_curves(resnet.cells(folder)), "best lrs": resnet.best_lrs(folder)},
    "clip": lambda folder: {**with_curves(clip.cells(folder)), "kept": clip.kept(folder)},
    "lora": adapters,
    "joint": together_by_mapping,
    "schaipp": schedules,
    "opda": opda.found,
}


def main() -> None:
    """Write the records of all sources, or of some."""
    parser = argparse.ArgumentParser(prog="python -m lab.studies.sweeps", description=__doc__)
    parser.add_argument("folder", type=Path, help="with the tables, *.csv.gz")
    parser.add_argument("--only", nargs="+", choices=RECORDS, default=list(RECORDS), help="records to write")
    chosen = parser.parse_args()
    for name in chosen.only:
        print(write(name, RECORDS[name](chosen.folder)))


if __name__ == "__main__":
    main()
