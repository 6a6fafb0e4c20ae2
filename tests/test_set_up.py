"""What `make demo` and `make test` install: PyTorch first, and never another one in its place."""

import os
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from tools import set_up

ROOT = Path(__file__).parent.parent


def wheel(folder, name, version, tag="py3-none-any", needs=""):
    """A package with nothing in it, as pip takes it."""
    about = f"{name}-{version}.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + needs,
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: {tag}\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        for file, text in files.items():
            archive.writestr(f"{about}/{file}", text)


@pytest.fixture
def offered(tmp_path, monkeypatch):
    """The only place where pip looks."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(folder)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(set_up, "has_gpu", lambda: False)
    monkeypatch.setattr(set_up, "installed", lambda: None)


def test_without_a_gpu_the_newest_supported_build_for_cpus_is_taken(offered, no_gpu):
    for version in ("2.5.1+cpu", "2.9.0+cpu", "2.10.0+cpu", "2.11.0", "2.12.0+cu130", "2.12.0+cpu.cxx11.abi"):
        wheel(offered, "torch", version)
    wheel(offered, "torch", "2.13.0+cpu", tag="cp27-cp27m-win32")  # for another Python
    assert set_up.choose() == "2.10.0+cpu"
    assert set_up.choose(among=["2.9.0+cpu", "2.11.0"]) == "2.9.0+cpu"  # as a lock has it


@pytest.mark.parametrize("versions", [[], ["2.11.0"], ["2.5.1+cpu"]])
def test_without_a_build_for_cpus_the_choice_is_pips(versions, offered, no_gpu):
    for version in versions:
        wheel(offered, "torch", version)
    assert set_up.choose() is None


def test_with_a_gpu_the_choice_is_pips(offered, no_gpu, monkeypatch):
    wheel(offered, "torch", "2.10.0+cpu")
    monkeypatch.setattr(set_up, "has_gpu", lambda: True)
    assert set_up.choose() is None


LISTS, FAILS = "echo 'GPU 0: Some GPU (UUID: GPU-1)'", "echo 'NVIDIA-SMI has failed'; exit 9"


@pytest.mark.parametrize(
    ("device", "tool", "found"),
    [
        (None, None, False),
        ("nvidia0", None, True),
        ("nvidiactl", FAILS, False),
        (None, FAILS, False),
        (None, LISTS, True),
    ],
)
def test_a_gpu_is_known_by_its_device_or_by_a_tool_that_works(device, tool, found, tmp_path, monkeypatch):
    monkeypatch.setattr(set_up, "GPUS", [str(tmp_path / "nvidia[0-9]*")])
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    if device:
        (tmp_path / device).touch()
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{tool or 'exit 127'}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert set_up.has_gpu() is found


INSTALL = """
import sys
from tools import set_up
set_up.has_gpu = lambda: False
set_up.install(["some-tool"], set_up.choose())
print(set_up.installed(), set_up.version("some-tool"))
"""


@pytest.mark.parametrize(("before", "after"), [(None, "2.10.0+cpu"), ("2.8.0+cu130", "2.8.0+cu130")])
def test_no_package_brings_another_pytorch_in_its_place(before, after, offered, tmp_path):
    """The newest some-tool wants a newer PyTorch than there is; an older one does with it."""
    for version in ("2.8.0+cu130", "2.10.0+cpu", "2.11.0"):
        wheel(offered, "torch", version)
    wheel(offered, "some_tool", "1.0", needs="Requires-Dist: torch>=2.6\n")
    wheel(offered, "some_tool", "2.0", needs="Requires-Dist: torch>=2.11\n")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    if before:
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"torch=={before}"], check=True, timeout=120)
    done = subprocess.run([python, "-c", INSTALL], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == [f"{after} 1.0"], done.stderr


def test_the_locks_have_one_pytorch_each_and_share_the_rest():
    shared, *kinds = [set(packages(lock)) for lock in (ROOT / "requirements" / "dev.lock", *set_up.LOCKS)]
    assert all("torch" in kind and not kind & shared for kind in kinds)


def packages(lock):
    return [line.partition("==")[0] for line in lock.read_text().splitlines() if line[:1].isalnum()]


def test_a_lock_without_the_pytorch_that_is_installed_says_what_to_do(monkeypatch):
    monkeypatch.setattr(set_up, "installed", lambda: "2.7.0")
    with pytest.raises(
        SystemExit, match=r"The locks have PyTorch .*, got 2.7.0, installed here: remove it, or leave LOCKED"
    ):
        set_up.install_locked(["."])
