"""Networks to train, by name: for pictures, running text, rows of numbers and pieces of text."""

from mlrsnet_lab.models.build import (
    IMAGE,
    PIECES,
    ROWS,
    TEXT,
    build_image,
    build_pieces,
    build_rows,
    build_text,
    check,
    num_parameters,
)
from mlrsnet_lab.models.language import LanguageModel, State

__all__ = [
    "IMAGE",
    "PIECES",
    "ROWS",
    "TEXT",
    "LanguageModel",
    "State",
    "build_image",
    "build_pieces",
    "build_rows",
    "build_text",
    "check",
    "num_parameters",
]
