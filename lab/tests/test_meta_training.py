"""The lab's full-horizon meta-training: distributions of small trainings, the command, the demo's heart."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import complaint, run

from mlrsnet import Schedule, cli
from mlrsnet_lab import datasets, kinds, meta_building, meta_training, universal
from mlrsnet_lab.commands import metatrain as command
from mlrsnet_lab.datasets.images import ImageDataset, Pictures
from mlrsnet_lab.distributions import LARGE_FROM, SIDE, inner_tasks, pictures
from mlrsnet_lab.horizon import Evolution, HorizonTrainer, Tasks
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.meta_board import MetaTrainingBoard
from mlrsnet_lab.meta_specs import OBJECTIVES, PRESETS, GreedySpec, HorizonSpec, make_meta_spec
from mlrsnet_lab.meta_training import learn
from mlrsnet_lab.settings import Settings

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
    monkeypatch.setattr(meta_training, "COMPARE_EVERY", 2)


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
    task = datasets.load("digits")
    data = inner_tasks("digits").data[0]
    assert len(data.inputs) == len(task.train.labels)
    assert torch.equal(data.targets, task.train.labels)
    expected = (task.train.images[:5].float() - torch.tensor(task.mean)) / torch.tensor(task.std)
    assert torch.equal(data.inputs[:5], expected.permute(0, 3, 1, 2))


def large(count=LARGE_FROM, side=32):
    images = torch.randint(256, (count, side, side, 3), dtype=torch.uint8)
    part = Pictures(images, torch.arange(count) % 10)
    return ImageDataset("made up", 10, part, part, part, pad=4, flip=True, mean=(127.0,) * 3, std=(70.0,) * 3)


def test_large_pictures_are_made_small_and_trained_with_patch_networks(monkeypatch):
    monkeypatch.setattr(datasets, "load", lambda *names, **options: large())
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
    monkeypatch.setattr(datasets, "load", lambda *names, **options: object())
    with pytest.raises(
        ValueError, match="task must be a dataset of pictures that fit in memory, got 'ptb': use digits"
    ):
        inner_tasks("ptb")


def test_a_stopped_meta_training_goes_on_to_the_same_schedule(stop_after, tmp_path):
    whole, _ = learn(SPEC, tmp_path / "whole", Settings(device="cpu"))
    stop_after(2)
    with pytest.raises(KeyboardInterrupt):
        learn(SPEC, tmp_path / "parts", Settings(device="cpu"))
    assert json.loads((tmp_path / "parts" / "horizon.json").read_text())["generations"][-1]["number"] == 2
    stop_after(99)
    parts, _ = learn(SPEC, tmp_path / "parts", Settings(device="cpu"))
    assert parts.fingerprint() == whole.fingerprint()
    assert parts.card == whole.card
    records = [json.loads((tmp_path / name / "horizon.json").read_text()) for name in ("whole", "parts")]
    assert records[0]["generations"] == records[1]["generations"]
    assert [line["number"] for line in records[1]["comparisons"]] == [0, 2, 3]
    assert [session["from_generation"] for session in records[1]["sessions"]] == [0, 2]
    assert records[0]["rivals"] == records[1]["rivals"]


def test_a_finished_meta_training_is_read_and_left_as_it_is(tmp_path):
    first, _ = learn(SPEC, tmp_path / "run", Settings(device="cpu"))
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    again, _ = learn(SPEC, tmp_path / "run", Settings(device="cpu"))
    assert again.fingerprint() == first.fingerprint()
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_tensorboard_goes_on_where_the_run_does(stop_after, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = Settings(device="cpu", checkpoint_seconds=1e9)
    board = MetaTrainingBoard(tmp_path / "board")
    stop_after(2)
    with pytest.raises(KeyboardInterrupt):
        learn(SPEC, tmp_path / "run", settings, on_generation=board)
    board.close()
    stop_after(99)
    board = MetaTrainingBoard(tmp_path / "board")
    learn(SPEC, tmp_path / "run", settings, on_generation=board)
    board.close()
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [event.step for event in events.Scalars("generation/fitness")] == [1, 2, 3]
    assert [event.step for event in events.Scalars("gap to cosine/oracle of each task")] == [0, 2, 3]


@pytest.mark.parametrize(("count", "classes"), [(49_000, 100), (5_000, 10), (4_900, 100), (1_000, 37), (90, 3)])
def test_sets_of_any_size_have_small_trainings(count, classes, monkeypatch):
    part = Pictures(torch.zeros(count, 8, 8, 1, dtype=torch.uint8), torch.arange(count) % classes)
    task = ImageDataset("made up", classes, part, part, part, pad=0, flip=False, mean=(0.0,), std=(1.0,))
    monkeypatch.setattr(datasets, "load", lambda *names, **options: task)
    sampler = inner_tasks("made up")
    for seed in range(20):
        for drawn in sampler.sample(seed, 2):
            assert len(drawn.train) >= drawn.batch_size


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_command_without_options_is_the_spec_without_arguments(objective, monkeypatch):
    shown = []
    monkeypatch.setattr("mlrsnet_lab.commands.metatrain.show_metatrain", lambda spec, *others: shown.append(spec))
    assert cli.main(["metatrain", "--objective", objective, "--name", "unnamed"]) == 0
    assert shown == [OBJECTIVES[objective]()]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_help_shows_the_specs_defaults(objective, capsys):
    _, out, _ = run(capsys, "metatrain", "--help")
    words = " ".join(out.split())
    for name, what in command.OWN[objective].items():
        default = getattr(OBJECTIVES[objective], name)
        assert f"{what} (default: {'none' if default == '' else default})" in words


def test_the_spec_has_the_defaults_of_the_trainers_settings_but_for_the_number_of_held_out_tasks():
    assert (HorizonSpec.held_out, Tasks.held_out) == (48, 8)
    built = meta_building.build(HorizonSpec(task_options={"classes": [0, 1, 2]}, held_out=1), torch.device("cpu"))
    assert built.evolution == Evolution()
    assert replace(built.tasks, held_out=Tasks.held_out) == Tasks(built.tasks.sampler)
    net = inspect.signature(first_net).parameters
    assert (HorizonSpec.hidden, HorizonSpec.anneal) == (net["hidden_size"].default, net["anneal"].default)


def test_the_paper_updates_every_100_steps_and_the_command_more_often_on_small_data():
    assert GreedySpec().run_spec().schedule_options["every"] == 5
    assert make_meta_spec("greedy", {"every": 100}).run_spec().schedule_options["every"] == 100
    with pytest.raises(ValueError, match="preset 'universal-lstm' belongs to the objective horizon, got greedy"):
        make_meta_spec("greedy", {}, preset="universal-lstm")


def test_a_folder_of_another_meta_training_and_a_damaged_one_are_refused(stop_after, tmp_path):
    stop_after(1)
    with pytest.raises(KeyboardInterrupt):
        learn(SPEC, tmp_path / "run", Settings(device="cpu"))
    other = HorizonSpec(**{**SPEC.__dict__, "sigma": 0.2})
    with pytest.raises(ValueError, match=r"holds a run with another spec \(different: sigma\): write to another file"):
        learn(other, tmp_path / "run", Settings(device="cpu"))
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"nothing")
    (tmp_path / "run" / "checkpoint.previous.pt").unlink()
    with pytest.raises(ValueError, match=r"is not a checkpoint of this run \(\w+: .+\): delete it to start over"):
        learn(SPEC, tmp_path / "run", Settings(device="cpu"))


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
    assert (code, err) == (130, "mlrsnet: interrupted; the same command continues where it stopped\n")
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
        (["--objective", "horizon", "--fitness", "best"], "fitness must be one of calibrated, loss"),
        (["--objective", "horizon", "--task", "nope"], "task must be one of digits, cifar10"),
        (["--objective", "horizon", "--out", "."], "out must be a file, got the folder ."),
        (["--objective", "horizon", "--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    ],
)
def test_bad_words_are_named_and_nothing_is_left(capsys, tmp_path, words, message):
    assert message in complaint(capsys, "metatrain", *words)
    assert not list(tmp_path.iterdir())


# presets


@pytest.fixture
def only_digits(monkeypatch):
    digits = (universal.SmallSource("digits", "digits", 8),)
    monkeypatch.setattr(universal, "TRAINING", digits)
    monkeypatch.setattr(universal, "VALIDATION", digits)
    monkeypatch.setattr(universal.distribution, "__kwdefaults__", {"kinds": 3, "validation": 2, "horizons": (3, 5)})


SHORT = ("--generations", 2, "--tasks", 2, "--members", 2, "--held-out", 2, "--device", "cpu")


@pytest.mark.usefixtures("only_digits")
def test_a_preset_by_its_name_with_options_on_top(capsys, tmp_path):
    code, out, _ = run(
        capsys, "metatrain", "--preset", "universal-lstm", *SHORT, "--data", tmp_path, "--out", "u.safetensors"
    )
    assert code == 0, out
    record = json.loads(Path("u.safetensors.json").read_text())
    assert (record["spec"]["task"], record["spec"]["name"]) == ("universal", "universal-lstm")
    assert record["spec"]["hidden"] == PRESETS["universal-lstm"].hidden
    assert record["spec"]["generations"] == 2
    learned = Schedule.load("u.safetensors")
    assert learned.card.gamma.value == PRESETS["universal-lstm"].gamma
    assert learned.card.name == "universal-lstm"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--preset", "nope"), "--preset must be one of universal-lstm, digits-0-4; got 'nope'"),
        (("--preset", "universal-lstm", "--objective", "greedy"), "--preset belongs to --objective horizon"),
        (("--preset", "universal-lstm", "--classes", "01"), "universal has no options"),
        (("--gamma", 2.0), "--gamma belongs to --objective horizon, got --objective greedy"),
    ],
)
def test_a_mistaken_preset_is_one_line(capsys, words, message):
    assert re.search(message, complaint(capsys, "metatrain", *words))


def test_a_schedule_is_learned_on_from_another(capsys, monkeypatch, tmp_path):
    digits = tuple(source for source in universal.TRAINING if source.name == "digits")
    monkeypatch.setattr(kinds, "PICTURES", digits)
    monkeypatch.setattr(meta_building, "FAMILIES", ("mlp", "regression"))
    short = (*SHORT, "--meta-lr", 0.5, "--data", tmp_path)
    words = ("--objective", "horizon", "--task", "kinds", "--begin", "universal-lstm", *short)
    code, out, err = run(capsys, "metatrain", *words, "--out", "r.safetensors")
    assert code == 0, (out, err)
    first, learned = Schedule.load("universal-lstm"), Schedule.load("r.safetensors")
    assert learned.card.gamma == first.card.gamma
    losses = torch.linspace(3, 0.5, 50).tolist()
    assert not np.array_equal(learned.simulate(losses), first.simulate(losses))
    record = json.loads(Path("r.safetensors.json").read_text())
    assert record["spec"]["begin"] == "universal-lstm"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_options": {"classes": [1]}}, "task_options of kinds must be one of horizons, families; got 'classes'"),
        ({"held_out_options": {}}, "held_out_options of kinds must be left out"),
    ],
)
def test_a_mistaken_spec_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        HorizonSpec(**{"task": "kinds", **changes})


def test_a_network_begins_where_it_is_told():
    for start in (0.1, 0.5):
        schedule = Schedule(first_net(16, start=start))
        assert schedule.simulate([1.0] * 100)[0] == pytest.approx(start, rel=1e-4)
    with pytest.raises(ValueError, match=r"start must be in \(0, 1\), a share of the LR's range, got 1.5"):
        first_net(start=1.5)


def test_an_equation_has_no_network_to_begin_from():
    with pytest.raises(
        ValueError, match="begin must be a schedule with a network to go on from, got 'universal', which is"
    ):
        meta_building.build(HorizonSpec(begin="universal"), torch.device("cpu"))
