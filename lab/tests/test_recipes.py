"""Recipes: the paper's numbers, the paper's settings, and that each of them runs."""

import json
import math
import os
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from mlrsnet import Schedule, baselines
from mlrsnet.meta.authors import COMPAT
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import optimizers, records
from mlrsnet_lab.campaign import run_recipe
from mlrsnet_lab.jobs import choose, in_order, trials
from mlrsnet_lab.loop import run
from mlrsnet_lab.recipes import RECIPES, SCALES, Cell, Choice, Recipe, authors, proof, proof_tasks, table1, transfer
from mlrsnet_lab.recipes.rows import COSINE, DEFAULT, READY_MADE, SHIPPED, SHIPPED_NOTE, TRANSFERRED
from mlrsnet_lab.report import read_report, write_report
from mlrsnet_lab.report.markdown import escape
from mlrsnet_lab.report.pictures import panels
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper

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
OFTEN = ("table1", "table3", "transfer", "horizon", "proof")
"""Recipes that differ in kind: pictures, text, runs that need others, whole trainings, choices. The rest are run every night."""

TRAINED = sorted(set(RECIPES) - {"theory"})
RARELY = sorted(set(TRAINED) - set(OFTEN))

COSINES = ["Cosine, warm-up", "Cosine from 1, warm-up"]
BESIDE = [*COSINES, "MLR-SNet, T_val 300", "MLR-SNet, the authors' program", "The default", "Authors' checkpoints"]
BESIDE += ["Universal LSTM", "Authors' checkpoints, gamma once", "Authors' checkpoints, their gamma"]
STEPS = 382  # of an epoch: 49,000 pictures in batches of 128, 1,000 being held out
EVERY_SCALE = [(recipe, scale) for recipe in TRAINED for scale in RECIPES[recipe].scales]


def spec(row, scale, column="CIFAR-10"):
    (cell,) = [cell for cell in table1.cells(scale) if (cell.row, cell.column) == (row, column)]
    return cell.spec


def lrs(row, scale):
    """The LR of every step of a hand-designed row."""
    chosen = spec(row, scale)
    total = chosen.epochs * STEPS
    factors = baselines.factors(chosen.schedule, total, STEPS, **chosen.schedule_options)
    return [chosen.lr * factor for factor in factors]


def falls(values):
    """Where the LR drops at once to less than half."""
    return [step for step, (a, b) in enumerate(pairwise(values), 1) if b < a / 2]


def rises(values):
    return [step for step, (a, b) in enumerate(pairwise(values), 1) if b > a]


@pytest.mark.parametrize("scale", ["short", "paper"])
def test_table1_sets_our_numbers_beside_the_papers(scale):
    cells = table1.cells(scale)
    unscaled = ["MLR-SNet, T_val 100"] if scale == "short" else []
    expected = [(row, "CIFAR-10", ten) for row, ten, _ in TABLE1] + [(row, "CIFAR-10", None) for row in unscaled]
    expected += [(row, "CIFAR-100", hundred) for row, _, hundred in TABLE1]
    expected += [(row, "CIFAR-100", None) for row in unscaled]
    expected += [("L4Mom", column, None) for column in ("CIFAR-10", "CIFAR-100")]
    expected += [(row, "CIFAR-10", None) for row in BESIDE]
    expected += [(row, "CIFAR-10, Xavier", ten) for row, ten, _ in TABLE1]
    expected += [(row, "CIFAR-10, Xavier", None) for row in (*unscaled, BESIDE[3])]
    assert [(cell.row, cell.column, cell.paper) for cell in cells] == expected
    told = json.loads(records.dumps(RECIPES["table1"].sheet(scale, [0]).to_dict()))
    assert [(cell["row"], cell["column"]) for cell in told["cells"]] == [(row, column) for row, column, _ in expected]
    assert [cell["paper"] and tuple(cell["paper"]) for cell in told["cells"]] == [paper for _, _, paper in expected]


@pytest.mark.parametrize("row", ["MultiStep", "HD", "MLR-SNet", "MLR-SNet, the authors' program"])
def test_table1_with_the_authors_initial_weights_differs_in_nothing_else(row):
    for scale in ("short", "paper"):
        theirs = spec(row, scale, "CIFAR-10, Xavier")
        assert theirs.model_options == {"init": "xavier"}
        assert replace(theirs, model_options={}) == spec(row, scale)


def test_a_small_training_can_begin_with_the_authors_initial_weights(tmp_path):
    def trained(init):
        small = RunSpec(
            task="digits", model="small_cnn", epochs=2, lr=0.5, schedule="fixed", model_options={"init": init}
        )
        stepper = Stepper(small, torch.device("cpu"))
        first = float(stepper.model[0].weight.detach().std())
        while stepper.step_count < stepper.total_steps:
            stepper.step()
        return first, stepper.evaluate("val")["val"].loss

    (wide, theirs), (narrow, own) = trained("xavier"), trained("torch")
    assert wide != narrow
    assert theirs < math.log(10)
    assert theirs != own


def test_table1_of_digits_says_that_the_papers_numbers_are_of_something_else():
    cells = table1.cells("smoke")
    assert [(cell.row, cell.column) for cell in cells] == [(row, "Digits") for row, _, _ in TABLE1]
    told = RECIPES["table1"].sheet("smoke", [0])
    assert told.paper_setting == "CIFAR-10, 200 epochs"
    assert [cell.paper for cell in cells] == [ten for _, ten, _ in TABLE1]
    assert any("stand in for CIFAR" in note for note in told.notes)


def test_every_row_of_table1_is_a_run_at_every_scale():
    for scale in SCALES:
        paper = [cell for cell in table1.cells(scale) if cell.paper]
        assert paper
        assert all(cell.spec is not None and cell.missing is None for cell in paper)


def test_table1_sets_what_explains_it_beside_the_papers_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("MLRSNET_HOME", str(tmp_path))
    beside = {cell.row: cell for cell in table1.cells("paper") if cell.row in BESIDE}
    own, rarer, theirs = (spec("MLR-SNet", "paper"), beside[BESIDE[2]].spec, beside[BESIDE[3]].spec)
    low, high = (beside[row].spec for row in COSINES)
    assert low == replace(spec("Fixed", "paper"), schedule="cosine", schedule_options={"warmup": 0.05})
    assert high == replace(low, lr=1.0)
    assert replace(rarer, schedule_options=own.schedule_options) == own
    assert rarer.schedule_options == own.schedule_options | {"every": 300}
    assert theirs.schedule_options == own.schedule_options | {"every": 300, "compat": table1.THEIR_SIX}
    assert theirs.task_options == {"leaky": True}
    assert (beside["Universal LSTM"].spec.schedule, beside["Universal LSTM"].spec.optimizer) == ("learned", "sgd")
    assert "mlrsnet schedules import" in beside["Authors' checkpoints"].missing
    Schedule([LSTMNet()]).save(tmp_path / "official.safetensors")
    found = [
        cell.spec.schedule_options for cell in table1.cells("paper") if cell.row.startswith("Authors' checkpoints")
    ]
    official = {"schedule": "official"}
    assert found == [official, official | {"gamma": "paper"}, official | {"gamma": "authors"}]


@pytest.mark.parametrize("name", ["epochs", "transfer", "networks", "imagenet"])
def test_what_is_ready_made_stands_beside_every_transfer_and_is_told(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MLRSNET_HOME", str(tmp_path))
    recipe = RECIPES[name]
    for scale in ("short", "paper"):
        cells = {(cell.row, cell.column): cell for cell in recipe.cells(scale)}
        columns = [column for row, column in cells if row == TRANSFERRED]
        for column in columns:
            assert {(row, column) for row in (SHIPPED, *READY_MADE)} <= cells.keys()
            ready, transferred = cells[SHIPPED, column].spec, cells[TRANSFERRED, column].spec
            rival = cells["Cosine, warm-up", column].spec
            momentum = (
                cells["Fixed", column].spec if ("Fixed", column) in cells else cells["SGD, val strategy", column].spec
            )
            assert rival == replace(momentum, schedule="cosine", schedule_options={"warmup": 0.05})
            assert ready == replace(transferred, schedule_options={"schedule": "cifar10-resnet18"})
        assert sum(row == SHIPPED for row, _ in cells) == len(columns) > 0
        assert SHIPPED_NOTE in recipe.sheet(scale, [0]).notes
    assert not {cell.row for cell in recipe.cells("smoke")} & {SHIPPED, *READY_MADE}
    assert SHIPPED_NOTE not in recipe.sheet("smoke", [0]).notes


@pytest.mark.parametrize("scale", ["short", "paper"])
def test_text_also_has_what_was_learned_from_text_and_version_1_over_adam(scale):
    cells = {cell.row: cell.spec for cell in RECIPES["transfer"].cells(scale) if "Treebank" in cell.column}
    text, over_adam = cells["SGD, val strategy"], cells["Adam, val strategy"]
    assert cells[transfer.FROM_TEXT] == replace(text, schedule="learned", schedule_options={"schedule": "ptb-lstm"})
    version_1 = replace(over_adam, schedule="learned", schedule_options={"schedule": "universal-lstm"})
    assert cells[transfer.OVER_ADAM] == version_1


def test_l4_stands_beside_the_paper_in_its_authors_own_form_too():
    for column in ("CIFAR-10", "CIFAR-100"):
        own = spec("L4Mom", "paper", column)
        assert own == replace(spec("L4", "paper", column), optimizer="sgdm")
        (with_momentum,) = [
            cell.spec for cell in RECIPES["table2"].cells("paper") if (cell.row, cell.column) == ("L4", column)
        ]
        assert own == with_momentum


UNSCALED = {  # recipe -> rows at scale short whose T_val is the paper's, beside the row whose T_val is scaled
    "table1": {"MLR-SNet, T_val 100": "MLR-SNet"},
    "table3": {"MLR-SNet, T_val 100": "MLR-SNet"},
    "table5": {"MLR-SNet, T_val 100": "MLR-SNet"},
    "table6": {"MLR-SNet, meta-trained, T_val 100": "MLR-SNet, meta-trained"},
    "width": {"MLR-SNet, T_val 100": "MLR-SNet"},
    "lstm-or-mlp": {"LSTM, T_val 100": "LSTM", "MLP, T_val 100": "MLP"},
    "transfer": {"MLR-SNet, meta-trained, T_val 100": "MLR-SNet, meta-trained"},
    "epochs": {"MLR-SNet, meta-trained, T_val 100": "MLR-SNet, meta-trained"},
    "networks": {"MLR-SNet, meta-trained, T_val 100": "MLR-SNet, meta-trained"},
    "imagenet": {"MLR-SNet, meta-trained, T_val 100": "MLR-SNet, meta-trained"},
}


@pytest.mark.parametrize("name", UNSCALED)
def test_a_short_table_also_has_the_papers_t_val_and_transfers_what_it_leaves(name):
    cells = {(cell.row, cell.column): cell for cell in RECIPES[name].cells("short")}
    for row, scaled in UNSCALED[name].items():
        columns = [column for other, column in cells if other == scaled]
        assert columns
        for column in columns:
            mine, beside = cells[row, column], cells[scaled, column]
            if mine.spec.schedule == "mlr-snet":
                assert beside.spec.schedule_options["every"] < 100
                options = beside.spec.schedule_options | {"every": 100}
                assert mine.spec == replace(beside.spec, schedule_options=options)
            else:
                assert mine.spec == beside.spec
                assert mine.learned_in == (row, beside.learned_in[1])
    for (row, column), cell in cells.items():
        if row == TRANSFERRED:
            again = cells[f"{TRANSFERRED}, T_val 100", column]
            assert (again.spec, again.optional) == (cell.spec, cell.optional)
            assert again.learned_in == (f"{cell.learned_in[0]}, T_val 100", cell.learned_in[1])
    for scale in ("smoke", "paper"):  # where T_val is the paper's already, or everything is small
        assert not [cell.row for cell in RECIPES[name].cells(scale) if cell.row.endswith(", T_val 100")]


def test_attribution_changes_only_what_a_row_names():
    for scale, periods in {"smoke": (10, 10), "short": (100, 300), "paper": (100, 300)}.items():
        cells = {cell.row: cell.spec for cell in RECIPES["attribution"].cells(scale)}
        base = cells["As printed"]
        assert base.schedule_options["every"] == periods[0]
        assert (base.task_options, base.model_options) == ({}, {})
        rarer = {"every": periods[1], "compat": ["every", "epoch-period"]}
        for row, changes in {
            "Their initial weights": {"model_options": {"init": "xavier"}},
            "Their cell": {"schedule_options": base.schedule_options | {"compat": ["layout"]}},
            "Their initial network": {"schedule_options": base.schedule_options | {"compat": ["net-init"]}},
            "One update in every epoch": {"schedule_options": base.schedule_options | rarer},
            "Their validation images": {"task_options": {"overlap": True}},
            "Augmented validation, mean f_0": {
                "task_options": {"augment_val": True},
                "schedule_options": base.schedule_options | {"compat": ["initial-loss"]},
            },
        }.items():
            assert cells[row] == replace(base, **changes)
        theirs = cells["The authors' program"]
        assert set(theirs.schedule_options["compat"]) == set(COMPAT)
        assert theirs.schedule_options["every"] == periods[1]
        assert theirs.task_options == {"overlap": True, "augment_val": True, "std": "picture"}
        assert theirs.model_options == {"init": "xavier"}
        held_out = cells["The authors' program, validation held out"]
        assert held_out == replace(theirs, task_options={"augment_val": True, "std": "picture"})
        for row in ("MultiStep", "SGDR"):
            assert cells[f"{row}, their initial weights"] == replace(cells[row], model_options={"init": "xavier"})
    assert cells["SGDR"] == spec("SGDR", "paper")
    assert cells["As printed"] == spec("MLR-SNet", "paper")


def test_every_departure_of_the_authors_program_has_one_switch_and_changes_the_training(tmp_path):
    own = np.random.default_rng(0).integers(0, 256, (240, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(240) % 4
    np.savez(tmp_path / "own.npz", x_train=own[:160], y_train=labels[:160], x_test=own[160:], y_test=labels[160:])
    base = RunSpec(
        task=str(tmp_path / "own.npz"),
        task_options={"val_size": 32, "pad": 1, "flip": True},
        model="small_cnn",
        model_options={"width": 4},
        schedule="mlr-snet",
        schedule_options={"every": 4, "meta_lr": 0.1},
        batch_size=16,
        epochs=3,
    )
    plain = run(base, settings=Settings(device="cpu"))
    only_what_is_left = {"phases", "phase-gamma"}  # they change the schedule that a training leaves, not the training
    for name in authors.DEPARTURES:
        changed = run(authors.program(base, [name], every=5), settings=Settings(device="cpu"))
        assert (changed.trace["loss"] == plain.trace["loss"]) == (name in only_what_is_left), name
    with pytest.raises(ValueError, match="names must be one of layout, net-init"):
        authors.program(base, ["cell"])


def test_one_thing_at_a_time_is_changed_in_algorithm_1():
    cells = {cell.row: cell.spec for cell in RECIPES["sensitivity"].cells("short")}
    base = cells["T_val 100"]
    assert base.schedule_options == {"every": 100, "name": "cifar10-resnet18"}
    changed = {
        "T_val 3": {"every": 3},
        "T_val 15": {"every": 15},
        "T_val 300": {"every": 300},
        "meta LR 0.0001": {"meta_lr": 0.0001},
        "meta LR 0.01": {"meta_lr": 0.01},
        "the authors' cell": {"compat": ["layout"]},
    }
    for row, options in changed.items():
        assert cells[row] == replace(base, schedule_options=base.schedule_options | options)
    assert cells["leaky"] == replace(base, task_options={"leaky": True})
    for row in ("MultiStep", "Cosine"):
        assert cells[row] == replace(base, schedule=row.lower(), schedule_options={})
    assert len(cells) == len(changed) + 4  # T_val 100, leaky and two hand-designed ones beside them


@pytest.mark.parametrize("scale", SCALES)
def test_l4_hd_and_rtho_are_at_settings_that_the_paper_names(scale):
    cells = {cell.row: cell for cell in reversed(table1.cells(scale))}
    base = spec("Fixed", scale, cells["L4"].column)
    for row, options in {"L4": {"fraction": 0.15}, "HD": {}, "RTHO": {}}.items():
        found = cells[row].spec
        assert (found.schedule, found.schedule_options) == (row.lower(), options)
        assert replace(found, schedule="fixed", schedule_options={}) == base
    grid = (1e-3, 1e-4) if scale == "smoke" else (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    epochs = {"smoke": 2}.get(scale, 10)  # at scale cpu a third of the 30
    assert cells["HD"].choice == cells["RTHO"].choice == Choice("hyper_lr", grid, epochs)
    assert any("0.001, 0.0001, 1e-05, 1e-06, 1e-07" in note for note in RECIPES["table1"].sheet(scale, [0]).notes)


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

    def pretended(spec, folder, settings, **options):
        made.append((spec.schedule_options["end"], spec.epochs, spec.seed, options["labels"]["row"]))
        data = {"status": "finished", "metric": {"better": "higher"}, "result": {"val_metric": results[made[-1][0]]}}
        return records.Record(data, folder=folder)

    monkeypatch.setattr("mlrsnet_lab.campaign.run", pretended)
    found = run_recipe("mine", "smoke", tmp_path, Settings(device="cpu"), seeds=[5, 6])
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
    model = torch.nn.Linear(2, 1)
    built = optimizers.build(
        "adam", model, found.lr, found.weight_decay, torch.device("cpu"), **found.optimizer_options
    )
    default = torch.optim.Adam(model.parameters())
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


TABLE2 = {  # the .tex's rows: Fixed, MultiStep, Exponential, SGDR, Adam, L4, HD, RTHO, MLR-SNet
    "CIFAR-10": "87.69 95.08 94.64 95.06 90.86 91.03 93.99 93.17 94.80",
    "CIFAR-100": "70.88 80.74 78.87 80.93 68.94 66.51 76.80 76.14 80.44",
}
TABLE3 = {  # SGD, Adam, L4, HD, RTHO, MLR-SNet
    "2-layer LSTM": "74.33 71.17 82.58 76.90 76.69 70.53",
    "3-layer LSTM": "76.05 74.80 92.27 78.63 78.52 72.28",
}
ROBUST = {  # Fixed, MultiStep, Exponential, SGDR, Adam, MLR-SNet: the last epoch and the best one
    ("table5", "CIFAR-10-C"): ("77.88 85.36 83.32 78.21 80.29 85.87", "79.78 85.52 83.48 85.94 81.45 86.04"),
    ("table5", "CIFAR-100-C"): ("44.79 52.16 49.58 41.58 43.76 52.42", "46.74 52.26 49.72 52.54 45.45 52.56"),
    ("table6", "CIFAR-10-C"): ("77.89 85.48 83.47 78.46 80.39 85.62", "79.96 85.64 83.63 86.10 81.57 85.73"),
    ("table6", "CIFAR-100-C"): ("44.81 52.28 49.75 41.68 43.94 52.35", "46.91 52.38 49.90 52.80 45.58 52.51"),
}


@pytest.mark.parametrize(("name", "numbers"), [("table2", TABLE2), ("table3", TABLE3)])
def test_tables_2_and_3_set_our_numbers_beside_the_papers(name, numbers):
    for column, row in numbers.items():
        cells = [cell for cell in RECIPES[name].cells("paper") if cell.column == column and cell.paper]
        assert [f"{cell.paper[0]:.2f}" for cell in cells] == row.split()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["table5", "table6"])
def test_tables_5_and_6_set_our_means_beside_the_papers_last_and_best(name, scale):
    for average in RECIPES[name].averages(scale):
        group = average.title.split(",")[0].replace("Digits-C", "CIFAR-10-C")
        last, best = ROBUST[name, group]
        assert [f"{mean:.2f}" for mean, _ in average.paper.values()] == last.split()
        assert [f"{mean:.2f}" for mean, _ in average.paper_best.values()] == best.split()
        there = {cell.row for cell in RECIPES[name].cells(scale) if cell.column in average.columns}
        assert list(average.paper) == list(average.paper_best)
        own = "MLR-SNet" if name == "table5" else "MLR-SNet, transferred"
        more = {
            "cpu": {*(f"{own}, T_val {every}" for every in (30, 6)), COSINE, DEFAULT},
            "short": {f"{own}, T_val 100"},
        }
        assert there - set(average.paper) == more.get(scale, set())
        assert set(average.paper) <= there


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in TRAINED
        if "paper" in RECIPES[name].scales and any(c.row == "SGDR" for c in RECIPES[name].cells("paper"))
    ],
)
def test_sgdrs_cycles_are_the_papers_at_every_horizon_and_noted(name):
    for cell in RECIPES[name].cells("paper"):
        if cell.row == "SGDR":
            chosen = cell.spec
            values = baselines.factors("sgdr", chosen.epochs, 1, **chosen.schedule_options)
            first = 3 if name == "wrn" else 10  # the paper's 10 of 200 epochs, where only 60 are trained
            wanted = [first * (2**count - 1) for count in range(1, 8)]
            assert rises(values) == [epoch for epoch in wanted if epoch < chosen.epochs]
    for scale in RECIPES[name].scales:
        assert any("not finished when the training ends" in note for note in RECIPES[name].sheet(scale, [0]).notes)


def cells_of(name, row, scale="paper"):
    return [cell.spec for cell in RECIPES[name].cells(scale) if cell.row == row and cell.spec is not None]


def test_robustness_is_trained_as_section_4_4_says():
    for name in ("table5", "table6"):
        for spec in cells_of(name, "MultiStep"):
            assert (spec.epochs, spec.batch_size, spec.lr, spec.weight_decay, spec.optimizer) == (
                100,
                128,
                0.1,
                5e-4,
                "sgdm",
            )
            values = baselines.factors("multistep", 100, 1, **spec.schedule_options)
            assert falls(values) == [30, 60, 90]
        assert len({cell.column for cell in RECIPES[name].cells("paper") if cell.row == "MultiStep"}) == 2 * (
            15 if name == "table5" else 14
        )


def test_imagenet_is_trained_as_section_4_2_5_says():
    for row in ("MultiStep", "Adam"):
        (spec,) = cells_of("imagenet", row)
        assert (spec.task, spec.model, spec.epochs, spec.batch_size, spec.weight_decay) == (
            "imagenet", "resnet50", 90, 256, 0.0 if row == "Adam" else 5e-4
        )  # fmt: skip
        assert falls(baselines.factors(spec.schedule, 90, 1, **spec.schedule_options)) == [30, 60]


def test_other_horizons_move_multisteps_milestones_only():
    for spec in cells_of("epochs", "MultiStep"):
        tenth = spec.epochs // 10
        assert falls(baselines.factors("multistep", spec.epochs, 1)) == [3 * tenth, 6 * tenth, 9 * tenth]
    assert [spec.epochs for spec in cells_of("epochs", "Exponential")] == [100, 400, 1200]
    assert {spec.schedule_options["factor"] for spec in cells_of("epochs", "Exponential")} == {0.95}


def test_language_models_are_trained_as_section_4_1_2_says():
    for spec in cells_of("table3", "SGD, val strategy"):
        assert (spec.task, spec.epochs, spec.batch_size, spec.sequence_length) == ("ptb", 150, 32, 35)
        assert (spec.lr, spec.weight_decay, spec.clip_norm) == (20.0, 5e-6, 0.25)
    for spec in cells_of("table3", "Adam, val strategy"):
        assert (spec.optimizer, spec.weight_decay) == ("adam", 5e-6)
        assert (spec.lr, spec.optimizer_options) == (0.01, {"beta1": 0.0})
    for scale in ("short", "paper"):
        cells = {(cell.row, cell.column): cell for cell in RECIPES["table3"].cells(scale)}
        for column in ("2-layer LSTM", "3-layer LSTM"):
            coupled = cells["Adam, val strategy", column].spec
            assert cells["Adam, val strategy, decay apart", column].spec == replace(coupled, optimizer="adamw")
        for row in ("SGD, val strategy", "Adam, val strategy", "MLR-SNet"):
            printed, theirs = cells[row, "3-layer LSTM"], cells[row, "3-layer LSTM, dropout after every layer"]
            assert theirs.spec == replace(printed.spec, model_options={"layers": 3, "drop_all": True})
            assert theirs.paper == printed.paper
    choices = {cell.row: cell.choice for cell in RECIPES["table3"].cells("paper") if cell.choice}
    assert choices["L4"].values == (0.1, 0.05, 0.01, 0.005)
    assert choices["HD"].values == choices["RTHO"].values == (1.0, 0.5, 0.1, 0.05)


def test_parts_of_cifar100_have_the_papers_pictures_a_class():
    for spec, size in zip(
        cells_of("meta-tasks", "1/10 CIFAR-100") + cells_of("meta-tasks", "1/2 CIFAR-100"), (50, 250), strict=True
    ):
        assert spec.task_options["fraction"] * 500 - 1000 / 100 == pytest.approx(size)
    (mnist,) = cells_of("meta-tasks", "MNIST")
    assert mnist.task_options["fraction"] * 60_000 == pytest.approx(50_000)


def test_time_is_measured_with_the_papers_t_val():
    for scale in ("short", "paper"):
        assert cells_of("time", "MLR-SNet, meta-trained", scale)[0].schedule_options["every"] == 100


def test_fig1_predicts_for_tinyimagenet_and_text_what_was_learned_on_cifar10():
    predicted = {cell.column: cell for cell in RECIPES["fig1"].cells("paper") if cell.learned_in}
    assert {cell.spec.task for cell in predicted.values()} == {"tinyimagenet", "ptb"}
    assert {cell.learned_in[1] for cell in predicted.values()} == {"CIFAR-10"}


def test_frost_is_left_out_only_where_its_pictures_are_not_there(tmp_path, monkeypatch):
    spec = RunSpec(task="digits", model="mlp", schedule="cosine", epochs=1)
    frosty = replace(spec, task="cifar10-c", task_options={"corruption": "frost", "generate": True})
    cells = [Cell("Cosine", "Digits", spec), Cell("Cosine", "Frost", frosty, optional=True)]
    monkeypatch.setitem(RECIPES, "mine", Recipe("mine", "Mine", "None.", lambda scale: cells))
    there = []

    def find(name, **options):
        if options.get("corruption") == "frost" and not there:
            raise FileNotFoundError("frost needs photographs")

    monkeypatch.setattr("mlrsnet_lab.campaign.datasets.find", find)
    monkeypatch.setattr(
        "mlrsnet_lab.campaign.run", lambda spec, folder, settings, **options: records.Record({"status": "finished"})
    )
    assert len(run_recipe("mine", "smoke", tmp_path, Settings(device="cpu"), seeds=[0])) == 1
    told = json.loads((tmp_path / "recipe.json").read_text())["cells"]
    assert [cell["missing"] for cell in told] == [None, "frost needs photographs"]
    there.append(True)
    assert len(run_recipe("mine", "smoke", tmp_path, Settings(device="cpu"), seeds=[0])) == 2
    cells[1] = replace(cells[1], optional=False)
    there.clear()
    with pytest.raises(FileNotFoundError, match="frost needs photographs"):
        run_recipe("mine", "smoke", tmp_path, Settings(device="cpu"), seeds=[0])


def test_data_of_every_task_of_a_column_is_looked_for_before_anything_is_written(tmp_path, monkeypatch):
    asked = []

    def find(name, **options):
        asked.append(name)
        if name == "svhn":
            raise FileNotFoundError("svhn was not found")

    monkeypatch.setattr("mlrsnet_lab.campaign.datasets.find", find)
    with pytest.raises(FileNotFoundError, match="svhn was not found"):
        run_recipe("meta-tasks", "paper", tmp_path / "t", Settings(device="cpu"))
    assert "mnist" in asked
    assert not (tmp_path / "t").exists()


def test_a_grid_that_fails_altogether_is_not_called_chosen(tmp_path, monkeypatch):
    spec = RunSpec(task="digits", model="mlp", schedule="hd", epochs=3)
    cell = Cell("HD", "Digits", spec, choice=Choice("hyper_lr", (1.0, 0.1), 1))
    monkeypatch.setitem(RECIPES, "mine", Recipe("mine", "Mine", "None.", lambda scale: [cell]))
    made = []

    def diverged(spec, folder, settings, **options):
        made.append(spec)
        return records.Record({"status": "diverged", "metric": {"better": "higher"}})

    monkeypatch.setattr("mlrsnet_lab.campaign.run", diverged)
    (found,) = run_recipe("mine", "smoke", tmp_path, Settings(device="cpu"), seeds=[0])
    assert len(made) == 2
    assert found.status == "failed"
    assert "every trial failed: hyper_lr was one of 1, 0.1" in found.data["error"]


def test_a_missing_package_fails_its_own_row_only(tmp_path, monkeypatch):
    specs = [
        RunSpec(task="digits", model="mlp", optimizer=name, schedule="cosine", epochs=1) for name in ("prodigy", "sgd")
    ]
    cells = [Cell(spec.optimizer, "Digits", spec) for spec in specs]
    monkeypatch.setitem(RECIPES, "mine", Recipe("mine", "Mine", "None.", lambda scale: cells))
    monkeypatch.setitem(sys.modules, "prodigyopt", None)
    found = run_recipe("mine", "smoke", tmp_path, Settings(device="cpu"), seeds=[0])
    assert [record.status for record in found] == ["failed", "finished"]
    assert "prodigyopt" in found[0].data["error"]


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
    assert len(RECIPES[name].seeds) >= (1 if name == "grid" else 3)  # a grid of LRs is compared with nothing


@pytest.mark.parametrize(("name", "scale"), EVERY_SCALE)
def test_only_chooses_rows_and_columns_and_what_they_are_learned_in(name, scale):
    recipe = RECIPES[name]
    there = [cell for cell in recipe.cells(scale) if cell.spec is not None]
    jobs = choose(recipe, scale, recipe.seeds, ())
    assert len(jobs) == len(there) * len(recipe.seeds)
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)  # a whole table first, then more seeds
    tried = [trial.name for job in jobs for trial in trials(job, recipe.seeds[0])]
    assert set(in_order(jobs, recipe.seeds[0])) == {*tried, *(job.name for job in jobs)}
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
    assert run_recipe("theory", "smoke", tmp_path) == []
    loss, gradient, meta_gradient, values, _, exponents = json.loads((tmp_path / "study.json").read_text())["grids"]

    def column(grid, name):
        return [row[grid["columns"].index(name)] for row in grid["rows"]]

    assert all(all(column(grid, "holds")) for grid in (loss, gradient, meta_gradient, values))
    assert all(column(exponents, "as derived"))
    short = [row[:4] for row in exponents["rows"] if not row[exponents["columns"].index("as the paper says")]]
    assert short == [["1: loss", 1.0, "1", "T/10, T/5"]]  # the noise leaves a floor
    much = [sigma > 1 for sigma in column(loss, "sigma")]
    assert any(much)
    assert column(loss, "printed holds") == [not noisy for noisy in much]
    assert all(column(meta_gradient, "conditions met"))
    (found,) = read_report(tmp_path).sections
    assert [len(panel.lines) for panel in panels(found)] == [4, 2, 2, 4]
    html, text = write_report(tmp_path)
    assert html.read_text().count("<img") == 4
    assert "| quadratic | 300 |" in text.read_text()


@pytest.mark.filterwarnings("ignore:a loss was far outside those")  # learned in a few steps on a few digits
@pytest.mark.parametrize("name", [*OFTEN, *(pytest.param(name, marks=pytest.mark.nightly) for name in RARELY)])
def test_the_smoke_scale_runs_on_any_machine_and_reports_on_every_method(name, tmp_path):
    if name == "proof":
        pytest.importorskip("timm", reason="two of its rivals are timm's")
    found = run_recipe(name, "smoke", tmp_path, Settings(device="cpu"), seeds=[0])
    assert {record.status for record in found} <= {"finished", "diverged"}  # a grid of LRs has some that are too large
    astray = sum(record.status == "diverged" for record in found)
    assert astray <= (3 if name in ("horizon", "universal-lstm") else 0)
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
    assert all(f"| {escape(cell.row)} |" in text.read_text() for cell in cells)


@pytest.mark.nightly
def test_table1_on_digits_learns_under_every_schedule(tmp_path):
    found = run_recipe(
        "table1",
        "smoke",
        tmp_path,
        Settings(device="cpu"),
        seeds=[1],
        only=["MLR-SNet", "MultiStep", "L4", "HD", "RTHO"],
    )
    assert [record.data["labels"]["row"] for record in found] == ["MultiStep", "L4", "HD", "RTHO", "MLR-SNet"]
    assert all(record.result["last"] > 85 for record in found)
    for record in found[1:4]:
        assert len(set(record.trace["lr"])) > 10  # it adapts
    learned = found[4].trace["lr"]
    assert min(learned[:50]) > 2 * max(learned[-50:])  # it has learned to decay


@pytest.mark.parametrize("scale", ["smoke", "short", "paper"])
def test_the_proof_tries_every_decay_of_its_grid_and_every_rival_on_every_task(scale):
    tasks = proof_tasks.TASKS[scale]
    assert len({task.name for task in tasks}) == len(tasks) == {"smoke": 3, "short": 18, "paper": 13}[scale]
    for task in tasks:
        rows = {cell.row: cell.spec for cell in proof.cells(scale) if cell.column == task.name}
        assert len(rows) == 2 * len(proof.TIMES) + 13 + len(proof.LEARNED) + (task.spec.epochs >= proof.LEAST_EPOCHS)
        assert rows[proof.UNTOLD].schedule_options == {"schedule": "universal", "tells_loss": False}
        assert rows["Cosine 1x"].lr == task.lr
        assert {spec.optimizer for row, spec in rows.items() if row[-1] == "x"} == {task.spec.optimizer}
        assert rows["L-DoG"].optimizer_options == ({"reps_rel": 1e-4} if task.batch_norm else {})
        assert all(spec.start == task.spec.start for spec in rows.values())
        own, adamw = rows["Calibrated"], rows["Calibrated AdamW"]
        assert (own.optimizer, own.lr) == (task.spec.optimizer, proof.CALIBRATED[proof.KINDS[task.spec.optimizer]])
        assert (adamw.optimizer, adamw.lr) == ("adamw", proof.CALIBRATED["adam"])
        assert own.weight_decay == adamw.weight_decay == task.spec.weight_decay
        over = "adam" if task.adaptive else "sgd"
        assert (rows["Mechanic"].optimizer, rows["D-Adaptation"].optimizer) == (f"mechanic-{over}", f"d-adapt-{over}")


def test_a_new_schedule_is_one_line_in_the_proof():
    (task, *_) = proof_tasks.SMOKE
    assert proof.learned("Mine", task, "mine.safetensors").spec.schedule_options == {"schedule": "mine.safetensors"}
    assert proof.learned("Ours", task, "universal").spec.schedule == "learned"
    assert proof.learned("Later", task, "not-yet").missing == "there is no schedule named 'not-yet' here"


def test_warm_ups_of_the_proof_are_a_twentieth_of_what_is_trained():
    for task in proof_tasks.SMOKE:
        assert task.warmup_steps == max(1, round(0.05 * Stepper(task.spec, torch.device("cpu")).total_steps))


def test_missing_data_of_a_start_is_told_before_anything_is_written(tmp_path, monkeypatch):
    spec = RunSpec(start={"task": "ptb", "model": "lstm"})
    recipe = Recipe("one", "One", "Nothing.", lambda scale: [Cell("A", "B", spec)])
    monkeypatch.setitem(RECIPES, "one", recipe)
    with pytest.raises(FileNotFoundError, match="ptb was not found"):
        run_recipe("one", "smoke", tmp_path / "out", Settings(device="cpu", root=tmp_path))
    assert not (tmp_path / "out").exists()
