"""What the tests of documents share: their words, and the records behind them."""

from pathlib import Path

import paper

ROOT = Path(__file__).parents[2]


def read(document):
    """Without line breaks."""
    return " ".join((ROOT / document).read_text().split())


def column(recipe, name):
    """Runs of a recipe's column that came to their end, by folder of their row."""
    rows = {folder.name: paper.finished(folder) for folder in sorted((paper.RESULTS / recipe / name).iterdir())}
    return {row: runs for row, runs in rows.items() if runs}


def results(runs, which="last"):
    return [run.result[which] for run in runs]
