"""The cards of schedules that Algorithm 1 left say what the records say, and what was shipped was chosen by validation."""

import re

import pytest

from experiments import algorithm_1, results
from experiments.results import ROOT
from mlrsnet import Schedule
from mlrsnet_lab import records

OTHERS, RIVALS = "other candidates, validation", "other rows of its table, test, mean of seeds"


@pytest.fixture(params=algorithm_1.SHIPPED)
def card(request):
    return Schedule.load(request.param).card.results


@pytest.fixture
def run(card):
    return records.read(ROOT / card[algorithm_1.OWN]["record"])


@pytest.fixture
def column(run):
    """The run's column by row."""
    labels = run.data["labels"]
    return results.rows(results.place(labels["recipe"], labels["scale"]), labels["column"])


def mean(values):
    return pytest.approx(sum(values) / len(values), rel=1e-5)


def test_it_reached_what_its_card_says(card, run):
    own = {
        "validation, last epoch": run.result["val_metric"],
        "test, last epoch": run.result["last"],
        "test, best epoch": run.result["best"],
        "best epoch": run.result["best_epoch"],
        "LR at the beginning": run.trace["lr"][0],
    }
    assert {key: card[algorithm_1.OWN][key] for key in own} == pytest.approx(own, rel=1e-5)


def test_no_candidate_was_better_on_validation_data(card, run, column):
    own, others = run.result["val_metric"], card.get(OTHERS, {})
    for row, value in others.items():
        assert value == results.ended(column[row])[0].result["val_metric"]
        assert (value < own) == (run.data["metric"]["better"] == "higher")
    learned = {row for row, found in column.items() if results.ended(found)[0].spec["schedule"] == "mlr-snet"}
    assert {run.data["labels"]["row"], *others} == {row for row in learned if "the authors' program" not in row}


def test_the_other_rows_of_its_table_reached_what_its_card_says(card, run, column):
    rivals = {row: results.last_mean(found) for row, found in column.items() if row != run.data["labels"]["row"]}
    assert card[RIVALS] == pytest.approx(rivals, rel=1e-5)


def test_where_it_was_used_it_reached_what_its_card_says(card):
    uses = {re.search(r"\((.*)\)$", key)[1]: one for key, one in card.items() if key.startswith("transferred to ")}
    assert uses
    for place, one in uses.items():
        ends = [run.result["last"] for run in records.runs(results.RESULTS / place) if run.ended]
        assert one["test, last epoch"] == mean(ends)
