"""Tables of scale cpu: every column of a recipe, or, where there are means over columns, these."""

from experiments import results, side_by_side
from experiments.side_by_side import Column

RECIPES = (
    *("grid", "table1", "table2", "table3", "table5", "table6"),
    *("ablation", "phases", "epochs", "transfer", "networks", "meta-tasks"),
    *("time", "width", "lstm-or-mlp", "adam", "direct", "attribution"),
)


def table(recipe: str) -> list[str]:
    """What was run of a recipe; its notes are on the page once."""
    folder = results.place(recipe, "cpu")
    found = results.section(folder)
    means = [one for one in found.tables if one.averaged and any(map(results.ended, one.rows))] if found else []
    columns = [Column(one.title, folder, one) for one in means] or side_by_side.find(folder)
    return side_by_side.tables(columns)
