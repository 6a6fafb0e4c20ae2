"""MetaTrainer in loops that people write: clipping, scalers, compiled models, stops; and the schedule it learns."""

import copy
import io
import math

import pytest
import torch
from cases import OPTIMIZERS
from meta_setting import Setting, batch_loss
from torch import nn
from torch.nn.functional import cross_entropy

from mlrsnet.card import Card
from mlrsnet.nets import LSTMNet


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bptt", [1, 3])
def test_a_resumed_run_equals_one_that_never_stopped(name, bptt):
    def build(seed):
        torch.manual_seed(seed)
        return Setting(OPTIMIZERS[name], bptt=bptt, net=LSTMNet(6, 2).double())

    whole = build(5)
    torch.manual_seed(6)  # dropout
    expected = whole.train(range(20))

    first = build(5)
    torch.manual_seed(6)
    used = first.train(range(8))
    file = io.BytesIO()
    states = [thing.state_dict() for thing in (first.model, first.optimizer, first.meta)]
    torch.save([*states, first.val_calls, torch.get_rng_state()], file)
    file.seek(0)

    second = build(99)  # a new process starts with another network
    model, optimizer, meta, second.val_calls, rng = torch.load(file, weights_only=True)
    second.model.load_state_dict(model)
    second.optimizer.load_state_dict(optimizer)
    second.meta.load_state_dict(meta)
    torch.set_rng_state(rng)
    used += second.train(range(8, 20))
    assert used == expected
    assert torch.equal(second.weights(), whole.weights())
    assert second.meta.schedule().fingerprint() == whole.meta.schedule().fingerprint()
    assert second.meta.card() == whole.meta.card()


def test_phases_are_kept_at_the_thirds_and_the_card_is_full(tmp_path):
    run = Setting(OPTIMIZERS["heavy-ball"], total_steps=10, every=1, card=Card("mine", learned_on="noise"))
    nets = []
    for index in range(10):
        run.train([index])
        nets.append(copy.deepcopy(run.meta.net.state_dict()))
    schedule = run.meta.schedule()
    for phase, step in zip(schedule.phases, (4, 7, 10), strict=True):  # ceil(10 l / 3)
        torch.testing.assert_close(phase.state_dict(), nets[step - 1], rtol=0, atol=0)
    card = schedule.card
    assert (card.name, card.learned_on, card.total_steps) == ("mine", "noise", 10)
    assert card.optimizer == "SGD(momentum=0.9, weight_decay=0.01)"
    assert "10 meta-updates with Adam" in card.description
    assert card.loss_range[0] < card.loss_range[1]
    schedule.save(tmp_path / "mine.safetensors")


def test_a_schedule_can_be_taken_at_any_time():
    run = Setting(OPTIMIZERS["sgd"], num_phases=2)
    assert run.meta.schedule().num_phases == 2
    run.train(range(20))
    first, second = run.meta.schedule().phases
    assert not torch.equal(first.out.bias, second.out.bias)
    torch.testing.assert_close(second.state_dict(), run.meta.net.state_dict())


def test_a_training_loss_that_is_not_finite_never_reaches_the_network():
    run = Setting(OPTIMIZERS["sgd"], every=1)
    run.train(range(2))
    before, lr = copy.deepcopy(run.meta.net.state_dict()), run.optimizer.param_groups[0]["lr"]
    run.backward(2)
    with pytest.warns(UserWarning, match="not finite"):
        run.meta.step(math.nan)
    assert run.meta.skipped_updates == 1
    assert run.optimizer.param_groups[0]["lr"] == lr
    torch.testing.assert_close(run.meta.net.state_dict(), before, rtol=0, atol=0)


def test_gradients_may_be_clipped_and_accumulated():
    plain, parts = (Setting(OPTIMIZERS["sgd"], batch_norm=False, every=2) for _ in range(2))
    for index in range(6):
        loss = plain.backward(index)
        torch.nn.utils.clip_grad_norm_(plain.model.parameters(), 0.25)
        plain.meta.step(loss)
        parts.optimizer.zero_grad()
        for half in (slice(0, 8), slice(8, 16)):
            loss = cross_entropy(parts.model(parts.data[0][index, half]), parts.data[1][index, half])
            (loss / 2).backward()
            parts.meta.observe(loss)
        torch.nn.utils.clip_grad_norm_(parts.model.parameters(), 0.25)
        parts.meta.step()
    torch.testing.assert_close(plain.weights(), parts.weights(), rtol=1e-8, atol=1e-10)


def test_a_grad_scaler_changes_nothing_but_skips():
    plain, scaled = (Setting(OPTIMIZERS["sgd"], every=2, dtype=torch.float32, batch_norm=False) for _ in range(2))
    scaled.meta.scaler = scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for index in range(6):
        plain.train([index])
        loss = batch_loss(scaled.model, scaled.data, index)
        scaled.optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaled.meta.step(loss)
    assert scaled.meta.last_hypergradient == pytest.approx(plain.meta.last_hypergradient, rel=1e-3)
    torch.testing.assert_close(plain.weights(), scaled.weights(), rtol=1e-3, atol=1e-5)

    before, updates = scaled.weights(), scaled.meta.num_updates
    loss = batch_loss(scaled.model, scaled.data, 6)
    scaled.optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaled.model[0].weight.grad.fill_(math.inf)
    with pytest.warns(UserWarning, match="a meta-update was skipped: the GradScaler skipped the step"):
        scaled.meta.step(loss)
    torch.testing.assert_close(scaled.weights(), before, rtol=0, atol=0)
    assert (scaled.meta.num_updates, scaled.meta.skipped_updates) == (updates, 1)
    assert scaler.get_scale() == 2.0**9
    assert 0 < scaled.optimizer.param_groups[0]["lr"] < 1


def test_a_compiled_model_meta_trains_alike():
    run = Setting(OPTIMIZERS["sgd"], every=2, dtype=torch.float32, batch_norm=False)
    compiled = torch.compile(run.model, backend="aot_eager")
    run.meta.val_loss = lambda: cross_entropy(compiled(run.data[0][-1]), run.data[1][-1])
    for index in range(4):
        loss = cross_entropy(compiled(run.data[0][index]), run.data[1][index])
        run.optimizer.zero_grad()
        loss.backward()
        run.meta.step(loss)
    plain = Setting(OPTIMIZERS["sgd"], every=2, dtype=torch.float32, batch_norm=False)
    plain.meta.val_loss = lambda: batch_loss(plain.model, plain.data, -1)
    plain.train(range(4))
    torch.testing.assert_close(run.weights(), plain.weights(), rtol=1e-4, atol=1e-6)


def test_tensor_lrs_meta_train_as_float_ones():
    floats = Setting(OPTIMIZERS["heavy-ball"], dtype=torch.float32, batch_norm=False)
    tensors = Setting(
        OPTIMIZERS["heavy-ball"], dtype=torch.float32, batch_norm=False, lrs=(torch.tensor(0.1), torch.tensor(0.025))
    )
    a, b = floats.train(range(12)), tensors.train(range(12))
    assert b == pytest.approx(a, rel=1e-3)
    assert tensors.meta.num_updates == 4


def test_groups_that_changed_are_seen_before_a_meta_step():
    run = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=1, lrs=(0.1, 0.1))
    other = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=1, lrs=(0.1, 0.001))
    run.optimizer.load_state_dict(other.optimizer.state_dict())
    loss = run.backward(0)
    before = run.model[4].bias.detach().clone()
    run.meta.step(loss)
    used = run.optimizer.param_groups[1]["lr"]
    assert used == pytest.approx(run.optimizer.param_groups[0]["lr"] / 100)
    d = run.model[4].bias.grad + 0.01 * before
    torch.testing.assert_close(run.model[4].bias.detach(), before - used * d, rtol=1e-9, atol=1e-12)
    extra = nn.Parameter(torch.ones(2, dtype=torch.float64))
    run.optimizer.add_param_group({"params": [extra]})
    loss = run.backward(1)
    extra.grad = torch.ones_like(extra)
    run.meta.step(loss)
    assert (extra < 1).all()


def test_frozen_layers_and_losses_of_one_element_work():
    run = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=1)
    run.train([0])
    run.model[0].requires_grad_(False)
    good = run.meta.val_loss
    run.meta.val_loss = lambda: good().reshape(1)
    loss = batch_loss(run.model, run.data, 1)
    run.optimizer.zero_grad(set_to_none=False)
    loss.backward()
    run.meta.step(loss)
    assert run.meta.num_updates == 2


def test_autocast_around_a_meta_step_leaves_the_network_alone():
    plain, cast = (Setting(OPTIMIZERS["sgd"], dtype=torch.float32, batch_norm=False, every=1) for _ in range(2))
    cast.meta.val_loss = lambda: outside_of_autocast(cast.val_loss)
    expected = plain.train(range(4))
    used = []
    for index in range(4):
        loss = cast.backward(index)
        with torch.autocast("cpu", torch.bfloat16):
            cast.meta.step(loss)
        used.append(cast.optimizer.param_groups[0]["lr"])
    assert used == pytest.approx(expected, rel=1e-5)  # in bfloat16 the network would be wrong by a percent


def outside_of_autocast(call):
    with torch.autocast("cpu", enabled=False):
        return call()


def test_a_state_in_memory_is_not_changed_by_going_on():
    run = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=1)
    run.train(range(3))
    states = copy.deepcopy((run.model.state_dict(), run.optimizer.state_dict())), run.meta.state_dict(), run.val_calls
    expected = run.train(range(3, 6))
    (model, optimizer), meta, run.val_calls = states
    run.model.load_state_dict(model)
    run.optimizer.load_state_dict(optimizer)
    run.meta.load_state_dict(meta)
    assert run.train(range(3, 6)) == expected


def test_a_prolonged_run_keeps_its_early_networks():
    run = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=1, total_steps=12)
    run.train(range(6))
    early = run.meta.schedule().phases[0].out.bias.item()
    run.meta.lr.extend(15)
    run.train(range(6, 15))
    assert run.meta.schedule().phases[0].out.bias.item() == early


def test_replayed_steps_count_towards_updates_and_phases():
    run = Setting(OPTIMIZERS["sgd"], every=5, total_steps=6)
    due = []
    for index in range(6):
        due.append(run.meta.update_due)
        if due[-1]:
            run.train([index])
        else:
            run.meta.count_replayed()  # as if a CUDA graph had taken the step
    assert due == [True, False, False, False, False, True]
    assert (run.meta.step_count, run.meta.num_updates) == (6, 2)
    first, second, last = run.meta.schedule().phases  # the network changed at steps 0 and 5 only
    assert torch.equal(first.out.weight, second.out.weight)
    assert not torch.equal(second.out.weight, last.out.weight)


@pytest.mark.parametrize("leftover", ["before", "after"])
def test_a_leftover_step_beside_meta_training_is_told_once(leftover):
    """`meta.step` takes the step: with the old line left in, every batch would move the weights twice."""
    run = Setting(OPTIMIZERS["sgd"])
    with pytest.warns(
        UserWarning, match=r"took a step outside of MetaTrainer.step\(loss\).*: remove optimizer.step"
    ) as told:
        for index in range(5):
            loss = run.backward(index)
            if leftover == "before":
                run.optimizer.step()
            run.meta.step(loss)
            if leftover == "after":
                run.optimizer.step()
    assert len(told) == 1
    assert run.meta.step_count == 5


def test_a_meta_training_past_its_end_is_told_once():
    run = Setting(OPTIMIZERS["sgd"], total_steps=3)
    run.train(range(3))
    with pytest.warns(UserWarning, match="step 4 is past total_steps=3, which counts optimizer steps") as told:
        run.train(range(3, 6))
    assert len(told) == 1
