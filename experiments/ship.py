"""Schedules that runs of Algorithm 1 left, shipped with the package.

Of several runs the one with the best validation result is shipped; test results are reported, and choose nothing. The weights are
the run's own, and the card says what the records hold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments import markdown, results
from experiments.pace_of_algorithm_1 import MetaTraining, meta_training
from experiments.results import last_mean
from mlrsnet import Schedule
from mlrsnet.card import Card
from mlrsnet.files import names
from mlrsnet_lab import records
from mlrsnet_lab.recipes import table1 as table1_recipe
from mlrsnet_lab.records import Record
from mlrsnet_lab.report.numbers import metric_text
from mlrsnet_lab.report.tables import Row, Table
from mlrsnet_lab.sheets import slug

OWN, OTHERS, RIVALS = (
    "its own meta-training",
    "other candidates, validation",
    "other rows of its table, test, mean of seeds",
)
TRANSFERRED, FAILS = "transferred to ", "where it fails"
DIVERGED = "diverged"


@dataclass(frozen=True)
class Source:
    """The runs that a shipped schedule is chosen from: rows of one column of a recipe, seed 0.

    The authors' program is not among them: it trains on the pictures that it validates on.
    """

    folder: str
    column: str
    rows: tuple[str, ...]

    def runs(self) -> list[Record]:
        """Those that were trained to the end and left a schedule."""
        places = [results.RESULTS / self.folder / slug(self.column) / slug(row) / "seed0" for row in self.rows]
        found = [records.read(place) for place in places if (place / records.SCHEDULE).is_file()]
        return [run for run in found if run.status == records.FINISHED and run.result.get("val_metric") is not None]


SOURCES = {
    "cifar10-resnet18": Source("table1_paper", "CIFAR-10", ("MLR-SNet", table1_recipe.RARER)),
    "ptb-lstm": Source("table3_paper", "2-layer LSTM", ("MLR-SNet",)),
}


@dataclass(frozen=True)
class Comparison:
    """Test results of the last epoch: one schedule's, and those of others beside it; None if a training diverged.

    place: the row's folder in results/.
    """

    where: str
    place: str
    metric: str
    higher_is_better: bool
    value: float | None
    rivals: dict[str, float | None]

    def cost(self, value: float | None) -> float:
        """Lower is better."""
        if value is None:
            return math.inf
        return -value if self.higher_is_better else value

    @property
    def ranked(self) -> list[str]:
        """The others, best first."""
        return sorted(self.rivals, key=lambda name: (self.cost(self.rivals[name]), name))

    @property
    def better(self) -> list[str]:
        """The others that are better, best first."""
        return [name for name in self.ranked if self.cost(self.rivals[name]) < self.cost(self.value)]


def choose(candidates: Sequence[Record]) -> Record:
    """The run whose validation result after the last epoch is best; of equal ones that with the lower validation loss."""

    def rank(run: Record) -> tuple[float, float]:
        value = run.result["val_metric"]
        return (-value if _higher(run) else value, run.result["val_loss"])

    return min(candidates, key=rank)


def own_table(source: Source, chosen: Record) -> Comparison:
    """The run beside every other row of its column."""
    rows = results.rows(source.folder, source.column)
    rivals = {name: last_mean(row) for name, row in rows.items() if name != _row(chosen)}
    return _comparison(chosen, "", "", chosen.result["last"], rivals)


def transfers(name: str) -> list[Comparison]:
    """Every row that was trained with the shipped schedule, beside the hand-designed rows of its column."""
    tables = [table for section in results.report("").sections for table in section.tables if not table.averaged]
    found = [_transfer(table, row) for table in tables for row in table.rows if _uses(row, name)]
    return sorted(found, key=lambda one: one.place)


def _transfer(table: Table, row: Row) -> Comparison:
    run, place = results.ended(row)[0], row.runs[0].folder.rpartition("/")[0]
    where = f"{run.spec['task']} with {_model(run.spec)}, {run.spec['epochs']} epochs"
    rivals = {one.name: last_mean(one) for one in table.rows if results.ended(one) and results.hand_designed(one)}
    return _comparison(run, where, place, last_mean(row), rivals)


def where_it_fails(own: Comparison, moved: Sequence[Comparison]) -> str:
    """In words, made from the numbers."""
    beside = [one for one in moved if one.value is not None and one.rivals]
    sentences = {
        "Transferred, it diverged on {}.": [one for one in moved if one.value is None],
        "Transferred, it is worse than every hand-designed row on {}.": [
            one for one in beside if len(one.better) == len(one.rivals)
        ],
        "Transferred, it is worse than the best hand-designed row, but not than all, on {}.": [
            one for one in beside if 0 < len(one.better) < len(one.rivals)
        ],
        "Transferred, no hand-designed row is better on {}.": [one for one in beside if not one.better],
        "No hand-designed row stands beside it on {}.": [one for one in moved if not one.rivals],
    }
    said = [text.format("; ".join(one.where for one in found)) for text, found in sentences.items() if found]
    return " ".join([_about_its_table(own), *(said or ["What it reaches when transferred is not recorded."])])


def _about_its_table(own: Comparison) -> str:
    better, others = own.better, len(own.rivals)
    if not others:
        return "No other row of its table has been trained."
    if not better:
        return f"None of the other rows of its table ({others}) is better."
    if len(better) == others:
        near = better[-1]
        return f"It is behind every other row of its table: {_told(own.value)}; the next is {near}, {_told(own.rivals[near])}."
    named = ", ".join(f"{name} {_told(own.rivals[name])}" for name in better)
    return f"Rows of its table that are better ({len(better)} of {others} trained to the end): {named}."


def card_of(
    name: str, left: Card, chosen: Record, candidates: Sequence[Record], own: Comparison, moved: Sequence[Comparison]
) -> Card:
    """The card that the run left, with a name, how the run was chosen and what it reached."""
    rows, metric = [_row(run) for run in candidates], own.metric
    others = {_row(run): run.result["val_metric"] for run in candidates if run is not chosen}
    chance = f"chosen by validation {metric} among {' / '.join(rows)}" if others else "no other candidate"
    run, spec = meta_training(chosen), chosen.spec
    description = (
        f"Algorithm 1 of the paper: T_val = {spec['schedule_options']['every']}, {run.updates} meta-updates in "
        f"{spec['epochs']} epochs of {spec['task']} with {_model(spec)}, seed {spec['seed']}; {chance}."
    )
    results: dict[str, Any] = {OWN: _own(chosen, run, metric), RIVALS: _plain(own.rivals), OTHERS: others}
    for one in moved:
        results[f"{TRANSFERRED}{one.where} ({one.place})"] = _beside(one)
    results[FAILS] = where_it_fails(own, moved)
    return replace(
        left, name=name, description=description, results={key: found for key, found in results.items() if found}
    )


def _own(chosen: Record, run: MetaTraining, metric: str) -> dict[str, Any]:
    assert chosen.folder is not None
    result, folder = chosen.result, chosen.folder.parent
    seeds = [one for one in records.runs(folder) if one.ended]
    return {
        "record": "/".join(("results", *chosen.folder.parts[-4:])),
        "metric": metric,
        "validation, last epoch": result["val_metric"],
        "test, last epoch": result["last"],
        "test, best epoch": result["best"],
        "best epoch": result["best_epoch"],
        **_plain({"LR at the beginning": run.first_lr, "LR at the end": run.last_lr}),
        **_plain({f"test, last epoch, mean of {len(seeds)} seeds": _mean(seeds)} if len(seeds) > 1 else {}),
    }


def _beside(one: Comparison) -> dict[str, Any]:
    """A transfer for the card: between the best and the worst hand-designed row."""
    ends = {"best": one.ranked[0], "worst": one.ranked[-1]} if one.rivals else {}
    told = {f"{which} hand-designed, {name}": one.rivals[name] for which, name in ends.items()}
    return {"metric": one.metric, **_plain({"test, last epoch": one.value, **told})}


def _mean(runs: Sequence[Record]) -> float | None:
    """None if a run diverged."""
    if any(run.status != records.FINISHED for run in runs):
        return None
    return sum(results.last(runs)) / len(runs)


def made() -> dict[str, Schedule]:
    """Every shipped schedule whose run is there, by name."""
    found = {}
    for name, source in SOURCES.items():
        if candidates := source.runs():
            chosen = choose(candidates)
            assert chosen.folder is not None
            left = Schedule.load(chosen.folder / records.SCHEDULE)
            card = card_of(name, left.card, chosen, candidates, own_table(source, chosen), transfers(name))
            found[name] = Schedule(left.phases, card)
    return found


def table() -> list[str]:
    """How each was made, what it reached and where it fails."""
    lines = []
    for name, schedule in made().items():
        card = schedule.card
        own = card.results[OWN]
        reached = [f"{key}: {_told(own[key])}" for key in own if key.startswith(("validation", "test"))]
        reached.append(f"LR: from {own['LR at the beginning']:.2g} to {own['LR at the end']:.2g}")
        how = f"{card.description} [Record]({_link(own['record'])})"
        lines.append([f"`{name}`", how, f"{own['metric']}; {'; '.join(reached)}", card.results[FAILS]])
    heads = ["schedule", "how it was made", "what it reached", "where it fails"]
    return markdown.table(heads, lines) if lines else ["None of them has been made yet."]


def _link(record: str) -> str:
    """The file that holds the run of a folder such as results/table1_paper/cifar-10/mlr-snet/seed0."""
    folder = results.RESULTS / Path(record).relative_to("results")
    return f"../results/{records.file_of(folder).relative_to(results.RESULTS).as_posix()}"


def write() -> list[Path]:
    """Write the files that come with the package; returns those that changed."""
    changed = []
    for name, schedule in made().items():
        path = names.SHIPPED / f"{name}{names.SUFFIX}"
        before = path.read_bytes() if path.is_file() else None
        schedule.save(path)
        changed += [path] if path.read_bytes() != before else []
    return changed


def _comparison(
    run: Record, where: str, place: str, value: float | None, rivals: dict[str, float | None]
) -> Comparison:
    return Comparison(where, place, run.data["metric"]["name"], _higher(run), value, rivals)


def _higher(run: Record) -> bool:
    return bool(run.data["metric"]["better"] == "higher")


def _row(run: Record) -> str:
    return str(run.data["labels"]["row"])


def _uses(row: Row, name: str) -> bool:
    spec = results.ended(row)[0].spec if results.ended(row) else {}
    return spec.get("schedule") == "learned" and spec["schedule_options"] == {"schedule": name}


def _model(spec: dict[str, Any]) -> str:
    layers = spec.get("model_options", {}).get("layers")
    return f"{layers}-layer {spec['model']}" if layers else str(spec["model"])


def _plain(numbers: dict[str, float | None]) -> dict[str, float | str]:
    """For a card: six digits, as in records."""
    return {name: DIVERGED if value is None else float(f"{value:.6g}") for name, value in numbers.items()}


def _told(value: float | str | None) -> str:
    return value if isinstance(value, str) else metric_text(value)
