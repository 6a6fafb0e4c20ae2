"""Commands of another package: found where it is installed, and where it is not, an error says how to install it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mlrsnet.cli.others import OF_THE_LAB
from mlrsnet_lab.commands import COMMANDS

ROOT = Path(__file__).parents[2]
ALL_MODULES = """
import importlib, pkgutil, mlrsnet
for module in pkgutil.walk_packages(mlrsnet.__path__, "mlrsnet."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print("imported", mlrsnet.__file__)
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """The packages that are installed here, without this repository's own."""
    folder = tmp_path_factory.mktemp("others")
    for place in sys.path:
        for path in Path(place).glob("*") if place.endswith("site-packages") else ():
            if not re.match(r"_*mlrsnet|_editable|__editable", path.name) and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return folder


def install(folder, *sources):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*command, folder, *sources], check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def alone(others, tmp_path_factory):
    """Where to look for packages: the library's, and those that it and the lab need."""
    return install(tmp_path_factory.mktemp("library"), ROOT), others


@pytest.fixture(scope="module")
def both(alone, tmp_path_factory):
    """Where to look for packages: the lab's too."""
    return install(tmp_path_factory.mktemp("lab"), ROOT / "lab"), *alone


def python(places, *words):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "COLUMNS": "80"}
    command = [sys.executable, "-S", "-P", *words]  # no packages but those of `places`
    return subprocess.run(command, env=environment, cwd=places[0], capture_output=True, text=True, timeout=300)


def test_the_library_knows_the_names_of_the_labs_commands():
    assert [command.name for command in COMMANDS] == list(OF_THE_LAB)


def test_without_the_lab_its_commands_say_what_to_install(alone):
    for words in (["reproduce", "table1"], ["demo", "--help"], ["runs", "list"]):
        found = python(alone, "-m", "mlrsnet", *words)
        assert found.returncode == 1
        assert found.stderr == (
            f"mlrsnet: error: `mlrsnet {words[0]}` belongs to the lab, which is not installed: pip install mlrsnet-lab, "
            "or from a clone pip install ./lab\n"
        )


def test_without_the_lab_the_others_work_and_none_of_its_commands_is_listed(alone):
    listed = python(alone, "-m", "mlrsnet", "--help").stdout
    assert re.search("^    schedules +", listed, flags=re.MULTILINE)
    assert not any(re.search(f"^    {name} +", listed, flags=re.MULTILINE) for name in OF_THE_LAB)
    assert "pip install mlrsnet-lab" in " ".join(listed.split())
    assert python(alone, "-m", "mlrsnet", "schedules", "list").stdout.startswith("universal")


def test_without_the_lab_every_module_of_the_library_can_be_imported(alone):
    found = python(alone, "-c", ALL_MODULES)
    assert found.stdout == f"imported {alone[0] / 'mlrsnet' / '__init__.py'}\n", found.stderr


def test_with_the_lab_its_commands_are_listed_and_run(both):
    listed = python(both, "-m", "mlrsnet", "--help").stdout
    for command in COMMANDS:
        assert re.search(f"^    {command.name} +{command.what[:20]}", listed, flags=re.MULTILINE), command.name
    assert "pip install" not in listed
    found = python(both, "-m", "mlrsnet", "reproduce", "--list")
    assert re.search("^table1 ", found.stdout, flags=re.MULTILINE), found.stderr
