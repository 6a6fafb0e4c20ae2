"""Pin every package that the tests need, with digests, for `make setup LOCKED=1`.

    make lock

`requirements/dev.lock` has what every machine gets; `torch-cpu.lock` and `torch-cuda.lock` have PyTorch and what comes with it. The
index has no build of PyTorch for CPUs, so its lock has the digest of the file that pip is offered on the machine where this runs.
"""

import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from tools.set_up import LOCKS, ROOT, cpu_builds, numbers

SHARED, (CPU, CUDA) = ROOT / "requirements" / "dev.lock", LOCKS
EVERYWHERE, WITH_CUDA = ("dev", "corruptions", "ray", "rivals"), ("vision",)


def run(*words: str | Path) -> None:
    """A module of this environment, as a command."""
    subprocess.run([sys.executable, "-m", *words], cwd=ROOT, check=True)


def pin(lock: Path, *words: str | Path) -> None:
    """Write a lock for Python 3.11 on Linux."""
    where = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28", "--no-emit-package", "mlrsnet"]
    style = [
        "--generate-hashes",
        "--no-emit-index-url",
        "--no-emit-find-links",
        "--custom-compile-command",
        "make lock",
        "--quiet",
    ]
    run("uv", "pip", "compile", *words, *where, *style, "--upgrade", "--output-file", lock)


def packages(*extras: str) -> list[str]:
    """What uv shall pin: both packages with those extras."""
    return ["pyproject.toml", "lab/pyproject.toml", *(f"--extra={extra}" for extra in extras)]


def names(lock: Path) -> list[str]:
    """The packages in a lock."""
    return [line.partition("==")[0] for line in lock.read_text().splitlines() if line[:1].isalnum()]


def main() -> None:
    """Write the three files."""
    torch = max(cpu_builds(), key=numbers, default=None)
    if torch is None:
        sys.exit(
            "pip is offered no build of PyTorch for CPUs: say where one lies, as PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL."
        )
    with tempfile.TemporaryDirectory() as folder:
        run("pip", "download", "--quiet", "--no-deps", "--dest", folder, f"torch=={torch}")
        (wanted := Path(folder, "torch.txt")).write_text(f"torch=={torch}\n")
        (wheel,) = Path(folder).glob("*.whl")
        CPU.write_text(f"torch=={torch} --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}\n")
        pin(
            SHARED, *packages(*EVERYWHERE), "--constraint", wanted, "--find-links", folder, "--no-emit-package", "torch"
        )
    left_out = [f"--no-emit-package={name}" for name in names(SHARED)]
    pin(CUDA, *packages(*EVERYWHERE, *WITH_CUDA), "--constraint", SHARED, *left_out)


if __name__ == "__main__":
    main()
