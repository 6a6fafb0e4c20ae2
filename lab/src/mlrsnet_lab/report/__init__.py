"""`mlrsnet report`: any number of runs, finished or not, as one page and its tables. It reads; it never trains."""

from pathlib import Path

from mlrsnet.files.writing import write_atomically
from mlrsnet_lab.report.gather import gather
from mlrsnet_lab.report.markdown import markdown
from mlrsnet_lab.report.page import page
from mlrsnet_lab.report.tables import Report, build

HTML, MARKDOWN = "report.html", "report.md"


def read_report(folder: Path) -> Report:
    """Everything that a report says about the runs below a folder."""
    return build(gather(folder))


def save_report(report: Report, out: Path) -> tuple[Path, Path]:
    """Write `report.html` and `report.md` into the folder `out`."""
    html, text = out / HTML, out / MARKDOWN
    write_atomically(html, page(report).encode(errors="replace"))  # records may hold halves of characters
    write_atomically(text, markdown(report).encode(errors="replace"))
    return html, text


def write_report(folder: Path, out: Path | None = None) -> tuple[Path, Path]:
    """Write `report.html` and `report.md` about the runs below `folder` into `out`, by default `folder` itself."""
    return save_report(read_report(folder), folder if out is None else out)
