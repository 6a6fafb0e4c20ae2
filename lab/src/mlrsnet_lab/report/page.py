"""The report as one HTML page that needs nothing but itself."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlrsnet_lab.report import studies
from mlrsnet_lab.report.layout import HOW_TO_READ, Column, columns, describe, heading, remarks
from mlrsnet_lab.report.marks import dots, span, swatch
from mlrsnet_lab.report.markup import Html, element, join
from mlrsnet_lab.report.numbers import count_text, metric_text
from mlrsnet_lab.report.pictures import Picture, meta_training, render, training, width
from mlrsnet_lab.report.runs import Run
from mlrsnet_lab.report.styles import Style, styles
from mlrsnet_lab.report.tables import Report, Row, Section, Table
from mlrsnet_lab.sheets import Sheet

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""With it the browser refuses anything from another place."""

UNREADABLE = "unreadable"
LEARNING = (
    "How the schedules were learned: the LR they set, and the hypergradient that changed them; and the LR of each network, from "
    "the first (light) to the last (black), while the loss stays the same."
)
DOTS = "In the small drawings a dot is our mean, the line through it the standard deviation, a ring the paper's mean."


def page(report: Report) -> str:
    """The whole page; the same report gives the same text."""
    looks = styles(table.rows for section in report.sections for table in section.tables)
    parts = [_header(report), _contents(report)]
    parts += [_section(f"s{number}", section, looks) for number, section in enumerate(report.sections, 1)]
    parts += [_study(f"t{number}", study) for number, study in enumerate(report.studies, 1)]
    parts += [_unreadable(report)] if report.unreadable else []
    body = element("body", element("main", join(parts, "\n")))
    return "<!DOCTYPE html>\n" + element("html", _head(report), "\n", body, lang="en") + "\n"


def _head(report: Report) -> Html:
    style = Html(Path(__file__).with_name("page.css").read_text())
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{report.name}: runs of mlrsnet"),
        element("style", style),
    )


def _header(report: Report) -> Html:
    facts = [element("div", element("dt", key), element("dd", value)) for key, value in report.facts.items()]
    return element(
        "header",
        element("p", "mlrsnet report", class_="kind"),
        element("h1", report.name),
        element("dl", *facts, class_="facts"),
        element("p", HOW_TO_READ, " ", DOTS, class_="quiet") if report.runs else "",
    )


def _contents(report: Report) -> Html:
    links = [
        element("li", _link(f"s{number}", heading(section)), _tables_of(number, section))
        for number, section in enumerate(report.sections, 1)
    ]
    links += [element("li", _link(f"t{number}", heading(study))) for number, study in enumerate(report.studies, 1)]
    if report.unreadable:
        links.append(element("li", _link(UNREADABLE, "Could not be read")))
    return element("nav", element("ul", *links), aria_label="Contents") if len(links) > 1 else Html("")


def _tables_of(number: int, section: Section) -> Html:
    links = [_link(f"s{number}-{index}", table.title) for index, table in enumerate(section.tables, 1)]
    return join([": ", join(links, ", ")]) if links else Html("")


def _link(anchor: str, text: str) -> Html:
    return element("a", text, href=f"#{anchor}")


def _section(anchor: str, section: Section, looks: dict[str, Style]) -> Html:
    parts = _opening(section, section.warning)
    parts += [_table(f"{anchor}-{index}", table, looks) for index, table in enumerate(section.tables, 1)]
    return element("section", join(parts, "\n"), id=anchor)


def _opening(section: Section | Sheet, warning: str = "") -> list[Html]:
    scale = [" ", element("span", f"scale: {section.scale}", class_="badge")] if section.scale else []
    parts = [element("h2", section.title, *scale)]
    if section.claim:
        own = any(note.startswith("Not in the paper") for note in section.notes)
        parts.append(element("p", element("b", "The claim: " if own else "The paper: "), section.claim, class_="claim"))
    if warning:
        parts.append(element("p", warning, class_="warning"))
    if section.notes:
        parts.append(element("ul", *(element("li", note) for note in section.notes), class_="notes"))
    return parts


def _study(anchor: str, study: Sheet) -> Html:
    parts = _opening(study)
    for grid in study.grids:
        shown = studies.columns(grid)
        body = [
            element("tr", *(element("td", column.cells[index], class_=_kind(column)) for column in shown))
            for index in range(len(shown[0].cells))
        ]
        parts += [element("h3", grid.title), element("p", grid.note, class_="quiet")]
        parts.append(_scrolling([_head_of(column) for column in shown], body, grid.title))
    drawn = studies.panels(study)
    looks = {line.name: line.style for panel in drawn for line in panel.lines}
    keys = [element("span", swatch(look), name, class_="key") for name, look in looks.items()]
    parts.append(_figure([render(panel) for panel in drawn], join(keys, " ")))
    return element("section", join(parts, "\n"), id=anchor)


def _scrolling(head: list[Html], body: list[Html], label: str) -> Html:
    rows = element("table", element("thead", element("tr", *head)), "\n", element("tbody", join(body, "\n")))
    return element("div", rows, class_="scroll", tabindex="0", role="region", aria_label=label)


def _head_of(column: Column) -> Html:
    return element("th", column.title, scope="col", class_=_kind(column))


def _table(anchor: str, table: Table, looks: dict[str, Style]) -> Html:
    parts = [element("h3", table.title), element("p", describe(table), class_="quiet")]
    parts += [element("p", note, class_="warning") for note in table.notes]
    parts.append(_grid(table, looks))
    said = [element("li", element("b", rows), ": ", remark) for rows, remark in _shared(remarks(table))]
    parts += [element("ul", *said, class_="notes")] if said else []
    parts += [_figure(training(table, looks), _legend(table, looks)), _figure(meta_training(table, looks), LEARNING)]
    parts.append(_figure(width(table, looks), _legend(table, looks)))
    return element("article", join(parts, "\n"), _details(table), id=anchor)


def _grid(table: Table, looks: dict[str, Style]) -> Html:
    shown, ends = columns(table), span(table)
    head = [_head_of(column) for column in shown]
    if ends:
        low, high = (element("span", metric_text(end)) for end in ends)
        head.insert(2, element("th", element("div", low, high, class_="ends"), scope="col"))
    rows = [(index, row) for index, row in enumerate(table.rows) if row.runs or row.paper or not table.runs]
    body = [_line(table, row, index, shown, ends, looks.get(row.name)) for index, row in rows]
    return _scrolling(head, body, table.title)


def _shared(said: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """(rows, remark): what is true of several rows is said once."""
    rows: dict[str, list[str]] = {}
    for row, remark in said:
        rows.setdefault(remark, []).append(row)
    return [(", ".join(names), remark) for remark, names in rows.items()]


def _line(
    table: Table, row: Row, index: int, shown: list[Column], ends: tuple[float, float] | None, look: Style | None
) -> Html:
    cells = [element("th", swatch(look) if look else "", row.name, scope="row")]
    for column in shown[1:]:
        text = column.cells[index]
        cells.append(element("td", element("b", text) if index in column.bold else text, class_=_kind(column)))
    if ends:  # after the name and the number, which a phone shows without scrolling
        paper = row.paper if table.comparable else None
        cells.insert(
            2, element("td", dots(row.stat(table.deciding), paper, ends, look) if look and row.counted else "")
        )
    return element("tr", *cells, class_="" if row.counted else "empty")


def _kind(column: Column) -> str:
    return "number" if column.numeric else "text"


def _figure(pictures: list[Picture], caption: str) -> Html:
    if not pictures:
        return Html("")
    panels = [element("div", element("p", picture.title), _image(picture), class_="panel") for picture in pictures]
    return element("figure", element("div", *panels, class_="panels"), element("figcaption", caption))


def _image(picture: Picture) -> Html:
    data = base64.b64encode(picture.data).decode()
    return element("img", src=f"data:image/{picture.kind};base64,{data}", alt=picture.alt)


def _legend(table: Table, looks: dict[str, Style]) -> Html:
    rows = [row for row in table.rows if row.runs]
    keys = [element("span", swatch(looks[row.name]), _legend_name(row), class_="key") for row in rows]
    bands = "Mean over seeds; the band spans the lowest and the highest."
    return join([*keys, element("span", bands, class_="how")], " ")


def _legend_name(row: Row) -> str:
    return row.name if any(run.record.ended for run in row.runs) else f"{row.name} (not finished)"


def _details(table: Table) -> Html:
    runs = [_run(row, run) for row in table.rows for run in row.runs]
    if not runs:
        return Html("")
    return element("details", element("summary", count_text(len(runs), "run")), *runs, class_="runs")


def _run(row: Row, run: Run) -> Html:
    result = f"{metric_text(run.result('last'))} at epoch {run.epoch}"
    summary = f"{row.name}, seed {run.seed}: {run.remark or f'{result}, finished'}"
    return element("details", element("summary", summary), element("dl", *_facts(run), class_="run"))


def _facts(run: Run) -> Iterator[Html]:
    data = run.record.data
    yield from _fact("folder", run.folder)
    for key in ("device", "commit"):
        yield from _fact(key, data.get(key))
    for key in ("error", "result", "spec", "task", "timing", "versions"):
        yield from _fact(key, data.get(key), preformatted=True)


def _fact(key: str, value: Any, preformatted: bool = False) -> Iterator[Html]:
    if value:
        text = value if isinstance(value, str) else "\n".join(_setting(*pair) for pair in _pairs(value))
        yield element("dt", key)
        yield element("dd", element("pre", text) if preformatted else text)


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else [("", value)]


def _setting(key: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{key}: {text}" if key else text


def _unreadable(report: Report) -> Html:
    items = [element("li", element("b", place), ": ", reason) for place, reason in report.unreadable]
    return element("section", element("h2", "Could not be read"), element("ul", *items), id=UNREADABLE)
