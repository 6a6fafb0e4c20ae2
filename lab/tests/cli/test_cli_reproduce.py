"""`mlrsnet reproduce`: what a recipe makes and says, also where a part of it stops, fails or lacks data."""

import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from campaigns import PAIR, PAIR_EQUAL, PAIR_RUNS, comparable
from commands import complaint, everything_below, run
from lab_commands import record, status
from rich.console import Console

from mlrsnet_lab import records
from mlrsnet_lab.commands.progress import Bar, Line, bars
from mlrsnet_lab.commands.reproduce import on_every_core
from mlrsnet_lab.executors import Executor
from mlrsnet_lab.recipes import RECIPES, Cell, Recipe, table1
from mlrsnet_lab.recipes.rows import named
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec

pytestmark = pytest.mark.usefixtures("own_folder")

TABLE1 = ("reproduce", "table1", "--device", "cpu", "--out", "t")


@pytest.fixture
def quick_recipe(monkeypatch):
    monkeypatch.setattr(table1, "SMALL", replace(table1.SMALL, epochs=2))


def test_reproduce_lists_what_there_is(capsys):
    code, out, _ = run(capsys, "reproduce", "--list")
    assert code == 0
    assert re.search(r"^table1 +Table 1: .*trainings: smoke 31, cpu 128, short 147, paper 138", out, re.MULTILINE)
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
        (["--scale", "huge"], "scale must be one of smoke, cpu, short, paper; got 'huge'"),
        (["--seeds", "-1"], "each of seeds must be a whole number >= 0, got -1"),
        (["--device", "gpu"], "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["--device", "cuda:99"], "device 'cuda:99' does not exist"),
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
    assert "only belongs to a single recipe of trainings, got theory" in complaint(capsys, *words, "--only", "T")
    assert "t holds theory at scale smoke: use another folder" in complaint(capsys, *words, "--scale", "paper")


def test_an_unknown_recipe_lists_the_known(capsys):
    assert "recipe must be one of table1" in complaint(capsys, "reproduce", "table99")


@pytest.mark.usefixtures("quick_recipe")
def test_two_scales_do_not_mix_in_a_folder(capsys):
    assert run(capsys, *TABLE1, "--seeds", 0, "--only", "Fixed")[0] == 0
    before = everything_below("t")
    message = complaint(capsys, *TABLE1, "--scale", "short")
    assert "t holds table1 at scale smoke: use another folder" in message
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
        "mlrsnet: interrupted; the same command continues where it stopped, `mlrsnet report t` shows what there is\n"
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

    monkeypatch.setattr("mlrsnet_lab.stepper.Stepper.step", full)
    message = complaint(capsys, *TABLE1, "--seeds", 0, "--only", "Fixed", "--only", "SGDR", "--only", "Adam", code=1)
    assert message == "mlrsnet: error: No space left on device\n"
    assert everything_below("t/digits/fixed") == done
    assert sorted(path.name for path in Path("t/digits").iterdir()) == ["fixed", "sgdr"]


def test_a_recipe_whose_data_is_not_there_says_where_to_put_it(capsys, tmp_path, monkeypatch):
    def offline(name, root):
        raise OSError("no network")

    monkeypatch.setattr("mlrsnet_lab.datasets.download.fetch", offline)
    message = complaint(capsys, *TABLE1, "--scale", "paper", "--data", "here", code=1)
    assert f"cifar10 was not found: put {tmp_path}/here/cifar10.npz there" in message
    assert "uint8 or numbers from 0 to 255, or floats from 0 to 1; labels from 0" in message
    assert "no network" in message


@pytest.mark.usefixtures("quick_recipe")
def test_all_recipes_in_one_command_with_one_report(capsys, monkeypatch):
    two = {name: RECIPES[name] for name in ("table1", "horizon", "theory")}
    monkeypatch.setattr("mlrsnet_lab.reproduce.RECIPES", two)
    words = ("reproduce", "all", "--device", "cpu", "--out", "t")
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert {path.parent.name for path in Path("t").glob("*/recipe.json")} == {"table1", "horizon"}
    page = Path("t/report.md").read_text()
    assert all(recipe.title in page for recipe in two.values())
    assert "### Theorem 3: meta-gradient" in page
    told = json.loads(Path("t/all.json").read_text())
    assert told["runs"] > 2
    assert f"everything: {told['runs']} runs in {told['seconds']:.0f} s" in out
    assert "1 of" not in out
    assert "only belongs to a single recipe" in complaint(capsys, *words, "--only", "Fixed")


def test_a_recipe_whose_data_is_missing_does_not_stop_the_others(capsys, monkeypatch):
    there = RunSpec(model="mlp", schedule="fixed", epochs=1)
    recipes = {"there": there, "absent": RunSpec(task="ptb", model="lstm")}
    made = {
        name: Recipe(name, name, "None.", lambda scale, of=spec: [Cell("Fixed", "C", of)], seeds=(0, 1))
        for name, spec in recipes.items()
    }
    monkeypatch.setattr(RECIPES, "data", made)
    for names in (["all"], ["absent", "there"]):
        message = complaint(
            capsys, "reproduce", *names, "--device", "cpu", "--data", "here", "--seeds", 0, "--out", "t", code=1
        )
        assert message.startswith("mlrsnet: error: 1 of 2 runs failed; absent: ptb was not found")
        assert [path.parent.name for path in Path("t").glob("*/recipe.json")] == ["there"]
        assert status("t/there/c/fixed/seed0") == "finished"
    assert "ptb was not found" in complaint(capsys, "reproduce", "absent", "--out", "u", code=1)
    code, out, _ = run(capsys, "reproduce", "next", "--device", "cpu", "--data", "here", "--seeds", 0, "--out", "t")
    assert code == 0  # it takes what is at hand, and says what is not
    assert "left out: absent: ptb was not found" in out.replace("\n", " ")


def test_redirected_output_has_one_line_for_every_training_and_no_bars(capsys, monkeypatch):
    monkeypatch.setattr(RECIPES, "data", dict(PAIR))
    code, out, err = run(capsys, "reproduce", "a", "b", "--device", "cpu", "--out", "t")
    assert (code, err) == (0, "")
    count = PAIR_RUNS - PAIR_EQUAL
    lines = [line for line in out.splitlines() if "seed 0" in line]
    assert len(lines) == count
    for number, line in enumerate(sorted(lines, key=lambda line: int(line.split("/")[0])), 1):
        assert re.fullmatch(rf"{number}/{count} (Digits|Numbers).* seed 0: finished \d+\.\d\d %, \d+ s", line)
    assert not re.search("[\x1b\r\u2501]", out)
    outlook = ["a, scale smoke", "b, scale smoke", f"{PAIR_RUNS} trainings, {PAIR_EQUAL} of them equal"]
    assert [line.startswith(begin) for line, begin in zip(out.splitlines(), outlook, strict=False)] == [True] * 3
    assert "" not in out.splitlines()[: len(outlook) + count]
    again = run(capsys, "reproduce", "a", "b", "--device", "cpu", "--out", "t")[1]
    assert len(re.findall(r"seed 0: finished before \d+\.\d\d %, \d+ s$", again, re.MULTILINE)) == count


@pytest.mark.parametrize(
    ("status", "result", "unit", "expected"),
    [
        ("finished", {"last": 81.5}, "%", "T: finished before 81.50 %, 3 s\n"),
        ("finished", {"last": 81.5}, "", "T: finished before ppl 81.5, 3 s\n"),
        ("diverged", {"last": None}, "", "T: diverged before, 3 s\n"),  # as it is read from a file
        ("failed", {}, "%", "T: failed, 3 s\n"),
    ],
)
def test_a_run_without_a_finite_result_has_a_line_too(status, result, unit, expected):
    data = {"status": status, "spec": {}, "metric": {"unit": unit}, "result": result, "timing": {"seconds": 3.2}}
    console = Console(file=io.StringIO(), width=20)
    Line(console, "T").end(records.Record(data))
    assert console.file.getvalue() == expected


def test_next_says_that_the_same_command_goes_on_and_it_does(capsys, monkeypatch):
    monkeypatch.setattr(RECIPES, "data", dict(PAIR))
    words = ("reproduce", "next", "--device", "cpu", "--out", "t")
    for seconds in (0.001, 0.01):
        code, out, err = run(capsys, *words, "--seconds", seconds)
        assert (code, err) == (0, "")
        assert out.splitlines()[-1] == "time is up; the same command goes on where it stopped"
    code, out, _ = run(capsys, *words, "--seconds", 600)
    assert code == 0
    assert "time is up" not in out
    assert run(capsys, *words[:-1], "whole")[0] == 0
    assert comparable(Path("t")) == comparable(Path("whole"))


def test_several_recipes_go_where_all_of_them_go(capsys, monkeypatch):
    monkeypatch.setattr(RECIPES, "data", dict(PAIR))
    for names in (["a", "b"], ["next"], ["all"]):
        assert run(capsys, "reproduce", *names, "--device", "cpu")[0] == 0
    assert sorted(path.name for path in Path().iterdir() if path.name.startswith("mlrsnet")) == ["mlrsnet-all-smoke"]
    assert len(list(records.find(Path("mlrsnet-all-smoke")))) == PAIR_RUNS
    for words in (["a", "b", "--only", "Uses"], ["next", "--only", "Uses"]):
        asked = ", ".join(word for word in words if word in ("a", "b", "next"))
        assert f"only belongs to a single recipe of trainings, got {asked}:" in complaint(capsys, "reproduce", *words)
    assert "recipe must be one of a, b; got 'next'" in complaint(capsys, "reproduce", "a", "next")


def test_scale_cpu_uses_every_core_unless_somebody_said_otherwise(monkeypatch):
    own = Settings(device="cpu")
    assert on_every_core(own, "cpu").executor == Executor(jobs=os.cpu_count())
    for scale in ("smoke", "short", "paper"):
        assert on_every_core(own, scale) == own
    for said in (Executor(jobs=1), Executor(jobs=3), Executor("ray")):
        assert on_every_core(replace(own, executor=said), "cpu").executor == said
    monkeypatch.setattr("mlrsnet_lab.commands.reproduce.resolve", torch.device)
    assert on_every_core(Settings(device="cuda:0"), "cpu").executor == Executor()


def test_a_gpu_scale_on_a_cpu_says_which_scales_suit_it(capsys, monkeypatch):
    spec = RunSpec(model="mlp", schedule="fixed", epochs=1)
    monkeypatch.setitem(
        RECIPES, "t", Recipe("t", "T", "Nothing.", lambda scale: [Cell("Fixed", "C", spec)], seeds=(0,))
    )
    hint = "(`--scale smoke` and `--scale cpu` are for a CPU)"
    for scale in ("smoke", "cpu", "short", "paper"):
        out = run(capsys, "reproduce", "t", "--scale", scale, "--device", "cpu", "--jobs", 1, "--out", scale)[1]
        assert (hint in " ".join(out.split())) == (scale in ("short", "paper"))
