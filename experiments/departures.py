"""Where the authors' program departs from the paper, and the lab's switch for each departure."""

from experiments import markdown
from mlrsnet_lab.recipes import attribution
from mlrsnet_lab.recipes.authors import DEPARTURES


def table() -> list[str]:
    """One row per departure."""
    lines = ([f"`{name}`", one.paper, one.program, f"`{one.switch(name)}`"] for name, one in DEPARTURES.items())
    return markdown.table(["", "the paper", "the authors' program", "switch"], lines)


def rows() -> list[str]:
    """The rows of the recipe `attribution`, and which departures each has."""
    lines = ([row, _names(names)] for row, names in attribution.ROWS.items())
    return markdown.table(["row", "departures"], lines)


def _names(names: list[str]) -> str:
    missing = [name for name in DEPARTURES if name not in names]
    if not missing:
        return "all"
    if len(missing) < len(names):
        return f"all but {', '.join(f'`{name}`' for name in missing)}"
    return ", ".join(f"`{name}`" for name in names) or "none"
