"""`python -m experiments`: make what the documents show."""

import argparse
from collections.abc import Callable
from pathlib import Path

from experiments import documents, pictures
from experiments.results import ROOT

ACTIONS: dict[str, tuple[str, Callable[[], list[Path]]]] = {
    "tables": ("tables between `<!-- made: -->` comments, and results/report.md", documents.write),
    "pictures": ("docs/pictures", pictures.write),
    "report-page": ("the picture of a report, with chromium; not part of all", pictures.write_report),
}
ALL = "all"
ON_REQUEST = ("report-page",)


def main() -> None:
    """Run one action, or all."""
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument(
        "what", choices=[*ACTIONS, ALL], help="; ".join(f"{name}: {about}" for name, (about, _) in ACTIONS.items())
    )
    chosen = parser.parse_args().what
    for name, (_, make) in ACTIONS.items():
        if chosen == name or (chosen == ALL and name not in ON_REQUEST):
            for path in make():
                print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
