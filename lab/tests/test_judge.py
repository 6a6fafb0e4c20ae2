"""The judgement on new kinds of training: grids grow, nothing is run twice, decays come first, and tables add up."""

import gzip
import json
import math
from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch import nn

from experiments import judge
from lab.studies.judge import nets, run, train
from lab.studies.judge.methods import DECAYS, METHODS, TIMES
from lab.studies.judge.run import Job, next_multiples, wanted
from lab.studies.judge.task import Plan, task
from lab.studies.judge.tasks import TASKS, classes
from mlrsnet_lab import averaging

PLAN = Plan("sgdm", 0.01, steps=40, batch=8, examples=64)


def toy(plan=PLAN, build=lambda: nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))):
    """On which side of a line a point lies."""
    x = torch.randn(264, 2, generator=torch.Generator().manual_seed(0))
    return task(plan, build, classes, [x, (x.sum(1) > 0).long()], 100, 100)


def test_every_kind_of_the_list_is_trained():
    assert len(TASKS) == 13
    assert not any("," in name for name in (*TASKS, *METHODS))  # the command line splits there


@pytest.mark.filterwarnings(
    "ignore:invalid escape sequence"
)  # in a docstring of dog-optimizer, where nobody compiled it
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", ["sgdm", "adamw"])
def test_every_row_trains_and_judges_what_it_trained(method, optimizer):
    found = train.train(toy(replace(PLAN, optimizer=optimizer)), method, 1, 1.0 if method in DECAYS else None)
    assert found["test"] is not None
    assert math.isfinite(found["training_loss"])
    assert found["peak_lr"] > 0
    assert found["epochs"] == 5
    if method not in ("D-Adaptation", "L-DoG", "Prodigy", "Mechanic"):  # their estimates begin small
        assert found["training_loss"] < 0.7


def test_a_training_is_the_same_again_and_another_with_another_seed():
    first, again, other = ({**train.train(toy(), "cosine", seed, 3.0), "seconds": 0} for seed in (1, 1, 2))
    assert first == again != other


def test_a_training_that_diverges_is_kept_as_nothing():
    found = train.train(toy(), "linear", 1, 1e9)
    assert found["validation"] is found["test"] is None
    assert run.level(found) == (math.inf, math.inf)
    assert 0 < found["untrained"] < 1


def test_a_decay_begins_with_its_warm_up_and_peaks_at_its_multiple():
    assert train.train(toy(), "linear", 1, 3.0)["peak_lr"] == pytest.approx(0.03)
    driver = METHODS["cosine"](toy().build(), PLAN, 3.0)
    assert driver.optimizer.param_groups[0]["lr"] == pytest.approx(0.015)  # the first of two steps of warm-up


def test_averaged_weights_are_judged_with_batch_norms_that_fit_them():
    norms = lambda: nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))  # noqa: E731
    made = toy(replace(PLAN, steps=150), norms)
    found = train.train(made, "Schedule-Free", 1)
    assert found["test"] < 0.15
    with mock.patch.object(averaging, "BATCHES", 0):
        assert train.train(made, "Schedule-Free", 1)["test_loss"] > found["test_loss"]


def test_the_parts_are_disjoint_and_judging_leaves_the_random_numbers_alone():
    seen = []

    def cost(model, x):
        seen.append(x.flatten())
        return torch.rand(()), None

    made = task(replace(PLAN, examples=50), nn.Identity, cost, [torch.arange(100.0)[:, None]], 20, 30)
    made.loss(nn.Identity(), torch.arange(50))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert made.judge(nn.Identity(), "test") == made.judge(nn.Identity(), "test")
    made.judge(nn.Identity(), "validation")
    assert torch.equal(before, torch.get_rng_state())
    parts = [set(part.tolist()) for part in (seen[0], seen[1], seen[-1])]
    assert list(map(len, parts)) == [50, 30, 20]
    assert len(set.union(*parts)) == 100
    with pytest.raises(ValueError, match="at most 50"):
        task(replace(PLAN, examples=51), nn.Identity, cost, [torch.arange(100)], 20, 30)


@pytest.mark.parametrize("best", TIMES)
def test_a_grid_grows_until_its_best_is_inside_or_at_an_end(best):
    found = {}
    while more := next_multiples(found):
        found |= {times: (abs(math.log(times / best)), 0.0) for times in more}
    assert min(found, key=found.__getitem__) == best
    place = TIMES.index(best)
    assert set(TIMES[max(0, place - 1) : place + 2]) <= set(found)


def test_a_grid_whose_trainings_all_diverge_ends():
    found = {}
    while more := next_multiples(found):
        found |= dict.fromkeys(more, (math.inf, math.inf))
    assert min(found) == TIMES[0]


def line(job, error):
    numbers = {"validation": error, "validation_loss": error, "test": error, "test_loss": error, "untrained": 0.9}
    return {**job._asdict(), **numbers, "training_loss": 0.5, "epochs": 5.0}


def test_errors_that_differ_by_rounding_are_equal_and_losses_decide():
    better, worse = {"validation": 0.28 + 3e-9, "validation_loss": 0.9}, {"validation": 0.28, "validation_loss": 1.0}
    assert run.level(better) < run.level(worse) < run.level({"validation": 0.2825, "validation_loss": 0.8})
    assert run.level({"failed": "no"}) == (math.inf, math.inf)


def test_decays_come_first_and_only_the_best_of_each_has_more_seeds():
    assert [job.method for job in wanted({}, ["a"], ["default", "linear"])] == ["linear"] * 3 + ["default"] * 3
    jobs = [Job("a", "linear", times, 1) for times in (0.3, 1.0, 3.0)]
    done = {job: line(job, error) for job, error in zip(jobs, (0.3, 0.2, 0.4), strict=True)}
    assert wanted(done, ["a"], ["linear"]) == [Job("a", "linear", 1.0, seed) for seed in (2, 3)]


def test_what_is_done_is_not_run_again_and_a_line_that_was_cut_off_is(tmp_path, monkeypatch):
    class Pool:
        def __init__(self, *_):
            self.jobs = []

        def submit(self, work, job, *rest):
            future = run.Future()
            future.set_result({"failed": "ValueError: no"} if job.seed == 2 else line(job, 0.1))
            ran.append(job)
            return future

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda *_: None  # noqa: E731

    monkeypatch.setattr(run, "ProcessPoolExecutor", Pool)
    ran, out = [], tmp_path / "out.jsonl"
    for _ in range(2):
        run.run(tmp_path, out, ["a"], ["default"], workers=2, seconds=9, threads=1)
    assert [job.seed for job in ran] == [1, 2, 3]
    out.write_text(out.read_text()[:-20])
    run.run(tmp_path, out, ["a"], ["default"], workers=2, seconds=9, threads=1)
    assert [job.seed for job in ran] == [1, 2, 3, 3]
    assert len(run.read(out)) == 3


def test_a_training_that_fails_leaves_its_error():
    with mock.patch.object(run, "load", side_effect=OSError("no data")):
        assert run.perform(Job("graph", "linear", 1.0, 1), None, 1) == {"failed": "OSError: no data"}


def test_the_table_divides_seed_by_seed_and_counts_what_diverged(tmp_path):
    records = []
    for name, times in (("a", 1.0), ("b", 2.0)):
        for seed, base in ((1, 0.2), (2, 0.4)):
            records.append(line(Job(name, "linear", 1.0, seed), base))
            records.append(line(Job(name, "default", None, seed), base * times))
    records += [line(Job("a", "cosine", 3.0, 1), 0.01), {**records[1], "method": "Prodigy", "test": None}]
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    assert judge.tuned(records)["a"].name == "linear 1x"  # the cosine has fewer seeds
    found = judge.summary(judge.logs(records)["default"])
    assert (found.mean, found.worst) == (pytest.approx(math.sqrt(2)), pytest.approx(2))
    assert (found.within, found.tasks) == (1, 2)
    assert found.low == pytest.approx(1)
    assert found.high == pytest.approx(2)
    text = "\n".join(judge.table(path))
    assert "| 2.000 ± 0.000 |" in text
    assert "4.500†" in text


def test_a_decay_is_marked_by_its_losses_and_epochs():
    run_ = {"test_loss": 0.52, "training_loss": 0.5, "epochs": 5.0}
    marks = [{}, {"epochs": 2.0}, {"test_loss": 0.6, "epochs": 2.0}]
    found = [judge.Decay("linear", 1.0, {1: {**run_, **more}}).mark for more in marks]
    assert found == ["", "under-fitted", "over-fitting"]


@pytest.mark.parametrize(
    ("build", "inputs", "shape"),
    [
        (
            lambda: nets.GAT(5, 4, 2, 2, 0.0),
            (torch.rand(6, 5), torch.tensor([[0, 1, 2], [3, 4, 5]]).repeat(3, 1)),
            (6, 4),
        ),
        (lambda: nets.UNet(3, 8), (torch.rand(2, 3, 16, 16), torch.rand(2)), (2, 3, 16, 16)),
        (lambda: nets.doubler(3, 4), (torch.rand(2, 3, 8, 8),), (2, 3, 16, 16)),
        (lambda: nets.PointNet(4, 10), (torch.rand(3, 7, 2),), (3, 10)),
        (lambda: nets.convnext(3, 10, 8, 1), (torch.rand(2, 3, 16, 16),), (2, 10)),
        (lambda: nets.Fourier(4, 1.0, 8, 2, 3), (torch.rand(5, 2),), (5, 3)),
    ],
)
def test_every_weight_of_a_new_network_has_an_effect(build, inputs, shape):
    torch.manual_seed(0)
    model = build()
    with torch.no_grad():
        for weight in model.parameters():  # an end that begins at 0 would hide all before it
            weight.add_(0.1 * torch.randn_like(weight))
    found = model(*inputs)
    assert found.shape == shape
    found.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())


def test_the_default_that_is_told_more_takes_longer_steps_with_larger_batches():
    small, large = (train.train(toy(replace(PLAN, batch=batch)), "default told more", 1) for batch in (8, 32))
    plain = train.train(toy(replace(PLAN, batch=32)), "default", 1)
    assert small["peak_lr"] < large["peak_lr"] == pytest.approx(plain["peak_lr"], rel=1e-6)
