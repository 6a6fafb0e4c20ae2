"""What a user installs: the wheel, its metadata and the documents at the root."""

import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CORE = """
import torch, mlrsnet
assert "site" in mlrsnet.__file__, mlrsnet.__file__
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
lr = mlrsnet.LearnedLR(optimizer, mlrsnet.Schedule(mlrsnet.nets.LSTMNet()), total_steps=3, num_classes=10)
lr.step(2.3)
print("core works", 0 < lr.get_last_lr()[0] < 1)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return next(folder.glob("*.whl"))


def test_the_wheel_is_typed_licensed_and_needs_three_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = Parser().parsestr(archive.read(next(n for n in names if n.endswith("METADATA"))).decode())
    assert "mlrsnet/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(re.match(r"[a-z]+", line).group() for line in required) == ["numpy", "safetensors", "torch"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert not any(name.startswith(("tests", "results")) for name in names)


def test_the_wheel_works_without_the_lab_packages(wheel, tmp_path):
    """The wheel installed alone. Everything but torch, numpy, safetensors and their dependencies is hidden."""
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel]
    subprocess.run(install, check=True, timeout=300)
    hide = "import sys\nfor name in ('matplotlib', 'rich', 'sklearn', 'hypothesis'): sys.modules[name] = None\n"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    result = subprocess.run(
        [sys.executable, "-c", hide + CORE], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert "core works True" in result.stdout, result.stderr


@pytest.mark.nightly
def test_the_wheel_works_in_an_empty_environment(wheel, tmp_path):
    """A new virtual environment with only the wheel and its dependencies. Downloads PyTorch."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "site"], check=True)
    python = tmp_path / "site" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, timeout=1800)
    result = subprocess.run([python, "-c", CORE], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "core works True" in result.stdout, result.stderr
    result = subprocess.run([python, "-m", "mlrsnet", "schedules", "list"], cwd=tmp_path, timeout=120)
    assert result.returncode == 0
    result = subprocess.run([python, "-m", "mlrsnet.cli", "demo"], cwd=tmp_path, capture_output=True, text=True)
    assert "pip install mlrsnet-lab" in result.stderr


IMPORT = """
import sys, torch
import mlrsnet
print(sum(name.split(".")[0] == "mlrsnet" for name in sys.modules), "torch.distributed.tensor" in sys.modules, mlrsnet.__all__)
"""


def test_the_import_is_small_and_offers_four_names():
    """`torch.distributed.tensor` alone takes longer to import than all of this package."""
    found = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    modules, words = found.strip().split(maxsplit=1)
    assert int(modules) <= 40
    assert words == "False ['LearnedLR', 'MetaTrainer', 'Schedule', 'preview']"


def test_the_authors_files_and_the_workplace_are_not_referred_to():
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in tracked.split("\0"):
        if name and not name.startswith(".ci/") and name != "tests/test_package.py":
            content = (ROOT / name).read_bytes()
            assert b"../shared" not in content, name


def test_version_and_changelog_agree():
    from mlrsnet import __version__

    section = "Unreleased" if ".dev" in __version__ else __version__
    assert f"## [{section}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()


def test_the_lab_has_the_librarys_version_and_asks_for_it():
    from mlrsnet import __version__

    assert f'__version__ = "{__version__}"' in (ROOT / "lab" / "src" / "mlrsnet_lab" / "__init__.py").read_text()
    assert f'"mlrsnet=={__version__}"' in (ROOT / "lab" / "pyproject.toml").read_text()
