"""Packages that only some datasets need, imported when they are needed."""

import importlib
from typing import Any


def need(module: str, what_for: str, extra: str = "lab") -> Any:
    """Import a module, or raise an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{what_for} needs {module} ({error}): pip install 'mlrsnet[{extra}]'", name=module.partition(".")[0]
        ) from None
