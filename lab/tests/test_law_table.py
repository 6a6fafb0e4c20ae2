"""The study of small trainings: rows are drawn from their numbers, grids grow, and laws are fitted."""

import gzip
import json
import math

import pytest
import torch
from torch import nn

from lab.studies.law import calibrate, fill, fit, r_tables
from lab.studies.law.families import Draw, Task


def toy(**options):
    """A line, learned from noise-free points."""
    x = torch.linspace(-1, 1, 64)[:, None]

    def loss(model, index):
        return (model(x[index]) - 3 * x[index]).square().mean()

    @torch.no_grad()
    def judge(model):
        error = float((model(x) - 3 * x).square().mean())
        return error, error

    return Task(lambda: nn.Linear(1, 1), loss, judge, len(x), **options)


def test_a_row_is_the_same_wherever_it_is_drawn():
    first, again, other = (fill.plan_of(Draw(number), toy()) for number in (5, 5, 6))
    assert first == again != other
    assert first.examples <= 64


def test_a_training_under_the_default_and_one_under_a_decay_both_learn():
    plan = fill.Plan("sgd", 60, 16, 64, 0.0, None, 0)
    before = toy().judge(toy().build())[0]
    for law in (0.3, fill.Default(fill.Size.fixed(0.3))):
        found = fill.train(toy(), plan, law)
        assert found["error"] < 0.2 * before
    assert fill.train(toy(), plan, 1e9)["error"] == math.inf


@pytest.mark.parametrize("table", [r_tables.NUMBERS[0], r_tables.CLASSES[0]])
def test_a_table_of_r_becomes_numbers(table):
    """One row in 20 has a gap, a column of words is one-hot, and the row's own name is left out."""
    lines = [f"{i},{i % 7},{'abc'[i % 3]},{'NA' if i % 20 == 0 else i % 5},{i % 2}" for i in range(200)]
    found = r_tables.parse(table, "\n".join([f",a,b,{table.target},c", *lines]))
    assert found["inputs"].shape == (190, 5)
    assert found["targets"].dtype.kind == ("i" if table.has_classes else "f")


@pytest.mark.parametrize("best", [1 / 50, 0.9, 30.0])
def test_a_grid_grows_until_its_best_is_inside(best):
    found = fill.bracketed(lambda value: abs(math.log(value / best)), (0.5, 1.0, 2.0), 2, 20)
    order = sorted(found)
    assert order[0] < min(found, key=found.__getitem__) < order[-1]


def rows(power):
    """Trainings of two families whose best r is steps^power."""
    made = []
    for number, steps in enumerate((100, 200, 500, 1000, 2000, 4000)):
        best = 0.1 * (steps / 500) ** power
        sizes = [[0.1, best * 2.0**k, 0.5 + 0.1 * abs(k), 1.0, []] for k in range(-3, 4)]
        facts = {"matrices": 3, "parameters": 10_000, "depth": 1, "all_parameters": 10_000, "is_trained": False}
        plan = {"steps": steps, "batch": 32, "examples": 32 * steps, "optimizer": "sgd", "family": "ab"[number % 2]}
        made.append({**facts, **plan, "sizes": sizes, "decays": [[0.1, 0.5, 1.0]], "number": number})
    return made


@pytest.mark.parametrize("power", [-0.5, 0.0])
def test_a_fit_finds_the_power_that_trainings_follow_and_judges_it_on_others(power):
    table = fit.Table(rows(power))
    theta, gaps = table.fit(("steps",), {})
    assert theta[0, 1].item() == pytest.approx(power, abs=0.08)
    assert gaps.mean() < 0.05
    _, wrong = table.fit((), {"steps": power + 1})
    assert wrong.mean() > 2 * gaps.mean()
    assert fit.least_squares(rows(power), ("steps",))["powers"]["steps"][0] == pytest.approx(power, abs=0.02)


def test_a_row_that_failed_is_left_out_of_the_fit(tmp_path):
    path = tmp_path / "table.jsonl.gz"
    lines = [*rows(0.0), {"number": 6, "failed": "OutOfMemoryError"}]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    assert fit.read(path) == rows(0.0)


def trained(family, best, optimizer="adam", size=1.0):
    """A training whose decays are the better the nearer their LR is to the best one; all others diverge."""
    decays = [[best * 4.0**k, size * (0.1 + 0.05 * abs(k)) if abs(k) < 2 else math.inf, 1.0] for k in range(-2, 3)]
    return {"family": family, "optimizer": optimizer, "decays": decays}


def test_the_lr_for_all_is_the_best_one_where_families_agree_and_is_told_with_its_cost():
    rows = [trained("a", 0.004), trained("b", 0.004, "adamw"), trained("c", 0.5, "sgd", size=0.01)]
    found = calibrate.calibrated(rows)
    assert set(found) == {"adam", "sgd"}
    assert found["adam"]["lr"] == pytest.approx(0.004, rel=0.05)
    assert found["sgd"]["lr"] == pytest.approx(0.5, rel=0.05)
    assert found["adam"]["gap"] < 0.02 < found["adam"]["half"]
    assert (found["adam"]["rows"], found["adam"]["families"]) == (2, 2)


def test_families_count_the_same_however_many_rows_they_have():
    rows = [trained("a", 0.01)] * 9 + [trained("b", 0.08), trained("c", 0.08)]
    assert calibrate.calibrated(rows)["adam"]["lr"] > 0.03


def test_the_cost_of_an_lr_is_straight_between_those_tried_and_capped_where_one_diverged():
    row = trained("a", 1.0)
    lrs = torch.tensor([0.25, 0.5, 1.0, 2.0, 4.0, 9.0, 100.0]).double().numpy()
    half, whole = math.log(0.145 / 0.12), math.log(0.17 / 0.12)
    assert calibrate.gaps(row, lrs) == pytest.approx([whole, half, 0, half, whole, 1, 1], abs=1e-6)
