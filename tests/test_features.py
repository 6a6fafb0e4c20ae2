import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mlrsnet import _features
from mlrsnet._numbers import DEVICE

steps = st.integers(0, 10**6)
horizons = st.integers(1, 10**6)


@given(steps, horizons)
def test_progress_stays_below_one_and_tensors_agree(step, total):
    value = _features.progress(step, total)
    assert 0 <= value < 1
    on_device = _features.progress(torch.tensor(step), torch.tensor(total))
    torch.testing.assert_close(on_device.item(), value, rtol=1e-6, atol=1e-7)


@given(steps, horizons, st.integers(1, 7))
def test_phases_are_equal_parts_in_order_and_the_last_holds(step, total, phases):
    index = _features.phase_index(step, total, phases)
    assert 0 <= index < phases
    assert _features.phase_index(step + 1, total, phases) - index in range(phases)
    if step < total:
        assert index * total <= phases * step < (index + 1) * total
    else:
        assert index == phases - 1


@given(steps, horizons, st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_new_end_goes_on_from_where_progress_is(step, total, length, later, again):
    planned = _features.Horizon(total)
    first = planned.annealed(step, length)
    second = first.annealed(step + later, again)
    for old, new, at, ahead in ((planned, first, step, length), (first, second, step + later, again)):
        before, after = _features.progress(at, *old), _features.progress(at, *new)
        assert after == pytest.approx(before, abs=1.2e-7)
        assert new.total_steps == at + ahead
        end = _features.progress(at + ahead - 1, *new)
        assert end == pytest.approx(before + (1 - before) * (ahead - 1) / ahead, abs=1.2e-7)
        assert end == _features.progress(at + ahead + 9, *new) < 1


@given(steps, horizons, st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 7))
def test_a_new_end_never_brings_a_phase_back_and_tensors_agree(step, total, length, later, phases):
    planned = _features.Horizon(total)
    line = planned.annealed(step, length)
    index = _features.phase_index(step, total, phases)
    assert _features.phase_index(step, line.total_steps, phases, begin=line.begin, start=line.start) in (
        index,
        index + 1,
    )
    at, on_device = step + later, [torch.tensor(number) for number in line]
    index = _features.phase_index(at, line.total_steps, phases, begin=line.begin, start=line.start)
    total_steps, begin, start = on_device
    assert _features.phase_index(torch.tensor(at), total_steps, phases, DEVICE, begin, start) == index
    value = _features.progress(torch.tensor(at), *on_device)
    assert value.item() == pytest.approx(_features.progress(at, *line), abs=2e-7)


def test_the_paper_switches_at_thirds():
    switches = [t for t in range(1, 300) if _features.phase_index(t, 300, 3) != _features.phase_index(t - 1, 300, 3)]
    assert switches == [100, 200]


def test_features_follow_the_order_of_their_names_and_cannot_overflow():
    x = _features.stack_features(("progress", "loss"), torch.tensor([1e30, -1e30, 2.0]), 0.5)
    assert x.tolist() == [[0.5, 1e4], [0.5, -1e4], [0.5, 2.0]]


def test_the_factor_is_never_exactly_zero():
    assert _features.anneal("none", torch.tensor(0.0), 0.0) > 0
    assert _features.anneal("linear", torch.tensor(1e-30), 0.5) > 0
