"""Scale cpu: what its notes promise of every recipe."""

import importlib.util
from dataclasses import replace

import pytest
import torch

from mlrsnet_lab import models
from mlrsnet_lab.jobs import choose, in_order
from mlrsnet_lab.recipes import RECIPES, rows, table3
from mlrsnet_lab.recipes.rows import DEFAULT
from mlrsnet_lab.spec import RunSpec

TRAINED = [name for name in RECIPES if "cpu" in RECIPES[name].scales and RECIPES[name].measure is None]
TABLES = ("table1", "table2", "table3", "table5", "table6")
PERIODS = {  # rows that share all but T_val -> the T_val of each, by its end; what a note promises
    "pictures": {"": 100, ", T_val 30": 30, ", T_val 6": 6},
    "text": {"": 100, ", T_val 10": 10},
}
OTHER_PERIODS = {"attribution": {6, 100, 300}, "time": {100}}
"""As the notes of these recipes say."""

TORCHVISION = ("shufflenetv2", "mobilenetv2", "resnet18", "resnet34", "resnet50")


def cells(name):
    return {(cell.row, cell.column): cell for cell in RECIPES[name].cells("cpu")}


def specs():
    return [cell.spec for name in TRAINED for cell in cells(name).values() if cell.spec is not None]


def ends(row):
    """A row's name without its T_val, and that."""
    name, comma, every = row.partition(", T_val ")
    return name, comma + every


def is_text(spec):
    return spec.task == "ptb"


def test_scale_cpu_has_every_recipe_of_the_paper_but_imagenet():
    assert {*TABLES, "fig1", "ablation", "phases", "epochs", "transfer", "networks"} <= set(TRAINED)
    assert {"meta-tasks", "time", "width", "lstm-or-mlp", "adam", "attribution", "grid", "direct"} <= set(TRAINED)
    assert "imagenet" not in TRAINED


@pytest.mark.parametrize("name", TRAINED)
def test_every_training_of_scale_cpu_is_small_and_in_fp32(name):
    for (row, _), cell in cells(name).items():
        if cell.spec is None:
            assert "there is no schedule named" in cell.missing, row
            continue
        assert RunSpec.from_json(cell.spec.to_json()) == cell.spec
        assert cell.spec.precision == "fp32"
        if is_text(cell.spec):
            assert (cell.spec.task_options, cell.spec.model_options["hidden"]) == ({"fraction": 0.1}, 128)
        else:
            assert cell.spec.task_options["size"] == 16
            assert cell.spec.batch_size == 64
            assert cell.spec.model in ("wrn-10-1", "nasnet", "shufflenetv2", "mobilenetv2")


def test_every_network_of_scale_cpu_can_be_built_and_is_small():
    found = {(spec.model, str(spec.model_options)): spec for spec in specs() if not is_text(spec)}
    assert len(found) >= 6
    for spec in found.values():
        if spec.model in TORCHVISION and not importlib.util.find_spec("torchvision"):
            continue
        with torch.device("meta"):
            model = models.build_image(spec.model, (3, 16, 16), 100, **spec.model_options)
        assert models.num_parameters(model) < 600_000


@pytest.mark.parametrize("name", TRAINED)
def test_meta_trainings_of_scale_cpu_have_every_t_val_of_the_notes(name):
    learned = {place: cell for place, cell in cells(name).items() if cell.spec and cell.spec.schedule == "mlr-snet"}
    if name in OTHER_PERIODS:
        assert {cell.spec.schedule_options["every"] for cell in learned.values()} == OTHER_PERIODS[name]
        return
    assert learned or name == "grid"
    for (row, column), cell in learned.items():
        first, end = ends(row)
        kind = "text" if is_text(cell.spec) else "pictures"
        place = column.partition(", T_val ")[0]
        own = ends(column)[1] or end  # the ablation has a column for each T_val
        assert cell.spec.schedule_options["every"] == PERIODS[kind][own]
        transferred = set(rows.SCALES["cpu"].for_transfer)
        only_transferred = name in ("ablation", "phases", "epochs", "transfer", "networks", "meta-tasks")
        wanted = transferred if only_transferred else set(PERIODS[kind])
        there = {
            ends(other)[1] or ends(where)[1]
            for other, where in learned
            if ends(other)[0] == first and ends(where)[0] == place
        }
        assert there == wanted, (row, column)


def test_the_t_val_of_transfers_are_the_papers_and_the_smallest():
    assert list(rows.SCALES["cpu"].for_transfer) == ["", ", T_val 6"]
    assert [one.every for one in rows.SCALES["cpu"].for_transfer.values()] == [100, 6]
    assert table3.EVERY["cpu"] == (100, 10)


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_transferred_at_scale_cpu_was_learned_with_both_t_val(name):
    there = cells(name)
    moved = {place: cell for place, cell in there.items() if cell.learned_in}
    for (row, column), cell in moved.items():
        source = there[cell.learned_in].spec
        if name == "time":
            assert source.schedule_options["every"] == 100
            continue
        first, end = ends(row)
        every = PERIODS["text" if is_text(source) else "pictures"][end]
        assert source.schedule_options["every"] == every
        twins = {ends(other)[1] for other, where in moved if where == column and ends(other)[0] == first}
        assert twins == {
            "table6": {"", ", T_val 30", ", T_val 6"},
            "adam": {"", ", T_val 10"},
        }.get(name, {"", ", T_val 6"}), (row, column)
        assert cell.spec.optimizer == source.optimizer


@pytest.mark.parametrize("name", TRAINED)
def test_the_default_stands_beside_the_papers_rows_at_scale_cpu(name):
    there = cells(name)
    columns = {column for _, column in there if "eta-training" not in column}
    assert columns
    if name in ("fig1", "grid"):  # about the shapes of the paper's LRs, and about single LRs
        assert not any(row == DEFAULT for row, _ in there)
        return
    for column in columns:
        default = there[DEFAULT, column].spec
        assert (default.schedule, default.schedule_options) == ("learned", {"schedule": "universal"})
        same = [cell.spec for (row, where), cell in there.items() if where == column and cell.spec and row != DEFAULT]
        plain = replace(default, schedule="fixed", schedule_options={})
        assert plain in [replace(spec, schedule="fixed", schedule_options={}) for spec in same], column


@pytest.mark.parametrize("name", TRAINED)
def test_whoever_uses_a_schedule_at_scale_cpu_finds_it_for_every_seed(name):
    recipe, there = RECIPES[name], cells(name)
    for cell in there.values():
        assert cell.seeds is None or 1 <= cell.seeds <= len(recipe.seeds)
        if cell.learned_in:
            source = there[cell.learned_in]
            assert (source.seeds or len(recipe.seeds)) >= (cell.seeds or len(recipe.seeds))
    jobs = in_order(choose(recipe, "cpu"), recipe.seeds[0])
    done = set()
    for job in jobs.values():
        assert set(job.after) & jobs.keys() <= done
        if job.learned is not None:
            assert job.learned.name in done
        done.add(job.name)


@pytest.mark.parametrize("name", TRAINED)
def test_a_row_with_fewer_seeds_is_trained_with_the_first_of_them_unless_asked(name):
    recipe, there = RECIPES[name], cells(name)
    ready = [cell for cell in there.values() if cell.spec is not None]
    planned = choose(recipe, "cpu")
    assert len(planned) == sum(cell.seeds or len(recipe.seeds) for cell in ready)
    assert [job.seed for job in planned] == sorted(job.seed for job in planned)
    for job in planned:
        assert job.cell.seeds is None or job.seed in recipe.seeds[: job.cell.seeds]
    asked = choose(recipe, "cpu", seeds=[7, 8, 9])
    assert len(asked) == 3 * len(ready)
    told = recipe.sheet("cpu", recipe.seeds).to_dict()["cells"]
    assert [one["seeds"] for one in told] == [cell.seeds for cell in there.values()]


def test_tables_of_scale_cpu_say_how_their_setting_differs_from_the_papers():
    for name in TABLES:
        sheet = RECIPES[name].sheet("cpu", [0])
        assert sheet.paper_setting
        assert any("two cores" in note or "tenth of Penn Treebank" in note for note in sheet.notes)


def test_a_short_training_at_scale_cpu_falls_as_far_as_the_papers():
    for column, epochs in {"CIFAR-10": 30, "CIFAR-100": 14}.items():
        spec = cells("table1")["Exponential", column].spec
        assert spec.epochs == epochs
        assert spec.schedule_options["factor"] ** epochs == pytest.approx(0.95**200)
        cycle = cells("table1")["SGDR", column].spec.schedule_options["first_cycle"]
        assert cycle == pytest.approx(10 / 200)
