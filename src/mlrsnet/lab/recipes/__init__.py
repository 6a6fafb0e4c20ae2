"""Recipes by name; a new one is one file, and one line here."""

from mlrsnet.lab.recipes import horizon, table1, universal
from mlrsnet.lab.recipes.base import RECIPE, SCALES, Cell, Recipe

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (table1.RECIPE, horizon.RECIPE, universal.RECIPE)}

__all__ = ["RECIPE", "RECIPES", "SCALES", "Cell", "Recipe"]
