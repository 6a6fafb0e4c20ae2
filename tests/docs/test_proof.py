"""The table of the proof: chosen on validation, told on test data, paired by seed, and honest about what diverged."""

import math

import pytest

from experiments import proof, usual_lr
from mlrsnet_lab import records
from mlrsnet_lab.recipes import RECIPES
from mlrsnet_lab.records import Record

COLUMN = "Digits, fine-tuning, CNN, AdamW"
ACCURACY = {"name": "accuracy", "unit": "%", "better": "higher"}


def put(root, row, seed, val, test, *, status="finished", metric=ACCURACY, column=COLUMN, **more):
    result = {"last": test, "val_metric": val, "best": test, "epoch": 1}
    data = {
        "format": 1,
        "status": status,
        "spec": {"task": "digits", "schedule": row, "seed": seed},
        "labels": {"recipe": "proof", "scale": "smoke", "row": row, "column": column},
        "metric": metric,
        "task": {"num_classes": 10},
        "result": result,
        "timing": {"seconds": 2.0},
        **more,
    }
    records.write(Record(data, [{"epoch": 1}], {}, root / column[:3] / row.replace(" ", "") / f"seed{seed}"))


@pytest.fixture
def folder(tmp_path):
    """Three decays and some rows on one task, over two seeds."""
    for seed in (0, 1):
        before = {"before": {"test": {"metric": 80.0 - seed}}}
        put(tmp_path, "Cosine 1x", seed, 80.0, 95.0, **before)
        put(tmp_path, "Cosine 3x", seed, 90.0, 90.0 - seed, **before)
        put(tmp_path, "Linear 30x", seed, 99.0, 99.0, status="diverged", **before)
        put(tmp_path, "Universal", seed, 90.0, 95.0 - 0.5 * seed)
        put(tmp_path, "LARS", seed, 0.0, 10.0, status="diverged")
    (tmp_path / records.RECIPE).write_text(records.dumps(RECIPES["proof"].sheet("smoke", [0, 1]).to_dict()))
    return str(tmp_path)


def test_the_decay_is_chosen_on_validation_data_and_never_one_that_diverged(folder):
    tuned, _ = proof.ratios(proof.results.rows(folder, COLUMN))
    assert tuned == "Cosine 3x"


def test_rows_are_compared_seed_by_seed_and_a_divergence_counts_as_guessing(folder):
    _, found = proof.ratios(proof.results.rows(folder, COLUMN))
    assert found["Universal"].value == pytest.approx(0.5)
    assert found["Universal"].spread == pytest.approx(0.0, abs=1e-12)
    assert found["LARS"].value == pytest.approx(math.sqrt(90 / 10 * 90 / 11))
    assert found["LARS"].diverged
    assert found["LARS"].text.endswith("†")
    assert found["Cosine 1x"].value == pytest.approx(math.sqrt(5 / 10 * 5 / 11))


def test_doing_nothing_is_a_row_of_fine_tuning(folder):
    _, found = proof.ratios(proof.results.rows(folder, COLUMN))
    assert found[proof.NOTHING].value == pytest.approx(math.sqrt(20 / 10 * 21 / 11))


def test_the_table_ends_with_means_and_the_worst_task(folder):
    lines = proof.table(folder)
    assert lines[2].startswith(f"| {COLUMN} | Cosine 3x |")
    assert "0.500" in next(line for line in lines if line.startswith("| **geometric mean**"))
    assert any(line.startswith("| worst task |") for line in lines)


def test_without_records_it_says_so(tmp_path):
    assert proof.table(str(tmp_path / "nothing")) == proof.results.NOTHING


def test_guessing_has_the_error_of_an_answer_that_does_not_look():
    def record(name, task):
        return Record({"metric": {"name": name}, "task": task, "spec": {}, "status": "diverged"})

    assert proof.last_error(record("accuracy", {"num_classes": 4})) == 75.0
    assert proof.last_error(record("perplexity", {"num_classes": 50})) == math.log(50)
    assert proof.last_error(record("RMSE", {"num_classes": None, "rmse_of_mean": 3.5})) == 3.5


def test_a_best_lr_at_the_edge_of_what_was_tried_is_told_in_a_short_grid_too():
    rows = ["Cosine 1x", "Linear 0.3x", "Linear 1x", "Linear 3x"]
    assert [proof.at_edge(name, rows) for name in rows] == [False, True, False, True]
    (told,) = usual_lr.edges()
    chosen = {task: name for task, (name, _) in usual_lr.tuned().items()}
    assert f"of {len(chosen)} tasks" in told
    marked = {line.split(" | ")[0].removeprefix("| ") for line in proof.table() if "(edge)" in line}
    assert marked
    assert all((f"{task} ({name})" in told) == (task in marked) for task, name in chosen.items())
