"""Recipes by name; a new one is one file, and one line here."""

from mlrsnet.lab.recipes import (
    ablation,
    adam,
    epochs,
    horizon,
    lstm_or_mlp,
    meta_tasks,
    networks,
    phases,
    table1,
    table2,
    table3,
    table5,
    table6,
    transfer,
    universal,
)
from mlrsnet.lab.recipes.base import RECIPE, SCALES, Cell, Recipe

PAPER = (
    table1,
    table2,
    table3,
    table5,
    table6,
    ablation,
    phases,
    epochs,
    transfer,
    networks,
    meta_tasks,
    lstm_or_mlp,
    adam,
)
OURS = (horizon, universal)
RECIPES: dict[str, Recipe] = {module.RECIPE.name: module.RECIPE for module in (*PAPER, *OURS)}

__all__ = ["RECIPE", "RECIPES", "SCALES", "Cell", "Recipe"]
