"""Tables in documents that are made from records: `python docs/tools/blocks.py` writes them anew, and a test holds them.

A document has a pair of comments, `<!-- made: NAME -->` and `<!-- end -->`; what stands between them is `MAKERS[NAME]()`.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import beside
import costs
import paper
import ship
import timing
import transfers

ROOT = Path(__file__).parents[2]
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
    "large": timing.large,
}
BLOCK = re.compile(r"<!-- made: (\S+) -->\n.*?<!-- end -->", re.DOTALL)


def filled(text: str) -> str:
    """The document with every table as the records have it now."""
    return BLOCK.sub(lambda found: "\n".join([f"<!-- made: {found[1]} -->", *MAKERS[found[1]](), "<!-- end -->"]), text)


if __name__ == "__main__":
    for document in DOCUMENTS:
        before = document.read_text()
        if (after := filled(before)) != before:
            document.write_text(after)
            print(f"{document.relative_to(ROOT)} is new")
