"""What lives how long: the optimizer's hooks own the driver, `LearnedLR` is a handle, and nothing keeps an optimizer alive."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from loops import backward, lrs_of, network, train, weights_of
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR

STEPS = 12


def test_a_scheduler_that_nobody_keeps_sets_every_lr():
    kept, left = network(), network()
    optimizers = SGD(kept.parameters(), lr=0.1), SGD(left.parameters(), lr=0.1)
    lr = LearnedLR(optimizers[0], total_steps=STEPS)
    LearnedLR(optimizers[1], total_steps=STEPS)
    gc.collect()
    assert train(left, optimizers[1], STEPS) == train(kept, optimizers[0], STEPS)
    assert lr.last_epoch == STEPS


def step_with_a_closure(model, optimizer):
    def closure():
        optimizer.zero_grad()
        return backward(model, 0)

    optimizer.step(closure)


@pytest.mark.parametrize("is_kept", [True, False], ids=["with the handle", "without it"])
def test_everything_is_freed_at_once_when_a_training_ends(kind, is_kept):
    """Without the collector: networks of gigabytes are made one after the other in one process."""

    def training():
        model = network()
        optimizer = AdamW(model.parameters(), lr=kind())
        lr = LearnedLR(optimizer, total_steps=STEPS)
        train(model, optimizer, 3, lr=lr if is_kept else None)
        step_with_a_closure(model, optimizer)
        lr.status(), lr.state_dict(), lr.validate(1.0)
        copy.deepcopy(lr)
        return [weakref.ref(one) for one in (optimizer, lr, lr._driver, *model.parameters())]

    training()  # what torch imports and caches in a first one
    gc.collect()
    gc.disable()
    try:
        assert [ref() for ref in training() + training()] == [None] * 14
    finally:
        gc.enable()


def test_an_optimizer_is_freed_while_its_weights_go_on():
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    LearnedLR(optimizer, total_steps=STEPS)
    train(model, optimizer, 3)
    gone = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer
        assert gone() is None
    finally:
        gc.enable()


def test_remove_leaves_the_lrs_and_takes_every_hook_along():
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    train(model, optimizer, 5)
    before = optimizer.param_groups[0]["lr"]
    lr.remove()
    lr.remove()
    assert train(model, optimizer, 3, begin=5) == [[before]] * 3
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    assert not optimizer._optimizer_load_state_dict_post_hooks
    assert lr.status()["step"] == len(lr.history) == 5
    optimizer.param_groups[0]["lr"] = 0.5
    assert train(model, optimizer, 1) == [[0.5]]


USES = {
    "step": lambda lr: lr.step(1.0),
    "observe": lambda lr: lr.observe(1.0),
    "discard": lambda lr: lr.discard(),
    "validate": lambda lr: lr.validate(1.0),
    "anneal": lambda lr: lr.anneal(5),
    "extend": lambda lr: lr.extend(50),
    "load_state_dict": lambda lr: lr.load_state_dict(lr.state_dict()),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_replaced_scheduler_says_that_it_is_used_in_vain(use):
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    old = LearnedLR(optimizer, total_steps=STEPS)
    with pytest.warns(UserWarning, match="has a LearnedLR already, which the new one replaces"):
        new = LearnedLR(optimizer, total_steps=STEPS, scale=2.0)
    with pytest.raises(RuntimeError, match=r"removed from its optimizer, by remove\(\) or by a newer LearnedLR"):
        use(old)
    train(model, optimizer, 2, lr=new)
    assert (old.last_epoch, new.last_epoch) == (0, 2)


def test_a_replaced_scheduler_changes_nothing_for_the_new_one():
    alone, replaced = network(), network()
    first, second = SGD(alone.parameters(), lr=0.1), SGD(replaced.parameters(), lr=0.1)
    LearnedLR(first, total_steps=STEPS)
    LearnedLR(second, total_steps=99)
    with pytest.warns(UserWarning, match="replaces"):
        LearnedLR(second, total_steps=STEPS)
    assert train(replaced, second, STEPS) == train(alone, first, STEPS)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"]
)
def test_a_copy_of_an_optimizer_trains_at_the_lr_it_was_left_with(kind, duplicate):
    model = network()
    optimizer = SGD(model.parameters(), lr=kind())
    LearnedLR(optimizer, total_steps=STEPS)
    train(model, optimizer, 5)
    twin, own = duplicate((model, optimizer))
    left = lrs_of(optimizer)
    assert train(twin, own, 3) == [left] * 3
    assert lrs_of(optimizer) == left
    assert train(model, optimizer, 1, begin=5) != [left]


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("steps", [0, 5])
def test_a_copy_of_the_scheduler_goes_on_with_the_copy_of_its_optimizer(kind, duplicate, steps):
    model = network()
    optimizer = AdamW(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    train(model, optimizer, steps, lr=lr)
    lr.observe(1.5)
    twin, own = duplicate((model, lr))
    assert own.optimizer is not optimizer
    assert train(twin, own.optimizer, STEPS - steps, steps, own) == train(model, optimizer, STEPS - steps, steps, lr)
    assert torch.equal(weights_of(twin), weights_of(model))
    assert own.last_epoch == lr.last_epoch == STEPS
    assert own.status()["distance"] == lr.status()["distance"]


@pytest.mark.filterwarnings("error")
def test_a_second_handle_of_one_scheduler_is_no_second_scheduler():
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    same = copy.copy(lr)
    train(model, optimizer, 3, lr=lr)
    train(model, optimizer, 2, 3, same)
    assert lr.status()["step"] == same.status()["step"] == 5


def test_a_copy_of_a_removed_scheduler_stays_removed():
    model = network()
    lr = LearnedLR(SGD(model.parameters(), lr=0.1), total_steps=STEPS)
    lr.remove()
    twin, own = copy.deepcopy((model, lr))
    assert train(twin, own.optimizer, 2) == [[0.1]] * 2


def test_two_optimizers_of_one_network_do_not_meet():
    """As Muon for matrices and AdamW for the rest: each pair has the LRs it would have alone, the others' weights as they are."""

    def training(followed):
        model = network()
        matrices = torch.optim.Muon([model[0].weight, model[2].weight], lr=0.02)
        vectors = AdamW([model[0].bias, model[2].bias], lr=1e-3)
        if followed:
            first, second = LearnedLR(matrices, total_steps=STEPS), LearnedLR(vectors, total_steps=2 * STEPS)
        else:
            first, second = LearnedLR(matrices, total_steps=STEPS), None
        used = []
        for step in range(STEPS):
            model.zero_grad()
            backward(model, step)
            for optimizer in (matrices, vectors) if followed else (matrices,):
                optimizer.step()
            used.append(lrs_of(matrices) + lrs_of(vectors))
        return used, first, second

    together, first, second = training(True)
    assert first.last_epoch == second.last_epoch == STEPS
    assert [first.status()["progress"] > second.status()["progress"]] == [True]
    assert all(a != b for a, b in together)
    alone, _, _ = training(False)
    assert together[0][0] == alone[0][0]  # afterwards the other half of the network moves too
    assert {b for _, b in alone} == {1e-3}
