"""The report as one HTML page that needs nothing but itself: what `page.html.jinja` is told. Text from files is escaped there."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from mlrsnet_lab.report import layout
from mlrsnet_lab.report.numbers import count_text, metric_text
from mlrsnet_lab.report.pictures import Panel, Picture, meta_training, panels, render, training, width
from mlrsnet_lab.report.styles import Style, dashes, ink, place, span, styles
from mlrsnet_lab.report.tables import Report, Section, Table

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""With it the browser refuses anything from another place."""


def page(report: Report) -> str:
    """The whole page; the same report gives the same text."""
    templates = Environment(loader=PackageLoader("mlrsnet_lab", "report"), autoescape=True, trim_blocks=True)
    templates.globals.update(
        columns=layout.columns,
        count_text=count_text,
        dashes=dashes,
        describe=layout.describe,
        grid_columns=layout.grid_columns,
        heading=layout.heading,
        how_to_read=layout.HOW_TO_READ,
        in_lines=in_lines,
        ink=ink,
        meta_training=meta_training,
        metric_text=metric_text,
        panels=panels,
        place=place,
        policy=POLICY,
        rendered=rendered,
        shared=shared,
        span=span,
        style=Markup(Path(__file__).with_name("page.css").read_text()),
        styles_of=styles_of,
        training=training,
        whose=whose,
        width=width,
    )
    looks = styles(table.rows for section in report.sections for table in section.tables)
    return templates.get_template("page.html.jinja").render(report=report, looks=looks).lstrip() + "\n"


def rendered(panels: list[Panel]) -> list[Picture]:
    """Their pictures."""
    return [render(panel) for panel in panels]


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
