"""Tables in documents that are made from records: `python docs/tools/blocks.py` writes them anew, and a test holds them.

A document has a pair of comments, `<!-- made: NAME -->` and `<!-- end -->`; what stands between them is `MAKERS[NAME]()`.
"""

import re
from collections.abc import Callable
from pathlib import Path

import costs
import paper
import ship

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MAKERS: dict[str, Callable[[], list[str]]] = {
    "table1": paper.table1,
    "sensitivity": paper.sensitivity,
    "text": paper.text,
    "recipes": costs.recipes,
    "shipped": ship.table,
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
