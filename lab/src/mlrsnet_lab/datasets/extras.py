"""Packages that only some datasets need, imported when they are needed."""

import importlib
from typing import Any


def need(module: str, what_for: str, extra: str = "") -> Any:
    """Import a module, or raise an error that says what to install: an extra of the lab, or the lab."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = f"'mlrsnet-lab[{extra}]'" if extra else "mlrsnet-lab"
        raise ImportError(
            f"{what_for} needs {module} ({error}): pip install {package}", name=module.partition(".")[0]
        ) from None
