"""What the documents say about schedules learned from whole trainings stands in records."""

import json
import math
from statistics import mean

import pytest
import universal
from told import ROOT, read

from mlrsnet import pretrained
from mlrsnet.lab import recipes
from mlrsnet.lab.report import read_report
from mlrsnet.lab.report.numbers import metric_stat


def test_what_the_learned_schedule_reaches_on_resnet18_is_recorded():
    (table,) = read_report(ROOT / "results" / "horizon_short").sections[0].tables
    told = {row.name: metric_stat(row.stat("last")) for row in table.rows}
    lines = [
        f"| {kind.lower()} | {' | '.join(told[f'{kind} {lr:g}'] for lr in recipes.horizon.GRID)} |"
        for kind in ("Cosine", "Linear")
    ]
    for line in (*lines, f"| {told['Full horizon']}, no LR to choose |"):
        assert line in (ROOT / "docs" / "horizon.md").read_text(), line
    readme = read("README.md")
    assert f"to {told['Full horizon']} % in 30 epochs" in readme
    assert f"its {told['Cosine 1']} %, and has {told['Cosine 0.1']} % at the usual 0.1" in readme


def test_what_the_shipped_schedule_was_learned_from_is_recorded():
    record = json.loads((ROOT / "results" / "horizon" / "cifar10-patches.json").read_text())
    text = read("docs/horizon.md")
    first, last = (mean(found["learned"]) for found in (record["comparisons"][0], record["comparisons"][-1]))
    assert f"{first:.4f} before learning and {last:.4f} after" in text
    assert f"in {record['seconds']:.0f} seconds" in text
    assert (
        f"{record['spec']['generations']} generations of {record['spec']['tasks'] * record['spec']['members']}" in text
    )
    shipped = pretrained.load("cifar10-patches")
    assert shipped.card.results["trainings it was not learned from"] == record["comparisons"][-1]["summary"]


def test_the_shipped_schedule_reads_the_loss_as_the_documents_say():
    shipped, text = pretrained.load("cifar10-patches"), read("docs/horizon.md")
    curves = [shipped.simulate([part * math.log(10)] * 100, num_classes=10) for part in (2, 1, 0.1)]
    early, halfway = ([f"{curve[step]:.2f}" for curve in curves] for step in (5, 50))
    assert (
        "it gives {} where the loss is twice that of guessing, {} where it is that of guessing and {}".format(*early)
        in text
    )
    assert "halfway {}, {} and {}".format(*halfway) in text


@pytest.mark.parametrize("part", ["table", "more", "variants", "progress", "shortfalls", "validation", "ablations"])
def test_what_is_said_about_the_default_is_recorded(part):
    text = read("docs/why_full_horizon.md")
    for line in universal.table(universal.MORE) if part == "more" else getattr(universal, part)():
        assert " ".join(line.split()) in text, line


def test_the_readmes_table_and_claims_about_the_default_are_recorded():
    columns = ("universal", "cosine, usual LR", "best decay of ten", "universal-relative")
    readme = (ROOT / "README.md").read_text()
    for line in universal.table(columns):
        assert line in readme, line
    rows = universal.outcomes().values()
    assert len(rows) == 8
    assert all(row["universal"].error < row["cosine, usual LR"].error for row in rows)  # better on all eight
    assert len(universal.shortfalls()) == 4  # at least as good as the best of ten on four
    worst = max(row["universal"].error / row["best decay of ten"].error for row in rows)
    assert f"{100 * (worst - 1):.0f} % worse on one" in readme
    for name in ("README.md", "docs/why_full_horizon.md"):
        assert "all eight" in (ROOT / name).read_text()
    fashion = universal.outcomes()["Fashion-MNIST, MLP, SGD"]
    ours, cosine = (fashion[name].values for name in ("universal", "cosine, usual LR"))
    assert min(ours) < max(cosine)  # within noise


def test_what_the_default_was_learned_from_is_recorded():
    text = read("docs/why_full_horizon.md")
    done, seconds = [], []
    for name in ("universal", "universal-relative"):
        record = json.loads((ROOT / "results" / "universal" / f"{name}.json").read_text())
        spec, shipped = record["spec"], pretrained.load(name)
        done.append(len(record["generations"]))
        seconds.append(f"{record['seconds']:.0f}")
        assert f"{done[-1]} generations of {spec['tasks']} tasks" in shipped.card.description
        assert shipped.card.results["trainings it was not learned from"] == record["comparisons"][-1]["summary"]
        assert shipped.card.gamma.value == spec["gamma"]
        assert spec["tasks"] * spec["members"] == 256
    assert "after {} and {} seconds, at {} and {} of".format(*seconds, *done) in text
    assert f"of {spec['generations']} generations" in text


def test_the_default_reads_the_loss_as_the_documents_say():
    shipped, text = pretrained.load("universal"), read("docs/why_full_horizon.md")
    halfway = [
        shipped.simulate([part * math.log(10)] * 100, shipped.card.gamma.value, num_classes=10)[50]
        for part in (2, 1, 0.6, 0.1)
    ]
    told = "{:.2f} where the loss is twice that of guessing, {:.2f} where it is that of guessing, {:.2f} at 0.6 of it and {:.2f}"
    assert told.format(*halfway) in text


def test_the_default_on_resnet18_is_recorded():
    text = read("docs/why_full_horizon.md")
    runs = universal.RESNET / "cifar-10-resnet-18-sgd"
    large = [universal.outcome(runs / name) for name in ("cosine-30x", "linear-30x")]
    assert "at an LR of 3 they end at {} % and {} %".format(*large) in text
    row = universal.outcomes()[universal.RESNET_TASK]
    margin = mean(row["best decay of ten"].values) - mean(row["universal"].values)
    assert f"below the best decay by {margin:.2f} points" in text
    trace = json.loads((runs / "universal" / "seed0" / "trace.json").read_text())
    late = next(
        lr for step, lr in zip(trace["step"], trace["lr"], strict=True) if step >= 0.9 * (trace["step"][-1] + 1)
    )
    assert f"still at {late:.2f} after 90 %" in text
