"""See the package."""

import argparse
import json
from functools import partial
from pathlib import Path

from experiments.results import here
from lab.studies import forks
from lab.studies.forks import fill, fit, judge, layers, policy

TABLE = fit.FOLDER / "table.jsonl.gz"
ROWS = {"fill": (1000, 1300), "policy": (1400, 1584), "layers": (1300, 1346)}
"""Commands that train, and their rows."""


def main() -> None:
    """The commands."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.studies.forks",
        description=forks.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--table", type=Path, default=TABLE, help="for fit and policy: what fill wrote, packed by gzip")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, rows in ROWS.items():
        one = commands.add_parser(name)
        one.add_argument("folder", type=Path)
        one.add_argument("out", type=Path)
        one.add_argument("--rows", type=int, nargs=2, default=rows, metavar=("FROM", "TO"))
        one.add_argument("--workers", type=int, default=1)
        one.add_argument("--seconds", type=float, default=float("inf"))
    commands.add_parser("fit")
    commands.add_parser("judge")
    chosen = parser.parse_args()
    if chosen.command in ("fit", "judge"):
        fit.FOLDER.mkdir(exist_ok=True)
    if chosen.command == "fit":
        found = here() | fit.fits(fit.read(chosen.table))
        (fit.FOLDER / "fits.json").write_text(json.dumps(found, indent=1) + "\n")
    elif chosen.command == "judge":
        judges = {"policy": judge.policies, "layers": judge.layers}
        made = {name: fit.FOLDER / f"{name}.jsonl.gz" for name in judges}
        found = here() | {name: judges[name](fit.read(path)) for name, path in made.items() if path.is_file()}
        (fit.FOLDER / "judged.json").write_text(json.dumps(found, indent=1) + "\n")
    else:
        table: Path = chosen.table.absolute()
        works: dict[str, fill.Work] = {
            "fill": fill.fill_row,
            "policy": partial(policy.steer_row, table),
            "layers": layers.layers_row,
        }
        work = works[chosen.command]
        fill.fill(work, chosen.folder, chosen.out, range(*chosen.rows), chosen.workers, chosen.seconds)


if __name__ == "__main__":
    main()
