"""Recipes: the paper's numbers, the paper's settings, and that each of them runs."""

import json
import math
import os
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from mlrsnet import hand_designed
from mlrsnet.lab import optimizers, records
from mlrsnet.lab.recipes import RECIPES, SCALES, Cell, Choice, Recipe, table1
from mlrsnet.lab.report import read_report, write_report
from mlrsnet.lab.report.studies import panels
from mlrsnet.lab.reproduce import choose, reproduce, study
from mlrsnet.lab.spec import RunSpec

TABLE1 = [  # Table 1 of the paper, row by row: CIFAR-10 with ResNet-18, CIFAR-100 with WideResNet-28-10
    ("Fixed", (92.26, 0.12), (70.67, 0.34)),
    ("MultiStep", (93.82, 0.09), (77.04, 0.17)),
    ("Exponential", (90.93, 0.11), (76.88, 0.08)),
    ("SGDR", (93.92, 0.11), (72.52, 0.34)),
    ("Adam", (90.86, 0.15), (68.94, 0.24)),
    ("L4", (89.15, 0.14), (63.61, 0.65)),
    ("HD", (92.34, 0.09), (72.22, 0.30)),
    ("RTHO", (92.60, 0.18), (72.32, 0.47)),
    ("MLR-SNet", (94.80, 0.10), (80.44, 0.17)),
]
STEPS = 382  # of an epoch: 49,000 pictures in batches of 128, 1,000 being held out
EVERY_SCALE = [(recipe, scale) for recipe in RECIPES for scale in SCALES]


def spec(row, scale, column="CIFAR-10"):
    (cell,) = [cell for cell in table1.cells(scale) if (cell.row, cell.column) == (row, column)]
    return cell.spec


def lrs(row, scale):
    """The LR of every step of a hand-designed row."""
    chosen = spec(row, scale)
    total = chosen.epochs * STEPS
    factors = hand_designed.factors(chosen.schedule, total, STEPS, **chosen.schedule_options)
    return [chosen.lr * factor for factor in factors]


def falls(values):
    """Where the LR drops at once to less than half."""
    return [step for step, (a, b) in enumerate(pairwise(values), 1) if b < a / 2]


def rises(values):
    return [step for step, (a, b) in enumerate(pairwise(values), 1) if b > a]


@pytest.mark.parametrize("scale", ["short", "paper"])
def test_table1_sets_our_numbers_beside_the_papers(scale):
    cells = table1.cells(scale)
    expected = [(row, "CIFAR-10", ten) for row, ten, _ in TABLE1] + [
        (row, "CIFAR-100", hundred) for row, _, hundred in TABLE1
    ]
    assert [(cell.row, cell.column, cell.paper) for cell in cells] == expected
    told = json.loads(records.dumps(RECIPES["table1"].describe(scale, [0])))
    assert told["rows"] == [row for row, _, _ in TABLE1]
    assert told["columns"] == ["CIFAR-10", "CIFAR-100"]
    assert [tuple(cell["paper"]) for cell in told["cells"]] == [paper for _, _, paper in expected]


def test_table1_of_digits_says_that_the_papers_numbers_are_of_something_else():
    cells = table1.cells("smoke")
    assert [(cell.row, cell.column) for cell in cells] == [(row, "Digits") for row, _, _ in TABLE1]
    told = RECIPES["table1"].describe("smoke", [0])
    assert told["paper_setting"] == "CIFAR-10, 200 epochs"
    assert [cell.paper for cell in cells] == [ten for _, ten, _ in TABLE1]
    assert any("stand in for CIFAR" in note for note in told["notes"])


def test_every_row_of_table1_is_a_run_at_every_scale():
    for scale in SCALES:
        assert all(cell.spec is not None and cell.missing is None for cell in table1.cells(scale))


@pytest.mark.parametrize("scale", SCALES)
def test_l4_hd_and_rtho_are_at_settings_that_the_paper_names(scale):
    cells = {cell.row: cell for cell in reversed(table1.cells(scale))}
    base = spec("Fixed", scale, cells["L4"].column)
    for row, options in {"L4": {"fraction": 0.15}, "HD": {}, "RTHO": {}}.items():
        found = cells[row].spec
        assert (found.schedule, found.schedule_options) == (row.lower(), options)
        assert replace(found, schedule="fixed", schedule_options={}) == base
    grid = (1e-3, 1e-4) if scale == "smoke" else (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    assert cells["HD"].choice == cells["RTHO"].choice == Choice("hyper_lr", grid, 2 if scale == "smoke" else 10)
    assert any("0.001, 0.0001, 1e-05, 1e-06, 1e-07" in note for note in RECIPES["table1"].describe(scale, [0])["notes"])


def test_a_setting_is_chosen_by_validation_once_and_used_for_every_seed(tmp_path, monkeypatch):
    cell = Cell(
        "Cosine",
        "Digits",
        RunSpec(task="digits", model="mlp", schedule="cosine", epochs=3),
        choice=Choice("end", (0.9, 0.0, 0.5), 1),
    )
    monkeypatch.setitem(RECIPES, "mine", Recipe("mine", "Mine", "None.", lambda scale: [cell], seeds=(4, 5, 6)))
    results = {0.9: 50.0, 0.0: 70.0, 0.5: 60.0}
    made = []

    def pretended(spec, folder, **options):
        made.append((spec.schedule_options["end"], spec.epochs, spec.seed, options["labels"]["row"]))
        data = {"status": "finished", "metric": {"better": "higher"}, "result": {"val_metric": results[made[-1][0]]}}
        return records.Record(data, folder=folder)

    monkeypatch.setattr("mlrsnet.lab.reproduce.run", pretended)
    found = reproduce("mine", "smoke", tmp_path, seeds=[5, 6], device="cpu")
    trials = [(0.9, 1, 4, "Cosine, end 0.9"), (0.0, 1, 4, "Cosine, end 0"), (0.5, 1, 4, "Cosine, end 0.5")]
    assert made == [*trials, (0.0, 3, 5, "Cosine"), (0.0, 3, 6, "Cosine")]  # with the recipe's first seed, once
    assert len(found) == 2


@pytest.mark.parametrize(
    ("column", "task", "model"), [("CIFAR-10", "cifar10", "resnet18"), ("CIFAR-100", "cifar100", "wrn-28-10")]
)
def test_the_paper_scale_trains_as_the_paper_does(column, task, model):
    for row in ("Fixed", "MultiStep", "Exponential", "SGDR", "L4", "HD", "RTHO", "MLR-SNet"):
        found = spec(row, "paper", column)
        assert (found.task, found.model, found.task_options, found.model_options) == (task, model, {}, {})
        assert (found.epochs, found.batch_size, found.lr, found.weight_decay) == (200, 128, 0.1, 5e-4)
        assert (found.optimizer, found.optimizer_options, found.clip_norm, found.eval_every) == ("sgd", {}, None, 1)


def test_adam_is_at_torchs_defaults():
    found = spec("Adam", "paper")
    weights = [torch.nn.Parameter(torch.ones(2))]
    built = optimizers.build(
        "adam", weights, found.lr, found.weight_decay, torch.device("cpu"), **found.optimizer_options
    )
    default = torch.optim.Adam(weights)
    for name in ("lr", "betas", "eps", "weight_decay", "amsgrad"):
        assert built.param_groups[0][name] == default.param_groups[0][name], name
    assert found.schedule == "fixed"
    assert set(lrs("Adam", "paper")) == {1e-3}


def test_mlr_snet_is_meta_trained_every_100_steps():
    found = spec("MLR-SNet", "paper")
    assert found.schedule == "mlr-snet"
    assert found.schedule_options == {
        "every": 100,
        "name": "cifar10-resnet18",
    }  # the rest is MetaTrainer's, the paper's
    assert spec("MLR-SNet", "paper", "CIFAR-100").schedule_options["name"] == "cifar100-wrn-28-10"


def test_fixed_stays_where_it_is():
    assert set(lrs("Fixed", "paper")) == {0.1}


@pytest.mark.parametrize(("scale", "milestones"), [("paper", [60, 120, 180]), ("short", [18, 36, 54])])
def test_multistep_divides_by_10_at_the_papers_milestones(scale, milestones):
    values = lrs("MultiStep", scale)
    assert falls(values) == [epoch * STEPS for epoch in milestones]
    assert sorted(set(values), reverse=True) == pytest.approx([0.1, 0.01, 0.001, 0.0001])


def test_exponential_multiplies_by_095_after_every_epoch():
    values = lrs("Exponential", "paper")
    assert values[:STEPS] == [0.1] * STEPS
    assert [values[epoch * STEPS] for epoch in range(200)] == pytest.approx([0.1 * 0.95**epoch for epoch in range(200)])
    assert [step for step, (a, b) in enumerate(pairwise(values), 1) if a != b] == [e * STEPS for e in range(1, 200)]


def test_exponential_of_a_short_training_falls_as_far():
    decay = spec("Exponential", "short").schedule_options["factor"]
    assert decay**60 == pytest.approx(0.95**200)
    values = lrs("Exponential", "short")
    assert values[30 * STEPS] == pytest.approx(lrs("Exponential", "paper")[100 * STEPS])


@pytest.mark.parametrize(("scale", "first"), [("paper", 10), ("short", 3)])
def test_sgdr_restarts_after_cycles_that_double_and_go_down_to_1e_5(scale, first):
    values = lrs("SGDR", scale)
    restarts = [first * STEPS * (2**count - 1) for count in range(1, 5)]
    assert rises(values) == restarts
    assert [values[step] for step in (0, *restarts)] == [0.1] * 5
    middle = first * STEPS // 2
    assert values[middle] == pytest.approx(1e-5 + (0.1 - 1e-5) * (1 + math.cos(math.pi / 2)) / 2)
    for step, length in zip(restarts, (1, 2, 4, 8), strict=True):
        end = 1e-5 + (0.1 - 1e-5) * (1 - math.cos(math.pi / (length * first * STEPS))) / 2
        assert values[step - 1] == pytest.approx(end)
        assert 1e-5 < values[step - 1] < 1.1e-5


def test_a_short_training_has_everything_scaled_with_its_horizon():
    for row in ("Fixed", "MultiStep", "Exponential", "SGDR", "Adam", "L4", "HD", "RTHO", "MLR-SNet"):
        for column in ("CIFAR-10", "CIFAR-100"):
            short, paper = spec(row, "short", column), spec(row, "paper", column)
            assert short.epochs == 60
            assert short.schedule_options.get("every", 30) == 30
            same = ("task", "optimizer", "schedule", "batch_size", "lr", "weight_decay")
            assert [getattr(short, name) for name in same] == [getattr(paper, name) for name in same]
            assert short.model == "resnet18"
            assert paper.model == {"CIFAR-10": "resnet18", "CIFAR-100": "wrn-28-10"}[column]
    assert lrs("SGDR", "short")[5 * STEPS] == pytest.approx(lrs("SGDR", "paper")[50 * STEPS // 3], rel=1e-3)


@pytest.mark.parametrize(("name", "scale"), EVERY_SCALE)
def test_every_cell_can_be_run_or_says_why_not(name, scale):
    cells = RECIPES[name].cells(scale)
    assert len({(cell.row, cell.column) for cell in cells}) == len(cells)
    assert len({cell.folder(0) for cell in cells}) == len(cells)
    for cell in cells:
        if cell.spec is None:
            assert cell.missing
        else:
            assert not cell.missing
            assert RunSpec.from_json(cell.spec.to_json()) == cell.spec
    assert RECIPES[name].claim
    assert len(RECIPES[name].seeds) >= 3


@pytest.mark.parametrize(("name", "scale"), EVERY_SCALE)
def test_only_chooses_rows_and_columns_and_what_they_are_learned_in(name, scale):
    recipe = RECIPES[name]
    there = [cell for cell in recipe.cells(scale) if cell.spec is not None]
    jobs = choose(recipe, scale, recipe.seeds, ())
    assert len(jobs) == len(there) * len(recipe.seeds)
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)  # a whole table first, then more seeds
    assert [job.number for job in jobs] == list(range(1, jobs[0].total + 1))
    last = there[-1]
    for only, is_chosen in (
        ([last.row], lambda cell: cell.row == last.row),
        ([last.column], lambda cell: cell.column == last.column),
        ([last.row, last.column], lambda cell: (cell.row, cell.column) == (last.row, last.column)),
    ):
        chosen = [cell for cell in there if is_chosen(cell)]
        expected = {(cell.row, cell.column) for cell in chosen} | {cell.learned_in for cell in chosen} - {None}
        assert {(job.cell.row, job.cell.column) for job in choose(recipe, scale, [5], only)} == expected


@pytest.mark.parametrize(("name", "scale"), EVERY_SCALE)
def test_what_a_run_is_learned_in_is_there_and_runs_before_it(name, scale):
    done = set()
    for job in choose(RECIPES[name], scale, [0], ()):
        cell = job.cell
        if cell.learned_in is not None:
            assert cell.learned_in in done
            source = Cell(*cell.learned_in, None)
            place = os.path.normpath(cell.folder(0) / job.spec.schedule_options["schedule"])
            assert place == str(source.folder(0) / records.SCHEDULE)
        done.add((cell.row, cell.column))


def test_a_row_without_a_run_says_why_when_it_is_asked_for():
    cells = [Cell("Fixed", "Digits", RunSpec()), Cell("Later", "Digits", None, missing="it is not written yet")]
    recipe = Recipe("one", "One", "Nothing.", lambda scale: cells)
    with pytest.raises(ValueError, match="there is nothing to run for Later: it is not written yet"):
        choose(recipe, "smoke", [0], ["Later"])


def test_the_theorems_hold_where_they_are_right_and_print_fails_where_it_lost_the_noise(tmp_path):
    path = study("theory", "smoke", tmp_path)
    loss, gradient, meta_gradient = json.loads(path.read_text())["grids"]

    def column(grid, name):
        return [row[grid["columns"].index(name)] for row in grid["rows"]]

    assert all(all(column(grid, "holds")) for grid in (loss, gradient, meta_gradient))
    much = [sigma > 1 for sigma in column(loss, "sigma")]
    assert any(much)
    assert column(loss, "printed holds") == [not noisy for noisy in much]
    assert all(column(meta_gradient, "conditions met"))
    (found,) = read_report(tmp_path).studies
    assert [len(panel.lines) for panel in panels(found)] == [4, 2, 2]
    html, text = write_report(tmp_path)
    assert html.read_text().count("<img") == 3
    assert "| quadratic | 300 |" in text.read_text()


@pytest.mark.parametrize("name", RECIPES)
def test_the_smoke_scale_runs_on_any_machine_and_reports_on_every_method(name, tmp_path):
    found = reproduce(name, "smoke", tmp_path, seeds=[0], device="cpu")
    assert {record.status for record in found} <= {"finished", "diverged"}  # a grid of LRs has some that are too large
    assert sum(record.status == "finished" for record in found) >= len(found) - 3
    cells = RECIPES[name].cells("smoke")
    (section,) = read_report(tmp_path).sections
    averages = RECIPES[name].averages("smoke")
    trials = [f"{c.column}: {c.choice.option} of {c.row}, chosen by validation" for c in cells if c.choice]
    titles = [*(average.title for average in averages), *dict.fromkeys(cell.column for cell in cells), *trials]
    assert sorted(table.title for table in section.tables) == sorted(titles)
    for average, table in zip(averages, section.tables, strict=False):
        assert [row.name for row in table.rows] == list(
            dict.fromkeys(cell.row for cell in cells if cell.column in average.columns)
        )
        assert {len(row.runs) for row in table.rows} == {len(average.columns)}
    for table in (table for table in section.tables if table.title in {cell.column for cell in cells}):
        there = [cell for cell in cells if cell.column == table.title]
        assert [row.name for row in table.rows] == [cell.row for cell in there]
        assert [bool(row.runs) for row in table.rows] == [cell.spec is not None for cell in there]
    _, text = write_report(tmp_path)
    assert all(f"| {cell.row} |" in text.read_text() for cell in cells)


def test_table1_on_digits_learns_under_every_schedule(tmp_path):
    found = reproduce(
        "table1", "smoke", tmp_path, seeds=[1], only=["MLR-SNet", "MultiStep", "L4", "HD", "RTHO"], device="cpu"
    )
    assert [record.data["labels"]["row"] for record in found] == ["MultiStep", "L4", "HD", "RTHO", "MLR-SNet"]
    assert all(record.result["last"] > 85 for record in found)
    for record in found[1:4]:
        assert len(set(record.trace["lr"])) > 10  # it adapts
    learned = found[4].trace["lr"]
    assert min(learned[:50]) > 2 * max(learned[-50:])  # it has learned to decay
