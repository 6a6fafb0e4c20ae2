"""What a run writes down, also where it diverges; and that test data change nothing in it."""

import json
import math

import numpy as np
import pytest
from runs import CPU, PER_EPOCH, SMALL_CNN, Notes, no_training, of_text, tiny

from mlrsnet_lab import records
from mlrsnet_lab.feeds import Score
from mlrsnet_lab.feeds.text import perplexity
from mlrsnet_lab.loop import run
from mlrsnet_lab.run_record import summarise
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper


def test_a_record_says_what_was_run_on_what_and_with_which_result(tmp_path):
    record = run(tiny(), tmp_path, Settings(device="cpu"), labels={"row": "SGD"})
    data = json.loads((tmp_path / "record.json").read_text())
    assert data == record.data
    assert set(data) == {
        *("format", "status", "spec", "labels", "versions", "device", "commit", "metric", "task", "num_parameters"),
        *("steps_per_epoch", "total_steps", "result", "timing", "sessions"),
    }
    assert data["spec"] == tiny().to_dict()
    assert RunSpec.from_file(tmp_path / "record.json") == tiny()
    assert data["labels"] == {"row": "SGD"}
    same = {key: data[key] for key in ("versions", "device", "commit")}
    assert data["sessions"] == [{**same, "from_step": 0}]
    assert data["versions"].keys() >= {"mlrsnet", "torch"}
    assert data["task"] == {"num_classes": 2, "train": 246, "val": 53, "test": 61, "note": ""}
    assert data["num_parameters"] == 64 * 8 + 8 + 8 * 2 + 2
    assert (data["steps_per_epoch"], data["total_steps"]) == (PER_EPOCH, 2 * PER_EPOCH)
    assert data["timing"]["train_seconds"] == pytest.approx(sum(line["seconds"] for line in record.epochs))
    lines = [json.loads(line) for line in (tmp_path / "epochs.jsonl").read_text().splitlines()]
    assert lines == record.epochs
    names = {"epoch", "step", "train_loss", "lr", "seconds", "val_loss", "val_metric", "test_loss", "test_metric"}
    assert all(set(line) == names for line in lines)
    assert json.loads((tmp_path / "trace.json").read_text()) == record.trace
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "epochs.jsonl",
        "record.copy.json",
        "record.json",
        "trace.json",
    ]


def test_a_lines_loss_and_lr_are_those_of_its_steps():
    notes = Notes()
    record = run(tiny(schedule="linear"), settings=Settings(device="cpu"), watchers=[notes])
    assert len(notes.losses) == 2 * PER_EPOCH
    for line, end in zip(record.epochs, (PER_EPOCH, 2 * PER_EPOCH), strict=True):
        assert line["step"] == end
        assert line["train_loss"] == pytest.approx(np.mean(notes.losses[end - PER_EPOCH : end]), rel=1e-5)
        assert line["lr"] == pytest.approx(notes.lrs[end - 1], rel=1e-5)
        assert line["lr"] == pytest.approx(0.02 * (1 - (end - 1) / (2 * PER_EPOCH)), rel=1e-5)


def test_the_result_is_the_last_epochs_and_the_best_only_stands_beside_it():
    names = ("epoch", "test_metric", "test_loss", "val_loss", "val_metric", "train_loss")
    rows = [(1, 90.0, 0.3, 0.31, 89.0, 0.29), (2, 95.0, 0.2, 0.21, 94.0, 0.19), (3, 92.0, 0.4, 0.41, 91.0, 0.1)]
    epochs = [dict(zip(names, row, strict=True)) for row in rows]
    epochs.append({"epoch": 4, "train_loss": 0.05})  # not evaluated
    beside = {"test_loss": 0.4, "val_loss": 0.41, "val_metric": 91.0, "train_loss": 0.1}
    assert summarise(epochs, "higher") == {"epoch": 3, "last": 92.0, "best": 95.0, "best_epoch": 2, **beside}
    assert summarise(epochs, "lower") == {"epoch": 3, "last": 92.0, "best": 90.0, "best_epoch": 1, **beside}
    assert summarise([], "higher") == summarise([{"epoch": 1, "train_loss": 1.0}], "higher") == {}


@pytest.mark.parametrize(("better", "best"), [("higher", 2), ("lower", 2)])
def test_an_evaluation_without_a_number_is_never_the_best(better, best):
    values = dict.fromkeys(("test_loss", "val_loss", "val_metric", "train_loss"), 0.0)
    epochs = [{"epoch": i + 1, "test_metric": metric, **values} for i, metric in enumerate((math.nan, 5.0, math.nan))]
    assert summarise(epochs, better)["best_epoch"] == best


def test_a_runs_result_is_that_of_its_last_epoch():
    record = run(tiny(**SMALL_CNN, epochs=3), settings=Settings(device="cpu"))
    metrics = [line["test_metric"] for line in record.epochs]
    assert record.result["last"] == metrics[-1]
    assert record.result["best"] == max(metrics)
    assert record.result["best_epoch"] == 1 + metrics.index(max(metrics))
    assert record.result["test_loss"] == record.epochs[-1]["test_loss"]


def test_fewer_evaluations_change_neither_the_training_nor_the_last_result():
    every = run(tiny(epochs=3), settings=Settings(device="cpu"))
    second = run(tiny(epochs=3, eval_every=2), settings=Settings(device="cpu"))
    assert ["test_metric" in line for line in second.epochs] == [False, True, True]
    assert second.trace == every.trace
    assert (
        second.epochs[1:]
        == [line | {"seconds": second.epochs[i]["seconds"]} for i, line in enumerate(every.epochs)][1:]
    )
    assert second.result["last"] == every.result["last"]


@pytest.mark.parametrize("schedule", ["cosine", "val-strategy", "mlr-snet", "l4", "hd", "rtho"])
def test_nothing_in_a_training_depends_on_the_test_data(schedule, monkeypatch):
    spec = tiny(**SMALL_CNN, schedule=schedule, epochs=3)
    honest = run(spec, settings=Settings(device="cpu"))
    evaluate = Stepper.evaluate

    def lie(self, *parts):
        return evaluate(self, *parts) | {"test": Score(0.123 * self.step_count, 1.0)}

    monkeypatch.setattr(Stepper, "evaluate", lie)
    lied = run(spec, settings=Settings(device="cpu"))
    assert lied.epochs[0]["test_metric"] == 1.0
    assert lied.trace == honest.trace
    for one, other in zip(lied.epochs, honest.epochs, strict=True):
        assert {key: one[key] for key in ("train_loss", "lr", "val_loss")} == {
            key: other[key] for key in ("train_loss", "lr", "val_loss")
        }


def test_evaluation_is_in_evaluation_mode_and_training_goes_on_in_training_mode(monkeypatch):
    modes = []
    alive = Stepper(tiny(**SMALL_CNN), CPU)
    evaluate = alive.data.evaluate
    monkeypatch.setattr(
        alive.data, "evaluate", lambda model, part: modes.append(model.training) or evaluate(model, part)
    )
    alive.step()
    alive.evaluate("val")
    assert modes == [False]
    assert all(module.training for module in alive.model.modules())


# Divergence


def refuse(name):
    raise AssertionError(f"{name} in JSON")


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": 1e6, "weight_decay": 1.0},
        {"lr": 1e6, "weight_decay": 1.0, "optimizer": "schedule-free-sgd", **SMALL_CNN},
        {"schedule": "mlr-snet", "schedule_options": {"scale": 1e6}, "weight_decay": 1.0},
        {"lr": 1e6, "weight_decay": 1.0, "epochs": 1},
        {"lr": 1e6, "weight_decay": 1.0, "schedule": "hd"},
        {"lr": 1e6, "weight_decay": 1.0, "schedule": "rtho"},
    ],
)
@pytest.mark.filterwarnings("ignore:.* was not finite. the optimizer skipped this step:UserWarning")
@pytest.mark.filterwarnings("ignore:10 losses in a row were not finite:UserWarning")
@pytest.mark.filterwarnings("ignore:a loss was not finite:UserWarning")
@pytest.mark.filterwarnings("ignore:a meta-update was skipped:UserWarning")
def test_a_run_that_diverges_ends_so_in_plain_json_and_is_not_tried_again(changes, tmp_path, monkeypatch):
    record = run(tiny(**{"epochs": 3} | changes), tmp_path, Settings(device="cpu"))
    assert record.status == "diverged"
    assert len(record.epochs) == 1
    for name in ("record.json", "trace.json"):
        json.loads((tmp_path / name).read_text(), parse_constant=refuse)
    (line,) = (json.loads(text, parse_constant=refuse) for text in (tmp_path / "epochs.jsonl").read_text().splitlines())
    assert line["train_loss"] is None
    assert records.read(tmp_path).result["test_loss"] is None
    assert not (tmp_path / records.CHECKPOINT).exists()
    no_training(monkeypatch)
    assert run(tiny(**{"epochs": 3} | changes), tmp_path, Settings(device="cpu")).status == "diverged"


def test_a_text_that_diverges_has_no_perplexity_and_plain_json(texts, tmp_path):
    record = run(of_text(lr=1e6, weight_decay=1.0), tmp_path, Settings(device="cpu", root=texts))
    assert record.status == "diverged"
    assert json.loads((tmp_path / "record.json").read_text(), parse_constant=refuse)["result"]["last"] is None


def test_a_perplexity_too_large_for_a_number_is_infinite_and_no_error():
    assert perplexity(1e5) == math.inf
    assert perplexity(math.log(50)) == pytest.approx(50)
