"""LRs that others changed: 0 stands, since distributed checkpoints step at it; any other is set again, with a warning."""

import pytest
import torch
from loops import backward, lrs_of, network, train, weights_of
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

from mlrsnet import LearnedLR

STEPS = 12


def two_groups(kind, make=AdamW):
    model = network()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": kind(0.05)}]
    return model, make(groups, lr=kind(0.1))


@pytest.mark.parametrize("make", [SGD, AdamW])
def test_a_distributed_checkpoint_before_the_first_step_changes_nothing(kind, make):
    """torch makes the optimizer's state by a step at an LR of 0: it must not train, count or be measured."""
    model, optimizer = two_groups(kind, make)
    plain, other = two_groups(kind, make)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(other, total_steps=STEPS)
    before = weights_of(model)
    saved = get_optimizer_state_dict(model, optimizer)
    assert lr.last_epoch == lr.status()["step"] == 0
    assert torch.equal(weights_of(model), before)
    assert lrs_of(optimizer) == pytest.approx([0.1, 0.05])
    set_optimizer_state_dict(model, optimizer, saved)
    assert lr.last_epoch == 0
    # the state of AdamW has counted a step at 0: its bias correction differs, as it does without LearnedLR
    used, expected = train(model, optimizer, STEPS), train(plain, other, STEPS)
    assert used == expected if make is SGD else used[0] == expected[0]
    assert lr.last_epoch == STEPS


@pytest.mark.parametrize("steps", [0, 5])
def test_a_training_goes_on_from_a_distributed_checkpoint(kind, steps, tmp_path):
    model, optimizer = two_groups(kind)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    train(model, optimizer, steps, lr=lr)
    saved = {
        "optimizer": get_optimizer_state_dict(model, optimizer),
        "lr": lr.state_dict(),
        "model": model.state_dict(),
    }
    torch.save(saved, tmp_path / "state.pt")
    other, fresh = two_groups(kind)
    resumed = LearnedLR(fresh, total_steps=STEPS)
    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    other.load_state_dict(loaded["model"])
    set_optimizer_state_dict(other, fresh, loaded["optimizer"])
    resumed.load_state_dict(loaded["lr"])
    left = STEPS - steps
    assert train(other, fresh, left, steps, resumed) == train(model, optimizer, left, steps, lr)
    assert torch.equal(weights_of(other), weights_of(model))


def change(now, before):
    return float((now - before).detach().norm() / before.detach().norm())


def test_a_group_that_someone_set_to_0_stands_still_and_the_others_go_on(kind):
    model, optimizer = two_groups(kind)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    train(model, optimizer, 2)
    kept = optimizer.param_groups[1]["lr"]
    optimizer.param_groups[1]["lr"] = 0.0
    still, moving = model[2].weight.clone(), model[0].weight.clone()
    used = train(model, optimizer, 3, begin=2)
    assert all(first > 0 and second == 0 for first, second in used)
    assert torch.equal(model[2].weight, still)
    assert not torch.equal(model[0].weight, moving)
    assert lr.last_epoch == 5
    step_length = lr.status()["step_length"]
    assert step_length == pytest.approx(change(model[0].weight, moving) / 3, rel=0.5)  # of the weights that moved alone
    optimizer.param_groups[1]["lr"] = kept
    assert all(second == pytest.approx(first / 2) for first, second in train(model, optimizer, 2, begin=5))


def test_a_training_that_someone_holds_at_0_waits_and_then_goes_on():
    model, optimizer = two_groups(lambda lr: lr, SGD)
    plain, other = two_groups(lambda lr: lr, SGD)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(other, total_steps=STEPS)
    used = train(model, optimizer, 4)
    kept = lrs_of(optimizer)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    assert train(model, optimizer, 3, begin=4) == [[0.0, 0.0]] * 3
    assert lr.last_epoch == 4
    for group, one in zip(optimizer.param_groups, kept, strict=True):
        group["lr"] = one
    assert used + train(model, optimizer, STEPS - 4, begin=4) == train(plain, other, STEPS)


@pytest.mark.parametrize("others", ["cosine", "lambda", "by hand"])
def test_another_scheduler_beside_it_is_overruled_and_named_once(others):
    model, plain = network(), network()
    optimizer, other = SGD(model.parameters(), lr=0.1), SGD(plain.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(other, total_steps=STEPS)
    beside = {
        "cosine": lambda: CosineAnnealingLR(optimizer, 50),
        "lambda": lambda: LambdaLR(optimizer, lambda step: 0.5**step),
    }
    scheduler = beside[others]() if others != "by hand" else None
    used = []
    with pytest.warns(
        UserWarning, match=r"the LR of parameter group 0 was changed from .* and LearnedLR sets it again"
    ) as told:
        for step in range(STEPS):
            used += train(model, optimizer, 1, begin=step)
            if scheduler is None:
                optimizer.param_groups[0]["lr"] = 3.0
            else:
                scheduler.step()
    assert len(told) == 1
    assert used == train(plain, other, STEPS)
    assert lr.last_epoch == STEPS


def test_a_tensor_lr_that_was_replaced_is_put_back(kind):
    """As by code that writes `group["lr"] = 0.1`: graphs and users hold the tensor that was there."""
    model = network()
    optimizer = SGD(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    used = train(model, optimizer, 3)
    optimizer.param_groups[0]["lr"] = 5.0
    with pytest.warns(UserWarning, match="LearnedLR sets it again"):
        used += train(model, optimizer, 1, begin=3)
    used += train(model, optimizer, 3, begin=4)
    plain = network()
    other = SGD(plain.parameters(), lr=kind())
    LearnedLR(other, total_steps=STEPS)
    torch.testing.assert_close(used, train(plain, other, 7), rtol=1e-5, atol=0)
    assert lr.last_epoch == 7


def test_an_lr_of_0_that_an_old_scheduler_left_is_no_end():
    """Fine-tuning with the optimizer of a run whose LR fell to 0, by construction or by a loaded state."""
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    old = CosineAnnealingLR(optimizer, 3)
    for step in range(3):
        backward(model, step)
        optimizer.step()
        old.step()
    assert lrs_of(optimizer) == [0.0]
    saved = optimizer.state_dict()
    lr = LearnedLR(optimizer, total_steps=STEPS)
    assert all(one > 0 for (one,) in train(model, optimizer, 3))
    assert lr.last_epoch == 3
    other = network()
    fresh = SGD(other.parameters(), lr=0.1)
    loaded = LearnedLR(fresh, total_steps=STEPS)
    fresh.load_state_dict(saved)
    assert all(one > 0 for (one,) in train(other, fresh, 3))
    assert loaded.last_epoch == 3


def test_a_group_that_was_made_with_an_lr_of_0_is_never_trained(kind):
    model = network()
    optimizer = SGD([{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": kind(0.0)}], lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    still = model[2].weight.clone()
    assert all(first > 0 and second == 0 for first, second in train(model, optimizer, 3, lr=lr))
    assert torch.equal(model[2].weight, still)
