"""Rivals that are implemented here, against their equations."""

import copy
import math

import pytest
import torch
from runs import CPU, tiny
from torch import nn
from torch.optim import SGD, AdamW

from mlrsnet_lab import optimizers
from mlrsnet_lab.optimizers.adam_h import AdamH, outside
from mlrsnet_lab.optimizers.mechanic import Mechanic
from mlrsnet_lab.optimizers.schedule_free_plus import ScheduleFreePlus
from mlrsnet_lab.stepper import Stepper


class Words(nn.Module):
    """An embedding, a matrix of one's own, a layer, and one that begins at 0."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.hidden, self.head = nn.Embedding(5, 3), nn.Linear(3, 4), nn.Linear(4, 5)
        self.places = nn.Parameter(torch.randn(2, 3))
        self.skip = nn.Linear(3, 5, bias=False)
        nn.init.zeros_(self.skip.weight)

    def forward(self, index):
        inside = self.tokens(index) + self.places
        return self.head(torch.tanh(self.hidden(inside))) + self.skip(inside)


def train(model, optimizer, steps=5):
    """Returns the losses."""
    generator, losses = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        index = torch.randint(5, (8, 2), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(index).flatten(0, 1), index.flatten())
        loss.backward()
        optimizer.step(*([lambda loss=loss: loss] if getattr(optimizer, "reads_loss", False) else []))
        losses.append(loss.item())
    return losses


def make(name, model, lr, **options):
    return optimizers.build(name, model, lr, 0.0, CPU, **options)


def test_adam_h_keeps_the_norm_of_a_matrix_and_takes_steps_of_its_size():
    model = Words()
    before = copy.deepcopy(model)
    train(model, make("adam-h", model, 0.1), 1)
    for name in ("hidden", "head"):
        old, new = (one.get_submodule(name).weight.double() for one in (before, model))
        assert new.norm().item() == pytest.approx(old.norm().item(), rel=1e-5)
        angle = math.acos(((old * new).sum() / (old.norm() * new.norm())).item())
        assert 0.05 < angle < 0.11  # its part along the weight is taken back


def test_adam_h_is_adam_for_embeddings_own_weights_vectors_and_matrices_that_begin_at_0():
    model, twin = Words(), Words()
    assert {id(weight) for weight in outside(model)} == {id(model.tokens.weight), id(model.places)}
    train(model, make("adam-h", model, 0.02), 1)
    train(twin, AdamW(twin.parameters(), lr=0.008, betas=(0.9, 0.98), weight_decay=0.0), 1)
    for (name, weight), expected in zip(model.named_parameters(), twin.parameters(), strict=True):
        same = torch.allclose(weight, expected, rtol=1e-4, atol=1e-6)
        assert same == (name not in ("hidden.weight", "head.weight")), name


def test_adam_h_learns_and_stays_finite_where_gradients_are_0():
    model = Words()
    losses = train(model, make("adam-h", model, 0.05), 60)
    assert losses[-1] < 0.5 * losses[0]
    weight = nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.zeros(2, 2)
    AdamH([weight]).step()
    assert torch.equal(weight, torch.ones(2, 2))


def test_schedule_free_plus_takes_polyaks_first_step_and_averages_after_the_warm_up():
    weight = nn.Parameter(torch.tensor([3.0, -4.0]))
    optimizer = ScheduleFreePlus([weight], warmup_steps=2)
    optimizer.train()
    x, zs = None, []
    for step in range(5):
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        gradient, before = weight.grad.clone(), weight.detach().clone()
        optimizer.step(lambda loss=loss: loss)
        state, group = optimizer.state[weight], optimizer.param_groups[0]
        if step == 0:
            gamma = 25 / (math.sqrt(math.pi / 2) * 14)
            assert group["d"] == pytest.approx(gamma)
            torch.testing.assert_close(weight.detach(), before - gamma * gradient.sign())
        zs.append((state["z"].clone(), group["largest"] ** 2))
        torch.testing.assert_close(weight.detach(), 0.9 * state["x"] + 0.1 * state["z"])
        x = state["x"]
    total = sum(part for _, part in zs[2:])
    torch.testing.assert_close(x, sum(part / total * z for z, part in zs[2:]))
    y = weight.detach().clone()
    optimizer.eval()
    assert torch.equal(weight, x)
    optimizer.train()
    assert torch.equal(weight, y)


def test_schedule_free_plus_asks_for_the_loss_and_for_the_weights_that_it_trains():
    weight = nn.Parameter(torch.ones(2))
    optimizer = ScheduleFreePlus([weight])
    with pytest.raises(ValueError, match="closure must return the loss, got None"):
        optimizer.step()
    optimizer.eval()
    with pytest.raises(RuntimeError, match="call train"):
        optimizer.step(lambda: weight.sum())


def test_the_loop_tells_schedule_free_plus_the_loss_of_every_step():
    alive, told = Stepper(tiny(optimizer="schedule-free-plus", schedule="fixed", lr=0.1), CPU), []
    polyak = alive.optimizer._polyak
    alive.optimizer._polyak = lambda loss: told.append(loss) or polyak(loss)
    for _ in range(4):
        alive.step()
    assert told == pytest.approx(alive.trace.read()[0])
    assert alive.method.lr() == pytest.approx(0.1 * alive.optimizer.param_groups[0]["d"])


@pytest.mark.parametrize("base", [lambda weights: SGD(weights, lr=1.0, momentum=0.9), lambda w: AdamW(w, lr=1.0)])
def test_mechanic_scales_what_its_optimizer_has_done_so_far(base):
    model = Words()
    start = [weight.detach().clone() for weight in model.parameters()]
    optimizer = Mechanic(base(model.parameters()))
    for _ in range(20):
        train(model, optimizer, 1)
        scale = optimizer.param_groups[0]["d"]
        for weight, first in zip(model.parameters(), start, strict=True):
            torch.testing.assert_close(weight.detach(), first + scale * optimizer.state[weight]["delta"])


def test_mechanics_scale_begins_near_s_init_and_finds_one_that_learns():
    model = Words()
    optimizer = make("mechanic-adam", model, 1.0, decouple=True)
    losses = train(model, optimizer, 1)
    assert optimizer.param_groups[0]["d"] == pytest.approx(1e-8)
    losses += train(model, optimizer, 400)
    assert losses[-1] < 0.5 * losses[0]
    assert 1e-4 < optimizer.param_groups[0]["d"] < 1


def test_mechanics_learner_follows_its_equations():
    """One weight under SGD, by hand."""
    weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = Mechanic(SGD([weight], lr=1.0), s_init=1e-2)
    betas = [1 - 10.0**-place for place in range(1, 7)]
    x, delta = 2.0, 0.0
    s, m, v, r = ([0.0] * 6 for _ in range(4))
    for _ in range(12):
        g = 2 * x
        h = delta * (g + 0.01 * sum(s) * abs(g) * x / (abs(x) + 1e-8))
        r = [
            max(0.0, b * old - one * min(max(h, -most), most)) for b, old, one, most in zip(betas, r, s, m, strict=True)
        ]
        m = [max(b * most, abs(h) + 1e-8) for b, most in zip(betas, m, strict=True)]
        v = [b * b * one + h * h for b, one in zip(betas, v, strict=True)]
        s = [(1e-2 * a / 6 + b) / (math.sqrt(c) + 1e-8) for a, b, c in zip(m, r, v, strict=True)]
        delta -= g
        x = 2.0 + sum(s) * delta
        weight.grad = 2 * weight.detach()
        optimizer.step()
        assert weight.item() == pytest.approx(x, rel=1e-6)
