"""The paper, claim by claim: what it has, what two cores and what the H200 have, and what follows.

A claim is confirmed or refuted by paired seeds alone: an interval of 95 % from three or more of them that lies on one side.
Algorithm 1 has a row for each T_val, and a claim about it must hold, or fail, for all of them. Validation data choose the rival.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments import markdown, paired, results
from experiments.paired import Difference
from mlrsnet_lab.recipes import ablation, meta_tasks

HAND = ("Fixed", "MultiStep", "Exponential", "SGDR", "Adam")
RIVALS = (*HAND, "L4", "HD", "RTHO")
FROM_1 = ("MultiStep from 1", "Exponential from 1", "SGDR from 1")
"""At an LR that suits the short trainings of scale cpu."""

VAL = ("SGD, val strategy", "Adam, val strategy")
TEXT_RIVALS = (*VAL, "L4", "HD", "RTHO")
ENDS = ("", ", T_val 100", ", T_val 30", ", T_val 10", ", T_val 6")
"""Of the names of Algorithm 1's rows."""

PRINTED = {"cpu": "100", "short": "scaled", "paper": "100"}
"""T_val of rows whose names do not say it."""

ON_H200 = ("paper", "short")
CONFIRMED, REFUTED, OPEN, NOT_HERE = "confirmed", "refuted", "open", "cannot be tested at this scale"
POINT, PERPLEXITY = 1.0, 0.02
"""How much worse still counts as comparable: points of accuracy; a share of the perplexity."""


@dataclass(frozen=True)
class Place:
    """Where a claim is looked for: a recipe's column, a row without its T_val, and the rows that it is compared with."""

    recipe: str
    column: str
    row: str
    rivals: Sequence[str]

    def found(self, scale: str) -> Iterator[tuple[str, Difference]]:
        """By T_val, how much better the row is than the best rival."""
        folder = results.place(self.recipe, scale)
        rows = results.rows(folder, self.column)
        for end in ENDS:
            mine = rows.get(f"{self.row}{end}")
            rivals = [f"{name}{end}" if f"{name}{end}" in rows else name for name in self.rivals]
            best = paired.by_validation(folder, self.column, [one for one in rivals if one != f"{self.row}{end}"])
            if mine is None or not best:
                continue
            told = paired.difference(results.ended(mine), results.ended(rows[best[0]]), best[0])
            if told is not None:
                yield end.removeprefix(", T_val ") or PRINTED[scale], told


@dataclass(frozen=True)
class Spread:
    """Where rows, or columns, of one T_val should be alike: the worst of them is compared with the best."""

    recipe: str
    column: str
    rows: Sequence[str]

    def found(self, scale: str) -> Iterator[tuple[str, Difference]]:
        """By T_val, how much better the worst row is than the best: below 0."""
        folder = results.place(self.recipe, scale)
        for end in ENDS:
            for column, names in (
                (self.column, [f"{row}{end}" for row in self.rows]),
                (f"{self.column}{end}", self.rows),
            ):
                rows, order = results.rows(folder, column), paired.by_validation(folder, column, names)
                if len(order) < len(names):
                    continue
                worst, best = (results.ended(rows[name]) for name in (order[-1], order[0]))
                told = paired.difference(worst, best, order[0])
                if told is not None:
                    yield end.removeprefix(", T_val ") or PRINTED[scale], told
                break


@dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    where: its table or figure. says: in a few words. paper: its numbers. margin: how much worse still counts; None if the row has
    to be worse. missing: why it cannot be tested.
    """

    where: str
    says: str
    paper: str
    place: Place | Spread | None = None
    margin: float | None = 0.0
    missing: str = ""

    def verdict(self) -> str:
        """By the records of scale cpu."""
        if self.place is None:
            return NOT_HERE
        every = [one for _, one in self.place.found("cpu")]
        if not every:
            return OPEN
        if self.margin is None:
            holds, fails = [one.is_below() for one in every], [one.is_above() for one in every]
        else:
            allowed = [self.margin * one.rival if self.margin == PERPLEXITY else self.margin for one in every]
            holds = [one.is_above(much) for one, much in zip(every, allowed, strict=True)]
            fails = [one.is_below(much) for one, much in zip(every, allowed, strict=True)]
        return CONFIRMED if all(holds) else REFUTED if all(fails) else OPEN


CURVES = "curves only"
TRANSFERRED = "MLR-SNet, transferred"


def _transfer(where: str, recipe: str, column: str, rivals: Sequence[str] = HAND, margin: float = POINT) -> Claim:
    says = f"{column}: what was learned on CIFAR-10 is comparable with the best hand-designed schedule"
    return Claim(where, says, CURVES, Place(recipe, column, TRANSFERRED, rivals), margin)


def _alike(where: str, says: str, recipe: str, column: str, rows: Sequence[str]) -> Claim:
    return Claim(where, says, CURVES, Spread(recipe, column, rows), POINT)


META_LRS = tuple(f"Adam at {lr:g}" for lr in ablation.META_LRS)
DATA, NETWORKS = (
    tuple(f"learned on {name}" for name in meta_tasks.FACTORS[factor]) for factor in ("Similarity", "Architecture")
)


def _average(where: str, group: str, recipe: str, row: str, paper: str) -> Claim:
    return Claim(where, f"{group}: the highest", paper, Place(recipe, group, row, HAND))


CLAIMS = (
    Claim(
        "Table 1",
        "CIFAR-10: MLR-SNet has the highest accuracy of all rows",
        "94.80 to 93.92",
        Place("table1", "CIFAR-10", "MLR-SNet", (*RIVALS, *FROM_1)),
    ),
    Claim(
        "Table 1", "CIFAR-100: the same", "80.44 to 77.04", Place("table1", "CIFAR-100", "MLR-SNet", (*RIVALS, *FROM_1))
    ),
    Claim(
        "Table 2",
        "CIFAR-10: over plain SGD it is within 0.5 points of the best with momentum",
        "94.80 to 95.08",
        Place("table2", "CIFAR-10", "MLR-SNet", RIVALS),
        0.5,
    ),
    Claim("Table 2", "CIFAR-100: the same", "80.44 to 80.93", Place("table2", "CIFAR-100", "MLR-SNet", RIVALS), 0.5),
    Claim(
        "Table 3",
        "Text, 2 layers: the lowest perplexity",
        "70.53 to 71.17",
        Place("table3", "2-layer LSTM", "MLR-SNet", TEXT_RIVALS),
    ),
    Claim(
        "Table 3",
        "Text, 3 layers: the same",
        "72.28 to 74.80",
        Place("table3", "3-layer LSTM", "MLR-SNet", TEXT_RIVALS),
    ),
    _alike(
        "Fig. 5a", "The size of its network hardly matters", "ablation", "Architecture", tuple(ablation.ARCHITECTURES)
    ),
    _alike("Fig. 5b", "The LR that learns it hardly matters", "ablation", "LR of the meta-optimizer", META_LRS),
    _alike("Fig. 6b", "Three or more networks do alike", "phases", "CIFAR-100", ("k = 3", "k = 4", "k = 6")),
    Claim(
        "Fig. 6b",
        "One network alone is worse than three",
        CURVES,
        Place("phases", "CIFAR-100", "k = 1", ("k = 3",)),
        None,
    ),
    _transfer("Fig. 7", "epochs", "100 epochs"),
    _transfer("Fig. 7", "epochs", "400 epochs"),
    _transfer("Fig. 7", "epochs", "1200 epochs"),
    _transfer("Fig. 8", "transfer", "SVHN"),
    _transfer("Fig. 8", "transfer", "TinyImageNet"),
    _transfer("Fig. 8", "transfer", "Penn Treebank, 3-layer LSTM", VAL, PERPLEXITY),
    _transfer("Fig. 9", "networks", "ShuffleNetV2"),
    _transfer("Fig. 9", "networks", "MobileNetV2"),
    _transfer("Fig. 9", "networks", "NASNet"),
    _alike("Fig. 10a", "The data that it is learned on hardly matters", "meta-tasks", "Similarity", DATA),
    _alike("Fig. 10c", "The network that it is learned with hardly matters", "meta-tasks", "Architecture", NETWORKS),
    Claim(
        "Fig. 10b",
        "Learned on a tenth of CIFAR-100 is worse than on all of it",
        CURVES,
        Place("meta-tasks", "Scale", "learned on 1/10 CIFAR-100", ("learned on CIFAR-100",)),
        None,
    ),
    Claim("Fig. 11a", "ImageNet: a transferred schedule is competitive", CURVES, missing="ImageNet is not at hand"),
    _average("Table 5", "CIFAR-10-C, mean over corruptions", "table5", "MLR-SNet", "85.87 to 85.36"),
    _average("Table 5", "CIFAR-100-C, mean over corruptions", "table5", "MLR-SNet", "52.42 to 52.16"),
    _average("Table 6", "CIFAR-10-C, mean over corruptions", "table6", TRANSFERRED, "85.62 to 85.48"),
    _average("Table 6", "CIFAR-100-C, mean over corruptions", "table6", TRANSFERRED, "52.35 to 52.28"),
    Claim(
        "Fig. 12",
        "Pictures: an LSTM ends above an MLP",
        CURVES,
        Place("lstm-or-mlp", "Meta-training: CIFAR-10", "LSTM", ("MLP",)),
    ),
    Claim(
        "Fig. 12",
        "Text: an LSTM ends below an MLP",
        CURVES,
        Place("lstm-or-mlp", "Meta-training: Penn Treebank", "LSTM", ("MLP",)),
    ),
    Claim(
        "Fig. 13",
        "Over Adam, 2 layers: better than the val strategy",
        CURVES,
        Place("adam", "2-layer LSTM", "MLR-SNet, meta-trained", VAL[1:]),
    ),
    Claim(
        "Fig. 13",
        "Over Adam, transferred to 3 layers: comparable with it",
        CURVES,
        Place("adam", "3-layer LSTM", TRANSFERRED, VAL[1:]),
        PERPLEXITY,
    ),
)


def table() -> list[str]:
    """One line a claim."""
    heads = ["", "claim", "verdict", "paper", "two cores, by T_val", "H200, by T_val"]
    return markdown.table(heads, ([*_line(claim)] for claim in CLAIMS))


def _line(claim: Claim) -> Iterator[str]:
    verdict = claim.verdict()
    yield from (claim.where, claim.says, f"**{verdict}**" if verdict in (CONFIRMED, REFUTED) else verdict, claim.paper)
    if claim.place is None:
        yield from (claim.missing, results.NOT_RUN)
    else:
        yield _cell([("cpu", claim.place)]) or results.NOT_RUN
        yield _cell([(scale, claim.place) for scale in ON_H200]) or results.NOT_RUN


def _cell(places: Sequence[tuple[str, Place | Spread]]) -> str:
    return "<br>".join(_words(every, one) for scale, place in places for every, one in place.found(scale))


def _words(every: str, found: Difference) -> str:
    """Such as 100: 64.3, Adam 61.8; +2.6 [-1.0, +6.2]."""
    if math.isnan(found.mine):
        return f"{every}: diverged, {found.name} {found.rival:.1f}"
    ends = f" [{found.low:+.1f}, {found.high:+.1f}]" if found.low is not None else f", {_seeds(found.pairs)}"
    return f"{every}: {found.mine:.1f}, {found.name} {found.rival:.1f}; {found.mean:+.1f}{ends}"


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"
