"""How much of every recipe has been run."""

from pathlib import Path

from experiments import markdown, results
from mlrsnet_lab import records
from mlrsnet_lab.jobs import Job
from mlrsnet_lab.recipes import RECIPES, STUDIES, Cell


def recipes() -> list[str]:
    """A row for every recipe."""
    lines = [
        [f"`{name}`", recipe.title, state(name, "short"), state(name, "paper")]
        for name, recipe in RECIPES.items()
        if "short" not in recipe.for_cpu  # else it has a table of its own
    ]
    lines += [
        [f"`{name}`", one.title, "computed, not trained", f"[all](../results/{name})"] for name, one in STUDIES.items()
    ]
    return markdown.table(["recipe", "", "trained at `short`", "trained at `paper`"], lines)


def state(name: str, scale: str) -> str:
    """How many of the trainings there are, trials of settings included."""
    recipe, folder = RECIPES[name], results.RESULTS / results.place(name, scale)
    planned = [folder / place for cell in recipe.cells(scale) for place in _places(cell, recipe.seeds)]
    ended = {run.folder for run in records.runs(folder) if run.ended} if folder.is_dir() else set()
    done = sum(place in ended for place in planned)
    return f"[{done} of {len(planned)}](../results/{folder.name})" if done else results.NOT_RUN


def _places(cell: Cell, seeds: tuple[int, ...]) -> list[Path]:
    trials = Job(cell, 0, 0, 0).trials(seeds[0]) if cell.spec else []
    return [*(cell.folder(seed) for seed in seeds), *(one.cell.folder(one.seed) for one in trials)]
