"""Recipes by name. A new recipe is one file, and one line here."""

from mlrsnet_lab.recipes import (
    ablation,
    adam,
    attribution,
    epochs,
    fig1,
    horizon,
    imagenet,
    larger,
    lstm_or_mlp,
    meta_tasks,
    networks,
    phases,
    proof,
    sensitivity,
    table1,
    table2,
    table3,
    table5,
    table6,
    theory,
    time,
    transfer,
    universal_lstm,
    width,
)
from mlrsnet_lab.sheets import SCALES, Cell, Choice, Recipe, Sheet

FIGURES = (fig1, ablation, phases, epochs, transfer, networks, imagenet, meta_tasks, time, width, lstm_or_mlp, adam)
TABLES = (table1, table2, table3, table5, table6)
OURS = (sensitivity, attribution, horizon, universal_lstm, proof, larger)
RECIPES: dict[str, Recipe] = {module.RECIPE.name: module.RECIPE for module in (*TABLES, *FIGURES, *OURS)}
STUDIES: dict[str, Recipe] = {theory.RECIPE.name: theory.RECIPE}
"""What is computed, not trained."""

__all__ = ["RECIPES", "SCALES", "STUDIES", "Cell", "Choice", "Recipe", "Sheet"]
