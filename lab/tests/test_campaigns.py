"""Several recipes in one campaign: equal runs are made once, and each recipe has its own records of them."""

import json
import os
import time
from dataclasses import replace

import pytest
from campaigns import COLUMN, FIRST, OTHER, PAIR, PAIR_EQUAL, PAIR_RUNS, SECOND, Trained, comparable, resumed
from commands import everything_below
from runs import Stop, no_training, tiny

from mlrsnet import Schedule
from mlrsnet_lab import costs, records
from mlrsnet_lab.executors import Executor
from mlrsnet_lab.jobs import Job, choose, in_order, owners
from mlrsnet_lab.loop import run
from mlrsnet_lab.recipes import RECIPES, Cell, Recipe
from mlrsnet_lab.reproduce import reproduce
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.stepper import Stepper

CPU = Settings(device="cpu")
SHARED = {  # where a run is told again -> where it is made, below the folder of both recipes
    "b/numbers/source": "a/digits/learns",
    "b/numbers/same-source": "a/digits/uses",
    "b/numbers/same-trials": "a/digits/chosen",
}


@pytest.fixture(autouse=True)
def pair(monkeypatch):
    monkeypatch.setattr(RECIPES, "data", dict(PAIR))


def made(names, out, settings=CPU, **options):
    """The outcome, and the folders of the runs that were trained."""
    trained = Trained()
    done = reproduce(names, "smoke", out, replace(settings, watch=trained.watch), **options)
    return done, [str(folder.relative_to(out)) for folder in trained.folders]


def without_place(found):
    """Records without where they were copied from."""
    for record in found.values():
        record["record"].pop("same_as", None)
    return found


def test_what_two_recipes_share_is_trained_once_and_is_a_result_of_both(tmp_path):
    told = []
    done, trained = made(["a", "b"], tmp_path / "both", replace(CPU, tell=told.append))
    assert len(trained) == len(set(trained)) == PAIR_RUNS - PAIR_EQUAL
    assert done.failures == []
    assert told[2] == f"{PAIR_RUNS} trainings, {PAIR_EQUAL} of them equal to others and made once"
    for again, first in SHARED.items():
        copy, twin = (records.read(tmp_path / "both" / place / "seed0") for place in (again, first))
        assert (copy.data["labels"]["recipe"], copy.data["labels"]["column"]) == ("b", OTHER)
        assert os.path.normpath(copy.folder / copy.data["same_as"]) == str(twin.folder)
        assert (copy.epochs, copy.trace) == (twin.epochs, twin.trace)
        assert "same_as" not in twin.data
    one, other = (tmp_path / "both" / place / "seed0/schedule.safetensors" for place in next(iter(SHARED.items())))
    assert one.read_bytes() == other.read_bytes()
    user = records.read(tmp_path / "both/b/numbers/same-source/seed0").spec
    assert user["schedule_options"]["schedule"] == "../../source/seed0/schedule.safetensors"
    made("b", tmp_path / "alone")
    assert without_place(comparable(tmp_path / "both/b")) == without_place(comparable(tmp_path / "alone"))


def test_several_recipes_have_a_folder_each_and_one_report(tmp_path):
    done, _ = made(["a", "b"], tmp_path)
    assert sorted(path.parent.name for path in tmp_path.rglob("recipe.json")) == ["a", "b"]
    assert [path.parent for path in tmp_path.rglob("report.html")] == [tmp_path]
    assert [section.title for section in done.report.sections] == ["The first", "The second"]
    assert len(done.records) == len(FIRST) + len(SECOND)
    page = (tmp_path / "report.md").read_text()
    assert all(f"| {cell.row} |" in page for cell in (*FIRST, *SECOND))
    assert "1 of" not in page


def test_a_second_call_trains_nothing_and_changes_nothing(tmp_path, monkeypatch):
    made(["a", "b"], tmp_path)
    before = everything_below(tmp_path)
    no_training(monkeypatch)
    done, trained = made(["a", "b"], tmp_path)
    assert trained == []
    assert {record.status for record in done.records} == {"finished"}
    assert everything_below(tmp_path) == before


def test_a_run_that_another_recipe_has_finished_is_not_made_again_even_if_it_is_later_in_order(tmp_path):
    made("b", tmp_path / "b")
    before = comparable(tmp_path / "b")
    _, trained = made(["a", "b"], tmp_path)
    assert trained == ["a/digits/only-here/seed0"]
    assert comparable(tmp_path / "b") == before
    for there, here in SHARED.items():
        found = records.read(tmp_path / here / "seed0")
        assert os.path.normpath(found.folder / found.data["same_as"]) == str(tmp_path / there / "seed0")
        assert found.data["labels"]["column"] == COLUMN


def test_runs_with_equal_settings_but_other_sources_or_trials_are_not_called_equal(tmp_path):
    jobs = {}
    for name in PAIR:
        jobs |= in_order(choose(PAIR[name], "smoke", folder=tmp_path / name), 0)
    rows = {name: job.cell.row for name, job in jobs.items()}
    shared = {rows[name]: rows[owner] for name, owner in owners(jobs).items() if owner != name}
    assert shared == {
        "Source": "Learns",
        "Same source": "Uses",
        "Same trials": "Chosen",
        "Same trials, end 0.9": "Chosen, end 0.9",
        "Same trials, end 0": "Chosen, end 0",
        "Other trials, end 0.9": "Chosen, end 0.9",
    }
    assert len(jobs) == PAIR_RUNS
    assert len(shared) == PAIR_EQUAL
    specs = {job.cell.row: job.cell.spec for job in jobs.values()}
    assert specs["Another source"] == specs["Uses"]
    assert specs["Other trials"] == specs["Chosen"]


def test_other_seeds_are_other_runs(tmp_path):
    jobs = {}
    for seed, name in enumerate(PAIR):
        jobs |= in_order(choose(PAIR[name], "smoke", [seed], folder=tmp_path / name), 0)
    shared = {name for name, owner in owners(jobs).items() if owner != name}
    assert {jobs[name].cell.column for name in shared} == {  # trials have the first seed of their recipe
        "Numbers: end of Same trials, chosen by validation",
        "Numbers: end of Other trials, chosen by validation",
    }


def test_a_run_under_a_copied_schedule_goes_on_after_an_interruption(tmp_path):
    made(["a", "b"], tmp_path / "whole")
    made(["a", "b"], tmp_path / "parts")
    folder = tmp_path / "parts/b/numbers/same-source/seed0"
    spec = Job(SECOND[1], 0, home=choose(PAIR["b"], "smoke", folder=tmp_path / "parts/b")[0].home).spec
    copy = records.read(folder)
    assert copy.data["digests"] == records.read(tmp_path / "parts/a/digits/uses/seed0").data["digests"]
    assert run(spec, folder, CPU).comparable() == copy.comparable()  # read, not refused
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(KeyboardInterrupt):
        run(spec, folder, CPU, labels=copy.data["labels"], watchers=[Stop()])
    assert run(spec, folder, CPU).status == "finished"
    assert resumed(tmp_path / "parts") == [folder]
    assert without_place(comparable(tmp_path / "parts")) == without_place(comparable(tmp_path / "whole"))


def test_a_copy_takes_the_place_of_a_part_that_was_made_here(tmp_path):
    folder = tmp_path / "b/numbers/source/seed0"
    with pytest.raises(KeyboardInterrupt):
        run(FIRST[0].spec, folder, CPU, watchers=[Stop()])
    assert (folder / records.CHECKPOINT).is_file()
    made("a", tmp_path / "a")
    made(["a", "b"], tmp_path)
    assert "same_as" in records.read(folder).data
    assert not list(folder.glob(f"{records.CHECKPOINT}*"))


def test_what_was_learned_from_another_file_is_not_copied(tmp_path):
    made("a", tmp_path / "a")
    made("b", tmp_path / "b", only=["Source"])
    path = tmp_path / "b/numbers/source/seed0/schedule.safetensors"
    schedule = Schedule.read(path)
    made_elsewhere = replace(schedule.card, versions={"torch": "1.0"})
    for name in (path, path.with_name("schedule.copy.safetensors")):
        Schedule(schedule.phases, made_elsewhere).save(name)
    done, trained = made(["a", "b"], tmp_path)
    assert done.failures == []
    assert "b/numbers/same-source/seed0" in trained
    assert "same_as" not in records.read(tmp_path / "b/numbers/same-source/seed0").data
    assert made(["a", "b"], tmp_path)[1] == []  # it is read, not refused


def test_a_run_that_fails_fails_its_copies_with_the_reason_and_both_are_tried_again(tmp_path, break_schedule):
    break_schedule("mlr-snet", "setup")
    done, _ = made(["a", "b"], tmp_path)
    assert "a/digits/learns/seed0: RuntimeError: out of memory" in " ".join(done.failures)
    (line,) = [line for line in done.failures if line.startswith("Numbers, Source")]
    assert line == "Numbers, Source: the same run failed elsewhere: RuntimeError: out of memory"
    assert not (tmp_path / "b/numbers/source").exists()
    break_schedule(None)
    done, _ = made(["a", "b"], tmp_path)
    assert done.failures == []
    assert {record.status for record in done.records} == {"finished"}


def test_trials_that_all_fail_fail_what_they_choose_for_in_every_recipe(tmp_path, break_schedule):
    break_schedule("cosine", "setup")
    done, trained = made(["a", "b"], tmp_path)
    for place, values in {
        "Digits, Chosen": "0.9, 0",
        "Numbers, Same trials": "0.9, 0",
        "Numbers, Other trials": "0.9, 0.5",
    }.items():
        assert f"{place}: every trial failed: end was one of {values}" in done.failures
    assert len(done.failures) == 3
    assert not any("chosen" in place or "trials" in place for place in trained)


def test_two_processes_leave_the_records_of_one_for_recipes_that_share(tmp_path):
    made(["a", "b"], tmp_path / "one")
    done, trained = made(["a", "b"], tmp_path / "two", replace(CPU, executor=Executor(jobs=2)))
    assert done.failures == []
    assert len(trained) == PAIR_RUNS - PAIR_EQUAL
    assert comparable(tmp_path / "two") == comparable(tmp_path / "one")


# What is worth most next


@pytest.fixture
def worth(monkeypatch):
    """Two recipes with two seeds, one of whose rows has one; b's numbers are worth most."""
    first = [Cell("Twice", COLUMN, tiny(epochs=1)), Cell("Once", COLUMN, tiny(epochs=1, lr=0.03), seeds=1)]
    second = [Cell("Later", COLUMN, tiny(epochs=1, lr=0.04)), Cell("Long", OTHER, tiny(epochs=6, lr=0.01))]
    recipes = {"a": first, "b": second}
    made = {name: Recipe(name, name, "None.", lambda scale, of=of: of, seeds=(4, 5)) for name, of in recipes.items()}
    monkeypatch.setattr(RECIPES, "data", made)
    monkeypatch.setattr("mlrsnet_lab.reproduce.ORDER", (("b", (OTHER,)), ("a", ()), ("gone", ())))


IN_ORDER = [
    *("b/numbers/long/seed4", "a/digits/twice/seed4", "a/digits/once/seed4", "b/digits/later/seed4"),
    *("b/numbers/long/seed5", "a/digits/twice/seed5", "b/digits/later/seed5"),
]


@pytest.mark.usefixtures("worth")
def test_next_makes_the_first_seed_of_everything_before_the_second_of_anything(tmp_path):
    done, trained = made("next", tmp_path)
    assert trained == IN_ORDER  # a row with one seed has no second
    assert json.loads((tmp_path / "a/recipe.json").read_text())["seeds"] == [4, 5]
    assert [row.seeds for section in done.report.sections for one in section.tables for row in one.rows] == [
        *("2", "1"),
        *("2", "2"),
    ]
    assert made("next", tmp_path / "chosen", seeds=[7])[1] == [line.replace("seed4", "seed7") for line in IN_ORDER[:4]]


@pytest.mark.usefixtures("worth")
def test_next_stops_in_the_middle_of_a_training_and_really_goes_on(tmp_path, monkeypatch):
    made("next", tmp_path / "whole")
    plain = Stepper.step

    def slow(self):
        time.sleep(0.01)
        plain(self)

    monkeypatch.setattr(Stepper, "step", slow)  # six epochs take four seconds at least
    done, _ = made("next", tmp_path / "parts", seconds=2.0)
    assert done.stopped
    assert done.failures == []
    assert records.read(tmp_path / "parts/b/numbers/long/seed4").status == "interrupted"
    monkeypatch.setattr(Stepper, "step", plain)
    done, trained = made("next", tmp_path / "parts", seconds=600.0)
    assert not done.stopped
    assert trained == IN_ORDER
    assert resumed(tmp_path / "parts") == [tmp_path / "parts/b/numbers/long/seed4"]
    assert comparable(tmp_path / "parts") == comparable(tmp_path / "whole")


def test_time_that_is_up_between_trainings_loses_nothing_and_keeps_failures(tmp_path, break_schedule):
    def hesitant(planned):
        time.sleep(3.0)
        return []

    break_schedule("mlr-snet", "setup")
    done = reproduce("a", "smoke", tmp_path, replace(CPU, watch=hesitant), only=["Uses"], seconds=1.5)
    assert done.stopped
    assert [line.split(": ")[1] for line in done.failures] == ["RuntimeError"]
    assert [record.status for record in done.records] == ["failed"]
    break_schedule(None)
    assert len(made("a", tmp_path)[1]) == 6


def test_time_that_is_up_stops_two_processes_which_go_on_later(tmp_path):
    two = replace(CPU, executor=Executor(jobs=2))
    done, _ = made("a", tmp_path / "parts", two, seconds=2.0)
    assert done.stopped
    assert done.failures == []
    done, _ = made("a", tmp_path / "parts", two)
    assert not done.stopped
    made("a", tmp_path / "whole")
    assert comparable(tmp_path / "parts") == comparable(tmp_path / "whole")


def test_time_that_is_up_before_anything_began_is_no_error(tmp_path):
    done = reproduce(["a", "b"], "smoke", tmp_path, CPU, seconds=1e-6)
    assert done.stopped
    assert done.records == []


def test_a_scale_that_no_recipe_has_is_named(tmp_path):
    for names in ("all", "next", "a", ["a", "b"]):
        with pytest.raises(ValueError, match="scale must be one of smoke, cpu, short, paper; got 'huge'"):
            reproduce(names, "huge", tmp_path / "t", CPU)
    with pytest.raises(ValueError, match=r"seconds must be .*> 0, got 0"):
        reproduce("next", "smoke", tmp_path / "t", CPU, seconds=0)
    assert not (tmp_path / "t").exists()


def test_a_recipe_without_the_scale_is_left_out_of_all_and_refused_alone(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(RECIPES, "data", PAIR | {"b": replace(PAIR["b"], scales=("paper",))})
    done, _ = made("all", tmp_path, replace(CPU, tell=told.append))
    assert told[0] == "without scale smoke, so left out: b"
    assert {record.data["labels"]["recipe"] for record in done.records} == {"a"}
    with pytest.raises(ValueError, match="scale of b must be one of paper; got 'smoke'"):
        reproduce("b", "smoke", tmp_path, CPU)


# What it costs


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """A table of costs in which an epoch of the runs here takes an hour, and of RTHO five."""
    plain, rtho = (costs.kind(tiny(schedule=name).to_dict()) for name in ("fixed", "rtho"))
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"seconds_per_epoch": {plain: 3600.0, rtho: 5 * 3600.0}}))
    monkeypatch.setattr(costs, "TABLE", path)
    costs.table.cache_clear()
    yield
    costs.table.cache_clear()


def test_what_changes_no_cost_has_the_cost_of_the_rest():
    base = tiny().to_dict()
    same = [
        tiny(seed=3, lr=0.5, epochs=9, optimizer="adam", weight_decay=0.1).to_dict(),
        tiny(schedule="mlr-snet").to_dict(),
        base | {"task_options": base["task_options"] | {"leaky": True, "corruption": "fog"}},
        base | {"model_options": base["model_options"] | {"init": "xavier"}},
    ]
    assert {costs.kind(one) for one in same} == {costs.kind(base)}
    other = [
        tiny(schedule="rtho"),
        tiny(schedule="direct"),
        tiny(batch_size=8),
        tiny(eval_every=2),
        tiny(rays=2),
        tiny(model_options={"width": 16, "depth": 1}),
        tiny(task_options={"classes": [0, 1, 2]}),
    ]
    kinds = {costs.kind(one.to_dict()) for one in other}
    assert len(kinds) == len(other)
    assert costs.kind(base) not in kinds


@pytest.mark.usefixtures("measured")
def test_an_estimate_counts_what_is_left_and_says_what_it_does_not_know(tmp_path):
    cells = [
        Cell("Plain", COLUMN, tiny(schedule="fixed", epochs=2)),
        Cell("RTHO", COLUMN, tiny(schedule="rtho", epochs=1)),
        Cell("Unknown", COLUMN, tiny(batch_size=8)),
    ]
    jobs = choose(Recipe("c", "C", "None.", lambda scale: cells, seeds=(0,)), "smoke", folder=tmp_path)
    assert costs.seconds(cells[0].spec) == 7200.0
    assert costs.seconds(cells[2].spec) is None
    assert costs.estimate(jobs[:2], 2) == "; about 7.0 core-hours: 3.5 hours here"
    unknown = "; about 7.0 core-hours, and 1 trainings of unknown length: 7.0 hours here"
    assert costs.estimate(jobs, 1) == unknown
    assert costs.estimate(jobs[2:], 1) == ""
    run(jobs[0].spec, jobs[0].folder, CPU)
    assert costs.estimate(jobs[:2], 1) == ", 1 are done; about 5.0 core-hours: 5.0 hours here"


def test_without_measurements_nothing_is_estimated(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "TABLE", tmp_path / "none.json")
    costs.table.cache_clear()
    assert costs.estimate(choose(PAIR["a"], "smoke", folder=tmp_path), 1) == ""
    costs.table.cache_clear()


@pytest.mark.usefixtures("measured")
def test_a_campaign_says_how_long_it_may_take(tmp_path):
    told = []
    reproduce("a", "smoke", tmp_path / "t", replace(CPU, tell=told.append), only=["Only here"])
    assert told[1] == "1 trainings, 0 of them equal to others and made once; about 2.0 core-hours: 2.0 hours here"
