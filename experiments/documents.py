"""Tables in documents that are made from records; a test asserts that they are up to date.

A document has a pair of comments, `<!-- made: NAME -->` and `<!-- end -->`; between them stands what `MAKERS[NAME]()` returns. The
tables of every run in results/ are a document of their own, results/report.md.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

from experiments import (
    algorithm_1,
    claims,
    costs,
    data_sources,
    demo,
    evidence,
    executors,
    full_horizon,
    judge,
    paper_tables,
    proof,
    resnet18_grid,
    results,
    rtho_falls_to_zero,
    safety,
    side_by_side,
    speed,
    studies,
    sweeps,
    theory,
    trained,
    transfers,
    two_cores,
    usual_lr,
    walks,
    width_of_minima,
)
from experiments.figures import paper
from mlrsnet_lab import records, report
from mlrsnet_lab.recipes import RECIPES

MAKERS: dict[str, Callable[[], list[str]]] = {
    "advice": sweeps.advice,
    "adam-on-text": studies.adam_on_text,
    "attribution-rows": algorithm_1.attribution,
    "damage": safety.damage,
    "data-sources": data_sources.table,
    "audit": safety.audit,
    "claims": claims.table,
    "demo": demo.comparison,
    "demo-small-trainings": demo.small_trainings,
    "departures": algorithm_1.departures,
    "evidence": evidence.summary,
    "evidence-short": evidence.short,
    "executors": executors.table,
    "faults": safety.faults,
    "fuzz": safety.fuzz,
    "initialisations": speed.initialisations,
    "large": speed.large,
    "law-larger": sweeps.larger,
    "learned-from": full_horizon.learned_from,
    "loop-cost": speed.loop_cost,
    "judge": judge.table,
    "lstm-or-mlp": partial(side_by_side.recipe, "lstm_or_mlp_short"),
    "meta-cost": speed.meta_cost,
    "momentum": paper_tables.momentum,
    "objectives": studies.objectives,
    "over-fitting": studies.over_fitting,
    "patches-reads": full_horizon.patches,
    "populations": speed.populations,
    "progress": full_horizon.progress,
    "proof": proof.table,
    "proof-edges": usual_lr.edges,
    "rays": width_of_minima.rays,
    "recipes": costs.recipes,
    "resnet18-grid": resnet18_grid.table,
    "rtho": rtho_falls_to_zero.pictures,
    "rtho-text": rtho_falls_to_zero.text,
    "sensitivity": algorithm_1.sensitivity,
    "shipped": algorithm_1.shipped,
    "smoke-time": speed.smoke_time,
    "step-cost": speed.step_cost,
    "sweeps-bounds": sweeps.bounds,
    "sweeps-constants": sweeps.constants,
    "sweeps-joined": sweeps.joined,
    "sweeps-opda": sweeps.opda,
    "sweeps-opda-best": sweeps.opda_best,
    "sweeps-others": sweeps.others,
    "sweeps-powers": sweeps.powers,
    "sweeps-reference": sweeps.reference,
    "sweeps-rules": sweeps.rules,
    "sweeps-starts": sweeps.starts,
    "sweeps-tuned": sweeps.tuned,
    "sweeps-kept": sweeps.kept,
    "sweeps-table-later": sweeps.table_later,
    "sweeps-table-powers": sweeps.table_powers,
    "sweeps-table-rules": sweeps.table_rules,
    "sweeps-table-scales": sweeps.table_scales,
    "sweeps-tuning": sweeps.tuning,
    "table1": paper_tables.table1,
    "table1-gaps": paper_tables.gaps,
    "table1-sgdr": paper_tables.against_sgdr,
    "table2": partial(side_by_side.recipe, "table2_short"),
    "table5": partial(side_by_side.recipe, "table5_short"),
    "text": partial(side_by_side.scales, "2-layer LSTM", "table3_paper", "table3_short"),
    "theory-rates": theory.exponents,
    "timing": speed.timing,
    "trained-known": trained.known,
    "trained-tuning": trained.tuning,
    "transfers": transfers.transfers,
    "universal-lstm": partial(proof.table, "universal_lstm_short"),
    "universal-lstm-reads": full_horizon.universal_lstm,
    "validation": studies.validation,
    "validated": proof.validated,
    "variants": studies.variants,
    "walks": walks.table,
    "walks-shorter": walks.shorter,
    "width": partial(side_by_side.recipe, "width_short"),
    **{f"cpu-{name}": partial(two_cores.table, name) for name in two_cores.RECIPES},
    **{name: partial(paper.shown, name) for name in paper.FIGURES},
}
BLOCK = re.compile(r"<!-- made: (\S+) -->\n.*?<!-- end -->", re.DOTALL)
WORDS = ("title", "claim", "notes", "paper_setting")
"""Of a recipe.json: explains the runs, and measures nothing."""


def documents() -> list[Path]:
    """README and the pages of docs/."""
    return [results.ROOT / "README.md", *sorted((results.ROOT / "docs").glob("*.md"))]


@cache
def made(name: str) -> tuple[str, ...]:
    """The lines of a block."""
    return tuple(MAKERS[name]())


def filled(path: Path) -> str:
    """The document with every table as the records have it now."""
    text = BLOCK.sub(
        lambda found: "\n".join([f"<!-- made: {found[1]} -->", *made(found[1]), "<!-- end -->"]), path.read_text()
    )
    return text.replace("](../results/", "](results/") if path.parent == results.ROOT else text


def described(path: Path) -> str:
    """A recipe.json with the recipe's words as they are now; everything else as it was when it was run."""
    plan = records.loads(path.read_text())
    now = RECIPES[plan["name"]].sheet(plan["scale"], plan["seeds"]).to_dict()
    return records.dumps(plan | {key: now[key] for key in WORDS}, indent=1)


def contents() -> Iterator[tuple[Path, str]]:
    """Every file that is made from records and recipes, with its content; recipes first, because tables show their words."""
    for path in sorted(results.RESULTS.glob(f"*/{records.RECIPE}")):
        yield path, described(path)
    for path in documents():
        yield path, filled(path)
    yield results.RESULTS / report.MARKDOWN, report.markdown(results.report(""))


def write() -> list[Path]:
    """Bring them up to date; returns those that changed."""
    changed = []
    for path, text in contents():
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
            changed.append(path)
            results.forget()
    return changed
