"""The report as GitHub Markdown: the same tables, without pictures."""

import re

from mlrsnet_lab.report.layout import HOW_TO_READ, Column, columns, describe, grid_columns, heading, remarks
from mlrsnet_lab.report.tables import Report, Section

SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def markdown(report: Report) -> str:
    """The whole report."""
    facts = [f"- {key}: {escape(value)}" for key, value in report.facts.items()]
    parts = [f"# Runs in {escape(report.name)}", "\n".join(facts), HOW_TO_READ if report.runs else ""]
    for section in report.sections:
        parts += _section(section)
    if report.unreadable:
        lines = [f"- {escape(place)}: {escape(reason)}" for place, reason in report.unreadable]
        parts += ["## Could not be read", "\n".join(lines)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows unchanged, on one line.

    >>> print(escape("a|b <script>"))
    a\\|b \\<script\\>
    """
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _section(section: Section) -> list[str]:
    notes = "\n".join(f"- {escape(note)}" for note in section.notes)
    parts = [f"## {escape(heading(section))}", escape(section.claim), escape(section.warning), notes]
    for table in section.tables:
        parts += [f"### {escape(table.title)}", escape(describe(table)), *map(escape, table.notes)]
        parts.append(_lines(columns(table)))
        parts.append("\n".join(f"- {escape(row)}: {escape(remark)}" for row, remark in remarks(table)))
    for grid in section.grids:
        parts += [f"### {escape(grid.title)}", escape(grid.note), _lines(grid_columns(grid))]
    return parts


def _lines(shown: list[Column]) -> str:
    lines = [[escape(column.title) for column in shown], ["---:" if column.numeric else "---" for column in shown]]
    lines += [[_cell(column, index) for column in shown] for index in range(len(shown[0].cells))]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(column: Column, index: int) -> str:
    text = escape(column.cells[index])
    return f"**{text}**" if index in column.bold else text
