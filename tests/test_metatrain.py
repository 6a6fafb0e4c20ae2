"""MetaTrainer against the equations: hypergradients, Algorithm 1 in lockstep, linear steps."""

import copy

import pytest
import torch
from cases import OPTIMIZERS
from meta_setting import CLASSES, Setting, batch_loss, make_data, make_model
from reference_meta import Algorithm1, hypergradient
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam

from mlrsnet import MetaTrainer
from mlrsnet.meta import Departures, Learning
from mlrsnet.meta.authors import COMPAT
from mlrsnet.meta.provisional import LINEAR, Provisional
from mlrsnet.nets import LSTMNet, MLPNet
from mlrsnet.ranges import Gamma, PhaseGamma


@pytest.mark.filterwarnings("ignore:the optimizer has taken steps before")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_hypergradient_is_the_derivative_through_the_look_ahead(name):
    run = Setting(OPTIMIZERS[name], every=1)
    for index in range(3):  # so that the optimizer has state
        run.backward(index)
        run.optimizer.step()
    loss = run.backward(3)
    before = copy.deepcopy((run.model, run.optimizer, run.val_calls))
    torch.manual_seed(7)  # dropout
    run.meta.step(loss)
    alpha = run.meta.last_provisional_lr

    model, optimizer, calls = before
    model_parameters = dict(zip(run.model.parameters(), model.parameters(), strict=True))
    for group, original in zip(optimizer.param_groups, run.optimizer.param_groups, strict=True):
        group["params"] = [model_parameters[p] for p in original["params"]]

    def reference_val_loss(forward):
        torch.manual_seed(7)
        return cross_entropy(forward(run.data[0][-calls - 1]), run.data[1][-calls - 1])

    optimizer.state = {
        model_parameters[p]: s for p, s in zip(run.optimizer.state, optimizer.state.values(), strict=True)
    }
    for parameter, original in model_parameters.items():
        original.grad = parameter.grad.clone()
    expected, val = hypergradient(model, optimizer, [1.0, 0.25], alpha, reference_val_loss)
    assert run.meta.last_hypergradient == pytest.approx(expected, rel=1e-8)
    assert run.meta.last_val_loss == pytest.approx(val, rel=1e-10)

    def val_at(lr):
        weights = [p.detach().clone() for p in model.parameters()]
        buffers = [b.clone() for b in model.buffers()]
        from reference_meta import direction

        with torch.no_grad():
            for group, ratio in zip(optimizer.param_groups, (1.0, 0.25), strict=True):
                moves = [direction(optimizer, group, p) for p in group["params"]]
                for p, d in zip(group["params"], moves, strict=True):
                    p -= lr * ratio * d
            value = reference_val_loss(model).item()
            for p, w in zip(model.parameters(), weights, strict=True):
                p.copy_(w)
            for b, saved in zip(model.buffers(), buffers, strict=True):
                b.copy_(saved)
        return value

    h = 1e-4 * alpha
    assert run.meta.last_hypergradient == pytest.approx((val_at(alpha + h) - val_at(alpha - h)) / (2 * h), rel=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rescaled_step_is_the_optimizers_own_at_that_lr(name):
    run = Setting(OPTIMIZERS[name], every=1)
    torch.manual_seed(4)
    loss = run.backward(0)
    twins = list(copy.deepcopy(run.model).parameters())
    gradients = [p.grad.clone() for p in run.model.parameters()]
    run.meta.step(loss)
    used = [group["lr"] for group in run.optimizer.param_groups]
    assert used[0] != run.meta.last_provisional_lr
    assert used[1] == pytest.approx(used[0] / 4)
    twin = OPTIMIZERS[name]([{"params": twins[:3]}, {"params": twins[3:]}])
    for group, lr in zip(twin.param_groups, used, strict=True):
        group.update(lr=lr, weight_decay=0.01)
    for p, gradient in zip(twins, gradients, strict=True):
        p.grad = gradient
    twin.step()
    for mine, theirs in zip(run.model.parameters(), twins, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-13)
    for mine, theirs in zip(run.optimizer.state.values(), twin.state.values(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_three_hundred_steps_equal_a_transcription_of_algorithm_1():
    data, model = make_data(), make_model(batch_norm=False)
    torch.manual_seed(3)
    net = LSTMNet().double()
    reference = Algorithm1(
        copy.deepcopy(model),
        copy.deepcopy(net),
        lambda t, forward: cross_entropy(forward(data[0][t]), data[1][t]),
        lambda t, forward: cross_entropy(forward(data[0][-1 - t // 7]), data[1][-1 - t // 7]),
        every=7,
        classes=CLASSES,
    )
    optimizer = SGD(model.parameters(), lr=0.1)
    val_batches = iter(range(1, 400))
    meta = MetaTrainer(
        model,
        optimizer,
        total_steps=300,
        val_loss=lambda: batch_loss(model, data, -next(val_batches)),
        net=net,
        num_classes=CLASSES,
        learning=Learning(every=7),
    )
    for t in range(300):
        loss = batch_loss(model, data, t)
        optimizer.zero_grad()
        loss.backward()
        meta.step(loss)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(reference.step(), rel=1e-7), t
    assert meta.num_updates == reference.updates == 43
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.detach(), reference.phi[name], rtol=1e-6, atol=1e-9)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), reference.w[name], rtol=1e-6, atol=1e-9)


def test_float32_keeps_the_digits_of_a_tiny_step():
    exact = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=1, scale=1e-6)
    coarse = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=1, scale=1e-6, dtype=torch.float32)
    coarse.model.load_state_dict(exact.model.state_dict())
    coarse.meta.net.load_state_dict(exact.meta.net.state_dict())
    exact.train([0])
    coarse.train([0])
    assert coarse.meta.last_provisional_lr < 1e-6
    assert coarse.meta.last_hypergradient == pytest.approx(exact.meta.last_hypergradient, rel=1e-4)


def test_updates_come_every_so_often_from_the_first_step_on():
    run = Setting(OPTIMIZERS["sgd"], every=4)
    changed = []
    for index in range(10):
        before = run.meta.net.out.bias.item()
        run.train([index])
        changed.append(run.meta.net.out.bias.item() != before)
    assert [i for i, was in enumerate(changed) if was] == [0, 4, 8]
    assert run.meta.num_updates == run.val_calls == 3


def test_before_the_first_update_nothing_is_known():
    meta = Setting(OPTIMIZERS["sgd"]).meta
    assert meta.last_hypergradient is None
    assert meta.last_provisional_lr is None


@pytest.mark.parametrize("net", [MLPNet(8), LSTMNet(6, 3), LSTMNet(8, inputs=("loss", "progress"), anneal="linear")])
def test_every_network_meta_trains(net):
    before = copy.deepcopy(net.state_dict())
    Setting(OPTIMIZERS["sgd"], net=net.double(), every=1).train(range(4))
    assert all(not torch.equal(before[name].double(), tensor) for name, tensor in net.state_dict().items())


def test_the_network_learns_to_lower_a_rate_that_is_too_high():
    run = Setting(
        OPTIMIZERS["sgd"], batch_norm=False, every=1, scale=20.0, total_steps=60, meta_optimizer=lambda p: Adam(p, 0.05)
    )
    used = run.train(range(60))
    assert used[-1] < used[0] / 2
    assert run.meta.last_val_loss < 2.0


def memory_of(run):
    return torch.tensor(run.meta._driver.numbers.state.memory)


def test_longer_backpropagation_reaches_further():
    def gradient(bptt):
        run = Setting(OPTIMIZERS["sgd"], batch_norm=False, bptt=bptt, every=3, meta_optimizer=lambda p: SGD(p, lr=0.0))
        run.train(range(4))
        return run.meta.last_hypergradient, run.meta.net.cells[0].h2h[0].weight.grad.clone(), run

    (slope, one, _), (slope3, three, run) = gradient(1), gradient(3)
    assert slope == pytest.approx(slope3)
    assert not torch.allclose(one, three)
    # By hand: back through steps 1, 2 and 3, from the memory before step 1.
    again = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=3, meta_optimizer=lambda p: SGD(p, lr=0.0))
    losses = []
    for index in range(4):
        losses.append(batch_loss(again.model, again.data, index).detach().reshape(1))
        if index == 1:
            state = memory_of(again)
        again.train([index])
    net = again.meta.net
    net.zero_grad()
    for loss in losses[1:]:
        factor, state = net(loss, state)
    (slope3 * run.meta.lr.status()["gamma"] * factor).backward()
    torch.testing.assert_close(net.cells[0].h2h[0].weight.grad, three, rtol=1e-8, atol=1e-12)


def test_the_authors_departures_are_named_and_change_the_run():
    def trained(**options):
        run = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=3, **options)
        run.train(range(9))
        return run

    plain = trained()
    assert not torch.equal(trained(departures=Departures("advance-twice")).weights(), plain.weights())
    epochs = trained(departures=Departures("epoch-period", steps_per_epoch=4))  # steps 2 and 6
    assert epochs.meta.num_updates == 2
    theirs = Departures("authors", steps_per_epoch=383)
    authors = Setting(OPTIMIZERS["sgd"], net=None, every=None, departures=theirs, initial_loss=2.5, dtype=torch.float32)
    assert authors.meta.every == 300
    assert authors.meta.net.layout == "official-train"
    assert authors.meta.schedule().card.gamma == PhaseGamma()
    assert authors.meta._phase_ends() == [1, 15, 30]
    with pytest.raises(ValueError, match="steps_per_epoch must be a whole number"):
        Departures("authors")
    with pytest.raises(
        ValueError, match=r"every must be at most steps_per_epoch .*, got 300 and 4: no step would update"
    ):
        Setting(OPTIMIZERS["sgd"], every=None, departures=Departures("authors", steps_per_epoch=4), initial_loss=2.5)
    with pytest.raises(ValueError, match="names must be one of authors, layout"):
        Departures("theirs")


def test_the_authors_first_network_reads_the_loss_a_tenth_as_strongly():
    def first(**options):
        return Setting(OPTIMIZERS["sgd"], net=None, dtype=torch.float32, **options).meta.net

    theirs, plain = first(departures=Departures("net-init")), first()
    for branch in (theirs.cells[0].i2h, theirs.cells[0].h2h):
        for layer in (branch[0], branch[2]):
            assert 0.09 < layer.weight.abs().max().item() <= 0.1
    assert plain.cells[0].i2h[0].weight.abs().max().item() > 0.5  # torch's own: up to 1
    assert theirs.cells[0].i2h[0].bias.abs().max().item() > 0.5  # biases and the output layer are torch's
    assert theirs.out.weight.abs().max().item() > 0.1


def test_the_authors_range_comes_from_the_loss_that_is_passed_and_is_not_forgotten():
    theirs = Setting(OPTIMIZERS["sgd"], departures=Departures("initial-loss"), initial_loss=2.5)
    theirs.train(range(2))
    assert theirs.meta.lr.status()["gamma"] == pytest.approx(Gamma()(2.5, CLASSES))
    with pytest.raises(ValueError, match="initial_loss must be a number with 'initial-loss', got None: pass the"):
        Setting(OPTIMIZERS["sgd"], departures=Departures("initial-loss"))
    assert Departures("authors", steps_per_epoch=3).names == frozenset(COMPAT)


def test_advancing_twice_is_exactly_that():
    run = Setting(
        OPTIMIZERS["sgd"],
        batch_norm=False,
        departures=Departures("advance-twice"),
        meta_optimizer=lambda p: SGD(p, lr=0.0),
    )
    loss = run.backward(0)
    run.meta.step(loss)
    net, state = run.meta.net, run.meta.net.initial_state()
    for _ in range(2):
        _, state = net(loss.detach().reshape(1), state)
    torch.testing.assert_close(memory_of(run), state.detach())


@pytest.mark.parametrize("kind", sorted(LINEAR, key=lambda kind: kind.__name__))
def test_every_optimizer_called_linear_is(kind):
    def step(lr, times=3):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
        optimizer = kind([weight], lr=0.1)
        for index in range(times):
            weight.grad = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(index))
            if index == times - 1:
                optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
        return weight.detach(), optimizer.state[weight]

    zero, one, seven = (step(lr) for lr in (0.0, 1.0, 7.0))
    torch.testing.assert_close(seven[0] - zero[0], 7 * (one[0] - zero[0]), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(one[1], seven[1])


def test_an_open_step_can_be_put_anywhere_on_its_line():
    model, data = make_model(False), make_data()
    optimizer = SGD(model.parameters(), lr=0.1)
    batch_loss(model, data, 0).backward()
    start = [p.detach().clone() for p in model.parameters()]
    step = Provisional(optimizer, optimizer.step, [1.0], 0.3)
    for alpha in (0.3, 0.05, 0.0):
        step.go_to(alpha)
        for p, w in zip(model.parameters(), start, strict=True):
            torch.testing.assert_close(p.detach(), w - alpha * p.grad, rtol=1e-9, atol=1e-12)
