"""Hand-designed schedules: torch's own in lockstep, the paper's settings at every length, and bounds."""

import inspect
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import SGD, lr_scheduler

from mlrsnet.baselines import HAND_DESIGNED, Time, factors

LR = 0.3


def lrs_of_torch(make, total, every=1, lr=LR):
    """What a torch scheduler gives each of `total` steps; it moves on after every `every` of them."""
    optimizer = SGD([torch.nn.Parameter(torch.ones(1))], lr=lr)
    scheduler, used = make(optimizer), []
    for step in range(total):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0:
            scheduler.step()
    return used


def assert_lockstep(name, total, make, per_epoch=1, every=1, **options):
    expected = lrs_of_torch(make, total, every)
    found = [LR * factor for factor in factors(name, total, per_epoch, **options)]
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("total", [1, 7, 200, 999])
def test_multistep_is_torchs(total):
    def make(optimizer):
        return lr_scheduler.MultiStepLR(optimizer, [round(part * total) for part in (0.3, 0.6, 0.9)], 0.1)

    assert_lockstep("multistep", total, make)


def test_multistep_with_milestones_of_ones_own_is_torchs():
    def make(optimizer):
        return lr_scheduler.MultiStepLR(optimizer, [20, 30, 30], 0.5)

    assert_lockstep("multistep", 40, make, milestones=[0.5, 0.75, 0.75], factor=0.5)


@pytest.mark.parametrize("per_epoch", [1, 7])
def test_exponential_is_torchs_stepped_once_an_epoch(per_epoch):
    def make(optimizer):
        return lr_scheduler.ExponentialLR(optimizer, 0.95)

    assert_lockstep("exponential", 210, make, per_epoch, every=per_epoch)


@pytest.mark.parametrize("end", [0.0, 0.01])
def test_cosine_is_torchs(end):
    def make(optimizer):
        return lr_scheduler.CosineAnnealingLR(optimizer, 123, eta_min=LR * end)

    assert_lockstep("cosine", 123, make, end=end)


@pytest.mark.parametrize("end", [0.0, 0.2])
def test_linear_is_torchs(end):
    def make(optimizer):
        return lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=end, total_iters=123)

    assert_lockstep("linear", 123, make, end=end)


@pytest.mark.parametrize(("total", "first", "growth"), [(210, 10, 2), (300, 15, 2), (80, 4, 1), (90, 3, 3)])
def test_sgdr_is_torchs_where_a_cycle_is_a_whole_number_of_steps(total, first, growth):
    """Torch knows whole cycles only; between them the formula below is tested."""

    def make(optimizer):
        return lr_scheduler.CosineAnnealingWarmRestarts(optimizer, first, growth, eta_min=LR * 1e-4)

    assert_lockstep("sgdr", total, make, first_cycle=first / total, growth=growth)


def test_sgdr_restarts_at_the_papers_epochs_whatever_the_length():
    """10 + 20 + 40 + 80 of 200 epochs; the last cycle is cut off."""
    for per_epoch in (1, 3, 10):
        used = factors("sgdr", 200 * per_epoch, per_epoch)
        tops = [step / per_epoch for step, factor in enumerate(used) if factor == pytest.approx(1, abs=1e-12)]
        assert tops == [0, 10, 30, 70, 150]


def test_sgdr_with_a_broken_cycle_follows_its_formula():
    total, cycle = 33, 33 * 0.05  # cycles of 1.65, 3.3, 6.6, ... steps
    starts = [0.0, 1.65, 4.95, 11.55, 24.75]
    for t, factor in enumerate(factors("sgdr", total, 1)):
        number = max(i for i, start in enumerate(starts) if start <= t)
        part = (t - starts[number]) / (cycle * 2**number)
        assert factor == pytest.approx(1e-4 + (1 - 1e-4) * (1 + math.cos(math.pi * part)) / 2)


@pytest.mark.parametrize(("total", "rise"), [(100, 0.3), (77, 0.25), (210, 0.5)])
def test_one_cycle_is_torchs_of_one_step_more(total, rise):
    """Torch ends at step T - 1 and turns one step before pct_start * T; here the end lies after the last step, as in the
    other schedules. So torch's for T + 1 steps, told to turn at the same one, is the same."""

    def make(optimizer):
        return lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=LR,
            total_steps=total + 1,
            pct_start=(rise * total + 1) / (total + 1),
            div_factor=25,
            final_div_factor=1e4,
            cycle_momentum=False,
        )

    assert_lockstep("one-cycle", total, make, rise=rise)


def test_fixed_is_fixed():
    assert factors("fixed", 5, 2) == [1.0] * 5


@pytest.mark.parametrize("total", [10, 200, 210, 1000, 78_200])
def test_milestones_stay_at_the_same_parts_of_training_when_it_gets_longer(total):
    used = factors("multistep", total, 10)
    drops = [step for step in range(1, total) if used[step] < used[step - 1]]
    assert drops == [total * 3 // 10, total * 6 // 10, total * 9 // 10]
    assert sorted({round(factor, 6) for factor in used}) == [0.001, 0.01, 0.1, 1.0]


@pytest.mark.parametrize("name", HAND_DESIGNED)
def test_a_warm_up_is_a_straight_line_and_then_the_schedule_over_what_is_left(name):
    used = factors(name, 200, 10, warmup=0.1)
    assert used[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])
    assert used[20:] == factors(name, 180, 10)


@pytest.mark.parametrize("warmup", [-0.1, 1, 1.0, 20, math.nan, math.inf, "0.1", True, None, [0.1]])
def test_a_warm_up_that_is_no_part_of_the_training_is_refused(warmup):
    with pytest.raises(ValueError, match="warmup must be"):
        factors("cosine", 10, 1, warmup=warmup)


@pytest.mark.parametrize("value", [0, -0.1, 30, math.nan, "0.3", True])
@pytest.mark.parametrize(
    ("name", "option", "told"),
    [
        ("sgdr", "first_cycle", "first_cycle"),
        ("one-cycle", "rise", "rise"),
        ("multistep", "milestones", "each of milestones"),
    ],
)
def test_epochs_where_a_part_of_the_training_is_meant_are_refused(name, option, told, value):
    with pytest.raises(ValueError, match=f"{told} must be"):
        factors(name, 10, 1, **{option: [0.5, value] if option == "milestones" else value})


def test_an_unknown_schedule_is_told_the_known_ones():
    with pytest.raises(
        ValueError, match=r"schedule must be one of fixed, multistep, exponential, sgdr, .*; got 'cosin'"
    ):
        factors("cosin", 10, 1)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        (name, option)
        for name, schedule in HAND_DESIGNED.items()
        for option in inspect.signature(schedule).parameters
        if option in ("end", "start", "factor")
    ],
)
def test_a_share_of_the_lr_that_is_no_number_is_named(name, option):
    told = f"{option} must be a finite number, got 'x': a share of the initial LR"
    with pytest.raises(ValueError, match=told):
        factors(name, 10, 1, **{option: "x"})
    with pytest.raises(ValueError, match=told):
        HAND_DESIGNED[name](Time(0, 10, 1), **{option: "x"})


def test_an_option_that_a_schedule_does_not_have_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'end'"):
        factors("fixed", 10, 1, end="x")


@pytest.mark.parametrize("growth", [0, 0.5, -1])
def test_cycles_that_shrink_are_refused_instead_of_computed_for_ever(growth):
    with pytest.raises(ValueError, match="growth must be a whole number >= 1"):
        factors("sgdr", 100, 1, growth=growth)


@given(
    st.sampled_from(list(HAND_DESIGNED)),
    st.integers(1, 500),
    st.integers(1, 50),
    st.floats(0, 1, exclude_max=True, allow_subnormal=False),
)
def test_every_step_has_an_lr_above_0_and_none_above_the_initial_one(name, total, per_epoch, warmup):
    used = factors(name, total, per_epoch, warmup=warmup)
    assert len(used) == total
    assert all(0 < factor <= 1 for factor in used)


@given(
    st.integers(1, 300),
    st.floats(0.001, 1),
    st.integers(1, 5),
    st.floats(0, 1, allow_subnormal=False),
    st.floats(0.001, 1),
)
def test_settings_of_ones_own_leave_no_hole_in_a_schedule(total, first_cycle, growth, end, rise):
    for used in (
        factors("sgdr", total, 1, first_cycle=first_cycle, growth=growth, end=end),
        factors("cosine", total, 1, end=end),
        factors("linear", total, 1, end=end),
        factors("one-cycle", total, 1, rise=rise, end=end),
    ):
        assert len(used) == total
        assert all(0 <= factor <= 1 + 1e-12 for factor in used)
