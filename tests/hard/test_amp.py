"""Mixed precision: what a GradScaler skips is no step."""

import warnings

import pytest
import torch
from loops import loss_of, lrs_of, network, train, weights_of
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR

STEPS = 20
MAKE = {
    "sgd": lambda p, lr, fused: SGD(p, lr=lr, fused=fused),
    "momentum": lambda p, lr, fused: SGD(p, lr=lr, momentum=0.9, fused=fused),
    "adamw": lambda p, lr, fused: AdamW(p, lr=lr, fused=fused),
}


def scaled(model, optimizer, lr=None, bad=(), steps=STEPS, scale=2.0**10, clips=False):
    """The loop of torch's manual; at the steps in `bad` a gradient overflows. The LRs of the steps that were taken."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=5)
    used = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        scaler.scale(loss).backward()
        if step in bad:
            model[0].weight.grad[0, 0] = float("inf")
        if clips:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if lr is not None:
            lr.step(loss)
        before = weights_of(model)
        scaler.step(optimizer)
        scaler.update()
        was_taken = not torch.equal(weights_of(model), before)
        assert was_taken == (step not in bad)
        if was_taken:
            used.append(lrs_of(optimizer)[0])
    return used


def training(make, kind, fused, dtype=torch.float32, **options):
    model = network(dtype)
    optimizer = make(model.parameters(), kind(), fused)
    return model, optimizer, LearnedLR(optimizer, total_steps=STEPS, **options)


@pytest.mark.parametrize("bad", [(), (0, 1, 2), (7,), (3, 4, 11, 19)], ids=str)
@pytest.mark.parametrize("fused", [False, True], ids=["unfused", "fused"])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_a_skipped_step_does_not_count(make, fused, bad, kind):
    """A schedule that counts it falls too early, by as many steps as were skipped."""
    if 0 in bad and fused and make is MAKE["momentum"]:
        pytest.skip("torch itself leaves momentum buffers without numbers where the first fused step is skipped")
    model, optimizer, lr = training(make, kind, fused)
    used = scaled(model, optimizer, bad=bad)
    assert lr.status()["step"] == len(used) == STEPS - len(bad)
    assert lr.history == pytest.approx(used, rel=1e-6)


@pytest.mark.parametrize("clips", [False, True], ids=["as it is", "clipped"])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_a_training_with_skipped_steps_is_the_same_fused_and_unfused(make, clips, kind):
    """What was measured before a skipped step is not forgotten; the gradients are divided by their scale."""
    runs = []
    for fused in (False, True):
        model, optimizer, lr = training(make, kind, fused, torch.float64)
        bad = (6, 7, 13) if make is MAKE["momentum"] else (0, 1, 6, 7, 13)  # see above
        runs.append((scaled(model, optimizer, lr, bad=bad, clips=clips), lr.status()))
    (used, seen), (expected, known) = runs
    assert used == pytest.approx(expected, rel=1e-5)
    assert seen["level"] == pytest.approx(known["level"], rel=1e-6)


@pytest.mark.parametrize("fused", [False, True], ids=["unfused", "fused"])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_the_scale_of_the_gradients_changes_nothing(make, fused, kind):
    model, optimizer, lr = training(make, kind, fused, torch.float64)
    plain, other, beside = training(make, kind, fused, torch.float64)
    used = scaled(model, optimizer, lr, scale=2.0**16)
    assert used == pytest.approx([one for (one,) in train(plain, other, STEPS, lr=beside)], rel=1e-6)


@pytest.mark.parametrize("fused", [False, True], ids=["unfused", "fused"])
def test_the_loss_of_a_skipped_step_is_not_read(fused, paper, kind):
    """A network's memory would go wrong by it."""
    runs = []
    for bad in ((), (4, 9)):
        model = network()
        optimizer = SGD(model.parameters(), lr=kind(), fused=fused)
        lr = LearnedLR(optimizer, paper, total_steps=STEPS, num_classes=5)
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=100, backoff_factor=0.5)
        used = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            scaler.scale(loss).backward()
            if step in bad:
                model[0].weight.grad[0, 0] = float("inf")
                lr.step(50.0)
            else:
                lr.step(1.5 / (1 + len(used)))
            scaler.step(optimizer)
            scaler.update()
            if step not in bad:
                used.append(lrs_of(optimizer)[0])
        runs.append(used)
    assert runs[1] == pytest.approx(runs[0][: STEPS - 2], rel=1e-6)


def test_autocast_in_bfloat16_needs_nothing(kind):
    model = network()
    optimizer = AdamW(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(model, step)
            loss.backward()
            lr.step(loss)
            optimizer.step()
    assert lr.last_epoch == STEPS
    assert 0 < lr.status()["level"] < 2


@pytest.mark.parametrize("fused", [False, True], ids=["unfused", "fused"])
def test_a_state_saved_after_a_skipped_step_goes_on(fused, kind):
    runs = []
    for saves in (False, True):
        model, optimizer, lr = training(MAKE["adamw"], kind, fused, torch.float64)
        used = scaled(model, optimizer, lr, bad=(4, 5), steps=6)
        if saves:
            states = [one.state_dict() for one in (model, optimizer, lr)]
            model, optimizer, lr = training(MAKE["adamw"], kind, fused, torch.float64)
            for one, state in zip((model, optimizer, lr), states, strict=True):
                one.load_state_dict(state)
        runs.append(used + scaled(model, optimizer, lr, steps=8))
    assert runs[0] == runs[1]
