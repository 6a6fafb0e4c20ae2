"""Old public names, which work for one more version and say what to use instead."""

from collections.abc import Callable, Mapping
from typing import Any

from mlrsnet import _check


def renamed(module: str, names: Mapping[str, tuple[str, Any]]) -> Callable[[str], Any]:
    """A module's `__getattr__` for old names: `{old: (new name as users write it, the object)}`."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new, value = names[name]
        _check.warn(f"{module}.{name} is now {new}; the old name will be removed in version 0.3", DeprecationWarning)
        return value

    return find
