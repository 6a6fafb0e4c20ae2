"""Recipes by name. A new recipe is one file, and its name here; the file is loaded when the recipe is asked for."""

from collections import UserDict
from importlib import import_module
from typing import Any

from mlrsnet_lab.sheets import SCALES, Average, Cell, Choice, Figure, Grid, Recipe, Sheet

DEMO = "demo"
TABLES = ("table1", "table2", "table3", "table5", "table6")
FIGURES = (
    *("fig1", "ablation", "phases", "epochs", "transfer", "networks"),
    *("imagenet", "meta-tasks", "time", "width", "lstm-or-mlp", "adam"),
)
OURS = ("direct", "grid", "sensitivity", "attribution", "wrn", "horizon", "universal-lstm", "proof", "larger")


class Recipes(UserDict[str, Any]):
    """Recipes by name, each loaded from its file when it is first asked for."""

    def __getitem__(self, name: str) -> Recipe:
        """The recipe."""
        if self.data[name] is None:
            self.data[name] = import_module(f"{__name__}.{name.replace('-', '_')}").RECIPE
        found: Recipe = self.data[name]
        return found


RECIPES = Recipes(dict.fromkeys((*TABLES, *FIGURES, *OURS, "theory", DEMO)))

__all__ = ["DEMO", "RECIPES", "SCALES", "Average", "Cell", "Choice", "Figure", "Grid", "Recipe", "Sheet"]
