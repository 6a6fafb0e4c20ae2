"""How much of every recipe has been run, and what the rest would cost on one H200, by `epoch_times`."""

from collections.abc import Iterator
from dataclasses import replace

from experiments import epoch_times, markdown, results
from mlrsnet_lab import records
from mlrsnet_lab.jobs import trials
from mlrsnet_lab.recipes import RECIPES, Cell, Recipe


def state(name: str, scale: str) -> tuple[str, str]:
    """How many of the trainings there are, and how long the others would take."""
    recipe, folder = RECIPES[name], results.place(name, scale)
    planned = list(_planned(recipe, scale))
    place = results.RESULTS / folder
    ended = {run.folder for run in records.runs(place) if run.ended} if place.is_dir() else set()
    missing = [cell for cell, seed in planned if place / cell.folder(seed) not in ended]
    done = len(planned) - len(missing)
    return f"[{done} of {len(planned)}](../results/{folder})" if done else results.NOT_RUN, _time(missing)


def _planned(recipe: Recipe, scale: str) -> Iterator[tuple[Cell, int]]:
    """Every training of a recipe, trials of settings included."""
    for cell in _cells(recipe, scale):
        yield from ((cell, seed) for seed in recipe.seeds)
        yield from ((one.cell, one.seed) for one in trials(cell, recipe.seeds[0]))


def _cells(recipe: Recipe, scale: str) -> list[Cell]:
    """All of them: a row that needs the authors' files costs as much as its neighbours."""
    cells = recipe.cells(scale)
    specs = {cell.column: cell.spec for cell in cells if cell.spec is not None}
    return [replace(cell, spec=cell.spec or specs[cell.column]) for cell in cells]


def recipes() -> list[str]:
    """A row for every recipe, then how the times were estimated."""
    lines = []
    for name, recipe in RECIPES.items():
        if recipe.measure is not None:
            lines.append([f"`{name}`", recipe.title, "computed, not trained", "", f"[all](../results/{name})", ""])
        elif "short" not in recipe.for_cpu:  # else it has a table of its own
            lines.append([f"`{name}`", recipe.title, *state(name, "short"), *state(name, "paper")])
    heads = ["recipe", "", "trained at `short`", "the rest", "trained at `paper`", "the rest"]
    return [*markdown.table(heads, lines), "", _about()]


def _about() -> str:
    published = {task: count for task, (count, _, _) in epoch_times.PICTURES.items()}
    counts = {task: epoch_times.examples(task) for task in published}
    subsets = [f"{task} has {count:,}" for task, count in counts.items() if count < published[task]]
    smaller = f" Data as recorded: {', '.join(subsets)} training pictures." if subsets else ""
    return (
        "Times are estimates for one H200, one training after the other: the fastest recorded epoch of the same network, size "
        "of pictures and kind of step, per picture or word, which is too high where runs shared the GPU. Without such a record: "
        "L4, HD and RTHO by their ratio to a plain step, MLR-SNet by its meta-updates, NASNet from MobileNetV2 by what "
        f"convolutions write, other networks from ResNet-18 by their arithmetic.{smaller}"
    )


def _time(cells: list[Cell]) -> str:
    total = sum(epoch_times.seconds(cell.spec) for cell in cells if cell.spec is not None)
    if not total:
        return ""
    return f"{float(f'{total / 3600:.2g}'):g} h" if total >= 3600 else f"{float(f'{total / 60:.2g}'):g} min"
