"""The rates of Section 5.1's theorems, promised and measured: from the record of the recipe `theory`."""

from typing import Any

from experiments import markdown, results

RECORD = "theory/study.json"
SETTING = ("theorem", "sigma", "c", "M, N")
HOLDS = {True: "yes", False: "no"}


def exponents() -> list[str]:
    """A row for every setting."""
    promised, measured = (_rows(f"Rates: {title}") for title in ("promised", "measured"))
    lines = []
    for said, seen in zip(promised, measured, strict=True):
        if [said[name] for name in SETTING] != [seen[name] for name in SETTING]:
            raise ValueError(f"{RECORD} has promises and measurements in different orders: make it anew")
        lines.append(
            [
                *(f"{said[name]:g}" if name == "sigma" else said[name] for name in SETTING),
                _rate(said["paper"], said["paper's exponent"]),
                _rate(said["derived"], said["derived exponent"]),
                format(said["bound's exponent"], ".2f"),
                f"{seen['exponent']:.2f} ± {seen['its error']:.2f}",
                f"{HOLDS[seen['as the paper says']]}, {HOLDS[seen['as derived']]}",
            ]
        )
    return markdown.table([*SETTING, "the paper", "derived", "bound", "measured", "so fast"], lines)


def _rate(name: str, exponent: float) -> str:
    return f"{name} ({exponent:.2f})"


def _rows(title: str) -> list[dict[str, Any]]:
    """The rows of a grid, by the names of its columns."""
    (grid,) = (grid for grid in results.data(RECORD)["grids"] if grid["title"] == title)
    return [dict(zip(grid["columns"], row, strict=True)) for row in grid["rows"]]
