"""The relative range in loops that change the gradients after the loss has come: fp16 and clipping."""

import copy

import pytest
import torch
from test_relative import PART, batches, lengths, model, relative_schedule
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR

STEPS = 6
MAKE = {
    "heavy-ball": lambda p, lr: SGD(p, lr=lr, momentum=0.9, weight_decay=0.01),
    "adamw": lambda p, lr: AdamW(p, lr=lr, weight_decay=0.1),
    "fused": lambda p, lr: SGD(p, lr=lr, momentum=0.9, fused=True),
}
SCALE = 2.0**16  # exact: scaled gradients have the same digits


class Loop:
    """A user's loop. `how`: what happens between the loss and the step."""

    def __init__(self, name, how, kind, **options):
        self.network, self.how = model(), how
        self.optimizer = MAKE[name](self.network.parameters(), kind(0.1))
        self.lr = LearnedLR(self.optimizer, relative_schedule(), total_steps=STEPS, **options)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, enabled="scaler" in how)

    def step(self, x, y):
        def closure():
            self.optimizer.zero_grad()
            loss = cross_entropy(self.network(x), y)
            self.scaler.scale(loss).backward()
            if self.how == "scaler, unscaled":
                self.scaler.unscale_(self.optimizer)
            if self.how == "clipped before":
                nn.utils.clip_grad_norm_(self.network.parameters(), 0.1)
            self.lr.step(loss)
            if "clipped after" in self.how:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.network.parameters(), 0.1)
            return loss

        if "closure" in self.how:
            self.optimizer.step(closure)
            return
        closure()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def run(self, steps=STEPS):
        used = []
        for x, y in batches(steps):
            self.step(x, y)
            used.append(float(self.lr.get_last_lr()[0]))
        return used, copy.deepcopy(self.network.state_dict())


SAME = {
    "plain": ["scaler", "scaler, unscaled", "closure"],
    "clipped before": ["clipped after", "scaler, clipped after", "closure, clipped after"],
}


def is_possible(name, how):
    """A fused optimizer takes gradients that are still scaled, so nobody can clip or unscale them before."""
    return name != "fused" or not ("clipped" in how or "unscaled" in how)


CASES = [(name, right, how) for right, ways in SAME.items() for how in ways for name in MAKE if is_possible(name, how)]


@pytest.mark.parametrize(("name", "right", "how"), CASES)
def test_scaled_and_clipped_gradients_train_as_plain_ones(name, right, how, kind):
    expected, weights = Loop(name, right, kind).run()
    used, found = Loop(name, how, kind).run()
    torch.testing.assert_close(torch.tensor(used), torch.tensor(expected), rtol=1e-6, atol=0)
    torch.testing.assert_close(found, weights, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("how", ["scaler", "clipped after"])
def test_each_step_moves_the_weights_by_a_part_of_their_length_all_the_same(how, kind):
    loop = Loop("adamw", how, kind)
    for batch in batches(STEPS):
        before = copy.deepcopy([p.detach() for p in loop.network.parameters()])
        loop.step(*batch)
        moved, length = lengths(loop.network, before)
        assert moved == pytest.approx(PART * length, rel=1e-3)


def test_limits_and_the_record_are_those_of_the_lr_that_was_used(kind):
    """The LR from scaled gradients is far below the limit; it must not be lifted to it, and scaled afterwards."""
    free, _ = Loop("adamw", "plain", kind).run()
    low = sorted(free)[2]
    expected, _ = Loop("adamw", "plain", kind, min_lr=low).run()
    loop = Loop("adamw", "scaler", kind, min_lr=low)
    used, _ = loop.run()
    torch.testing.assert_close(torch.tensor(used), torch.tensor(expected), rtol=1e-6, atol=0)
    assert loop.lr.state_dict()["history"].tolist() == pytest.approx(used)
    assert loop.lr.status()["lr"] == pytest.approx(used[-1])
    assert loop.lr.status()["step"] == STEPS


def test_a_step_that_the_scaler_skips_is_no_reason_to_worry(kind):
    """It begins with gradients that overflow, until its scale is small enough."""
    loop = Loop("adamw", "scaler", kind)
    loop.network.float()
    loop.scaler = torch.amp.GradScaler("cpu", init_scale=3e38)
    for x, y in batches(STEPS):
        loop.step(1000 * x.float(), y)  # a warning would be an error
    loop.lr.report_problems()
    assert loop.scaler.get_scale() < 2e38


def test_an_optimizer_that_steps_twice_for_one_loss_uses_one_lr(kind):
    loop = Loop("heavy-ball", "plain", kind)
    (x, y), (other, labels) = batches(2)
    loop.step(x, y)
    used = loop.lr.get_last_lr()
    cross_entropy(loop.network(100 * other), labels).backward()
    loop.optimizer.step()
    assert loop.lr.get_last_lr() == used


def test_a_run_without_an_end_is_measured_again_under_the_same_plan(kind):
    """At half of the plan it grows, between the loss and the step."""

    def run(how):
        loop = Loop("heavy-ball", how, kind)
        loop.lr = LearnedLR(loop.optimizer, "universal-relative", total_steps=None)
        loop.lr.engine.extend(16)
        used, _ = loop.run(10)
        assert loop.lr.total_steps > 16
        return used

    torch.testing.assert_close(torch.tensor(run("scaler")), torch.tensor(run("plain")), rtol=1e-6, atol=0)
