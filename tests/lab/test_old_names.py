"""Names of version 0.1 still work, and say the new ones."""

import importlib

import pytest

from mlrsnet.lab import datasets, loop, methods


@pytest.mark.parametrize(
    ("module", "name", "new", "value"),
    [
        ("mlrsnet.lab.trainer", "run", "mlrsnet.lab.loop.run", loop.run),
        ("mlrsnet.lab.tasks", "load", "mlrsnet.lab.datasets.load", datasets.load),
        ("mlrsnet.lab.deciders", "Decider", "mlrsnet.lab.methods.Method", methods.Method),
        ("mlrsnet.lab.deciders", "register", "mlrsnet.lab.methods.register", methods.register),
    ],
)
def test_an_old_name_works_and_names_the_new_one(module, name, new, value):
    with pytest.warns(
        DeprecationWarning, match=f"^{module}.{name} is now {new}; the old name will be removed in version 0.3$"
    ) as told:
        exec(f"from {module} import {name}", found := {})
    assert found[name] is value
    assert told[0].filename == "<string>"  # the user's line
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        importlib.import_module(module).nothing  # noqa: B018
