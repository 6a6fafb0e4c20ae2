"""What the findings rest on: settings chosen by validation, pictures that can be drawn."""

import json
import shutil
import subprocess
import sys

import pytest

from experiments import documents, pictures
from experiments import results as recorded
from experiments.algorithm_1 import OTHER_THAN_PACE, authors_meta_training, meta_trainings
from experiments.markdown import span
from experiments.results import ROOT
from mlrsnet import Schedule
from mlrsnet_lab import records
from mlrsnet_lab.recipes import RECIPES


@pytest.mark.parametrize(
    ("folder", "column", "name", "option"),
    [
        ("table1_short", "CIFAR-10", "HD", "hyper_lr"),
        ("table2_short", "CIFAR-10", "HD", "hyper_lr"),
        ("table3_short", "2-layer LSTM", "HD", "hyper_lr"),
        ("table3_short", "2-layer LSTM", "L4", "fraction"),
    ],
)
def test_a_rival_runs_with_the_setting_that_was_best_on_validation_data(folder, column, name, option):
    trials = recorded.rows(folder, f"{column}: {option} of {name}, {records.CHOSEN}").values()
    runs = [run for trial in trials for run in recorded.ended(trial)]
    pick = max if runs[0].data["metric"]["better"] == "higher" else min
    best = pick(runs, key=lambda run: run.result["val_metric"]).spec["schedule_options"][option]
    assert {run.spec["schedule_options"][option] for run in recorded.runs(folder, column, name)} == {best}


def test_the_card_of_a_shipped_schedule_says_what_its_meta_training_recorded():
    found, card = recorded.data("universal_lstm/universal-lstm.json"), Schedule.load("universal-lstm").card
    assert card.results["trainings it was not learned from"] == found["comparisons"][-1]["summary"]
    assert card.gamma.value == found["spec"]["gamma"]
    assert f"{len(found['generations'])} generations of {found['spec']['tasks']} tasks" in card.description


def test_the_lr_of_algorithm_1_ends_lower_the_further_adam_can_move():
    runs = [run for run in meta_trainings("sensitivity_short") if run.name not in OTHER_THAN_PACE]
    ends = [run.last_lr for run in sorted(runs, key=lambda run: (run.travel, -run.last_lr))]
    assert ends == sorted(ends, reverse=True)
    assert authors_meta_training().updates == 200


@pytest.mark.parametrize("name", pictures.DRAW)
def test_every_picture_can_be_drawn_and_is_the_same_twice(name, tmp_path):
    for place in ("a.png", "b.png"):
        pictures.DRAW[name](tmp_path / place)
    first = (tmp_path / "a.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    assert first == (tmp_path / "b.png").read_bytes()
    assert (pictures.PICTURES / name).is_file()


def test_a_description_is_refreshed_in_its_words_only(tmp_path):
    now = RECIPES["table2"].sheet("short", [4]).to_dict()
    plan = now | {"notes": ["old"], "cells": "as they were"}
    (tmp_path / "recipe.json").write_text(json.dumps(plan))
    new = json.loads(documents.described(tmp_path / "recipe.json"))
    assert new["notes"] == now["notes"]
    assert (new["cells"], new["seeds"]) == ("as they were", [4])


def test_links_of_made_tables_fit_the_page(tmp_path, monkeypatch):
    text = "<!-- made: smoke-time -->\nold\n<!-- end -->\n"
    (tmp_path / "docs").mkdir()
    for path in (tmp_path / "README.md", tmp_path / "docs" / "lab.md"):
        path.write_text(text)
    monkeypatch.setattr(recorded, "ROOT", tmp_path)
    assert "](results/reproduce_all/smoke.json)" in documents.filled(tmp_path / "README.md")
    assert "](../results/reproduce_all/smoke.json)" in documents.filled(tmp_path / "docs" / "lab.md")


def test_importing_the_experiments_reads_no_record(tmp_path):
    for folder in ("experiments", "lab/studies"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    result = subprocess.run(
        [sys.executable, "-c", "import experiments.__main__"], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_a_range_of_equal_numbers_is_one_number():
    assert span([0.1, 0.1000001]) == "0.100"
