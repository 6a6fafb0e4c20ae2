"""How much of every recipe has been run."""

from pathlib import Path

from experiments import markdown, results
from mlrsnet_lab import records
from mlrsnet_lab.jobs import Job, trials
from mlrsnet_lab.recipes import RECIPES, Cell

SCALES = ("cpu", "short", "paper")


def recipes() -> list[str]:
    """A row for every recipe."""
    lines = [
        [f"`{name}`", recipe.title, *(state(name, scale) for scale in SCALES)]
        for name, recipe in RECIPES.items()
        if recipe.measure is None and "short" not in recipe.for_cpu  # else it has a table of its own
    ]
    lines += [
        [f"`{name}`", recipe.title, *["computed, not trained"] * (len(SCALES) - 1), f"[all](../results/{name})"]
        for name, recipe in RECIPES.items()
        if recipe.measure is not None
    ]
    return markdown.table(["recipe", "", *(f"trained at `{scale}`" for scale in SCALES)], lines)


def state(name: str, scale: str) -> str:
    """How many of the trainings there are, trials of settings included."""
    recipe, folder = RECIPES[name], results.RESULTS / results.place(name, scale)
    if scale not in recipe.scales:
        return ""
    planned = [folder / place for cell in recipe.cells(scale) for place in _places(cell, recipe.seeds)]
    ended = {run.folder for run in records.runs(folder) if run.ended} if folder.is_dir() else set()
    done = sum(place in ended for place in planned)
    return f"[{done:,} of {len(planned)}](../results/{folder.name})" if done else results.NOT_RUN


def _places(cell: Cell, seeds: tuple[int, ...]) -> list[Path]:
    """Also of a cell whose schedule is not here."""
    tried = trials(Job(cell, seeds[0]), seeds[0])
    return [*(cell.folder(seed) for seed in seeds[: cell.seeds]), *(one.cell.folder(one.seed) for one in tried)]
