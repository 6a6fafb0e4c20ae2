"""`mlrsnet train`: what its options and files mean, and mistakes in them."""

import json
import re
from dataclasses import fields

import pytest
from commands import complaint, run
from lab_commands import QUICK

from mlrsnet_lab.commands import train
from mlrsnet_lab.spec import RunSpec

pytestmark = pytest.mark.usefixtures("own_folder")


def shown(capsys, *words):
    """The whole spec that the words mean."""
    code, out, err = run(capsys, "train", *words, "--show")
    assert code == 0, err
    return json.loads(out)


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
        (
            ["--schedule", "multistep", "--option", "schedule.factor=-1"],
            "multistep must give finite factors >= 0 at every step",
        ),
        (["--schedule", "sgdr", "--option", "schedule.growth=0"], "growth must be a whole number >= 1, got 0"),
        (["--schedule", "learned", "--option", "schedule.schedule=5"], "schedule must be a string, got 5"),
        (["--schedule", "learned", "--option", "schedule.schedule=nope"], "there is no schedule named 'nope'"),
        (["--task", "nope"], "task must be one of digits, cifar10"),
        (["--model", "nope"], "model must be one of resnet18"),
        (["--optimizer", "nope"], "optimizer must be one of sgd"),
        (["--schedule", "nope"], "schedule must be one of fixed"),
        (["--precision", "fp8"], "precision must be one of auto, fp32, bf16; got 'fp8'"),
        (["--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["--device", "cuda:99"], "device 'cuda:99' does not exist"),
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


@pytest.mark.parametrize(
    ("schedule", "told", "then"),
    [
        ("learned", "learned", ", or multiply its LRs by an option: schedule.scale=2"),
        ("universal", "universal", ", or multiply its LRs by an option: schedule.scale=2"),
        ("mlr-snet", "mlr-snet", ", or multiply its LRs by an option: schedule.scale=2"),
        ("l4", "l4", "$"),
    ],
)
def test_an_lr_that_has_no_effect_is_told(capsys, schedule, told, then):
    with pytest.warns(
        UserWarning, match=f"lr has no effect under schedule '{told}', which finds its own: leave it out{then}"
    ):
        shown(capsys, "--schedule", schedule, "--lr", 0.3)
    shown(capsys, "--schedule", schedule)
    shown(capsys, "--schedule", "hd", "--lr", 0.3)


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
        if field.name.endswith("_options") or field.name in ("clip_norm", "deterministic", "start"):
            continue
        line = re.search(rf"^  --{field.name.replace('_', '-')} .*\(default: (.*)\)$", out, flags=re.MULTILINE)
        assert line, field.name
        assert line[1] == str(field.default)
    assert {*train.FIELDS, "deterministic"} == {
        field.name for field in fields(RunSpec) if not field.name.endswith("_options") and field.name != "start"
    }
