"""What is shipped from runs of Algorithm 1 is chosen by validation, and its card says what the records say."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import results as recorded
from experiments import ship
from experiments.pace_of_algorithm_1 import meta_training
from mlrsnet import Schedule, cli
from mlrsnet.card import Card
from mlrsnet.files import names
from mlrsnet.nets import LSTMNet
from mlrsnet.ranges import Gamma
from mlrsnet_lab import records
from mlrsnet_lab.recipes import table1, table3
from mlrsnet_lab.records import Record
from mlrsnet_lab.sheets import slug

ROOT = Path(__file__).parents[2]

ACCURACY, PERPLEXITY = {"name": "accuracy", "better": "higher"}, {"name": "perplexity", "better": "lower"}
LEFT = Card("run", "left", "cifar10", "SGD()", 200, Gamma(), (0.1, 2.3), {}, {"torch": "2.11.0"})
COMMON, RARE, NAME = "MLR-SNet", table1.RARER, "cifar10-resnet18"
COLUMNS = {"cifar-10": "CIFAR-10"}


@pytest.fixture(autouse=True)
def fresh():
    """Files change within a test."""
    yield
    recorded.forget()


def made(root, monkeypatch):
    """What is shipped from the records below a folder."""
    monkeypatch.setattr(recorded, "RESULTS", root)
    recorded.forget()
    return ship.made()


def run(place, row, test, val=90.0, *, schedule="fixed", options=None, metric=ACCURACY, status="finished", **more):
    """A run in a folder; one of Algorithm 1 leaves a schedule."""
    folder = place / slug(row) / f"seed{more.get('seed', 0)}"
    result = {"epoch": 2, "last": test, "best": test, "best_epoch": 1, "val_metric": val, "val_loss": 0.5} | more.get(
        "result", {}
    )
    spec = {
        "task": more.get("task", "cifar10"),
        "model": "resnet18",
        "optimizer": more.get("optimizer", "sgd"),
        "schedule": schedule,
        "epochs": 2,
        "seed": more.get("seed", 0),
        "schedule_options": options or {},
    }
    data = {
        "format": 1,
        "status": status,
        "spec": spec,
        "labels": {
            "recipe": place.parent.name,
            "scale": "paper",
            "row": row,
            "column": COLUMNS.get(place.name, place.name),
        },
        "metric": metric,
        "steps_per_epoch": 100,
        "total_steps": 200,
        "result": result,
    }
    epochs = [{"epoch": 1, "hypergradient": 1.0}]
    trace = {"step": [0, 50, 100, 150], "lr": [0.3, 0.2, 0.04, 0.02]}
    records.write(Record(data, epochs, trace, folder))
    if schedule == "mlr-snet":
        Schedule([LSTMNet(4), LSTMNet(4)], LEFT).save(folder / records.SCHEDULE)
    return records.read(folder)


def learned(place, row, test, val, every, **more):
    return run(place, row, test, val, schedule="mlr-snet", options={"every": every, "name": NAME}, **more)


@pytest.fixture
def results(tmp_path):
    """Table 1: of two candidates the first is better on validation data, the second on test data."""
    place = tmp_path / "results" / "table1_paper" / "cifar-10"
    learned(place, COMMON, 91.0, 93.0, every=100)
    learned(place, RARE, 92.0, 92.0, every=50)
    for seed, test in enumerate((94.0, 95.0)):
        run(place, "MultiStep", test, seed=seed)
    run(place, "Exponential", 89.0)
    run(place, "Fixed", 99.0, status="running")
    return tmp_path / "results"


@pytest.fixture
def moved(results):
    """The shipped schedule on other trainings."""
    uses = {"schedule": "learned", "options": {"schedule": NAME}}
    for column, test in (("SVHN", 96.0), ("MNIST", 99.5), ("Faces", 50.0)):
        place = results / "transfer_paper" / slug(column)
        run(place, "Ours", test, task=slug(column), **uses)
        run(place, "MultiStep", 97.0)
        run(place, "Fixed", 95.0)
        run(place, "Prodigy + cosine", 100.0, schedule="cosine", optimizer="prodigy")
        run(place, "Another", 100.0, schedule="learned", options={"schedule": "universal-lstm"})
    run(results / "transfer_paper" / "alone", "Ours", None, status="diverged", task="alone", **uses)
    run(
        results / "transfer_paper" / "alone",
        "In part",
        12.0,
        schedule="learned",
        options={"schedule": NAME, "phases": 1},
    )
    return results


def test_the_run_is_chosen_by_validation_and_not_by_test(results, monkeypatch):
    (shipped,) = made(results, monkeypatch).values()
    assert "T_val = 100, 2 meta-updates in 2 epochs of cifar10 with resnet18, seed 0" in shipped.card.description
    assert f"chosen by validation accuracy among {COMMON} / {RARE}" in shipped.card.description
    assert shipped.card.results[ship.OWN]["test, last epoch"] == 91.0
    assert shipped.card.results[ship.OTHERS] == {RARE: 92.0}


def test_a_tie_goes_to_the_lower_validation_loss(tmp_path):
    first = learned(tmp_path, "a", 99.0, 93.0, 100, result={"val_loss": 0.4})
    second = learned(tmp_path, "b", 91.0, 93.0, 100, result={"val_loss": 0.3})
    assert ship.choose([first, second]) is second


def test_for_text_the_lower_perplexity_is_chosen(tmp_path):
    low, high = (learned(tmp_path, str(val), 200 - val, val, 100, metric=PERPLEXITY) for val in (80.0, 120.0))
    assert ship.choose([high, low]) is low


def test_what_has_not_come_to_its_end_is_no_candidate(results, monkeypatch):
    place = results / "table1_paper" / "cifar-10"
    learned(place, COMMON, 91.0, 93.0, every=100, status="diverged")
    card = made(results, monkeypatch)[NAME].card
    assert "T_val = 50" in card.description
    assert "no other candidate" in card.description
    assert ship.OTHERS not in card.results
    assert card.results[ship.RIVALS][COMMON] == ship.DIVERGED


def test_nothing_is_made_where_there_are_no_runs(tmp_path, monkeypatch):
    assert made(tmp_path, monkeypatch) == {}
    assert ship.table() == ["None of them has been made yet."]


def test_weights_and_what_decides_an_lr_are_those_of_the_run(results, monkeypatch):
    shipped = made(results, monkeypatch)[NAME]
    left = Schedule.load(results / "table1_paper/cifar-10/mlr-snet/seed0/schedule.safetensors")
    assert shipped.fingerprint() == left.fingerprint()
    kept = replace(shipped.card, name=left.card.name, description=left.card.description, results={})
    assert kept == left.card


def test_the_card_says_what_the_records_say(moved, monkeypatch):
    card = made(moved, monkeypatch)[NAME].card
    assert card.name == NAME
    assert card.results[ship.OWN] == {
        "record": "results/table1_paper/cifar-10/mlr-snet/seed0",
        "metric": "accuracy",
        "validation, last epoch": 93.0,
        "test, last epoch": 91.0,
        "test, best epoch": 91.0,
        "best epoch": 1,
        "LR at the beginning": 0.3,
        "LR at the end": 0.03,
    }
    assert card.results[ship.RIVALS] == {"Exponential": 89.0, RARE: 92.0, "MultiStep": 94.5}
    assert card.results["transferred to svhn with resnet18, 2 epochs (transfer_paper/svhn/ours)"] == {
        "metric": "accuracy",
        "test, last epoch": 96.0,
        "best hand-designed, MultiStep": 97.0,
        "worst hand-designed, Fixed": 95.0,
    }
    assert card.results["transferred to alone with resnet18, 2 epochs (transfer_paper/alone/ours)"] == {
        "metric": "accuracy",
        "test, last epoch": ship.DIVERGED,
    }
    assert len([key for key in card.results if key.startswith(ship.TRANSFERRED)]) == 4


def test_more_seeds_of_the_shipped_setting_are_told(results, monkeypatch):
    learned(results / "table1_paper" / "cifar-10", COMMON, 81.0, 99.0, every=100, seed=1)
    card = made(results, monkeypatch)[NAME].card
    assert card.results[ship.OWN]["test, last epoch, mean of 2 seeds"] == 86.0
    assert card.results[ship.OWN]["test, last epoch"] == 91.0


def test_where_it_fails_is_told(moved, monkeypatch):
    told = made(moved, monkeypatch)[NAME].card.results[ship.FAILS]
    place = "{} with resnet18, 2 epochs".format
    assert f"Rows of its table that are better (2 of 3 trained to the end): MultiStep 94.50, {RARE} 92.00." in told
    assert f"it diverged on {place('alone')}." in told
    assert f"it is worse than every hand-designed row on {place('faces')}." in told
    assert f"it is worse than the best hand-designed row, but not than all, on {place('svhn')}." in told
    assert f"no hand-designed row is better on {place('mnist')}." in told


@pytest.mark.parametrize(
    ("higher", "rivals", "told"),
    [
        (True, {"A": 50.0, "B": 60.0}, "It is behind every other row of its table: 40.00; the next is A, 50.00."),
        (True, {"A": 30.0, "B": None}, "None of the other rows of its table (2) is better."),
        (True, {"A": 40.0}, "None of the other rows of its table (1) is better."),
        (True, {"A": 50.0, "B": None}, "Rows of its table that are better (1 of 2 trained to the end): A 50.00."),
        (False, {"A": 30.0, "B": 20.0}, "It is behind every other row of its table: 40.00; the next is A, 30.00."),
        (False, {"A": 50.0}, "None of the other rows of its table (1) is better."),
        (True, {}, "No other row of its table has been trained."),
    ],
)
def test_the_words_about_its_table_follow_the_numbers(higher, rivals, told):
    own = ship.Comparison("", "", "metric", higher, 40.0, rivals)
    assert ship.where_it_fails(own, []) == f"{told} What it reaches when transferred is not recorded."


def test_the_same_records_make_the_same_bytes(moved, tmp_path, monkeypatch):
    contents = []
    for name in ("first", "second"):
        made(moved, monkeypatch)[NAME].save(tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]


def test_show_and_the_documents_tell_the_card(moved, tmp_path, capsys, monkeypatch):
    made(moved, monkeypatch)[NAME].save(tmp_path / "shipped.safetensors")
    assert cli.main(["schedules", "show", str(tmp_path / "shipped.safetensors")]) == 0
    shown = capsys.readouterr().out
    assert f"results      {ship.OWN}:\n" in shown
    assert "\n               test, last epoch: 91.0\n" in shown
    assert "{" not in shown
    (row,) = ship.table()[2:]
    assert row.startswith(f"| `{NAME}` | Algorithm 1 of the paper: T_val = 100, ")
    assert "| accuracy; validation, last epoch: 93.00; test, last epoch: 91.00; " in row
    assert "LR: from 0.3 to 0.03 | Rows of its table" in row
    assert row.count("|") == 5


def test_a_real_run_can_be_shipped(tmp_path, monkeypatch):
    shutil.copytree(recorded.RESULTS / "table1_short", tmp_path / "table1_paper")
    shipped = made(tmp_path, monkeypatch)[NAME]
    place = tmp_path / "table1_paper" / "cifar-10" / "mlr-snet" / "seed0"
    record, left = records.read(place), Schedule.load(place / records.SCHEDULE)
    assert shipped.fingerprint() == left.fingerprint()
    assert shipped.card.results[ship.OWN]["test, last epoch"] == record.result["last"]
    assert "Rows of its table that are better (6 of 7 trained to the end)" in shipped.card.results[ship.FAILS]
    updates = f"{meta_training(record).updates} meta-updates"
    assert updates in shipped.card.description
    assert updates in left.card.description  # as the run itself counted them


def test_the_candidates_are_rows_of_their_recipes():
    for name, recipe in ((NAME, table1), ("ptb-lstm", table3)):
        source = ship.SOURCES[name]
        cells = {(cell.column, cell.row): cell.spec for cell in recipe.cells("paper")}
        for row in source.rows:
            assert cells[source.column, row].schedule_options["name"] == name
        assert source.folder == f"{recipe.RECIPE.name}_paper"


@pytest.mark.parametrize("name", ship.SOURCES)
def test_a_shipped_file_is_what_the_records_make(name):
    made, file = ship.made().get(name), names.SHIPPED / f"{name}{names.SUFFIX}"
    assert file.is_file() == (made is not None), "run `python -m experiments ship`, or restore the records"
    if made is not None:
        shipped = Schedule.load(file)
        assert shipped.card == made.card, "run `python -m experiments ship`"
        assert shipped.fingerprint() == made.fingerprint()
