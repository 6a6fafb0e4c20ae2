"""Other people's sweeps: mappings do what their docstrings say, and a fit finds what a made-up sweep was made with."""

import gzip
import math
from dataclasses import replace

import numpy as np
import pytest

from experiments import sweeps as tables
from lab.studies.sweeps import adamh, failures, fits, joint, lora, marin, opda, resnet, schaipp, steplaw, steps
from lab.studies.sweeps.cells import cell
from lab.studies.sweeps.deberta import Tuned
from mlrsnet.default import Default, Size
from mlrsnet.law import Facts

GRID = np.geomspace(1e-4, 1.0, 25)


def sweep(r, **known):
    """A cell whose loss is a parabola around r, in log r."""
    return cell(GRID.tolist(), (2 + 0.1 * np.log(GRID / r) ** 2).tolist(), **known)


@pytest.fixture
def sweeps():
    random = np.random.default_rng(1)
    found = []
    for family in range(12):
        size, tokens = 10 ** random.uniform(7, 9), 10 ** random.uniform(9, 11)
        for batch in (2**15, 2**17, 2**19):
            taken = tokens / batch
            r = 3.0 * taken**-0.1 * size**-0.25 * batch**0.15
            facts = {"steps": taken, "size": size, "batch": batch}
            found += [
                sweep(r, family=str(family), group="a", **facts),
                sweep(2 * r, family=str(family), group="b", **facts),
            ]
    return found


def test_a_fit_finds_the_powers_and_constants_that_a_sweep_was_made_with(sweeps):
    found = fits.exponents(sweeps, fits.FACTS)
    for fact, power in {"steps": -0.1, "size": -0.25, "batch": 0.15}.items():
        middle, low, high = found["powers"][fact]
        assert middle == pytest.approx(power, abs=1e-6)
        assert low - 1e-6 <= power <= high + 1e-6
    assert found["constants"] == pytest.approx({"a": 3.0, "b": 6.0}, rel=1e-5)
    assert found["left"] < 1e-6


def test_steps_look_like_the_batch_where_the_batch_is_not_told(sweeps):
    powers = fits.exponents(sweeps, ("steps", "size"))["powers"]
    assert -0.1 - 0.15 < powers["steps"][1] < powers["steps"][2] < -0.1


def test_the_form_that_a_sweep_was_made_with_is_chosen_and_costs_nothing(sweeps):
    chosen = fits.simplest(sweeps)
    assert chosen["best"] == chosen["simplest"] == ["steps", "size", "batch"]
    right = fits.judged(fits.Power("", fits.FACTS), sweeps)
    wrong = fits.judged(fits.ONE_SIZE, sweeps)
    assert right["regret"] < 0.002 < 0.01 < wrong["regret"]
    assert wrong["low"] < wrong["regret"] < wrong["high"]


def test_a_family_says_nothing_about_itself():
    odd = sweep(0.3, family="odd", group="a")
    others = [sweep(0.01, family=name, group="a") for name in "bcd"]
    assert fits.held_out(fits.ONE_SIZE, [odd, *others])[0] == pytest.approx(0.01, rel=1e-6)


def test_a_best_size_at_the_edge_is_not_fitted_but_judged():
    edge = cell([0.01, 0.02, 0.04], [1.0, 1.1, 1.2], family="edge", group="a")
    others = [sweep(0.04, family=name, group="a") for name in "bc"]
    assert fits.inside([edge, *others]) == others
    assert fits.judged(fits.ONE_SIZE, [edge, *others])["regret"] == pytest.approx(0.2 / 3, abs=1e-3)
    with pytest.raises(ValueError, match=r"got 1 without"):
        fits.ONE_SIZE.fitted([edge])


def test_the_law_of_a_cell_is_what_the_library_takes():
    facts = {"steps": 20_000.0, "size": 3e8, "batch": 256.0}
    told = Facts(100, 300_000_000, has_norms=True, is_adaptive=True, batch_size=256)
    assert sweep(0.01, **facts).law == pytest.approx(Size()(told, 20_000))
    adapters = Facts(100, 300_000_000, are_adapters=True, is_adaptive=True, batch_size=256)
    assert sweep(0.01, **facts, depth=1, has_norms=False).law == pytest.approx(Size()(adapters, 20_000))
    plain = Facts(8, 300_000_000, has_norms=False, batch_size=256)
    assert sweep(0.01, **facts, depth=8, has_norms=False, is_adaptive=False).law == pytest.approx(Size()(plain, 20_000))
    tuned = told._replace(is_trained=True)
    assert sweep(0.01, **facts, is_trained=True).law == pytest.approx(Default().begin(tuned).size * 40**-0.15)


def test_a_training_that_diverged_counts_as_the_cap_and_hides_no_other():
    found = cell([0.01, 0.02, 0.04, 0.08], [1.1, 1.0, 1.1, math.nan])
    assert found.best == pytest.approx(0.02)
    assert found.regret(0.08) == 1.0


def test_the_equilibrium_is_where_random_steps_and_decay_end_up():
    random, lr, decay = np.random.default_rng(0), 0.01, 0.1
    weights = np.zeros(2000)
    for _ in range(5000):
        weights += -lr * decay * weights + lr * random.choice((-1.0, 1.0), size=2000)
    relative = lr / np.sqrt(np.mean(weights**2))
    assert relative == pytest.approx(steps.at_equilibrium(lr, decay), rel=0.05)


def test_a_followed_length_agrees_with_random_steps_long_before_the_equilibrium():
    random, lr, decay, start, taken = np.random.default_rng(0), 0.002, 0.1, 0.02, 400
    shape = steps.cosine(0.1, 0.1)
    weights, total = start * random.choice((-1.0, 1.0), size=4000), 0.0
    for now in lr * shape:
        total += now / np.sqrt(np.mean(weights**2))
        weights += -now * decay * weights + now * random.choice((-1.0, 1.0), size=4000)
    r = total / taken / steps.mean_course()
    assert steps.followed(lr, decay, taken, shape, start) == pytest.approx(r, rel=0.03)


def test_sgd_and_adam_of_equal_steps_have_equal_relative_steps():
    length, gradient = 100.0, 3.0
    lr = 0.1 * (1 - resnet.MOMENTUM)
    same = 0.1 * gradient / math.sqrt(resnet.WEIGHTS)
    assert resnet.relative("sgd-m", lr, length, gradient) == pytest.approx(
        resnet.relative("adamw", same, length, gradient)
    )


def test_adapters_are_measured_as_the_library_measures_them():
    torch = pytest.importorskip("torch")
    from mlrsnet import sensors

    rank, size, out = 8, 48, 96
    a, b = torch.nn.Linear(size, rank, bias=False).weight, torch.zeros(out, rank)
    k = [sensors.count(one.shape) for one in (a, b)]
    lengths = torch.tensor([k[0] * sensors.shortest_length(a.shape), k[1] * sensors.shortest_length(b.shape)])
    moved = torch.tensor([k[0] * math.sqrt(a.numel()), k[1] * math.sqrt(b.numel())])
    x = float(sensors.relative_square(moved, lengths))
    assert lora.Model(((size, out),), 1).relative(0.01, rank) == pytest.approx(0.01 * math.sqrt(x), rel=1e-5)


def write(folder, name, rows):
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")


def test_cells_of_step_law_differ_in_the_lr_only(tmp_path):
    facts = {"params": 268304384, "width": 1024, "layers": 8, "tokens": 5e9, "steps": 19073}
    rows = [
        {**facts, "batch_sequences": batch, "lr": lr, "loss": 2 + math.log(lr / 0.002) ** 2}
        for batch in (64, 128)
        for lr in (0.001, 0.002, 0.004)
    ]
    write(tmp_path, "steplaw_dense", rows)
    found = steplaw.dense(tmp_path)
    assert [(one.batch, len(one.curve)) for one in found] == [(64, 3), (128, 3)]
    assert [one.best for one in found] == pytest.approx([math.sqrt(2 * 0.002 * 0.1)] * 2)
    assert len(fits.families(found)) == 1


def test_marins_cells_are_mapped_by_their_own_decay_and_need_one(tmp_path):
    facts = {"optimizer": "lion", "size": "130m", "chinchilla": 1, "train_batch_size": 128, "beta1": 0.9}
    rows = [
        {**facts, "learning_rate": lr, "weight_decay": decay, "changed": "x", "status": "ok", "loss": 3 + lr, "run": lr}
        for decay in (0.7, 0.0)
        for lr in (0.0005, 0.001, 0.002)
    ]
    write(tmp_path, "marin_optimizers", rows)
    (found,) = marin.optimizers(tmp_path)
    assert found.curve[-1][0] == pytest.approx(math.sqrt(2 * 0.002 * 0.7))
    assert found.steps == pytest.approx(130e6 * 20 / (128 * 4096))
    assert math.isnan(found.usual)


def test_adamhs_lr_is_a_relative_step_before_its_momentum():
    assert adamh.dense_reference()["r"] * adamh.CARRIES == pytest.approx(0.0063)


def test_sources_of_different_numbers_of_curves_find_the_powers_they_share(sweeps):
    few = [fits.regrouped(one, "few") for one in sweeps if one.group == "a"][::3]
    found = joint.fitted({"many": sweeps, "few": few}, fits.FACTS)
    assert found.powers == pytest.approx([-0.1, -0.25, 0.15], abs=1e-6)
    assert joint.regrets(joint.learned({"many": sweeps, "few": few}, "few", fits.FACTS), few).max() < 0.01


@pytest.fixture
def tuned():
    lrs = np.geomspace(1e-6, 9.9e-4, 300).tolist()
    return [
        Tuned("deberta-base", at, lr, 10_000.0, 32.0, 0.1, 0.9 if lr <= 1e-4 else 0.35) for at, lr in enumerate(lrs)
    ]


def test_the_bound_is_the_largest_lr_before_trainings_fail(tuned):
    assert failures.bound(failures.lrs(tuned), failures.failures(tuned)) == max(
        run.lr for run in tuned if run.lr <= 1e-4
    )
    by_lr = failures.by_lr(tuned)
    assert sum(part["failed 0.6"] for part in by_lr) == sum(run.lr > 1e-4 for run in tuned)


def test_rules_are_judged_by_the_failures_at_their_lrs(tuned):
    found = {one["rule"]: one for one in failures.judged(tuned, tuned)}
    new = found["the law, as if new"]
    assert new["lr"] > 1e-4
    assert new["fails"] == 1.0
    assert new["lost"] == pytest.approx(0.55)
    assert found["the law"]["fails"] == 0.0
    assert found["usual LR"]["fails"] == found["usual LR"]["lost"] == 0.0


def test_a_sealed_sweep_is_followed_under_its_own_schedules(tmp_path):
    facts = dict.fromkeys(schaipp.SAME, "x") | {"params": 124e6, "steps": 50_000, "warmup_steps": 300, "batch_size": 50}
    facts |= {"acc_steps": 4, "world_size": 1, "last_step": 50_000}
    falls = {"schedule": "wsd", "decay_type": "linear", "cooldown_fraction": 0.2, "cos_final_lr": ""}
    kinds = (
        falls,
        {**falls, "cooldown_fraction": 0},
        {"schedule": "cos", "cos_final_lr": 1e-7, "cooldown_fraction": ""},
    )
    rows = [
        {**facts, **kind, "lr": lr, "final_val_loss": 3 + math.log(lr / 0.001) ** 2}
        for kind in kinds
        for lr in (0.0005, 0.001, 0.002)
    ]
    write(tmp_path, "schaipp_llm_schedules", [{key: row.get(key, "") for key in rows[0]} for row in rows])
    wsd, cosine = schaipp.cells(tmp_path)
    assert (wsd.batch, len(wsd.curve), len(schaipp.cells(tmp_path, falls=False))) == (200, 3, 1)
    assert wsd.best / cosine.best == pytest.approx(0.9 / 0.5, rel=0.35)  # a plateau goes further at the same peak
    assert schaipp.cells(tmp_path, schaipp.equilibrium)[0].best == pytest.approx(math.sqrt(2 * 0.001 * 0.1), rel=1e-3)


def test_random_settings_tell_by_which_scale_of_the_law_they_were_best():
    random, network = np.random.default_rng(0), opda.NETWORKS["convnext"]
    runs = []
    for _ in range(400):
        one = opda.Training(network, 3e5, 256.0, 10 ** random.uniform(-2, 1), 10 ** random.uniform(-6, -3), 0.0, False)
        runs.append(replace(one, error=0.3 + 0.1 * math.log(one.r / one.law / 2) ** 2))
    found = opda.judged(runs)["rules"]
    assert found["the law"]["best scale"][0] == pytest.approx(2, rel=0.2)
    assert found["the law"]["cost"][0] == pytest.approx(0.1 * math.log(2) ** 2, rel=0.4)


def test_tables_of_small_trainings_name_every_law_and_form(monkeypatch):
    one = {"gap": [0.05, 0.04, 0.06], "worst tenth": 0.17, "more": [-0.02, -0.03, -0.01]}
    names = ("law", "law, untold", "best size", "best size and fall of 0.1 or 0.5")
    later = {"rows": 226, "before": one, "law": one}
    made = {
        "before": {**one, "more": None},
        "forms": {"one size": one},
        **dict.fromkeys(names, one),
        "later rows": later,
    }
    made |= {"larger": {"mean": {"before": 0.03, "law": 0.02, "best size": -0.01}, "rows": [{}] * 11}}
    del made["before"]["more"]
    monkeypatch.setattr(tables.results, "data", lambda path: made)
    assert [line.split(" | ")[0] for line in tables.table_rules()[2:]] == [
        f"| {name}"
        for name in (
            "the law before",
            "one size",
            "the default's law",
            "not told the batch",
            "the best size of each training",
            "best size and fall",
        )
    ]
    assert tables.table_later()[2:] == [
        "| the law before | 5.0 (4.0 to 6.0) | 17 | | 3.0 |",
        "| the default's law | 5.0 (4.0 to 6.0) | 17 | -2.0 (-3.0 to -1.0) | 2.0 |",
    ]
