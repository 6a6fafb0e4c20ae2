"""Tables in documents that are made from records: `python docs/tools/blocks.py` writes them anew, and a test holds them.

A document has a pair of comments, `<!-- made: NAME -->` and `<!-- end -->`; what stands between them is `MAKERS[NAME]()`. The
tables of every run in results/ are a document of their own, `results/report.md`.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import beside
import costs
import paper
import rtho
import ship
import timing
import transfers

from mlrsnet.lab import report

ROOT = Path(__file__).parents[2]
REPORT = paper.RESULTS / report.MARKDOWN
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MAKERS: dict[str, Callable[[], list[str]]] = {
    "table1": paper.table1,
    "sensitivity": paper.sensitivity,
    "text": paper.text,
    "recipes": costs.recipes,
    "shipped": ship.table,
    "transfers": transfers.transfers,
    "table2": partial(beside.beside, "table2", "short"),
    "table5": partial(beside.beside, "table5", "short"),
    "table6": partial(beside.beside, "table6", "short"),
    "lstm-or-mlp": partial(beside.beside, "lstm-or-mlp", "short"),
    "width": partial(beside.beside, "width", "short"),
    "rays": beside.width,
    "timing": timing.timing,
    "rtho": rtho.table,
    "large": timing.large,
}
BLOCK = re.compile(r"<!-- made: (\S+) -->\n.*?<!-- end -->", re.DOTALL)


def filled(text: str) -> str:
    """The document with every table as the records have it now."""
    return BLOCK.sub(lambda found: "\n".join([f"<!-- made: {found[1]} -->", *MAKERS[found[1]](), "<!-- end -->"]), text)


def everything() -> str:
    """The report on all records."""
    return report.markdown(report.read_report(paper.RESULTS))


if __name__ == "__main__":
    texts = {document: filled(document.read_text()) for document in DOCUMENTS} | {REPORT: everything()}
    for document, text in texts.items():
        if not document.is_file() or document.read_text() != text:
            document.write_text(text)
            print(f"{document.relative_to(ROOT)} is new")
