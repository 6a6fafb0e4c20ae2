"""The paper's figures: each has a picture and a place on its page, and says what was not run."""

import numpy as np
import pytest

from experiments import results
from experiments.drawing import new
from experiments.figures import alone, figure
from experiments.figures.looks import look
from experiments.figures.panels import Line, Panel, limits
from experiments.figures.paper import FIGURES, shown
from mlrsnet_lab.report.runs import Curve

PAPER = (1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
"""Fig. 2 is a drawing."""


def curve(*values):
    y = np.array(values, dtype=float)
    return Curve(np.arange(1.0, len(y) + 1), y, y, y)


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_every_figure_of_the_paper_is_on_the_page_with_a_text_for_those_who_cannot_see_it():
    page = (results.ROOT / "docs" / "paper_figures.md").read_text()
    assert list(FIGURES) == [f"fig{number:02}" for number in PAPER]
    for number in PAPER:
        assert f"## Fig. {number}: " in page
        assert f"<!-- made: fig{number:02} -->" in page
        assert FIGURES[f"fig{number:02}"].alt


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_without_records_says_so_in_every_panel(name, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(figure, "save", lambda drawing, out: drawn.append(drawing))
    FIGURES[name].draw(tmp_path / "figure.png")
    panels = [panel for row in FIGURES[name].rows for panel in row]
    said = [words(axes) for axes in drawn[0].axes]
    assert said == [[] if panel is None else ["not run yet"] for panel in panels]
    assert not FIGURES[name].recorded


def test_the_page_shows_no_picture_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr("experiments.figures.paper.PICTURES", tmp_path)
    assert shown("fig05") == results.NOTHING
    (tmp_path / "fig05.png").touch()
    assert shown("fig05")[0].endswith("(pictures/fig05.png)")


def test_a_row_that_was_not_run_is_left_out(monkeypatch):
    found = {"Fixed": curve(10, 20), "MLR-SNet, T_val 6": None}
    monkeypatch.setattr(Line, "curve", lambda line, series: found[line.row])
    _, axes = new(1, 1, (3, 3))
    panel = Panel("accuracy", [Line("table1", "CIFAR-10", row, look(row)) for row in found])
    assert list(panel.draw(axes)) == ["Fixed"]


def test_a_row_that_ends_far_below_the_others_is_named_below_the_panel(monkeypatch):
    found = {
        row: curve(30, end) for row, end in {"Fixed": 80, "MultiStep": 90, "SGDR": 85, "Adam": 84, "L4": 10}.items()
    }
    monkeypatch.setattr(Line, "curve", lambda line, series: found[line.row])
    _, axes = new(1, 1, (3, 3))
    Panel("accuracy", [Line("table1", "CIFAR-10", row, look(row)) for row in found]).draw(axes)
    assert axes.get_xlabel() == "epoch\n(below: L4)"
    assert axes.get_ylim()[0] > 60


def test_the_best_end_is_in_the_panel():
    for higher, best in ((True, 90), (False, 70)):
        low, high = limits([(look("Fixed"), curve(100, 80)), (look("SGDR"), curve(100, best))], higher)
        assert low < best < high


def test_what_networks_say_alone_is_kept_for_the_picture(tmp_path, monkeypatch):
    said = {"MLR-SNet, meta-trained": [[0.5, 0.25], [0.1, 0.1]]}
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(alone, "curves", lambda folder: said)
    (tmp_path / "phases_cpu").mkdir()
    assert alone.networks() == {}
    alone.write(tmp_path, tmp_path / alone.RECORD)
    assert alone.networks() == said
    monkeypatch.setattr(alone, "curves", lambda folder: {"MLR-SNet, meta-trained": []})
    with pytest.raises(ValueError, match="schedule files, got none"):
        alone.write(tmp_path, tmp_path / alone.RECORD)
