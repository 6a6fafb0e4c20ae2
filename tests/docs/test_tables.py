"""Tables of the documents from a few made-up runs: the right numbers, nothing that was not run, no subset taken for a whole set."""

import json

import pytest

from experiments import results as recorded
from experiments import side_by_side, speed, transfers, width_of_minima
from mlrsnet_lab import records
from mlrsnet_lab.feeds.base import ACCURACY, PERPLEXITY
from mlrsnet_lab.recipes import RECIPES
from mlrsnet_lab.recipes.rows import SHIPPED, TRANSFERRED
from mlrsnet_lab.sheets import slug

SUBSET = "not the full set: the file has 900 training and 300 test pictures, the set 73,257 and 26,032"
TEXT = "Penn Treebank, 3-layer LSTM"


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "RESULTS", tmp_path)
    recorded.forget()
    yield tmp_path
    recorded.forget()


@pytest.fixture
def leave(results):
    """Write a run that ended with `last`, or did not if that is None, and what its recipe plans."""

    def write(
        folder, column, row, last, seed=0, *, metric=ACCURACY, note="", epochs=30, status="finished", best=None, **data
    ):
        name, scale = ("table1", "paper") if folder == "large" else folder.replace("_", "-").rsplit("-", 1)
        plan = RECIPES[name].sheet(scale, [0]).to_dict()
        result = {} if last is None else {"last": last, "best": best or last + 1}
        schedule = "learned" if row in (TRANSFERRED, SHIPPED, "Universal LSTM") else "fixed"
        told = {
            "format": records.FORMAT,
            "status": status,
            "spec": {"epochs": epochs, "schedule": schedule, "optimizer": "sgd", "seed": seed},
            "labels": {"recipe": name, "scale": scale, "row": row, "column": column},
            "device": "a GPU",
            "metric": metric,
            "task": {"train": 800, "val": 100, "test": 300, "note": note},
            "result": result,
            "timing": {"seconds_per_epoch": None},
            **data,
        }
        place = results / folder
        records.write(records.Record(told, [{"epoch": 1}], {}, place / slug(column) / slug(row) / f"seed{seed}"))
        (place / records.RECIPE).write_text(records.dumps(plan))

    return write


def cells(lines, row):
    (line,) = [line for line in lines if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


@pytest.mark.parametrize(
    "make",
    [
        transfers.transfers,
        width_of_minima.rays,
        speed.large,
        *(
            lambda name=name: side_by_side.recipe(f"{name}_short")
            for name in ("table2", "table5", "table6", "lstm_or_mlp")
        ),
    ],
)
def test_where_nothing_was_run_one_line_says_so(results, make):
    assert make() == ["Not run yet."]
    assert transfers.shortfalls() == {}


def test_transfers_have_a_column_per_task_and_the_best_row_is_bold(leave):
    for seed, last in enumerate((90.0, 92.0)):
        leave("transfer_short", "SVHN", "MultiStep", last, seed, note=SUBSET)
    leave("transfer_short", "SVHN", TRANSFERRED, 89.5, note=SUBSET)
    leave("networks_short", "MobileNetV2", "SGDR", 80.0)
    leave("networks_short", "MobileNetV2", SHIPPED, 81.25)
    leave("networks_short", "Meta-training on CIFAR-10 with ResNet-18", "MLR-SNet, meta-trained", 99.0)
    made = transfers.transfers()
    assert made[0] == (
        "| test accuracy (%) | CIFAR-10, MobileNetV2, 30 epochs | "
        "SVHN, ResNet-18, 30 epochs; not the full set: 800 to train, 300 to test |"
    )
    assert cells(made, "MultiStep") == ["not run", "**91.00 ± 1.41 (92.00)**"]
    assert cells(made, TRANSFERRED) == ["not run", "89.50 (90.50)"]
    assert cells(made, SHIPPED) == ["**81.25 (82.25)**", "not run"]
    assert cells(made, "Universal LSTM") == ["not run", "not run"]
    assert "99.00" not in "\n".join(made)
    assert f"SVHN, ResNet-18: {SUBSET}." in made
    records_line = "[networks_short](../results/networks_short), [transfer_short](../results/transfer_short)"
    assert f"Seeds: 1 to 2. a GPU. Records: {records_line}." in made
    assert sum(line.count("**") for line in made) == 4


def test_text_has_a_table_of_its_own_where_lower_is_better(leave):
    leave("epochs_short", "100 epochs", "Fixed", 60.0)
    leave("transfer_short", TEXT, "SGD, val strategy", 120.0, metric=PERPLEXITY, epochs=20)
    leave("transfer_short", TEXT, TRANSFERRED, 118.0, metric=PERPLEXITY, epochs=20)
    made = transfers.transfers()
    text = made[made.index(f"| test perplexity | {TEXT}, 20 epochs |") :]
    assert cells(text, TRANSFERRED) == ["**118.00 (119.00)**"]
    assert cells(text, "SGD, val strategy") == ["120.00 (121.00)"]
    assert cells(text, "Adam, val strategy") == ["not run"]
    assert cells(made[: made.index("")], "Fixed") == ["60.00 (61.00)"]  # alone, so not called the best
    assert "Fixed" not in "\n".join(text)
    (gap,) = [gap for head, gap in transfers.shortfalls().items() if head.startswith(TEXT)]
    assert gap == {TRANSFERRED: -2.0}


def test_a_shortfall_is_to_the_best_hand_designed_row_and_only_of_what_was_run(leave):
    for row, last in {"Fixed": 70.0, "MultiStep": 80.0, SHIPPED: 79.0, "Universal LSTM": 82.0}.items():
        leave("epochs_short", "100 epochs", row, last)
    leave("networks_short", "ShuffleNetV2", "Universal LSTM", 50.0)
    assert transfers.shortfalls() == {
        "CIFAR-100, ResNet-18, 30 epochs": {SHIPPED: 1.0, "Universal LSTM": -2.0},
        "CIFAR-10, ShuffleNetV2, 30 epochs": {},
    }
    made = transfers.transfers()
    assert made[-3:] == [
        f"| best epochs, against the best hand-designed row | which is | {SHIPPED} | Universal LSTM |",
        "| --- | --- | --- | --- |",
        "| CIFAR-100, ResNet-18, 30 epochs | MultiStep | 1.00 worse | 2.00 better |",
    ]


def test_a_schedule_that_stops_at_a_high_lr_is_compared_by_its_best_epoch_too(leave):
    leave("epochs_short", "100 epochs", "MultiStep", 80.0)
    leave("epochs_short", "100 epochs", "SGDR", 70.0, best=85.0)
    leave("epochs_short", "100 epochs", "Universal LSTM", 82.0)
    (last,), (best,) = (transfers.shortfalls(which).values() for which in ("last", "best"))
    assert (last, best) == ({"Universal LSTM": -2.0}, {"Universal LSTM": 2.0})
    lines = [line for line in transfers.transfers() if line.startswith("| CIFAR-100, ResNet-18, 30 epochs |")]
    assert [line.split(" | ")[1:] for line in lines] == [["MultiStep", "2.00 better |"], ["SGDR", "2.00 worse |"]]


def test_a_run_that_diverged_is_counted_and_never_the_best(leave):
    leave("table2_short", "CIFAR-10", "Fixed", 95.0)
    leave("table2_short", "CIFAR-10", "Fixed", None, seed=1, status="diverged")
    leave("table2_short", "CIFAR-10", "SGDR", None, status="diverged")
    leave("table2_short", "CIFAR-10", "MultiStep", 90.0)
    leave("table2_short", "CIFAR-10", "HD", 89.0)
    leave("table2_short", "CIFAR-10", "Adam", 99.0, status="running")
    made = side_by_side.recipe("table2_short")
    assert cells(made, "Fixed")[1] == "95.00 (96.00), 1 of 2 diverged"
    assert cells(made, "SGDR")[1] == "- (-), 1 of 1 diverged"
    assert cells(made, "MultiStep")[1] == "**90.00 (91.00)**"
    assert (
        "Not run: Exponential; Adam; L4; RTHO; MLR-SNet; MLR-SNet, T_val 100." in made
    )  # a run that has not ended does not count


def test_rows_that_are_printed_alike_are_the_best_together(leave):
    for row, last in {"Fixed": 90.001, "MultiStep": 90.002, "SGDR": 89.0}.items():
        leave("table5_short", "CIFAR-10-C, fog", row, last)
    made = side_by_side.recipe("table5_short")
    assert [line.count("**") for line in made if line.startswith("| ")][2:] == [2, 2, 0]


def test_the_papers_numbers_stand_beside_ours(leave):
    leave("table2_short", "CIFAR-10", "Fixed", 87.0, epochs=60)
    leave("table2_short", "CIFAR-100", "MultiStep", 77.0, epochs=60)
    made = side_by_side.recipe("table2_short")
    assert made[0] == (
        "| test accuracy (%) | CIFAR-10, paper, 200 epochs, its own networks | CIFAR-10, 60 epochs, ours | "
        "CIFAR-100, paper, 200 epochs, its own networks | CIFAR-100, 60 epochs, ours |"
    )
    assert cells(made, "Fixed") == ["87.69 ± 0.14", "87.00 (88.00)", "70.88 ± 0.12", "not run"]
    notes = RECIPES["table2"].sheet("short", [0]).notes
    assert made[-len(notes) :] == list(notes)


def test_of_corruptions_only_those_that_were_run_are_shown_and_the_data_are_described(leave):
    note = "trained on cifar10's test pictures with fog at severities 1 to 5, generated, not the published file"
    leave("table5_short", "CIFAR-10-C, fog", "MultiStep", 80.0, note=note)
    made = side_by_side.recipe("table5_short")
    assert made[0] == (
        "| test accuracy (%) | CIFAR-10-C, fog, 30 epochs; not the published file: 800 to train, 300 to test |"
    )
    assert f"CIFAR-10-C, fog: {note}." in made
    assert [line for line in made if line.startswith("| ")][2:] == ["| MultiStep | 80.00 (81.00) |"]


def test_runs_on_other_data_are_not_set_beside_each_other(leave):
    leave("transfer_short", "SVHN", "Fixed", 90.0, note=SUBSET)
    leave("transfer_short", "SVHN", "MultiStep", 91.0)
    with pytest.raises(ValueError, match=r"runs of SVHN, ResNet-18 in .* differ in their data"):
        transfers.transfers()


def test_losses_along_rays_are_means_over_rays_and_seeds(leave):
    far = {"distance": [0.0, 2.0, 4.0], "train": [[0.1, 9.0, 1.0], [0.3, 9.0, 2.0]]}
    leave("width_short", "CIFAR-100", "Fixed", 70.0, rays=far)
    leave("width_short", "CIFAR-100", "Fixed", 70.0, seed=1, rays=far | {"train": [[0.2, 9.0, 6.0], [0.2, 9.0, 3.0]]})
    leave("width_short", "CIFAR-100", "SGDR", 70.0, rays=far | {"train": [[0.5, 9.0, None]]})
    leave("width_short", "CIFAR-100", "Adam", 70.0)
    made = width_of_minima.rays()
    assert made[0] == "| training loss of CIFAR-100, 30 epochs | at 0 | at 4 | growth | times |"
    assert cells(made, "Fixed") == ["0.200", "3.00", "2.80", "15.0"]
    assert cells(made, "SGDR") == ["0.500", "not finite", "", ""]
    assert not any(line.startswith("| Adam") for line in made)


def timed(value):
    return {"timing": {"seconds_per_epoch": value}}


@pytest.fixture
def loop(results):
    (results / "loop").mkdir()
    gpu = {"cosine_s": 2.0, "eager_fp32_s": 6.0, "eager_bf16_s": 5.0}
    (results / "loop" / "h200.json").write_text(json.dumps({"machine": {"device": "a GPU"}, "gpu": gpu}))


def test_times_are_against_plain_steps_and_plain_loops_against_the_lab_measured_beside_them(leave, loop):
    for seed, one in enumerate((4.0, 3.0, 8.0)):
        leave("time_short", "CIFAR-10", "Fixed", 50.0, seed, **timed(one))
    leave("time_short", "CIFAR-10", "SGDR", 50.0, **timed(6.0))
    leave("time_short", "CIFAR-10", "RTHO", 50.0, **timed(30.0))
    leave("time_short", "CIFAR-10", "HD", None, status="failed")
    made = speed.timing()
    assert made[0] == "| a GPU | seconds per epoch | against a plain step | epochs, runs |"
    assert cells(made, "Fixed") == ["4.00", "0.80", "3, 3"]
    assert cells(made, "RTHO") == ["30.0", "6.00", "1, 1"]
    assert not any(line.startswith("| HD") for line in made)
    assert cells(made, "plain eager loop, DataLoader, bf16") == ["5.00", "2.500"]


def test_without_a_plain_step_there_is_no_ratio(leave, loop):
    leave("time_short", "CIFAR-10", "RTHO", 50.0, **timed(30.0))
    assert cells(speed.timing(), "RTHO") == ["30.0", "1, 1"]


def test_a_training_that_was_stopped_has_a_time(leave):
    leave("large", "CIFAR-100", "Fixed", 10.0, status="interrupted", epochs=200, **timed(9.0))
    assert cells(speed.large(), "Fixed") == ["9.00", "1, 1"]


def test_without_runs_the_plain_loop_is_still_shown(loop):
    made = speed.timing()
    assert made[:2] == ["Not run yet.", ""]
    assert cells(made, "plain eager loop, DataLoader, fp32") == ["6.00", "3.000"]
