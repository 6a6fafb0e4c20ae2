"""How far a training is: the line of its progress, and its phases."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlrsnet.nets import MLPNet, predict
from mlrsnet.ops import DEVICE
from mlrsnet.plan import Plan


def on_device(plan):
    return Plan(*map(torch.tensor, plan))


steps = st.integers(0, 10**6)
horizons = st.integers(1, 10**6)


@given(steps, horizons)
def test_progress_stays_below_one_and_tensors_agree(step, total):
    plan = Plan.of(total)
    value = plan.progress(step)
    assert 0 <= value < 1
    there = on_device(plan).progress(torch.tensor(step), DEVICE)
    torch.testing.assert_close(there.item(), value, rtol=1e-6, atol=1e-7)


@given(steps, horizons, st.integers(1, 7))
def test_phases_are_equal_parts_in_order_and_the_last_holds(step, total, phases):
    plan = Plan.of(total)
    index = plan.phase(step, phases)
    assert 0 <= index < phases
    assert plan.phase(step + 1, phases) - index in range(phases)
    if step < total:
        assert index * total <= phases * step < (index + 1) * total
    else:
        assert index == phases - 1


@given(steps, horizons, st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_new_end_goes_on_from_where_progress_is(step, total, length, later, again):
    planned = Plan.of(total)
    first = planned.annealed(step, length)
    second = first.annealed(step + later, again)
    for old, new, at, ahead in ((planned, first, step, length), (first, second, step + later, again)):
        before = old.progress(at)
        assert new.progress(at) == pytest.approx(before, abs=1.2e-7)
        assert (new.total_steps, new.planned) == (at + ahead, total)
        end = new.progress(at + ahead - 1)
        assert end == pytest.approx(before + (1 - before) * (ahead - 1) / ahead, abs=1.2e-7)
        assert end == new.progress(at + ahead + 9) < 1


@given(steps, horizons, st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 7))
def test_a_new_end_never_brings_a_phase_back_and_tensors_agree(step, total, length, later, phases):
    planned = Plan.of(total)
    plan = planned.annealed(step, length)
    index = planned.phase(step, phases)
    assert plan.phase(step, phases) in (index, index + 1)
    at = step + later
    assert on_device(plan).phase(torch.tensor(at), phases, DEVICE) == plan.phase(at, phases)
    value = on_device(plan).progress(torch.tensor(at), DEVICE)
    assert value.item() == pytest.approx(plan.progress(at), abs=2e-7)


def test_the_paper_switches_at_thirds():
    plan = Plan.of(300)
    assert [t for t in range(1, 300) if plan.phase(t, 3) != plan.phase(t - 1, 3)] == plan.borders(3) == [100, 200]


@given(steps, st.integers(1, 400), st.integers(1, 400), st.integers(1, 7))
def test_the_borders_that_a_picture_shows_are_where_phases_change_also_after_a_new_end(step, total, length, phases):
    for plan in (Plan.of(total), Plan.of(total).annealed(step, length)):
        later = range(plan.begin + 1, plan.total_steps)
        changes = {t for t in later if plan.phase(t, phases) != plan.phase(t - 1, phases)}
        assert changes == set(plan.borders(phases)) - {plan.begin}


def test_features_follow_the_order_of_their_names_and_cannot_overflow():
    told = []
    net = MLPNet(2, inputs=("progress", "loss"))
    net.respond = lambda weights, features, memory, o: (told.append(features) or features[..., 0], memory)
    predict(net, torch.tensor([1e30, -1e30, 2.0]), 0.5, net.initial_state(3))
    assert told[0].tolist() == [[0.5, 1e4], [0.5, -1e4], [0.5, 2.0]]


@pytest.mark.parametrize("anneal", ["none", "linear"])
def test_the_factor_is_never_exactly_zero(anneal):
    net = MLPNet(2, anneal=anneal)
    for parameter in net.parameters():
        parameter.data.fill_(-1e6)
    assert predict(net, torch.tensor(1.0), 0.5, net.initial_state())[0] > 0
