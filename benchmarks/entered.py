"""How much code one small campaign goes through: functions and modules of mlrsnet and its lab that it enters.

    python benchmarks/entered.py [--list]

The campaign is `mlrsnet reproduce table1 --scale smoke --only Fixed --seeds 0`. A function is counted once, however often it is
called; lambdas and comprehensions are parts of functions, and not counted. A module is entered when one of its functions is, and
loaded when it is imported, for a class or a constant as well.
"""

import argparse
import os
import sys
import tempfile
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import mlrsnet
from mlrsnet.cli import main

ROOTS = tuple(str(folder) + os.sep for folder in (Path(mlrsnet.__file__).parent, Path(__file__).parents[1] / "lab/src"))
CAMPAIGN = ("reproduce", "table1", "--scale", "smoke", "--only", "Fixed", "--seeds", "0", "--device", "cpu")


def entered(words: tuple[str, ...]) -> dict[str, list[str]]:
    """By module, the functions that a command enters."""
    codes: set[CodeType] = set()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(look)
    try:
        if main(words):
            raise RuntimeError(f"the command failed: mlrsnet {' '.join(words)}")
    finally:
        sys.setprofile(None)
    found: dict[str, list[str]] = {file: [] for module in sys.modules.values() if (file := _file(module))}
    for code in codes:
        if code.co_filename in found and code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<"):
            found[code.co_filename].append(f"{code.co_firstlineno} {code.co_qualname}")
    return found


def _file(module: Any) -> str:
    """The file of a module of ours."""
    file = getattr(module, "__file__", None) or ""
    return file if file.startswith(ROOTS) else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="also list them")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = entered((*CAMPAIGN, "--out", f"{folder}/out"))
    for module, functions in sorted(found.items()) if asked.list else ():
        print(f"{len(functions):3}  {module}", *sorted(functions, key=lambda one: int(one.split()[0])), sep="\n       ")
    modules = sum(map(bool, found.values()))
    print(f"{sum(map(len, found.values()))} functions in {modules} modules entered, {len(found)} loaded")
