"""The report as one HTML page that needs nothing but itself: what `page.html.jinja` is told. Text from files is escaped there."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from mlrsnet_lab.report import layout, numbers, pictures, styles
from mlrsnet_lab.report.pictures import Panel
from mlrsnet_lab.report.styles import Style
from mlrsnet_lab.report.tables import Report, Section, Table

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""With it the browser refuses anything from another place."""


def page(report: Report) -> str:
    """The whole page; the same report gives the same text."""
    templates = Environment(loader=PackageLoader("mlrsnet_lab", "report"), autoescape=True, trim_blocks=True)
    style = Markup(Path(__file__).with_name("page.css").read_text())
    templates.globals.update(
        layout=layout, numbers=numbers, pictures=pictures, styles=styles, policy=POLICY, style=style
    )
    templates.globals.update(in_lines=in_lines, shared=shared, styles_of=styles_of, whose=whose)
    looks = styles.styles(table.rows for section in report.sections for table in section.tables)
    return templates.get_template("page.html.jinja").render(report=report, looks=looks).lstrip() + "\n"


def styles_of(panels: list[Panel]) -> dict[str, Style]:
    """How each line is drawn, by its name."""
    return {line.name: line.style for panel in panels for line in panel.lines}


def shared(table: Table) -> list[tuple[str, str]]:
    """(rows, remark): what is true of several rows is said once."""
    rows: dict[str, list[str]] = {}
    for row, remark in layout.remarks(table):
        rows.setdefault(remark, []).append(row)
    return [(", ".join(names), remark) for remark, names in rows.items()]


def whose(section: Section) -> str:
    """Who makes the claim."""
    return "The claim: " if any(note.startswith("Not in the paper") for note in section.notes) else "The paper: "


def in_lines(value: Any) -> str:
    """A value of a record, an object as one setting per line."""
    pairs = value.items() if isinstance(value, dict) else [("", value)]
    texts = [(key, one if isinstance(one, str) else json.dumps(one)) for key, one in pairs]
    return "\n".join(f"{key}: {text}" if key else text for key, text in texts)
