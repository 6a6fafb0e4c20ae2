"""The lab is a guest of the library: it and everything that is built on both use public names of `mlrsnet` only."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUESTS = ("lab/src", "experiments", "benchmarks", "examples")
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
"""Python begins the public names of named tuples so."""

FILES = [path for guest in GUESTS for path in sorted((ROOT / guest).rglob("*.py"))]


def private_names(code):
    """Names of `mlrsnet` in the code with a part that begins with one underscore: imported, or read from what was imported."""
    tree, imported = ast.parse(code), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.asname or name.name.partition(".")[0]: name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    read = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used = [
        imported[head] + dot + rest for head, dot, rest in (name.partition(".") for name in read) if head in imported
    ]
    return sorted({name for name in (*imported.values(), *used) if is_private(name)})


def is_private(name):
    first, *rest = name.split(".")
    hidden = {part for part in rest if part.startswith("_") and not part.startswith("__")} - OF_TUPLES
    return first == "mlrsnet" and bool(hidden)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_guests_use_public_names_of_the_library(path):
    assert private_names(path.read_text()) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from mlrsnet import _check", ["mlrsnet._check"]),
        ("from mlrsnet._driver import driver_of", ["mlrsnet._driver.driver_of"]),
        ("import mlrsnet._driver as driver", ["mlrsnet._driver"]),
        ("from mlrsnet.card import _hidden", ["mlrsnet.card._hidden"]),
        ("import mlrsnet\nmlrsnet._driver.driver_of", ["mlrsnet._driver", "mlrsnet._driver.driver_of"]),
        ("from mlrsnet import sensors\nsensors._hidden", ["mlrsnet.sensors._hidden"]),
        ("from mlrsnet import __version__\nfrom mlrsnet_lab import _own\nself._mine", []),
    ],
)
def test_a_private_name_is_found(code, found):
    assert private_names(code) == found
