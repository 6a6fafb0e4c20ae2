"""The lab's full-horizon meta-training: distributions of small trainings, the command, the demo's heart."""

import json
import re
from pathlib import Path

import pytest
import torch
from commands import complaint, run

from mlrsnet import Schedule
from mlrsnet.cli.lab import META_LRS, OBJECTIVES
from mlrsnet.horizon import HorizonTrainer
from mlrsnet.horizon.trainer import default_net
from mlrsnet.lab import horizon, tasks, universal
from mlrsnet.lab.board import HorizonBoard
from mlrsnet.lab.distributions import LARGE_FROM, SIDE, inner_tasks, pictures
from mlrsnet.lab.horizon import HorizonSpec, learn
from mlrsnet.lab.screen.horizon import sparkline
from mlrsnet.lab.tasks.images import ImageTask, Pictures

WORDS = (
    "metatrain",
    "--objective",
    "horizon",
    "--generations",
    3,
    "--tasks",
    2,
    "--members",
    2,
    "--hidden",
    4,
    "--held-out",
    2,
)
SPEC = HorizonSpec(task_options={"classes": [0, 1, 2]}, generations=3, tasks=2, members=2, hidden=4, held_out=2)


@pytest.fixture(autouse=True)
def few_comparisons(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(horizon, "COMPARE_EVERY", 2)


@pytest.fixture
def stop_after(monkeypatch):
    """Ctrl-C in the middle of a generation."""
    import os
    import signal

    def stop(number):
        step = HorizonTrainer.step

        def stopped(self):
            if self.number + 1 == number:
                os.kill(os.getpid(), signal.SIGINT)
            return step(self)

        monkeypatch.setattr(HorizonTrainer, "step", stopped)

    return stop


def test_small_trainings_see_the_tasks_training_pictures_and_no_others():
    task = tasks.load("digits")
    data = inner_tasks("digits").data[0]
    assert len(data.inputs) == len(task.train.labels)
    assert torch.equal(data.targets, task.train.labels)
    expected = (task.train.images[:5].float() - torch.tensor(task.mean)) / torch.tensor(task.std)
    assert torch.equal(data.inputs[:5], expected.permute(0, 3, 1, 2))


def large(count=LARGE_FROM, side=32):
    images = torch.randint(256, (count, side, side, 3), dtype=torch.uint8)
    part = Pictures(images, torch.arange(count) % 10)
    return ImageTask("made up", 10, part, part, part, pad=4, flip=True, mean=(127.0,) * 3, std=(70.0,) * 3)


def test_large_pictures_are_made_small_and_trained_with_patch_networks(monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda *names, **options: large())
    sampler = inner_tasks("cifar10")
    (task,) = sampler.sample(0, 1)
    assert task.data.inputs.shape[1:] == (3, SIDE, SIDE)
    assert task.data.mirrored
    assert 250 <= task.total_steps <= 2000
    assert task.model(task.data)(task.data.inputs[:4]).shape == (4, 10)
    assert pictures(large(20, 8)).inputs.shape == (20, 3, 8, 8)


@pytest.mark.parametrize("seed", range(12))
def test_every_network_of_the_digits_distribution_trains(seed):
    (task,) = inner_tasks("digits").sample(seed, 1)
    assert task.model(task.data)(task.data.inputs[:4]).shape == (4, 10)
    assert not set(task.train.tolist()) & set(task.val.tolist())


def test_text_is_refused_with_what_to_take_instead(monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda *names, **options: object())
    with pytest.raises(ValueError, match="the task must be one of pictures that fit in memory, got 'ptb': take digits"):
        inner_tasks("ptb")


def test_a_stopped_meta_training_goes_on_to_the_same_schedule(stop_after, tmp_path):
    whole, _ = learn(SPEC, tmp_path / "whole", device="cpu")
    stop_after(2)
    with pytest.raises(KeyboardInterrupt):
        learn(SPEC, tmp_path / "parts", device="cpu")
    assert json.loads((tmp_path / "parts" / "horizon.json").read_text())["generations"][-1]["number"] == 2
    stop_after(99)
    parts, _ = learn(SPEC, tmp_path / "parts", device="cpu")
    assert parts.fingerprint() == whole.fingerprint()
    assert parts.card == whole.card
    records = [json.loads((tmp_path / name / "horizon.json").read_text()) for name in ("whole", "parts")]
    assert records[0]["generations"] == records[1]["generations"]
    assert [line["number"] for line in records[1]["comparisons"]] == [0, 2, 3]
    assert [session["from_generation"] for session in records[1]["sessions"]] == [0, 2]
    assert records[0]["rivals"] == records[1]["rivals"]


def test_a_finished_meta_training_is_read_and_left_as_it_is(tmp_path):
    first, _ = learn(SPEC, tmp_path / "run", device="cpu")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    again, _ = learn(SPEC, tmp_path / "run", device="cpu")
    assert again.fingerprint() == first.fingerprint()
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_tensorboard_goes_on_where_the_run_does(stop_after, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = {"device": "cpu", "checkpoint_seconds": 1e9}
    board = HorizonBoard(tmp_path / "board")
    stop_after(2)
    with pytest.raises(KeyboardInterrupt):
        learn(SPEC, tmp_path / "run", on_generation=board, **words)
    board.close()
    stop_after(99)
    board = HorizonBoard(tmp_path / "board")
    learn(SPEC, tmp_path / "run", on_generation=board, **words)
    board.close()
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [event.step for event in events.Scalars("generation/fitness")] == [1, 2, 3]
    assert [event.step for event in events.Scalars("gap to cosine/oracle of each task")] == [0, 2, 3]


@pytest.mark.parametrize(("count", "classes"), [(49_000, 100), (5_000, 10), (4_900, 100), (1_000, 37), (90, 3)])
def test_sets_of_any_size_have_small_trainings(count, classes, monkeypatch):
    part = Pictures(torch.zeros(count, 8, 8, 1, dtype=torch.uint8), torch.arange(count) % classes)
    task = ImageTask("made up", classes, part, part, part, pad=0, flip=False, mean=(0.0,), std=(1.0,))
    monkeypatch.setattr(tasks, "load", lambda *names, **options: task)
    sampler = inner_tasks("made up")
    for seed in range(20):
        for drawn in sampler.sample(seed, 2):
            assert len(drawn.train) >= drawn.batch_size


def test_the_commands_defaults_are_the_specs():
    for name, (default, _) in OBJECTIVES["horizon"].items():
        assert getattr(HorizonSpec(), name) == default
    assert HorizonSpec().meta_lr == META_LRS["horizon"]


def test_a_folder_of_another_meta_training_and_a_damaged_one_are_refused(stop_after, tmp_path):
    stop_after(1)
    with pytest.raises(KeyboardInterrupt):
        learn(SPEC, tmp_path / "run", device="cpu")
    other = HorizonSpec(**{**SPEC.__dict__, "sigma": 0.2})
    with pytest.raises(ValueError, match=r"holds a run with another spec \(different: sigma\): use another --out"):
        learn(other, tmp_path / "run", device="cpu")
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"is not a checkpoint of this run \(\w+\): delete it to begin anew"):
        learn(SPEC, tmp_path / "run", device="cpu")


def test_the_command_ends_in_a_schedule_and_its_record(capsys):
    code, out, err = run(capsys, *WORDS, "--tensorboard", "--name", "mine")
    assert code == 0, err
    assert "gap to the best LR of cosine" in out
    assert "schedule: learned.safetensors" in out
    assert Schedule.load("learned.safetensors").card.name == "mine"
    record = json.loads(Path("learned.safetensors.json").read_text())
    assert len(record["generations"]) == 3
    assert record["spec"]["members"] == 2
    assert list(Path("learned.safetensors.tensorboard").glob("events*"))
    assert not Path("learned.safetensors.run").exists()


def test_the_command_goes_on_where_it_was_stopped(capsys, stop_after):
    stop_after(1)
    code, _, err = run(capsys, *WORDS)
    assert (code, err) == (130, "mlrsnet: interrupted; the same command goes on where it was stopped\n")
    stop_after(99)
    assert run(capsys, *WORDS)[0] == 0
    assert len(json.loads(Path("learned.safetensors.json").read_text())["generations"]) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--objective", "both"], "--objective must be one of greedy, horizon; got 'both'"),
        (["--objective", "horizon", "--epochs", 3], "--epochs belongs to --objective greedy, got --objective horizon"),
        (["--sigma", 0.1], "--sigma belongs to --objective horizon, got --objective greedy"),
        (["--objective", "horizon", "--members", 3, "--tensorboard"], "members must be even, got 3"),
        (["--objective", "horizon", "--held-out", 0], "held_out must be a whole number >= 1, got 0"),
        (["--objective", "horizon", "--generations", 0], "generations must be a whole number >= 1, got 0"),
        (["--objective", "horizon", "--fitness", "best"], "fitness must be one of calibrated, loss, error"),
        (["--objective", "horizon", "--task", "nope"], "the task must be one of digits, cifar10"),
        (["--objective", "horizon", "--out", "."], "--out must be a file, got the folder ."),
        (["--objective", "horizon", "--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    ],
)
def test_bad_words_are_named_and_nothing_is_left(capsys, tmp_path, words, message):
    assert message in complaint(capsys, "metatrain", *words)
    assert not list(tmp_path.iterdir())


def test_a_curve_in_a_line_of_text():
    assert sparkline([0.0, 1.0, 2.0, 4.0]) == "▁▃▅█"
    assert len(sparkline([float(i) for i in range(100)], 24)) == 24
    assert sparkline([0.0, 0.0]) == "▁▁"


# recipes


@pytest.fixture
def only_digits(monkeypatch):
    digits = (universal.Source("digits", "digits", 8),)
    monkeypatch.setattr(universal, "TRAINING", digits)
    monkeypatch.setattr(universal, "VALIDATION", digits)
    monkeypatch.setattr(universal.distribution, "__kwdefaults__", {"kinds": 3, "validation": 2, "horizons": (3, 5)})


SHORT = ("--generations", 2, "--tasks", 2, "--members", 2, "--held-out", 2, "--device", "cpu")


@pytest.mark.usefixtures("only_digits")
def test_a_recipe_by_its_name_with_options_on_top(capsys, tmp_path):
    code, out, _ = run(
        capsys, "metatrain", "--recipe", "universal", *SHORT, "--data", tmp_path, "--out", "u.safetensors"
    )
    assert code == 0, out
    record = json.loads(Path("u.safetensors.json").read_text())
    assert record["spec"]["task"] == record["spec"]["name"] == "universal"
    assert record["spec"]["hidden"] == horizon.RECIPES["universal"].hidden
    assert record["spec"]["generations"] == 2
    learned = Schedule.load("u.safetensors")
    assert learned.card.gamma.value == horizon.RECIPES["universal"].gamma
    assert learned.card.name == "universal"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--recipe", "nope"), "recipe must be one of universal, universal-relative; got 'nope'"),
        (("--recipe", "universal", "--objective", "greedy"), "--recipe belongs to --objective horizon"),
        (("--recipe", "universal", "--classes", "01"), "universal has no options"),
        (("--gamma", 2.0), "--gamma belongs to --objective horizon, got --objective greedy"),
    ],
)
def test_a_mistaken_recipe_is_one_line(capsys, words, message):
    assert re.search(message, complaint(capsys, "metatrain", *words))


def test_a_network_begins_where_it_is_told():
    for start in (0.1, 0.5):
        schedule = Schedule(default_net(16, start=start))
        assert schedule.simulate([1.0] * 100)[0] == pytest.approx(start, rel=1e-4)
    with pytest.raises(ValueError, match=r"start must be in \(0, 1\), a part of the range, got 1.5"):
        default_net(start=1.5)
