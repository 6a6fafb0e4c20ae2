"""Networks that others trained, fine-tuned; and which networks look trained: from the records of `lab/studies/trained`."""

from collections import Counter
from statistics import mean
from typing import Any

from experiments import markdown
from lab.studies.trained.records import read
from lab.studies.trained.tune import NETWORKS, ROWS


def tuning() -> list[str]:
    """What each row ends at, the mean over seeds."""
    heads = ["", *(f"{name}: {what}" for name in NETWORKS for what in ("highest LR", "new sounds", "old sounds"))]
    runs = {name: read(f"pitch_{name}")["sessions"] for name in NETWORKS}
    lines = [[row, *(cell for name in NETWORKS for cell in _row(runs[name], row))] for row in ROWS]
    return [*markdown.table(heads, lines), "", f"Seeds: {_seeds(runs)}. Chosen on validation data: {_chosen(runs)}."]


def _row(runs: list[dict[str, Any]], row: str) -> list[str]:
    some = [one for one in runs if one["row"] == row]
    if not some:
        return ["", "", ""]
    peak = mean(one["peak"] for one in some)
    return [
        f"{peak:.1e}" if peak else "",
        *(f"{100 * mean(one[kind] for one in some):.1f} %" for kind in ("new", "old")),
    ]


def _seeds(runs: dict[str, list[dict[str, Any]]]) -> str:
    """How many each network has; some rows may have fewer."""
    counted = {name: sorted(set(Counter(one["row"] for one in some).values())) for name, some in runs.items()}
    return ", ".join(f"{' or '.join(map(str, counts))} of {name}" for name, counts in counted.items())


def _chosen(runs: dict[str, list[dict[str, Any]]]) -> str:
    """The cosine of each network that is best there."""
    return ", ".join(f"{_best(some)} for {name}" for name, some in runs.items())


def _best(runs: list[dict[str, Any]]) -> str:
    cosines = {one["row"] for one in runs if one["row"].startswith("cosine")}
    return max(sorted(cosines), key=lambda row: mean(one["validation"] for one in runs if one["row"] == row))


def known() -> list[str]:
    """How often new and trained networks are told apart."""
    rows = read("known")["rows"]
    new, old = ([one for one in rows if one["was_trained"] is this] for this in (False, True))
    uneven = [[one["uneven"] for one in some if one["uneven"] is not None] for some in (new, old)]
    origins = Counter(one["origin"] for one in new)
    return [
        f"Of {len(new)} new networks ({', '.join(f'{count} of {origin}' for origin, count in origins.items())}) "
        f"{sum(one['is_trained'] for one in new)} are taken for trained, and of {len(old)} trained ones "
        f"{sum(one['is_trained'] for one in old)}. The median unevenness of their matrices is at most {max(uneven[0]):.2f} "
        f"in new ones, and at least {min(uneven[1]):.2f} in trained ones."
    ]
