"""Whole scripts, as users write them: does the default end at least as well as a cosine with warm-up at the usual LR?

Each script trains the same networks on the same data under both. On another CPU the same seeds give other numbers, as other seeds
would. So what counts as noise comes from the records of `python -m tools.walks`, which have more seeds. Where they show that
the default is worse, it must not become worse than that.
"""

import pytest
import torch

from experiments import walks
from experiments.walks import COSINE, LEARNED, UNTOUCHED, Comparison
from tools.walks import load

SEEDS = {
    "accelerate_adamw_classification": 5,
    "lightning_adamw_classification": 5,
    "lightning_sgd_fine_tuning": 5,
    "plain_adamw_fine_tuning": 5,
    "plain_adamw_language": 2,
    "plain_adamw_more_of_the_same": 10,
    "plain_adamw_table": 50,
    "plain_adamw_unscaled_targets": 5,
    "plain_muon_language": 2,
    "plain_sgd_classification": 8,
    "plain_sgd_language": 2,
    "plain_sgd_regression": 10,
    "transformers_adamw_fine_tuning": 3,
    "transformers_adamw_language": 2,
}
"""Trainings of each; more where they vary more."""

OFTEN = ("plain_adamw_language", "plain_adamw_table", "plain_sgd_classification")
"""The rest are run every night."""

RARELY = sorted(set(SEEDS) - set(OFTEN))

SURE, SMALL = 4.0, 0.02
"""Noise is so many standard errors, and no less than 2 %, for which nobody would change a schedule."""


def noise(found: Comparison, seeds: int) -> float:
    """By how much a ratio may differ from the true one."""
    return max(SMALL, SURE * found.spread / seeds**0.5)


def train(walk, schedule, seeds):
    return [walk.train(schedule, seed) for seed in range(seeds)]


def test_no_script_of_the_folder_is_left_out():
    assert walks.names() == sorted(SEEDS)


@pytest.mark.parametrize("name", [*OFTEN, *(pytest.param(name, marks=pytest.mark.nightly) for name in RARELY)])
def test_the_default_ends_as_well_as_a_cosine_at_the_usual_lr(name):
    if "muon" in name and not hasattr(torch.optim, "Muon"):
        pytest.skip("this torch has no Muon")
    walk, seeds, recorded = load(name), SEEDS[name], walks.record(name)
    found = Comparison(train(walk, LEARNED, seeds), train(walk, COSINE, seeds))
    before = Comparison(recorded[LEARNED], recorded[COSINE])
    allowed = (before.ratio if name in walks.WORSE else 1) + noise(before, seeds)
    assert found.ratio <= allowed, f"{found}: {found.ratio:.3f} times the cosine, allowed is {allowed:.3f}"


def test_fine_tuning_on_more_of_the_same_does_not_lose_what_the_network_knew():
    name, seeds = "plain_adamw_more_of_the_same", 10
    walk, recorded = load(name), walks.record(name)
    found = Comparison(train(walk, LEARNED, seeds), [walk.untouched(seed) for seed in range(seeds)])
    assert found.ratio <= 1 + noise(Comparison(recorded[LEARNED], recorded[UNTOUCHED]), seeds), found


@pytest.mark.parametrize("name", SEEDS)
def test_noise_is_no_excuse_for_a_schedule_that_ends_a_third_worse(name):
    """If this fails, the walk needs more seeds: a test that cannot fail tells nothing."""
    recorded = walks.record(name)
    assert noise(Comparison(recorded[LEARNED], recorded[COSINE]), SEEDS[name]) < 1 / 3


def test_where_the_default_is_worse_is_not_kept_quiet():
    """By more than three standard errors, in the records, beyond what nobody would care about."""

    def is_worse(recorded):
        found = Comparison(recorded[LEARNED], recorded[COSINE])
        return found.ratio > 1 + max(SMALL, 3 * found.standard_error)

    assert [name for name in walks.names() if is_worse(walks.record(name))] == list(walks.WORSE)
