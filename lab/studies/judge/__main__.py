"""See the package."""

import argparse
from collections.abc import Callable, Collection
from pathlib import Path

from lab.studies import judge
from lab.studies.judge import data
from lab.studies.judge.methods import METHODS
from lab.studies.judge.run import run
from lab.studies.judge.tasks import TASKS


def main() -> None:
    """The commands."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.studies.judge",
        description=judge.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare", help="write the examples, from the lab's data")
    one.add_argument("folder", type=Path)
    one.add_argument("--root", type=Path)
    one = commands.add_parser("run", help="train what is not in OUT yet")
    one.add_argument("folder", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--tasks", type=_some(TASKS), default=list(TASKS), metavar="A,B", help=", ".join(TASKS))
    one.add_argument("--methods", type=_some(METHODS), default=list(METHODS), metavar="A,B", help=", ".join(METHODS))
    one.add_argument("--workers", type=int, default=1)
    one.add_argument("--seconds", type=float, default=float("inf"))
    one.add_argument("--threads", type=int, default=1)
    chosen = vars(parser.parse_args())
    if chosen.pop("command") == "prepare":
        data.prepare(**chosen)
    else:
        run(**chosen)


def _some(known: Collection[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"must be among {', '.join(known)}, got {name!r}")
        return names

    return read


if __name__ == "__main__":
    main()
