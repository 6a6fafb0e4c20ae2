"""See the package."""

import argparse
from pathlib import Path

from lab.studies import forks
from lab.studies.forks import fill

WORK: dict[str, tuple[fill.Work, tuple[int, int]]] = {"fill": (fill.fill_row, (1000, 1300))}
"""Commands that train, and their rows."""


def main() -> None:
    """The commands."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.studies.forks",
        description=forks.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, rows) in WORK.items():
        one = commands.add_parser(name)
        one.add_argument("folder", type=Path)
        one.add_argument("out", type=Path)
        one.add_argument("--rows", type=int, nargs=2, default=rows, metavar=("FROM", "TO"))
        one.add_argument("--workers", type=int, default=1)
        one.add_argument("--seconds", type=float, default=float("inf"))
    chosen = parser.parse_args()
    work, _ = WORK[chosen.command]
    fill.fill(work, chosen.folder, chosen.out, range(*chosen.rows), chosen.workers, chosen.seconds)


if __name__ == "__main__":
    main()
