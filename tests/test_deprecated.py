"""Names of version 0.1 still work, and say what to use instead."""

import pytest
from engines import sgd

import mlrsnet
from mlrsnet import LearnedLR, LSTMNet, Schedule, pretrained


def old(message):
    return pytest.warns(DeprecationWarning, match=message)


def test_load_still_finds_names_and_passes_schedules_through():
    schedule = Schedule(LSTMNet(4))
    with old(r"mlrsnet\.load is now mlrsnet\.Schedule\.load"):
        assert mlrsnet.load(schedule) is schedule
    with old(r"mlrsnet\.load is now"):
        assert mlrsnet.load("universal").card.name == "universal"
    with old(r"mlrsnet\.pretrained\.load is now"):
        assert pretrained.load("universal").card.name == "universal"
    with old(r"mlrsnet\.pretrained\.available is now mlrsnet\.list_schedules"):
        assert list(sorted(pretrained.available())) == mlrsnet.list_schedules()


def test_check_still_returns_where_the_schedule_stands(paper):
    lr = LearnedLR(sgd(), paper, total_steps=9, num_classes=5)
    lr.step(1.6)
    with old(r"LearnedLR\.check\(\) is now report_problems\(\) and status\(\)"):
        assert lr.check() == lr.status()


def test_forget_still_drops_what_was_observed(paper):
    lr = LearnedLR(sgd(), paper, total_steps=9, num_classes=5)
    lr.observe(50.0)
    with old(r"LearnedLR\.forget\(\) is now discard\(\)"):
        lr.forget()
    lr.step(1.6)
    assert lr.status()["initial_loss"] == 1.6


def test_a_name_that_never_was_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'mlrsnet' has no attribute 'loads'"):
        _ = mlrsnet.loads
