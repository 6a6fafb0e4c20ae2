"""What `step(loss)` means: the loss of the optimizer step that follows."""

import math

import pytest
import torch
from loops import backward, lrs_of, network, train
from torch.optim import SGD

from mlrsnet import LearnedLR

STEPS = 9
LOSSES = [1.6, 1.5, 1.3, 1.4, 1.0, 0.9, 1.1, 0.7, 0.6]


def start(schedule, kind, **options):
    model = network()
    optimizer = SGD(model.parameters(), lr=kind())
    return model, optimizer, LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5, **options)


def take(model, optimizer):
    """One optimizer step; its LR."""
    optimizer.zero_grad()
    backward(model, 0)
    optimizer.step()
    return lrs_of(optimizer)[0]


def told(schedule, kind, losses=LOSSES):
    """The LRs of a run in which every loss is told right before its step; None for a step without one."""
    model, optimizer, lr = start(schedule, kind)
    used = []
    for loss in losses:
        if loss is not None:
            lr.step(loss)
        used.append(take(model, optimizer))
    return used


def test_a_loss_told_after_the_step_counts_for_the_next(kind):
    """As in loops that call `scheduler.step(loss)` last: no loss is lost, and none is read twice."""
    model, optimizer, lr = start("universal", kind)
    used = []
    for loss in LOSSES:
        used.append(take(model, optimizer))
        lr.step(loss)
    assert used == told("universal", kind, [None, *LOSSES[:-1]])


def test_the_default_goes_on_where_no_loss_is_told(kind):
    model, optimizer, lr = start("universal", kind)
    plain, other, _ = start("universal", kind)
    used = [take(model, optimizer) for _ in range(STEPS)]
    assert used == [take(plain, other) for _ in range(STEPS)]
    assert all(0 < one < math.inf for one in used)
    assert lr.status()["level"] == 1
    assert used != told("universal", kind)


def test_losses_may_be_told_now_and_then(kind):
    some = [loss if step % 3 else None for step, loss in enumerate(LOSSES)]
    used = told("universal", kind, some)
    assert all(0 < one < math.inf for one in used)


def test_a_network_says_at_every_step_that_it_needs_a_loss(paper, kind):
    model, optimizer, lr = start(paper, kind)
    backward(model, 0)
    before = [weight.clone() for weight in model.parameters()]
    for _ in range(2):
        with pytest.raises(
            RuntimeError,
            match=r"no loss was told since the last optimizer step: call step\(loss\) before optimizer.step",
        ):
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert lr.last_epoch == 0
    lr.step(LOSSES[0])
    assert take(model, optimizer) == told(paper, kind)[0]
    with pytest.raises(RuntimeError, match="no loss was told"):
        optimizer.step()


def test_a_network_reads_the_mean_of_the_micro_batches(paper, kind):
    model, optimizer, lr = start(paper, kind)
    used = []
    for loss in LOSSES:
        lr.observe(loss - 0.25)
        lr.observe(torch.tensor(loss + 0.25))
        lr.step(torch.tensor(loss))
        lr.step()
        used.append(take(model, optimizer))
    assert used == pytest.approx(told(paper, kind), rel=1e-6)


@pytest.mark.parametrize("closes", [True, False], ids=["step()", "only observe"])
def test_losses_that_were_observed_count_for_the_step_that_follows(paper, closes, kind):
    model, optimizer, lr = start(paper, kind)
    used = []
    for loss in LOSSES:
        lr.observe(loss)
        if closes:
            lr.step()
        used.append(take(model, optimizer))
    assert used == told(paper, kind)


@pytest.mark.parametrize("told_as", [torch.tensor, float], ids=["tensor", "number"])
def test_the_same_loss_told_once_for_each_process_is_one_loss(told_as, paper, kind):
    """Accelerate calls `step` as often as there are processes, with the same arguments."""
    model, optimizer, lr = start(paper, kind)
    used = []
    for loss in LOSSES:
        lr.observe(loss + 0.5)
        batch = told_as(loss - 0.5)
        for _ in range(4):
            lr.step(batch)
        used.append(take(model, optimizer))
    assert used == pytest.approx(told(paper, kind), rel=1e-6)


def test_one_tensor_for_the_losses_of_all_steps_is_read_at_every_step(paper, kind):
    model, optimizer, lr = start(paper, kind)
    batch, used = torch.tensor(0.0), []
    for loss in LOSSES:
        batch.fill_(loss)
        lr.step(batch)
        used.append(take(model, optimizer))
    assert used == pytest.approx(told(paper, kind), rel=1e-6)


@pytest.mark.filterwarnings("ignore:a loss was not finite")
def test_a_loss_that_is_not_finite_holds_a_network_where_it_is(paper, kind):
    model, optimizer, lr = start(paper, kind)
    used = []
    for loss in [*LOSSES[:4], math.nan, *LOSSES[4:-1]]:
        lr.step(loss)
        used.append(take(model, optimizer))
    assert used[4] == used[3]
    assert lr.status()["nonfinite"] == 1
    assert [*used[:4], *used[5:]] == pytest.approx(told(paper, kind)[:-1], rel=1e-6)
    assert lr.last_epoch == STEPS


def test_on_nonfinite_raise_stops_before_the_step(kind):
    model, optimizer, lr = start("universal", kind, on_nonfinite="raise")
    with pytest.raises(FloatingPointError, match="loss must be finite with on_nonfinite='raise', got nan"):
        lr.step(math.nan)
    train(model, optimizer, 1, lr=lr)
    assert lr.status()["nonfinite"] == 0
