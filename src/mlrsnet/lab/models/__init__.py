"""Networks to train, by name: pictures with `build_image`, text with `build_text`."""

from mlrsnet.lab.models.build import IMAGE, TEXT, build_image, build_text, check, num_parameters
from mlrsnet.lab.models.language import LanguageModel, State

__all__ = ["IMAGE", "TEXT", "LanguageModel", "State", "build_image", "build_text", "check", "num_parameters"]
