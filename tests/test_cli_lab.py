"""`mlrsnet train`, `runs`, `report` and `reproduce`."""

import io
import json
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from commands import break_schedule, complaint, ctrl_c, everything_below, run, status
from rich.console import Console

from mlrsnet import LSTMNet, Schedule, cli
from mlrsnet.lab import records
from mlrsnet.lab.recipes import RECIPES, Cell, Recipe, table1
from mlrsnet.lab.recipes.rows import named
from mlrsnet.lab.screen.progress import Bar, bars
from mlrsnet.lab.spec import RunSpec

__all__ = ["break_schedule", "ctrl_c"]

QUICK = ("--model", "mlp", "--epochs", 2, "--device", "cpu")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLRSNET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLRSNET_DATA", str(tmp_path / "data"))


@pytest.fixture
def quick_recipe(monkeypatch):
    monkeypatch.setattr(table1, "SMALL", replace(table1.SMALL, epochs=2))


@pytest.fixture
def pictures(tmp_path):
    """A user's own .npz, with as many changes as a test wants."""

    def write(**changes):
        random = np.random.default_rng(0)
        arrays = {
            "x_train": random.random((96, 8, 8)).astype("float32"),
            "y_train": np.arange(96) % 3,
            "x_val": random.random((24, 8, 8)).astype("float32"),
            "y_val": np.arange(24) % 3,
            "x_test": random.random((24, 8, 8)).astype("float32"),
            "y_test": np.arange(24) % 3,
        }
        kept = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
        np.savez(tmp_path / "mine.npz", **kept)

    return write


def shown(capsys, *words):
    """The whole spec that the words mean."""
    code, out, err = run(capsys, "train", *words, "--show")
    assert code == 0, err
    return json.loads(out)


def record(folder):
    return records.read(Path(folder))


# train


def test_train_does_what_its_options_say(capsys):
    words = (
        "--schedule",
        "linear",
        "--lr",
        0.5,
        "--batch-size",
        128,
        "--optimizer",
        "sgdm",
        "--clip-norm",
        2,
        "--seed",
        7,
    )
    more = ("--weight-decay", 0, "--eval-every", 2, "--precision", "fp32", "--deterministic")
    code, out, err = run(capsys, "train", *QUICK, *words, *more, "--out", "a")
    assert code == 0, err
    found = record("a")
    assert found.status == "finished"
    assert found.data["steps_per_epoch"] == 9
    assert RunSpec.from_dict(found.spec) == RunSpec(
        model="mlp",
        epochs=2,
        schedule="linear",
        lr=0.5,
        batch_size=128,
        optimizer="sgdm",
        clip_norm=2.0,
        seed=7,
        weight_decay=0.0,
        eval_every=2,
        precision="fp32",
        deterministic=True,
    )
    assert re.search(rf"^finished +2/2 +{found.result['last']:.2f} +{found.result['best']:.2f}  a$", out, re.MULTILINE)


def test_a_training_can_be_repeated_from_a_file_and_from_its_record(capsys, tmp_path):
    (tmp_path / "spec.json").write_text('{"model": "mlp", "epochs": 2, "schedule": "linear"}')
    assert run(capsys, "train", "spec.json", "--out", "first")[0] == 0
    assert run(capsys, "train", "first/record.json", "--out", "second")[0] == 0
    assert run(capsys, "train", *QUICK, "--schedule", "linear", "--out", "third")[0] == 0
    first, second, third = (record(name).comparable() for name in ("first", "second", "third"))
    assert first == second == third


def test_what_show_prints_is_a_file_to_train_from(capsys, tmp_path):
    words = (*QUICK, "--seed", 3, "--option", "schedule.warmup=0.1")
    (tmp_path / "spec.json").write_text(json.dumps(shown(capsys, *words)))
    assert not (tmp_path / "runs").exists()
    assert shown(capsys, "spec.json") == shown(capsys, *words)


def test_options_go_on_top_of_a_file(capsys, tmp_path):
    options = {"optimizer": "sgdm", "optimizer_options": {"momentum": 0.8}, "schedule_options": {"end": 0.1}}
    (tmp_path / "spec.json").write_text(json.dumps({"model": "mlp", "epochs": 3, **options}))
    found = shown(capsys, "spec.json", "--epochs", 5, "--option", "optimizer.nesterov=true")
    assert (found["model"], found["epochs"]) == ("mlp", 5)
    assert found["optimizer_options"] == {"momentum": 0.8, "nesterov": True}
    assert found["schedule_options"] == {"end": 0.1}


def test_options_of_another_schedule_do_not_stay_when_it_is_changed(capsys, tmp_path):
    (tmp_path / "spec.json").write_text('{"schedule": "sgdr", "schedule_options": {"first_cycle": 0.2}, "lr": 0.7}')
    assert shown(capsys, "spec.json", "--schedule", "sgdr")["schedule_options"] == {"first_cycle": 0.2}
    found = shown(capsys, "spec.json", "--schedule", "fixed")
    assert (found["schedule"], found["schedule_options"], found["lr"]) == ("fixed", {}, 0.7)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--option", "schedule.warmup=0.05"], "schedule_options", {"warmup": 0.05}),
        (["--option", "task.classes=[0,1]"], "task_options", {"classes": [0, 1]}),
        (["--option", "task.leaky=true"], "task_options", {"leaky": True}),
        (["--schedule", "learned", "--option", "schedule.schedule=mine"], "schedule_options", {"schedule": "mine"}),
        (["--schedule", "learned", "--option", "schedule.schedule=a=b"], "schedule_options", {"schedule": "a=b"}),
        (["--schedule", "mlr-snet", "--option", "schedule.every=null"], "schedule_options", {"every": None}),
        (["--option", "model.width=4", "--option", "model.width=8"], "model_options", {"width": 8}),
    ],
)
def test_an_option_is_json_or_a_word(capsys, words, field, value):
    assert shown(capsys, *words)[field] == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--option", "warmup=0.1"],
            "--option must be FIELD.NAME=VALUE with FIELD one of task, model, optimizer, schedule",
        ),
        (["--option", "schedule.warmup"], "--option must be FIELD.NAME=VALUE"),
        (["--option", "seed.x=1"], "--option must be FIELD.NAME=VALUE"),
        (["--option", "schedule.wramup=0.1"], "no option 'wramup' for 'cosine': its options are end, warmup"),
        (["--option", "schedule.warmup=much"], "warmup must be a finite number, got 'much'"),
        (["--option", "schedule.end=low"], "end must be a finite number, got 'low'"),
        (["--option", "model.width=wide"], "width must be a whole number, got 'wide'"),
        (["--option", "task.classes=3"], "classes must be whole numbers"),
        (["--optimizer", "sgdm", "--option", "optimizer.nesterov=1"], "nesterov must be true or false, got 1"),
        (["--schedule", "multistep", "--option", "schedule.milestones=0.5"], "milestones must be a list such as [0.3"),
        (["--schedule", "multistep", "--option", 'schedule.milestones=["x"]'], "each of milestones must be a finite"),
        (["--schedule", "multistep", "--option", "schedule.factor=-1"], "multistep must give LRs >= 0 at every step"),
        (["--schedule", "sgdr", "--option", "schedule.growth=0"], "growth must be a whole number >= 1, got 0"),
        (["--schedule", "learned", "--option", "schedule.schedule=5"], "schedule must be a word, got 5"),
        (["--schedule", "learned", "--option", "schedule.schedule=nope"], "there is no schedule named 'nope'"),
        (["--task", "nope"], "the task must be one of digits, cifar10"),
        (["--model", "nope"], "model must be one of resnet18"),
        (["--optimizer", "nope"], "optimizer must be one of sgd"),
        (["--schedule", "nope"], "schedule must be one of fixed"),
        (["--precision", "fp8"], "precision must be one of auto, fp32, bf16; got 'fp8'"),
        (["--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["--device", "cuda:99"], "device 'cuda:99' is not there"),
        (["--lr", "0"], "lr must be > 0"),
        (["--epochs", "0"], "epochs must be a whole number >= 1, got 0"),
        (["--batch-size", "9999"], "batch_size must leave at least one full batch"),
        (["nowhere.json"], "nowhere.json cannot be read as a run's spec"),
    ],
)
def test_train_names_a_mistake_and_leaves_nothing(capsys, tmp_path, words, message):
    assert message in complaint(capsys, "train", *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["universal", "mine.safetensors", "sub/mine.safetensors", "hf://owner/name"])
def test_a_learned_schedule_can_be_named_directly(capsys, name):
    long = shown(capsys, "--schedule", "learned", "--option", f"schedule.schedule={name}")
    assert shown(capsys, "--schedule", name) == long
    assert long["schedule_options"] == {"schedule": name}
    assert shown(capsys, "--schedule", name, "--option", "schedule.scale=0.5")["schedule_options"] == {
        "schedule": name,
        "scale": 0.5,
    }


@pytest.mark.parametrize("schedule", ["learned", "universal", "mlr-snet", "l4"])
def test_an_lr_that_has_no_effect_is_told(capsys, schedule):
    with pytest.warns(
        UserWarning, match=r"--lr has no effect under schedule '.*', which finds its own range: leave it out"
    ):
        shown(capsys, "--schedule", schedule, "--lr", 0.3)
    shown(capsys, "--schedule", schedule)
    shown(capsys, "--schedule", "hd", "--lr", 0.3)


def test_a_learned_schedule_named_directly_trains_and_one_that_is_not_there_is_told(capsys, tmp_path):
    Schedule(LSTMNet(4)).save(tmp_path / "home/kept.safetensors")
    assert run(capsys, "train", *QUICK, "--schedule", "kept", "--out", "a")[0] == 0
    assert record("a").spec["schedule_options"] == {"schedule": "kept"}
    message = complaint(capsys, "train", *QUICK, "--schedule", "univrsal")
    assert "universal" in message
    assert "the path of a .safetensors file or hf://owner/name; got 'univrsal'" in message
    assert "none.safetensors" in complaint(capsys, "train", *QUICK, "--schedule", "none.safetensors")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as a run's spec"),
        ("[1]", "a run's spec must be an object with fields such as task and model"),
        ('{"epoch": 3}', "a run's spec has no field 'epoch': its fields are task, model"),
        ('{"epochs": "3"}', "epochs must be a whole number >= 1, got '3'"),
        ('{"deterministic": "false"}', "deterministic must be true or false, got 'false'"),
        ('{"task_options": []}', "task_options must be an object"),
    ],
)
def test_a_mistake_in_a_file_is_named(capsys, tmp_path, text, message):
    (tmp_path / "spec.json").write_text(text)
    assert message in complaint(capsys, "train", "spec.json")


def test_the_help_of_train_says_the_true_defaults(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    _, out, _ = run(capsys, "train", "--help")
    for field in fields(RunSpec):
        if field.name.endswith("_options") or field.name in ("clip_norm", "deterministic"):
            continue
        line = re.search(rf"^  --{field.name.replace('_', '-')} .*\(default: (.*)\)$", out, flags=re.MULTILINE)
        assert line, field.name
        assert line[1] == str(field.default)
    assert {*cli.lab.FIELDS} == {field.name for field in fields(RunSpec) if not field.name.endswith("_options")}


def test_the_same_training_has_the_same_folder_and_another_one_another(capsys, tmp_path):
    first = run(capsys, "train", *QUICK)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("digits-mlp-sgd-cosine-seed0-")
    before = everything_below(folder)
    again = run(capsys, "train", *QUICK)
    assert first[0] == again[0] == 0
    assert "finished before" in again[1]
    assert everything_below("runs") == {path.relative_to(tmp_path): content for path, content in before.items()}
    assert run(capsys, "train", *QUICK, "--lr", 0.2)[0] == 0
    assert run(capsys, "train", *QUICK, "--seed", 1)[0] == 0
    assert len(list((tmp_path / "runs").iterdir())) == 3


def test_another_training_does_not_overwrite_a_finished_one(capsys):
    run(capsys, "train", *QUICK, "--out", "a")
    before = everything_below("a")
    message = complaint(capsys, "train", *QUICK, "--lr", 0.3, "--seed", 4, "--out", "a")
    assert "a holds a run with another spec (different: lr, seed): use another folder, or delete it" in message
    assert everything_below("a") == before


def test_tensorboard_shows_loss_lr_and_metric(capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run(capsys, "train", *QUICK, "--out", "a", "--tensorboard")[0] == 0
    events = EventAccumulator("a/tensorboard").Reload()
    found, expected = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}, record("a")
    assert len(found["step/loss"]) == len(found["step/lr"]) == 36
    assert found["step/lr"][18].value == pytest.approx(expected.trace["lr"][18], rel=1e-4)
    assert [event.value for event in found["epoch/test_metric"]] == pytest.approx(
        [line["test_metric"] for line in expected.epochs], rel=1e-4
    )
    assert run(capsys, "train", *QUICK, "--out", "b")[0] == 0
    assert not Path("b/tensorboard").exists()


def test_a_training_that_diverges_is_a_result(capsys):
    code, out, _ = run(capsys, "train", *QUICK, "--lr", "1e30", "--schedule", "fixed", "--out", "a")
    assert code == 0
    assert status("a") == "diverged"
    assert re.search(r"^diverged +1/2 ", out, re.MULTILINE)


@pytest.mark.parametrize("when", ["step", "setup"])
def test_a_training_that_fails_says_why_in_one_line(capsys, break_schedule, when):
    break_schedule("cosine", when)
    message = complaint(capsys, "train", *QUICK, "--out", "a", code=1)
    assert "1 of 1 runs failed; a: RuntimeError: out of memory" in message
    if when == "step":
        assert status("a") == "failed"
        assert record("a").data["error"].startswith("RuntimeError: out of memory")
    break_schedule(None)
    assert run(capsys, "train", *QUICK, "--out", "a")[0] == 0
    assert "error" not in record("a").data


def test_ctrl_c_leaves_a_run_that_goes_on_to_the_same_end(capsys, ctrl_c):
    run(capsys, "train", *QUICK, "--out", "whole")
    ctrl_c(25)
    code, _, err = run(capsys, "train", *QUICK, "--out", "parts")
    assert (code, err) == (130, "mlrsnet: interrupted; go on with: mlrsnet runs resume parts\n")
    assert status("parts") == "interrupted"
    assert run(capsys, "runs", "resume", "parts")[0] == 0
    assert record("parts").comparable() == record("whole").comparable()
    assert not (Path("parts") / records.CHECKPOINT).exists()


def test_a_folder_that_cannot_be_written_is_told_before_the_work(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("mlrsnet.lab.training.Training.step", lambda self: pytest.fail("trained"))
    (tmp_path / "file").write_text("mine")
    assert "file" in complaint(capsys, "train", *QUICK, "--out", "file/run", code=1)
    assert (tmp_path / "file").read_text() == "mine"


def test_brackets_in_names_are_shown_as_they_are(capsys):
    _, out, _ = run(capsys, "train", *QUICK, "--out", "a[bold]b")
    assert "a[bold]b" in out
    assert "a[bold]b" in run(capsys, "runs", "list")[1]


# data of one's own


def test_ones_own_pictures_train(capsys, pictures):
    pictures()
    code, out, err = run(capsys, "train", "--task", "mine.npz", *QUICK, "--batch-size", 32)
    assert code == 0, err
    assert "96 train, 24 val, 24 test\n" in out
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("mine-mlp")
    assert record(folder).data["task"]["num_classes"] == 3
    assert Path(record(folder).spec["task"]).is_absolute()  # a run may be resumed from elsewhere


@pytest.mark.parametrize("command", ["train", "metatrain"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": np.arange(96) % 2 * 2}, "y_train must have at least two classes and every class from 0 to 2"),
        ({"x_train": np.full((96, 8, 8), np.nan)}, "x_train must be finite, got NaN or infinite pixels"),
        ({"x_train": np.array([{}] * 96)}, "holds Python objects"),
        (None, "mine.npz is damaged or not an .npz file"),
    ],
    ids=["a class missing", "NaN", "objects", "damaged"],
)
def test_bad_pictures_are_named_and_nothing_is_left(capsys, tmp_path, pictures, command, changes, message):
    pictures(**(changes or {}))
    if changes is None:
        content = (tmp_path / "mine.npz").read_bytes()
        (tmp_path / "mine.npz").write_bytes(content[: len(content) // 2])
    assert message in complaint(capsys, command, "--task", "mine.npz", "--epochs", 1, "--batch-size", 16)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.npz"]


def test_a_file_that_is_not_there_is_named(capsys):
    assert "there is no file" in complaint(capsys, "train", "--task", "none.npz", code=1)


# runs


@pytest.fixture
def several(capsys, ctrl_c, break_schedule):
    """One run each: finished, failed, interrupted, and one whose record is damaged."""
    run(capsys, "train", *QUICK, "--schedule", "linear", "--out", "all/a-finished")
    break_schedule("fixed")
    run(capsys, "train", *QUICK, "--schedule", "fixed", "--out", "all/b-failed")
    break_schedule(None)
    ctrl_c(20)
    run(capsys, "train", *QUICK, "--schedule", "cosine", "--out", "all/c-stopped")
    broken = Path("all/d-broken")
    broken.mkdir()
    (broken / records.RECORD).write_text('{"format": 1, "status')


@pytest.mark.usefixtures("several")
def test_runs_list_says_how_every_run_stands(capsys):
    code, out, _ = run(capsys, "runs", "list", "all")
    assert code == 0
    lines = out.splitlines()
    assert re.fullmatch(r"finished +2/2 +\d+\.\d\d +\d+\.\d\d  all/a-finished", lines[1])
    assert re.fullmatch(r"failed +0/2 +- +-  all/b-failed", lines[2])
    assert re.fullmatch(r"interrupted +1/2 +\d+\.\d\d +\d+\.\d\d  all/c-stopped", lines[3])
    assert lines[4].startswith("unreadable: all/d-broken/record.json cannot be read (")
    assert len(lines) == 5


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": 1, "status": "finished", "spec": 3}', '{"format": 2}', "\xff"]
)
def test_a_record_that_is_none_does_not_hide_the_others(capsys, content):
    run(capsys, "train", *QUICK, "--out", "all/good")
    Path("all/bad").mkdir()
    (Path("all/bad") / records.RECORD).write_bytes(content.encode("latin1"))
    code, out, _ = run(capsys, "runs", "list", "all")
    assert code == 0
    assert "unreadable: all/bad/record.json" in out
    assert re.search("^finished .*  all/good$", out, re.MULTILINE)


def test_runs_of_another_making_are_listed_with_what_they_have(capsys):
    Path("odd").mkdir()
    (Path("odd") / records.RECORD).write_text('{"format": 1, "status": "finished", "spec": {}}')
    assert re.search(r"^finished +0/\? +- +-  odd$", run(capsys, "runs", "list")[1], re.MULTILINE)
    assert run(capsys, "runs", "show", "odd")[0] == 0


def test_no_runs_say_how_to_make_some(capsys):
    code, out, _ = run(capsys, "runs", "list")
    assert code == 0
    assert "There are no runs below .: `mlrsnet train` and `mlrsnet reproduce` make some." in out
    assert "there is no folder nowhere" in complaint(capsys, "runs", "list", "nowhere")


def test_runs_show_tells_what_was_trained_and_what_came_of_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run(capsys, "train", *QUICK, "--option", "schedule.warmup=0.1", "--seed", 5, "--out", "a")
    code, out, _ = run(capsys, "runs", "show", "a")
    assert code == 0
    found = record("a")
    assert re.search(r"^status +finished$", out, re.MULTILINE)
    assert re.search(r"^schedule +cosine \(warmup 0\.1\)$", out, re.MULTILINE)
    assert "seed 5" in " ".join(out.split())
    assert f"test accuracy {found.result['last']:.2f} % in the last epoch" in " ".join(out.split())
    assert re.search(rf"^ +2 .* {found.epochs[-1]['test_metric']:.2f}$", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.usefixtures("several")
def test_runs_show_says_why_a_run_failed(capsys):
    _, out, _ = run(capsys, "runs", "show", "all/b-failed")
    assert re.search("^error +RuntimeError: out of memory by 3 bytes", out, re.MULTILINE)
    assert "all/d-broken/record.json cannot be read" in complaint(capsys, "runs", "show", "all/d-broken")
    assert "all holds no run: pass a folder with a record.json" in complaint(capsys, "runs", "show", "all")


@pytest.mark.usefixtures("several")
def test_resume_goes_on_with_all_below_a_folder_and_leaves_the_rest_alone(capsys):
    finished, broken = everything_below("all/a-finished"), everything_below("all/d-broken")
    code, out, err = run(capsys, "runs", "resume", "all")
    assert code == 0, err
    assert [status(f"all/{name}") for name in ("a-finished", "b-failed", "c-stopped")] == ["finished"] * 3
    assert everything_below("all/a-finished") == finished
    assert everything_below("all/d-broken") == broken
    assert "unreadable: all/d-broken/record.json" in out
    for name, schedule in (("b-failed", "fixed"), ("c-stopped", "cosine")):
        run(capsys, "train", *QUICK, "--schedule", schedule, "--out", "whole-" + schedule)
        assert record(f"all/{name}").comparable() == record(f"whole-{schedule}").comparable()


@pytest.mark.usefixtures("several")
def test_resume_goes_on_with_one(capsys):
    assert run(capsys, "runs", "resume", "all/c-stopped")[0] == 0
    assert (status("all/b-failed"), status("all/c-stopped")) == ("failed", "finished")
    code, out, _ = run(capsys, "runs", "resume", "all/c-stopped")
    assert (code, out) == (0, "nothing to do: 1 run below all/c-stopped, none unfinished\n")
    assert "cannot be read" in complaint(capsys, "runs", "resume", "all/d-broken")


@pytest.mark.usefixtures("several")
def test_a_run_that_fails_again_does_not_keep_the_others_from_going_on(capsys, break_schedule):
    break_schedule("fixed")
    assert "1 of 2 runs failed; all/b-failed: RuntimeError" in complaint(capsys, "runs", "resume", "all", code=1)
    assert (status("all/b-failed"), status("all/c-stopped")) == ("failed", "finished")


def test_the_hint_to_go_on_says_where_the_data_is(capsys, ctrl_c, pictures, tmp_path):
    pictures(x_val=None, y_val=None)
    (tmp_path / "my data").mkdir()
    (tmp_path / "mine.npz").rename(tmp_path / "my data/mnist.npz")
    words = ("--task", "mnist", "--option", "task.val_size=24", "--batch-size", 8, "--data", "my data")
    ctrl_c(3)
    code, _, err = run(capsys, "train", *QUICK, *words, "--out", "a")
    assert (code, err) == (130, "mlrsnet: interrupted; go on with: mlrsnet runs resume a --data 'my data'\n")
    assert run(capsys, *shlex.split(err.partition("go on with: mlrsnet ")[2]))[0] == 0
    assert status("a") == "finished"


@pytest.mark.parametrize("damage", ["data", "checkpoint"])
def test_a_run_that_cannot_go_on_does_not_keep_the_others_from_going_on(capsys, ctrl_c, pictures, damage):
    pictures()
    for name, words in {"a": ["--task", "mine.npz", "--batch-size", 8], "b": []}.items():
        ctrl_c(3)
        run(capsys, "train", *QUICK, *words, "--out", f"all/{name}")
    if damage == "data":
        Path("mine.npz").unlink()
    else:
        (Path("all/a") / records.CHECKPOINT).write_bytes(b"")
    told = {"data": "FileNotFoundError: there is no file", "checkpoint": "ValueError: all/a/checkpoint.pt is not a"}
    message = complaint(capsys, "runs", "resume", "all", code=1)
    assert f"1 of 2 runs failed; all/a: {told[damage]}" in message
    assert (status("all/a"), status("all/b")) == ("interrupted", "finished")


@pytest.mark.usefixtures("several")
def test_stopping_a_resume_of_several_says_how_to_go_on_with_all(capsys, ctrl_c):
    ctrl_c(3)
    code, _, err = run(capsys, "runs", "resume", "all")
    assert (code, err) == (130, "mlrsnet: interrupted; go on with: mlrsnet runs resume all\n")


def test_resume_needs_runs(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "there are no runs below empty" in complaint(capsys, "runs", "resume", "empty")


# report


@pytest.mark.usefixtures("several")
def test_report_tells_of_every_run_and_trains_nothing(capsys, monkeypatch):
    monkeypatch.setattr("mlrsnet.lab.training.Training.step", lambda self: pytest.fail("trained"))
    code, out, _ = run(capsys, "report", "all", "--out", "told")
    assert (code, out) == (0, "report: told/report.html\nreport: told/report.md\n")
    text = Path("told/report.md").read_text()
    for word in ("linear", "out of memory", "interrupted", "d-broken"):
        assert word in text
    assert run(capsys, "report", "all")[0] == 0
    assert Path("all/report.html").is_file()


def test_report_needs_runs(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "there is no run below empty" in complaint(capsys, "report", "empty")
    assert "there is no folder nowhere" in complaint(capsys, "report", "nowhere")
    assert not list((tmp_path / "empty").iterdir())


def test_a_report_that_cannot_be_written_is_one_line(capsys):
    run(capsys, "train", *QUICK, "--out", "a")
    complaint(capsys, "report", "a", "--out", "/dev/null/x", code=1)


# reproduce

TABLE1 = ("reproduce", "table1", "--device", "cpu", "--out", "t")


def test_reproduce_lists_what_there_is(capsys):
    code, out, _ = run(capsys, "reproduce", "--list")
    assert code == 0
    assert re.search(r"^table1 +Table 1: .*trainings: smoke 31, short 89, paper 89", out, re.MULTILINE)
    assert "`mlrsnet reproduce --list` shows them" in complaint(capsys, "reproduce")


@pytest.mark.usefixtures("quick_recipe")
def test_reproduce_makes_one_row_then_another_and_reports_on_both(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(capsys, *TABLE1, "--seeds", 0, "--only", "MLR-SNet")
    assert code == 0, err
    assert "report: t/report.html" in out
    assert max(map(len, out.splitlines())) <= 80
    first = everything_below("t/digits/mlr-snet")
    assert "schedule.safetensors" in {path.name for path in first}
    assert run(capsys, *TABLE1, "--seeds", 1, "--only", "Fixed", "--only", "Adam")[0] == 0
    assert sorted(path.name for path in Path("t/digits").iterdir()) == ["adam", "fixed", "mlr-snet"]
    assert everything_below("t/digits/mlr-snet") == first
    assert json.loads(Path("t/recipe.json").read_text())["seeds"] == [0, 1]
    text = Path("t/report.md").read_text()
    for row, column, seed in (("MLR-SNet", "mlr-snet", 0), ("Fixed", "fixed", 1), ("Adam", "adam", 1)):
        (line,) = re.findall(rf"^\| {row} .*1 of 2.*$", text, re.MULTILINE)
        assert f"{record(f't/digits/{column}/seed{seed}').result['last']:.2f}" in line


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("smoke", r"t, scale smoke: 2 trainings on CPU, \d+ threads$"),
        ("paper", r"though this scale is for a GPU .*; left out"),
    ],
)
def test_reproduce_begins_with_how_much_there_is_and_what_is_left_out(capsys, monkeypatch, scale, expected):
    def cells(scale):
        rest = [] if scale == "smoke" else [named("Authors' checkpoints", "Digits", RunSpec(), "official")]
        return [Cell("Fixed", "Digits", RunSpec(model="mlp", schedule="fixed", epochs=1)), *rest]

    monkeypatch.setitem(RECIPES, "t", Recipe("t", "T", "Nothing.", cells))
    monkeypatch.setenv("COLUMNS", "400")
    code, out, _ = run(capsys, "reproduce", "t", "--scale", scale, "--seeds", 0, 1, "--device", "cpu", "--out", "o")
    assert code == 0
    line = next(line.rstrip() for line in out.splitlines() if line.startswith("t, scale"))
    assert re.search(expected, line)
    assert ("Authors' checkpoints (there is no schedule named 'official' here: `mlrsnet schedules import`" in line) == (
        scale == "paper"
    )


@pytest.mark.usefixtures("quick_recipe")
def test_reproduce_with_more_seeds_goes_on_from_the_first(capsys):
    assert run(capsys, *TABLE1, "--seeds", 0, "--only", "Fixed")[0] == 0
    before = everything_below("t/digits/fixed/seed0")
    code, out, _ = run(capsys, *TABLE1, "--seeds", 0, 1, "--only", "Fixed", "--only", "Digits")
    assert code == 0
    assert "1/2 Digits Fixed seed 0" in out
    assert "finished before" in out
    assert everything_below("t/digits/fixed/seed0") == before
    last = [record(f"t/digits/fixed/seed{seed}").result["last"] for seed in (0, 1)]
    assert f"{sum(last) / 2:.2f} ± " in out


@pytest.mark.usefixtures("quick_recipe")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--only", "Adma"],
            "only must be one of Fixed, MultiStep, Exponential, SGDR, Adam, L4, HD, RTHO, MLR-SNet, Digits",
        ),
        (["--scale", "huge"], "scale must be one of smoke, short, paper; got 'huge'"),
        (["--seeds", "-1"], "each of seeds must be a whole number >= 0, got -1"),
        (["--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["--device", "cuda:99"], "device 'cuda:99' is not there"),
    ],
)
def test_reproduce_names_a_mistake_and_leaves_nothing(capsys, tmp_path, words, message):
    assert message in complaint(capsys, *TABLE1, *words)
    assert not list(tmp_path.iterdir())


def test_the_theory_is_computed_and_reported(capsys):
    words = ("reproduce", "theory", "--out", "t", "--seeds", 3)
    code, out, err = run(capsys, *words)
    assert code == 0, err
    assert "Convergence (smoke): Theorem 1: loss" in out
    assert json.loads(Path("t/study.json").read_text())["seed"] == 3
    before = Path("t/report.md").read_text()
    assert run(capsys, *words)[0] == 0
    assert Path("t/report.md").read_text() == before
    assert "--only belongs to a single recipe of trainings, got theory" in complaint(capsys, *words, "--only", "T")
    assert "t holds theory at scale smoke: use another --out" in complaint(capsys, *words, "--scale", "paper")


def test_an_unknown_recipe_lists_the_known(capsys):
    assert "recipe must be one of table1" in complaint(capsys, "reproduce", "table99")


@pytest.mark.usefixtures("quick_recipe")
def test_two_scales_do_not_mix_in_a_folder(capsys):
    assert run(capsys, *TABLE1, "--seeds", 0, "--only", "Fixed")[0] == 0
    before = everything_below("t")
    message = complaint(capsys, *TABLE1, "--scale", "short")
    assert "t holds table1 at scale smoke: use another --out" in message
    assert everything_below("t") == before
    Path("t/recipe.json").write_text("{")
    assert "t/recipe.json cannot be read" in complaint(capsys, *TABLE1)


@pytest.mark.usefixtures("quick_recipe")
def test_ctrl_c_in_a_recipe_leaves_what_is_done_and_the_same_command_goes_on(capsys, ctrl_c):
    words = (*TABLE1, "--seeds", 0, "--only", "Fixed", "--only", "MultiStep")
    ctrl_c(50)
    code, _, err = run(capsys, *words)
    assert code == 130
    assert err == (
        "mlrsnet: interrupted; the same command goes on where it was stopped, `mlrsnet report t` shows what is there\n"
    )
    assert (status("t/digits/fixed/seed0"), status("t/digits/multistep/seed0")) == ("finished", "interrupted")
    done = everything_below("t/digits/fixed")
    assert run(capsys, "report", "t")[0] == 0
    assert run(capsys, *words)[0] == 0
    assert everything_below("t/digits/fixed") == done
    run(capsys, *words[:-4], "--only", "MultiStep", "--out", "whole")
    parts, whole = (record(f"{top}/digits/multistep/seed0") for top in ("t", "whole"))
    assert parts.comparable() == whole.comparable()


@pytest.mark.usefixtures("quick_recipe")
@pytest.mark.parametrize("when", ["step", "setup"])
def test_a_run_of_a_recipe_that_fails_is_told_and_the_others_go_on(capsys, break_schedule, when):
    words = (*TABLE1, "--seeds", 0, "--only", "Fixed", "--only", "MultiStep", "--only", "SGDR")
    break_schedule("multistep", when)
    code, out, err = run(capsys, *words)
    assert code == 1
    assert err.startswith("mlrsnet: error: 1 of 3 runs failed; t/digits/multistep/seed0: RuntimeError: out of memory")
    assert err.count("\n") == 1
    assert "report: t/report.html" in out
    assert status("t/digits/fixed/seed0") == status("t/digits/sgdr/seed0") == "finished"
    if when == "step":
        assert status("t/digits/multistep/seed0") == "failed"
        assert "out of memory" in Path("t/report.md").read_text()
    break_schedule(None)
    assert run(capsys, *words)[0] == 0
    assert status("t/digits/multistep/seed0") == "finished"


@pytest.mark.usefixtures("quick_recipe")
def test_a_recipe_of_which_nothing_ran_says_why(capsys, break_schedule):
    break_schedule("fixed", "setup")
    message = complaint(capsys, *TABLE1, "--seeds", 0, "--only", "Fixed", "--only", "Adam", code=1)
    assert message.startswith("mlrsnet: error: 2 of 2 runs failed; t/digits/fixed/seed0: RuntimeError: out of memory; ")


def test_the_run_that_moves_is_in_sight_however_many_there_are():
    heading = {"format": 1, "status": "running", "spec": {}, "metric": {"unit": "%"}}
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    with bars(console) as progress:
        for number in range(1, 37):
            bar = Bar(progress, f"{number}/36 CIFAR-100 Exponential seed 0")
            bar.begin(records.Record(heading), 0, 100)
            bar.epoch({"step": 100, "train_loss": 0.0341, "lr": 4.9e-5, "test_metric": 96.0}, [], [])
        console.file.truncate(0)
        progress.refresh()
        shown = [line.rstrip() for line in console.file.getvalue().splitlines() if "CIFAR" in line]
    assert "36/36 CIFAR-100 Exponential seed 0" in shown[-1]
    assert shown[-1].endswith("loss 0.034 LR 4.9e-05 96.00 %")


@pytest.mark.usefixtures("quick_recipe")
def test_a_recipe_writes_event_files_beside_its_records(capsys):
    assert run(capsys, *TABLE1, "--seeds", 0, "--only", "Fixed", "--tensorboard")[0] == 0
    assert list(Path("t/digits/fixed/seed0/tensorboard").glob("events.*"))


def test_a_recipe_that_cannot_be_written_is_one_line(capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "file" in complaint(capsys, "reproduce", "table1", "--out", "file/x", code=1)
    assert (tmp_path / "file").read_text() == "mine"


def test_what_concerns_every_run_ends_a_recipe_and_loses_nothing(capsys, quick_recipe, monkeypatch):
    assert run(capsys, *TABLE1, "--seeds", 0, "--only", "Fixed")[0] == 0
    done = everything_below("t/digits/fixed")

    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr("mlrsnet.lab.training.Training.step", full)
    message = complaint(capsys, *TABLE1, "--seeds", 0, "--only", "Fixed", "--only", "SGDR", "--only", "Adam", code=1)
    assert message == "mlrsnet: error: No space left on device\n"
    assert everything_below("t/digits/fixed") == done
    assert sorted(path.name for path in Path("t/digits").iterdir()) == ["fixed", "sgdr"]


def test_a_recipe_whose_data_is_not_there_says_where_to_put_it(capsys, tmp_path, monkeypatch):
    def offline(name, root):
        raise OSError("no network")

    monkeypatch.setattr("mlrsnet.lab.tasks.download.fetch", offline)
    message = complaint(capsys, *TABLE1, "--scale", "paper", "--data", "here", code=1)
    assert f"cifar10 was not found: put {tmp_path}/here/cifar10.npz there" in message
    assert "uint8 or numbers from 0 to 255, or floats from 0 to 1; labels from 0" in message
    assert "no network" in message


@pytest.mark.usefixtures("quick_recipe")
def test_all_recipes_in_one_command_with_one_report(capsys, monkeypatch):
    from mlrsnet.lab.screen import reproduce as screen

    two = {name: screen.RECIPES[name] for name in ("table1", "horizon")}
    monkeypatch.setattr(screen, "RECIPES", two)
    words = ("reproduce", "all", "--device", "cpu", "--out", "t")
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert {path.parent.name for path in Path("t").glob("*/recipe.json")} == set(two)
    page = Path("t/report.md").read_text()
    assert all(recipe.title in page for recipe in two.values())
    assert "### Theorem 3: meta-gradient" in page
    told = json.loads(Path("t/all.json").read_text())
    assert told["runs"] > 2
    assert f"everything: {told['runs']} runs in {told['seconds']:.0f} s" in out
    assert "1 of" not in out
    assert "--only belongs to a single recipe" in complaint(capsys, *words, "--only", "Fixed")


def test_a_recipe_whose_data_is_missing_does_not_stop_the_others(capsys, monkeypatch):
    from mlrsnet.lab.screen import reproduce as screen

    def without_data(name, scale, out, **options):
        if name == "table1":
            raise FileNotFoundError("cifar10 was not found")
        return []

    monkeypatch.setattr(screen, "reproduce", without_data)
    monkeypatch.setattr(screen, "study", lambda name, scale, out, **options: out)
    message = complaint(capsys, "reproduce", "all", "--scale", "short", "--out", "t", code=1)
    assert "table1: cifar10 was not found" in message
