"""Which version of the code made a record."""

import os
import subprocess
from functools import cache
from pathlib import Path

import mlrsnet


@cache
def commit() -> str | None:
    """The git commit of this code, marked if files were changed; None outside a repository.

    $MLRSNET_COMMIT overrides it, for code that was copied without its history.
    """
    if given := os.environ.get("MLRSNET_COMMIT"):
        return given
    package = Path(mlrsnet.__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=package, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # a repository around an installed package is not its own
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "--short=12", "HEAD").strip() + ("-changed" if changed.strip() else "")
    except (OSError, subprocess.SubprocessError):
        return None
