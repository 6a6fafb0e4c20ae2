"""Tables, time series and pieces of text: their parts share nothing, their errors are told in their units, and they resume."""

import csv
import io
import math
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import CPU, assert_same, stop_and_resume

from mlrsnet_lab import datasets
from mlrsnet_lab.datasets import packages
from mlrsnet_lab.datasets.examples import ExampleDataset, Examples
from mlrsnet_lab.datasets.snippets import KINDS, LENGTH, SNIPPETS
from mlrsnet_lab.datasets.tables import DIAMONDS, FLIGHTS
from mlrsnet_lab.datasets.weather import AHEAD, READ, SEEN, WEATHER
from mlrsnet_lab.feeds.examples import ExampleData
from mlrsnet_lab.loop import run
from mlrsnet_lab.models import build_pieces, build_rows
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec

MLP = {"model": "mlp", "model_options": {"width": 8, "depth": 1}}


def put(root, source, content):
    place = root / "packages" / f"{source.package}-{source.version}" / source.member.rsplit("/")[-1]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def as_csv(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A data folder with small files in place of the packages'."""
    root, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    gems = [
        dict(zip(("carat", "depth", "table", "x", "y", "z"), random.random(6), strict=True))
        | {"cut": "Ideal", "color": "E", "clarity": "SI1", "price": 326 + 10 * i}
        for i in range(400)
    ]
    put(root, DIAMONDS, as_csv(gems))
    flight = {"year": 2013, "month": 1, "day": 2, "origin": "JFK", "sched_dep_time": 515, "sched_arr_time": 830}
    flights = [
        flight
        | {"carrier": "UA" if i % 3 else "AA", "distance": i, "air_time": i or "NA", "dep_delay": 1, "arr_delay": -2}
        for i in range(300)
    ]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("flights.csv", as_csv(flights))
    put(root, FLIGHTS, archive.getvalue())
    hours = [
        {"origin": "JFK", "day": day, "time_hour": f"2013-01-{day:02d}T{hour:02d}:00:00Z"}
        | {key: 24 * day + hour if key == "temp" else "NA" if key == "pressure" and hour == 3 else 1 for key in READ}
        for day in range(1, 32)
        for hour in range(24)
    ]
    put(root, WEATHER, as_csv(hours))
    texts = io.BytesIO()
    with tarfile.open(fileobj=texts, mode="w:gz") as file:
        for kind in KINDS:
            lines = "".join(
                f"{i}\t{1 if i % 2 else -1}\tThis is {'good' if i % 2 else 'bad'}, no {i}!\n" for i in range(50)
            )
            member = tarfile.TarInfo(f"hutto_ICWSM_2014/{kind}_GroundTruth.txt")
            member.size = len(lines)
            file.addfile(member, io.BytesIO(lines.encode()))
    put(root, SNIPPETS, texts.getvalue())
    return root


def small(task, **changes):
    model = {"model": "text_classifier", "model_options": {"width": 8, "heads": 2}} if task == "snippets" else MLP
    return RunSpec(**{"task": task, "batch_size": 8, "epochs": 2, "lr": 0.01, "optimizer": "adam"} | model | changes)


@pytest.mark.parametrize("task", ["diamonds", "flights", "weather", "snippets", "diabetes", "breast-cancer"])
def test_every_table_trains_and_ends_alike_if_it_is_stopped(task, root, tmp_path):
    short = {"batch_size": 2} if task in ("snippets", "flights") else {"batch_size": 4}
    whole = run(small(task, **short), settings=Settings(device="cpu", root=root))
    assert whole.status == "finished"
    assert whole.epochs[1]["train_loss"] < whole.epochs[0]["train_loss"]
    assert_same(stop_and_resume(small(task, **short), tmp_path, settings=Settings(device="cpu", root=root)), whole)


@pytest.mark.parametrize("task", ["diamonds", "flights", "weather", "snippets"])
def test_parts_share_no_example_and_a_fraction_keeps_the_held_out_ones(task, root):
    whole, half = (datasets.load(task, root=root, fraction=fraction) for fraction in (1.0, 0.5))
    assert half.sizes == whole.sizes | {"train": round(0.5 * whole.sizes["train"])}
    assert torch.equal(half.test.targets, whole.test.targets)
    if task != "snippets":  # whose sentences repeat
        rows = [{tuple(row.tolist()) for row in part.inputs} for part in (whole.train, whole.val, whole.test)]
        assert not rows[0] & rows[1]
        assert not rows[0] & rows[2]
        assert not rows[1] & rows[2]


def test_the_error_of_a_regression_is_told_in_the_targets_unit(root):
    record = run(small("weather"), settings=Settings(device="cpu", root=root))
    scale = datasets.load("weather", root=root).scale
    assert record.data["metric"] == {"name": "RMSE", "unit": "°F", "better": "lower"}
    assert record.data["task"]["num_classes"] is None
    last = record.epochs[-1]
    assert last["test_metric"] == pytest.approx(scale * math.sqrt(last["test_loss"]), rel=1e-4)


def test_a_record_has_what_r_squared_needs():
    record, dataset = run(small("diabetes", epochs=1), settings=Settings(device="cpu")), datasets.load("diabetes")
    error = dataset.test.targets - dataset.train.targets.mean()
    assert record.data["task"]["rmse_of_mean"] == pytest.approx(error.square().mean().sqrt().item(), rel=1e-4)


def test_the_price_of_a_diamond_is_learned_as_it_is(root):
    dataset = datasets.load("diamonds", root=root)
    record = run(small("diamonds"), settings=Settings(device="cpu", root=root))
    assert dataset.scale == 1.0
    assert dataset.train.targets.mean() > 1000
    assert record.trace["loss"][0] > 1e5
    assert record.data["metric"]["unit"] == "$"


def test_windows_of_the_weather_lie_in_one_stretch_and_end_before_what_is_forecast(root):
    table = packages.arrays(WEATHER, root, "weather", lambda path: pytest.fail("it was read before"))
    temperatures = table["train_inputs"].reshape(-1, len(READ), SEEN)[:, 0]
    assert (np.diff(temperatures, axis=1) == 1).all()
    assert (table["train_targets"] == np.arange(1, AHEAD + 1)).all()
    assert temperatures.max() < 24 * 21


def test_features_have_mean_0_and_deviation_1_on_training_data_only():
    parts = datasets.load("diabetes")
    assert parts.train.inputs.mean(0).abs().max() < 1e-5
    assert (parts.train.inputs.std(0) - 1).abs().max() < 1e-5
    assert parts.test.inputs.mean(0).abs().max() > 1e-3


def test_the_score_of_numbers_is_the_mean_over_all_of_them():
    torch.manual_seed(0)
    part = Examples(torch.randn(50, 3), torch.randn(50, 2))
    data = ExampleData(ExampleDataset("own", part, part, part, None, "m", 10.0), 5, 0, CPU)
    model = build_rows("mlp", 3, 2, width=4)
    expected = (model(part.inputs) - part.targets).square().mean().item()
    found = data.evaluate(model, "test")
    assert found.loss == pytest.approx(expected, rel=1e-5)
    assert found.metric == pytest.approx(10 * math.sqrt(expected), rel=1e-5)


def test_padding_says_nothing_about_a_piece_of_text():
    torch.manual_seed(0)
    model = build_pieces("text_classifier", 9, LENGTH, 2, width=8, heads=2).eval()
    text = torch.tensor([[3, 4, 5]])
    padded = torch.nn.functional.pad(text, (0, LENGTH - 3))
    torch.testing.assert_close(model(text), model(padded))
    assert model(torch.zeros(1, 4, dtype=torch.int64)).isfinite().all()


def test_missing_data_is_answered_with_the_command_that_fetches_it(tmp_path, monkeypatch):
    def offline(source):
        raise OSError("no network")

    monkeypatch.setattr(packages, "_fetch", offline)
    with pytest.raises(FileNotFoundError, match=r"no network.*pip download --no-deps plotnine==.*diamonds.csv"):
        datasets.load("diamonds", root=tmp_path)
    with pytest.raises(FileNotFoundError, match="--no-binary vaderSentiment"):
        datasets.load("snippets", root=tmp_path)


def test_a_file_that_is_not_the_one_that_was_measured_with_is_refused(tmp_path, monkeypatch):
    def download(words, **options):
        place = Path(words[words.index("--dest") + 1])
        place.mkdir()
        with zipfile.ZipFile(place / "plotnine.whl", "w") as wheel:
            wheel.writestr(DIAMONDS.member, "carat\n")
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(packages.subprocess, "run", download)
    with pytest.raises(FileNotFoundError, match="must have the digest"):
        datasets.load("diamonds", root=tmp_path)
    assert not list(tmp_path.rglob("*.csv"))


def test_a_network_that_cannot_read_a_table_is_refused(root):
    with pytest.raises(
        ValueError, match="model must be one for rows of numbers, mlp; got 'small_cnn', which reads pictures"
    ):
        run(small("diabetes", model="small_cnn", model_options={}), settings=Settings(device="cpu"))
    with pytest.raises(ValueError, match="model must be one for pieces of text, text_classifier; got 'mlp'"):
        run(small("snippets", **MLP), settings=Settings(device="cpu", root=root))


def test_learned_schedules_work_without_classes():
    record = run(small("diabetes", schedule="learned"), settings=Settings(device="cpu"))
    assert record.status == "finished"
