"""See the package."""

import argparse
import json
from pathlib import Path

from experiments.results import RESULTS, here
from lab.studies import law
from lab.studies.law import calibrate, data, fill, fit, larger


def main() -> None:
    """The commands."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.studies.law", description=law.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare")
    one.add_argument("folder", type=Path)
    one.add_argument("--root", type=Path)
    one = commands.add_parser("fill")
    one.add_argument("folder", type=Path)
    one.add_argument("out", type=Path)
    one.add_argument("--rows", type=int, nargs=2, default=(0, 230), metavar=("FROM", "TO"))
    one.add_argument("--workers", type=int, default=1)
    one.add_argument("--seconds", type=float, default=float("inf"))
    one.add_argument("--larger", action="store_true", help="rows of larger networks, from 10,000 on; on a GPU")
    commands.add_parser("fit")
    chosen = parser.parse_args()
    if chosen.command == "prepare":
        data.prepare(chosen.folder, chosen.root)
    elif chosen.command == "fit":
        rows = fit.read(RESULTS / "law" / "table.jsonl.gz")
        larger_ones = fit.judged_on_larger(fit.read(RESULTS / "law" / "larger.jsonl.gz"))
        found = here() | fit.fits(rows) | {"calibrated": calibrate.calibrated(rows), "larger": larger_ones}
        (RESULTS / "law" / "fits.json").write_text(json.dumps(found, indent=1) + "\n")
    else:
        make = larger.fill_row if chosen.larger else fill.fill_row
        fill.fill(chosen.folder, chosen.out, range(*chosen.rows), chosen.workers, chosen.seconds, make)


if __name__ == "__main__":
    main()
