"""Kinds of small trainings: drawn the same every time, and every family trains."""

from dataclasses import replace

import pytest
import torch

from mlrsnet_lab import kinds, universal
from mlrsnet_lab.horizon.fitness import find_fitness
from mlrsnet_lab.horizon.policies import Factors
from mlrsnet_lab.horizon.population import Population
from mlrsnet_lab.horizon.training import Training
from mlrsnet_lab.kinds import FAMILIES, draw, network_of


def test_a_number_always_draws_the_same_training():
    assert draw(17) == draw(17)
    assert draw(17) != draw(17 + len(FAMILIES))
    assert [draw(number).family for number in range(len(FAMILIES))] == list(FAMILIES)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("lstm", "transformer")])
def test_every_family_of_pictures_trains(family, monkeypatch, tmp_path):
    digits = next(source for source in universal.TRAINING if source.name == "digits")
    monkeypatch.setattr(kinds, "PICTURES", (digits,))
    kind = replace(draw(5, horizons=(6, 12), families=(family,)), train_size=200, batch_size=16)
    task, policy = kind.task(tmp_path), Factors(torch.full((1,), 0.01), 12)
    policy.configure(torch.ones(12))
    trained = Training(Population(task, 1, 1, policy), [task], find_fitness("loss")).run()
    assert torch.isfinite(trained.losses).all()
    assert torch.isfinite(trained.fitness).all()


@pytest.mark.parametrize("network", [{"kind": "lstm", "width": 8}, {"kind": "transformer", "width": 8, "init": "gpt2"}])
def test_text_networks_are_built_with_their_initialisation(network):
    text = universal.Data(torch.zeros(8, 24).long(), torch.zeros(8, 24).long(), 30)
    model = network_of(network)(text)
    assert model(text.inputs).shape == (8, 24, 30)
    if network.get("init") == "gpt2":
        assert model.tokens.weight.std().item() == pytest.approx(0.02, rel=0.2)
