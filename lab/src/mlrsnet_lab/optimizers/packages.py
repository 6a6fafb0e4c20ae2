"""Optimizers from packages that only the lab's rivals need, imported when they are needed."""

import importlib
from typing import Any


def need(module: str, kind: str, package: str) -> Any:
    """A class of a package, or an error that says what to install."""
    try:
        return getattr(importlib.import_module(module), kind)
    except ImportError:
        raise ImportError(
            f"this optimizer needs the package {package}, which is not installed: pip install {package}"
        ) from None
