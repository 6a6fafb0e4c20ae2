"""TensorBoard: the curves of a run, and of one that was stopped."""

import sys

import pytest
from runs import Stop, StopAtEnd, tiny

from mlrsnet_lab.loop import run
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.watch import Watcher


def curves(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_loss_lr_gamma_hypergradient_and_accuracy(tmp_path):
    from mlrsnet_lab.board import Board

    spec = tiny(schedule="mlr-snet", schedule_options={"every": 10, "hidden": 8})
    record = run(spec, settings=Settings(device="cpu"), watchers=[Board(tmp_path)])
    found = curves(tmp_path)
    for name in ("loss", "lr"):
        steps, values = zip(*found[f"step/{name}"], strict=True)
        assert list(steps) == [step + 1 for step in record.trace["step"]]  # an epoch's last is its line's
        assert values == pytest.approx(record.trace[name], rel=1e-5)
    for name in ("gamma", "hypergradient", "test_metric", "val_metric", "train_loss", "val_loss", "test_loss"):
        expected = [(line["step"], pytest.approx(line[name], rel=1e-5)) for line in record.epochs]
        assert found[f"epoch/{name}"] == expected


class BreakAtEnd(Watcher):
    """Fails after an epoch was drawn and before it is kept."""

    def epoch(self, line, losses, lrs):
        if line["epoch"] == 2:
            raise RuntimeError("no network")


@pytest.mark.parametrize("stop", [Stop(), Stop(times=2), StopAtEnd(2), BreakAtEnd()])
def test_the_curves_of_a_run_that_was_stopped_are_those_of_one_that_was_not(stop, tmp_path):
    from mlrsnet_lab.board import Board

    spec = tiny(epochs=4)
    run(spec, settings=Settings(device="cpu"), watchers=[Board(tmp_path / "whole")])
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        run(
            spec,
            tmp_path / "run",
            Settings(device="cpu", checkpoint_seconds=0),
            watchers=[Board(tmp_path / "board"), stop],
        )
    run(spec, tmp_path / "run", Settings(device="cpu"), watchers=[Board(tmp_path / "board")])
    assert curves(tmp_path / "board") == curves(tmp_path / "whole")


def test_a_finished_run_leaves_tensorboard_alone(tmp_path):
    from mlrsnet_lab.board import Board

    run(tiny(epochs=1), tmp_path / "run", Settings(device="cpu"))
    run(tiny(epochs=1), tmp_path / "run", Settings(device="cpu"), watchers=[Board(tmp_path / "board")])
    assert not (tmp_path / "board").exists()


def test_without_tensorboard_one_line_says_what_to_install(tmp_path, monkeypatch):
    from mlrsnet_lab.board import Board

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        Board(tmp_path)
