"""The study of forks: a fork that changes nothing ends as its training, and sensors say what they claim."""

import dataclasses
import gzip
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from lab.studies.forks import fill, fit, judge, layers, policy, sensors, training
from lab.studies.forks.training import Training
from lab.studies.law import fill as rows
from lab.studies.law.families import Task, classified
from mlrsnet.default import Default, Size

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")


def classes():
    """Noise, which a network with dropout and batch norm learns by heart."""
    x = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()

    def build():
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))

    return classified(build, x, y, held=32)


def plan(optimizer="sgd", **changes):
    return dataclasses.replace(rows.Plan(optimizer, 60, 8, 64, 1e-3, 1.0, 3), **changes)


def weights(one):
    return sensors.flat(one.weights())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_fork_that_changes_nothing_ends_bit_for_bit_as_its_training(optimizer):
    alone = Training(classes(), plan(optimizer), 0.1)
    watched = Training(classes(), plan(optimizer), 0.1, watches=True).run(20)
    sensors.sensed(watched)
    fork, longer = watched.fork(1.0), watched.fork(2.0)
    ends = [one.judged() for one in (longer, fork, watched, alone)]
    assert ends[1] == ends[2] == ends[3]
    assert torch.equal(weights(fork), weights(alone))
    assert torch.equal(weights(watched), weights(alone))
    assert not torch.equal(weights(longer), weights(alone))
    assert fork.losses == alone.losses
    assert longer.losses[:20] == alone.losses[:20] != longer.losses[20:]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_that_can_be_forked_is_that_of_the_table(optimizer):
    found = rows.train(classes(), plan(optimizer), Default(Size.fixed(0.1)))
    assert Training(classes(), plan(optimizer), 0.1).judged() == (found["error"], found["loss"])


def test_a_fork_takes_steps_that_are_its_factor_longer():
    start = Training(classes(), plan(), 0.1).run(20)
    forks = [start.fork(factor) for factor in (0.5, 1.0, 2.0)]
    lrs = [one.run(21).learned.history[-1] for one in forks]
    assert lrs == pytest.approx([lrs[1] / 2, lrs[1], 2 * lrs[1]], rel=1e-12)
    assert [one.scale for one in forks] == [0.5, 1.0, 2.0]
    assert forks[2].fork(0.5).scale == start.scale == 1.0


def line(curvature=1.0):
    """Down a slope to 0: the loss is curvature * w^2 / 2, and no batch has noise."""

    def loss(model, index):
        return curvature * model.weight.square().sum() / 2

    return Task(lambda: nn.Linear(4, 1, bias=False), loss, lambda model: (0.0, 0.0), 64)


@pytest.mark.parametrize(("optimizer", "m"), [*zip(OPTIMIZERS, (0.0, 0.9, 0.9, 0.9), strict=True)])
def test_momentum_is_taken_out_of_steps(optimizer, m):
    """u is -g of the step, up to its length."""
    task = line()
    one = Training(task, plan(optimizer, clip=None, weight_decay=0.0), 0.1, watches=True).run(5)
    watch = one.watch
    assert sensors.momentum(one.optimizer.param_groups[0]) == pytest.approx(m, abs=1e-6)
    before = watch.now - watch.step  # where g of the last step was
    wanted = before if optimizer in ("sgd", "momentum") else before.sign()
    assert sensors.cosine(-watch.fresh, wanted) > 0.95


def test_sensors_tell_short_steps_from_long_ones():
    """On a parabola a short step is followed by a gradient that points on, and one that jumps across by one that points back."""
    short, long = (Training(line(), plan(clip=None), 0.1, watches=True).run(2) for _ in range(2))
    for one, share in ((short, 0.1), (long, 1.9)):
        with torch.no_grad():
            weight = one.model.weight
            before = weight.clone()
            weight -= share * weight
            one.watch.now, one.watch.step = weight.flatten().clone(), -(share * before).flatten()
            one.watch.fresh = one.watch.step
    found = [sensors.sensed(one) for one in (short, long)]
    assert found[0]["turn of the mean"] == pytest.approx(1, abs=1e-5)
    assert found[1]["turn of the mean"] == pytest.approx(-1, abs=1e-5)
    assert found[0]["agreement"] == pytest.approx(0, abs=1e-5)
    assert found[1]["bend"] == pytest.approx(1.9 / 0.9, rel=1e-3)  # the step times the curvature, over the gradient
    assert found[1]["bend"] > 10 * found[0]["bend"] > 0


def test_noise_shows_in_the_agreement_of_batches():
    def loss(model, index):
        return model.weight.square().sum() / 2 + 3 * (model.weight * torch.randn(4)).sum()

    noisy = dataclasses.replace(line(), loss=loss)
    found = [
        sensors.sensed(Training(task, plan(clip=None), 0.1, watches=True).run(5))["agreement"]
        for task in (line(), noisy)
    ]
    assert found[0] == pytest.approx(0, abs=1e-5)
    assert found[1] < math.log(0.5)


def test_what_was_seen_before_shows_at_the_border_of_epochs():
    falls = [2.0] * 16 + [1.0] * 4
    assert sensors.jump(falls, plan(examples=64, batch=4)) == pytest.approx(math.log(2))
    assert sensors.jump([2.0] * 20, plan(examples=64, batch=4)) == 0.0
    assert sensors.jump(falls[:16], plan(examples=64, batch=4)) == 0.0


def test_a_row_has_every_mark_sensor_and_end(monkeypatch, tmp_path):
    facts = {"number": 7, "family": "noise", "size": 0.1}
    monkeypatch.setattr(fill, "drawn", lambda number, folder: (facts, classes(), plan()))
    row = json.loads(json.dumps(fill.fill_row(7, tmp_path)))
    assert set(row["marks"]) == {"0.02", "0.05", "0.2", "0.5"}
    for share, mark in row["marks"].items():
        assert mark["step"] == max(2, round(60 * float(share)))
        assert {"0.5", "2.0"} <= set(mark["ends"])
        assert all(math.isfinite(value) for value in mark["sensors"].values())
    assert tuple(row["end"]) == Training(classes(), plan(), 0.1).judged()


def test_a_training_that_blows_up_ends_nowhere(monkeypatch, tmp_path):
    facts = {"number": 7, "family": "noise", "size": 1e30}
    monkeypatch.setattr(fill, "drawn", lambda number, folder: (facts, line(1e6), plan(clip=None)))
    assert fill.fill_row(7, tmp_path)["end"] == (math.inf, math.inf)


def numbered(number, folder):
    if number == 2:
        raise ValueError("no")
    return {"number": number, "folder": str(folder)}


def test_rows_that_are_there_are_kept_and_others_added(tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text('{"number": 1, "old": true}\n')
    fill.fill(numbered, tmp_path, out, range(1, 4), 1, 60.0)
    found = {row["number"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert found[1] == {"number": 1, "old": True}
    assert found[2]["failed"] == "ValueError: no"
    assert found[3]["folder"] == str(tmp_path)
    assert fill._in_time(numbered, tmp_path, 0.0, 4) is None  # its time has passed


def test_the_base_follows_the_round_powers():
    row = {"steps": 500, "parameters": 10_000, "all_parameters": 10_000, "depth": 4, "matrices": 4}
    row |= {"batch": 32, "examples": 16_000, "optimizer": "sgd", "is_trained": False}
    assert training.size_of(row) == pytest.approx(0.124)
    assert training.size_of(row | {"optimizer": "adamw"}) == pytest.approx(0.124 * math.exp(0.567))
    assert training.size_of(row | {"depth": 8}) == pytest.approx(0.124 * 2**-1.2)


NAMES = ("turn", "bend", "level")


def table(wanted, families=8, each=12):
    """Rows with random facts and sensors; wanted(facts, sensors, family): > 0 where twice ends better than half."""
    random, made = np.random.default_rng(0), []
    for number in range(families * each):
        sensed = dict(zip(NAMES, random.normal(size=3).tolist(), strict=True))
        row = {"number": number, "family": "abcdefgh"[number % families], "seconds": 1.0, "end": [2.0, 2.0]}
        row |= {"steps": 500, "parameters": 10_000, "all_parameters": 10_000, "depth": 4, "matrices": 4}
        row |= {
            "examples": 16_000,
            "optimizer": "sgd",
            "is_trained": False,
            "clip": None,
            "batch": int(random.choice((8, 32, 128))),
        }
        marks = {}
        for share in fill.MARKS:
            twice = wanted(row, sensed) * 0.1
            ends = {"0.5": [2 * math.exp(twice), 0.0], "2.0": [2 * math.exp(-twice), 0.0]}
            ends |= {"1.01": [2.02, 0.0]} if share == 0.2 else {}
            marks[str(share)] = {"step": 9, "sensors": sensed, "ends": ends}
        made.append(row | {"marks": marks})
    return made


def test_a_fit_finds_the_sensor_that_tells_which_fork_is_better():
    found = fit.judged(fit.Table(table(lambda row, sensed: sensed["turn"]), 0.05))
    named = (
        "one sensor",
        "facts and sensors",
        "facts and sensors, smooth",
        "one sensor, direct",
        "facts and sensors, direct",
    )
    for name in named:
        for kind in ("coarse", "fine"):
            assert found["forms"][name][kind]["gap"][2] < -0.04
            assert found["forms"][name][kind]["beyond"][2] < -0.04
        assert found["forms"][name]["explained"] > 0.5
    assert abs(found["forms"]["facts"]["fine"]["gap"][0]) < 0.02
    assert found["hindsight"][0] <= found["forms"]["facts and sensors"]["coarse"]["gap"][0]
    assert found["sensors"]["turn"][1] > 0.8
    assert abs(found["sensors"]["bend"][0]) < 0.3


def test_where_both_forks_cost_a_sensor_can_still_say_how_far_to_go():
    """gap(s) = 0.1 s^2 - 0.1 s turn / 2: twice is never much better than to go on, and half way often is."""
    made = table(lambda row, sensed: 0.0)
    for row in made:
        for mark in row["marks"].values():
            b = -0.05 * max(-1, min(1, mark["sensors"]["turn"]))
            mark["ends"] |= {"0.5": [2 * math.exp(0.1 - b), 0.0], "2.0": [2 * math.exp(0.1 + b), 0.0]}
    for name in ("one sensor", "one sensor, direct"):
        found = fit.judged(fit.Table(made, 0.05))["forms"][name]
        assert found["coarse"]["intervenes"] < 0.05
        assert found["fine"]["gap"][2] < -0.002


def test_a_sensor_that_repeats_a_fact_adds_nothing_to_it():
    def by_batch(row, sensed):
        sensed["level"] = math.log(row["batch"] / 32)
        return sensed["level"]

    found = fit.judged(fit.Table(table(by_batch), 0.5))
    assert found["forms"]["facts"]["coarse"]["gap"][2] < -0.05
    assert abs(found["forms"]["facts and sensors"]["coarse"]["beyond"][0]) < 0.01
    assert found["sensors"]["level"][2] < 0.5


@pytest.mark.parametrize("name", ["one sensor", "facts and sensors", "facts and sensors, smooth", "one sensor, direct"])
def test_what_sensors_say_in_one_family_alone_is_no_gain(name):
    """Each family would want another answer to the same sensor, so a policy from others must not look good."""

    def by_family(row, sensed):
        return sensed["turn"] * (1 if row["family"] in "aceg" else -1)

    found = fit.judged(fit.Table(table(by_family), 0.05))["forms"][name]
    assert found["coarse"]["gap"][0] > -0.02


def test_a_gap_is_of_ends_and_one_that_is_nowhere_costs_the_most():
    row = table(lambda row, sensed: 0.0)[0]
    row["marks"]["0.2"]["ends"] = {"0.5": [4.0, 0.0], "2.0": [math.inf, 0.0], "1.01": [1.5, 0.0]}
    assert fit.gaps(row, 0.2) == pytest.approx({0.5: math.log(2), 2.0: 1.0, 1.01: math.log(0.75)})
    assert fit.chance([row]) == pytest.approx(
        {
            "mean": math.log(0.75),
            "mean size": -math.log(0.75),
            "deviation": 0.0,
            "hindsight": math.log(0.75),
        }
    )


def test_a_policy_does_not_know_the_family_that_it_steers(tmp_path):
    def without_a(row, sensed):
        return 1.0 if row["family"] == "a" else -1.0

    path = tmp_path / "table.jsonl.gz"
    made = table(without_a)
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, made)).encode()))
    for family, row in zip("ab", made, strict=False):
        for kind in ("coarse", "fine"):
            steer = policy.fitted(path, family)[f"facts | {kind}"]
            assert steer(0.05, row, row["marks"]["0.05"]["sensors"]) < 0.8
    at_once = policy.fitted(path, "a")["facts, direct | fine at 0.05"]
    assert [at_once(share, row, row["marks"]["0.05"]["sensors"]) < 0.8 for share in (0.02, 0.05, 0.5)] == [
        False,
        True,
        False,
    ]
    assert json.loads(json.dumps(fit.fits(made)))["families"] == 8


def test_policies_steer_within_bounds_and_share_what_they_agree_on():
    seen = []

    def longer(share, row, sensed):
        seen.append(share)
        return 2.0

    policies = {"none": lambda *_: 1.0, "half": lambda share, *_: policy.once(0.5, share, {}, {}), "longer": longer}
    policies |= {"again": policies["none"], "shorter": lambda *_: 0.3}
    start = Training(classes(), plan(), 0.1, watches=True)
    found = policy.steered(start, {}, policies)
    assert found["longer"]["scales"] == (2.0, 4.0, 4.0, 4.0)
    assert found["shorter"]["scales"] == (0.3, 0.25, 0.25, 0.25)
    assert found["half"]["scales"] == (0.5,) * 4
    assert found["again"] == found["none"]
    assert found["none"]["end"] == Training(classes(), plan(), 0.1).judged()
    half = Training(classes(), plan(), 0.1).run(2)
    half.rescale(0.5)
    assert found["half"]["end"] == half.judged()
    assert seen == list(fill.MARKS)


@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_one_matrix_has_the_same_training_under_its_own_ratio(optimizer):
    task = dataclasses.replace(classes(), build=lambda: nn.Sequential(nn.Linear(6, 2), nn.Dropout(0.1)))
    assert layers.train(task, plan(optimizer), 0.1, True) == layers.train(task, plan(optimizer), 0.1, False)
    assert layers.train(classes(), plan(optimizer), 0.1, True) != layers.train(classes(), plan(optimizer), 0.1, False)
    assert layers.train(classes(), plan(optimizer), 0.1, False) == Training(classes(), plan(optimizer), 0.1).judged()


def test_every_weight_has_one_ratio():
    model = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 2))
    model[2].requires_grad_(False)
    found = [id(weight) for part in layers.parts(model) for weight in part]
    assert sorted(found) == sorted(id(weight) for weight in model.parameters() if weight.requires_grad)
    assert [len(part) for part in layers.parts(model)] == [6, 2]


def test_what_ends_lower_is_a_negative_gap():
    ends = {"1.0": 2.0, "0.5": 4.0, "2.0": 1.0, "facts | fine": 1.0, "facts and sensors | fine": 0.5}
    row = {"family": "a", "policies": {name: {"scales": [2.0], "end": [end, 0.0]} for name, end in ends.items()}}
    found = judge.policies([row, row | {"family": "b"}])
    assert found["best constant"] == "2.0"
    assert found["policies"]["facts and sensors | fine"]["beyond facts"][0] < -0.5
    assert found["policies"]["facts and sensors | fine"]["to not intervening"][0] == -1.0  # as far as a gap counts
    assert found["policies"]["0.5"]["to not intervening"][0] > 0.5
    both = {
        "all": {"0.5": [3.0, 0], "1.0": [2.0, 0], "2.0": [4.0, 0]},
        "each": {key: [1.9, 0] for key in ("0.5", "1.0", "2.0")},
    }
    alike = {kind: dict.fromkeys(("0.5", "1.0", "2.0"), (1.0, 0)) for kind in ("all", "each")}
    made = [{"family": "a", "ends": both}, {"family": "b", "ends": alike}, {"family": "c", "ends": alike}]
    found = judge.layers([row | {"optimizer": "sgd" if row["family"] == "a" else "adam"} for row in made])
    assert found["each to all at r, by optimizer"]["sgd"][0] == pytest.approx(math.log(1.9 / 2))
    assert found["each to all at r, by optimizer"]["adam"][0] == 0.0
    assert found["each to all at r, without the family that gains most"] == [0.0, 0.0, 0.0]
    found = judge.layers([made[0] | {"optimizer": "sgd"}])
    assert found["each to all, same r"]["1.0"][0] == pytest.approx(math.log(1.9 / 2))
    assert found["each to all, best of three"][0] == pytest.approx(math.log(1.9 / 2))
    assert found["all to all at r"]["2.0"][0] == pytest.approx(math.log(2))
