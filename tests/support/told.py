"""Shared by the tests of documents: their text, and the records behind it."""

from pathlib import Path

import paper

ROOT = Path(__file__).parents[2]


def read(document):
    """The text of a document, without line breaks."""
    return " ".join((ROOT / document).read_text().split())


def column(recipe, name):
    """Finished runs of one column of a recipe, by the folder of their row."""
    rows = {folder.name: paper.finished(folder) for folder in sorted((paper.RESULTS / recipe / name).iterdir())}
    return {row: runs for row, runs in rows.items() if runs}


def results(runs, which="last"):
    return [run.result[which] for run in runs]
