"""`mlrsnet report` on a terminal."""

from pathlib import Path

from mlrsnet_lab.report import write_report


def show_report(folder: Path, out: Path | None) -> None:
    """Write the report and print where it is."""
    for path in write_report(folder, out):
        print(f"report: {path}")
