"""Which version of the code made a record."""

import os
import subprocess
from functools import cache
from pathlib import Path

import mlrsnet
import mlrsnet_lab


@cache
def commit() -> str | None:
    """The git commit of the library and the lab, marked if files were changed; None unless one repository holds both.

    $MLRSNET_COMMIT overrides it, for code that was copied without its history.
    """
    if given := os.environ.get("MLRSNET_COMMIT"):
        return given
    packages = [Path(str(package.__file__)).parent for package in (mlrsnet_lab, mlrsnet)]

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=packages[0], capture_output=True, text=True, check=True, timeout=10)
        return done.stdout

    try:
        for package in packages:  # a repository around an installed package is not its own
            git("ls-files", "--error-unmatch", str(package / "__init__.py"))
        changed = git("status", "--porcelain", "--", *map(str, packages))
        return git("rev-parse", "--short=12", "HEAD").strip() + ("-changed" if changed.strip() else "")
    except (OSError, subprocess.SubprocessError):
        return None
