"""Install what the demo or the tests need, PyTorch first.

    .venv/bin/python tools/set_up.py demo
    .venv/bin/python tools/set_up.py tests [--locked]

PyTorch from the index brings gigabytes of CUDA. So where there is no GPU, the newest supported build for CPUs that pip is offered
is installed instead, and where pip is offered none, pip decides. PyTorch that is installed already stays. Whatever comes later is
held to that version. torchvision from the index does not load beside a build for CPUs, so there the tests go without it.

It runs before anything is installed: the standard library only.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from glob import glob
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETS = {"demo": (".", "./lab"), "tests": (".[dev]", "./lab[corruptions,ray,rivals]")}
VISION = "./lab[vision]"
LOCKS = [ROOT / "requirements" / f"torch-{kind}.lock" for kind in ("cpu", "cuda")]
GPUS = ("/dev/nvidia[0-9]*", "/dev/dxg", "/dev/kfd")
"""NVIDIA's, Windows' below its subsystem for Linux, AMD's."""


def has_gpu() -> bool:
    """Whether there is a GPU: its device, or a tool of its driver that lists one."""
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        listed = b""
    return listed.startswith(b"GPU") or any(glob(pattern) for pattern in GPUS)


def installed() -> str | None:
    """The version of PyTorch in this environment."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def numbers(text: str) -> tuple[int, ...]:
    """What versions are compared by.

    >>> numbers("2.13.0+cpu") > numbers("2.6")
    True
    """
    return tuple(int(part) for part in text.partition("+")[0].split("."))


def cpu_builds() -> list[str]:
    """The supported builds for CPUs that pip is offered for this Python."""
    told = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "torch"], capture_output=True, text=True)
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    lowest = next(need.removeprefix("torch>=") for need in needs if need.startswith("torch>="))
    offered = told.stdout.partition("Available versions:")[2].partition("\n")[0]
    found = re.findall(r"\b\d+(?:\.\d+)+\+cpu(?![\w.])", offered)  # not the older 2.6.0+cpu.cxx11.abi
    return [build for build in found if numbers(build) >= numbers(lowest)]


def choose(among: Iterable[str] | None = None) -> str | None:
    """The PyTorch that is there; else, without a GPU, the newest build for CPUs (of those in `among`); else None, pip's choice."""
    if (here := installed()) or has_gpu():
        return here
    builds = [build for build in cpu_builds() if among is None or build in among]
    return max(builds, key=numbers, default=None)


def is_for_cpus(torch: str | None) -> bool:
    """Whether a version is that of a build for CPUs."""
    return "+cpu" in (torch or "")


def pip_install(*words: str | Path) -> None:
    """Run pip in this environment; its errors are on the terminal already. Python compiles what is imported, a part of it all."""
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", *words], cwd=ROOT)
    if done.returncode:
        sys.exit(done.returncode)


def editable(targets: Iterable[str]) -> list[str]:
    """Those folders as pip takes them."""
    return [f"--editable={target}" for target in targets]


def install(words: list[str], torch: str | None) -> None:
    """Install `torch`, if it is not there, then `words`, none of which replaces it."""
    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder, "torch.txt")
        held.write_text(f"torch=={torch}\n" if torch else "")
        if torch and not installed():
            print(
                f"There is no GPU here: PyTorch {torch}, a build for CPUs. One that you install in its place will stay."
            )
            pip_install(f"torch=={torch}")
        pip_install("--constraint", held, *words)


def install_newest(what: str) -> None:
    """Install one of the two sets, as new as it can be."""
    torch = choose()
    vision = [VISION] if what == "tests" and not is_for_cpus(torch) else []
    install(editable([*SETS[what], *vision]), torch)


def install_locked(targets: Iterable[str]) -> None:
    """Install exactly the packages of the lock, each checked against its digest."""
    locks = {re.findall(r"^torch==(\S+)", lock.read_text(), re.MULTILINE)[0]: lock for lock in LOCKS}
    torch = choose(locks) or next(locked for locked in locks if not is_for_cpus(locked))
    if torch not in locks:
        sys.exit(
            f"The locks have PyTorch {' and '.join(locks)}, got {torch}, installed here: remove it, or leave LOCKED=1 out."
        )
    pip_install("--require-hashes", "--requirement", "requirements/dev.lock", "--requirement", locks[torch])
    pip_install("--no-deps", "--no-build-isolation", *editable(targets))


def main() -> None:
    """Install one of the two sets."""
    parser = argparse.ArgumentParser(description="Install what the demo or the tests need, PyTorch first.")
    parser.add_argument("what", choices=SETS)
    parser.add_argument(
        "--locked", action="store_true", help="exactly the packages in requirements/ (Python 3.11, Linux)"
    )
    arguments = parser.parse_args()
    if arguments.locked:
        install_locked((".", "./lab"))
    else:
        install_newest(arguments.what)


if __name__ == "__main__":
    main()
