import copy
import io
import math
import warnings

import pytest
import torch
from conftest import OPTIMIZERS
from reference_meta import Algorithm1, hypergradient
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import ASGD, LBFGS, SGD, Adam, Rprop

from mlrsnet import LSTMNet, MetaTrainer, MLPNet
from mlrsnet.lookahead import LINEAR, OpenStep, no_trace

CLASSES = 5


def make_model(batch_norm=True, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    layers = [nn.Linear(6, 12), nn.BatchNorm1d(12) if batch_norm else nn.Identity(), nn.Tanh()]
    layers += [nn.Dropout(0.3) if batch_norm else nn.Identity(), nn.Linear(12, CLASSES)]
    return nn.Sequential(*layers).to(dtype)


def make_data(dtype=torch.float64, batches=400, size=16):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batches, size, 6, generator=generator, dtype=torch.float64).to(dtype)
    return x, (x[..., :CLASSES] + 0.5 * torch.randn(batches, size, CLASSES, generator=generator).to(dtype)).argmax(-1)


def batch_loss(model, data, index):
    return cross_entropy(model(data[0][index]), data[1][index])


class Setting:
    """A model, its optimizer with two groups of different LR, and a MetaTrainer."""

    def __init__(self, make_optimizer, batch_norm=True, dtype=torch.float64, lrs=(0.1, 0.025), **options):
        self.model, self.data = make_model(batch_norm, dtype), make_data(dtype)
        parameters = list(self.model.parameters())
        groups = [{"params": parameters[:3], "lr": lrs[0]}, {"params": parameters[3:], "lr": lrs[1]}]
        self.optimizer = make_optimizer(groups)
        for group in self.optimizer.param_groups:
            group["weight_decay"] = 0.01
        self.val_calls = 0
        torch.manual_seed(2)
        options = {"net": LSTMNet(8).to(dtype), "every": 3, "total_steps": 30, "num_classes": CLASSES, **options}
        self.meta = MetaTrainer(self.model, self.optimizer, val_loss=self.val_loss, **options)

    def val_loss(self):
        self.val_calls += 1
        return batch_loss(self.model, self.data, -self.val_calls)

    def backward(self, index):
        loss = batch_loss(self.model, self.data, index)
        self.optimizer.zero_grad()
        loss.backward()
        return loss

    def train(self, steps):
        used = []
        for index in steps:
            self.meta.step(self.backward(index))
            used.append(float(self.optimizer.param_groups[0]["lr"]))
        return used

    def weights(self):
        return torch.cat([p.detach().reshape(-1) for p in (*self.model.parameters(), *self.meta.net.parameters())])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_hypergradient_is_the_derivative_through_the_look_ahead(name):
    run = Setting(OPTIMIZERS[name], every=1)
    for index in range(3):  # give the optimizer a history
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
        every=7,
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


def test_the_validation_pass_leaves_no_trace():
    run = Setting(OPTIMIZERS["heavy-ball"], every=1)
    loss = run.backward(0)
    gradients = [p.grad for p in run.model.parameters()]
    copies = [g.clone() for g in gradients]
    buffers = [b.clone() for b in run.model.buffers()]
    run.model[3].eval()
    state = torch.get_rng_state()

    def val_loss():
        run.model.eval()  # a careless user
        run.model.train()
        return batch_loss(run.model, run.data, -1)

    run.meta.val_loss = val_loss
    run.meta.step(loss)
    assert torch.equal(torch.get_rng_state(), state)
    assert not run.model[3].training
    assert run.model[0].training
    for parameter, gradient, value in zip(run.model.parameters(), gradients, copies, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, value)
    for buffer, before in zip(run.model.buffers(), buffers, strict=True):
        assert torch.equal(buffer, before)
    assert not any(p._post_accumulate_grad_hooks for p in run.model.parameters())


def test_a_validation_loss_that_draws_from_the_global_random_state_sees_new_batches(task):
    def run(steps, state=None):
        drawn = []

        def val_loss():
            drawn.append(int(torch.randint(64, ())))
            return task.loss(drawn[-1])

        optimizer = SGD(task.model.parameters(), lr=0.1)
        options = {"net": LSTMNet(4), "num_classes": CLASSES, "every": 1, "val_loss": val_loss}
        meta = MetaTrainer(task.model, optimizer, total_steps=9, **options)
        torch.manual_seed(0)
        if state is not None:
            meta.load_state_dict(state)
        before = torch.get_rng_state()
        for step in range(steps):
            meta.step(task.backward(step, optimizer))
        assert torch.equal(torch.get_rng_state(), before)
        return drawn, meta.state_dict()

    whole, _ = run(6)
    first, state = run(3)
    assert len(set(whole)) > 3
    assert [*first, *run(3, state)[0]] == whole
    del state["val_random"]  # as the first versions saved it
    assert run(3, state)[0] == first


def test_everything_is_put_back_when_the_validation_loss_raises():
    run = Setting(OPTIMIZERS["sgd"], every=1)
    loss = run.backward(0)
    gradient = run.model[0].weight.grad

    def broken():
        run.model(run.data[0][0])
        raise KeyError("no batch")

    run.meta.val_loss = broken
    with pytest.raises(KeyError, match="no batch"):
        run.meta.step(loss)
    assert run.model[0].weight.grad is gradient
    assert not run.model[0].weight._post_accumulate_grad_hooks
    assert run.optimizer.param_groups[0]["lr"] == run.meta.last_provisional_lr < 1
    assert run.optimizer.param_groups[1]["lr"] == pytest.approx(run.meta.last_provisional_lr / 4)


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

    second = build(99)  # a new process begins with another network
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
    run = Setting(OPTIMIZERS["heavy-ball"], total_steps=10, every=1, name="mine", learned_on="noise")
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


def test_longer_backpropagation_reaches_further():
    def gradient(bptt):
        run = Setting(OPTIMIZERS["sgd"], batch_norm=False, bptt=bptt, every=3, meta_optimizer=lambda p: SGD(p, lr=0.0))
        run.train(range(4))
        return run.meta.last_hypergradient, run.meta.net.cells[0].h2h[0].weight.grad.clone(), run

    (slope, one, _), (slope3, three, run) = gradient(1), gradient(3)
    assert slope == pytest.approx(slope3)
    assert not torch.allclose(one, three)
    # by hand: back through steps 1, 2 and 3, from the memory before step 1
    again = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=3, meta_optimizer=lambda p: SGD(p, lr=0.0))
    losses = []
    for index in range(4):
        losses.append(batch_loss(again.model, again.data, index).detach().reshape(1))
        if index == 1:
            state = again.meta._engine.copy_memory()
        again.train([index])
    net = again.meta.net
    net.zero_grad()
    for loss in losses[1:]:
        factor, state = net(loss, state)
    (slope3 * run.meta._engine.moment(1.0).range * factor).backward()
    torch.testing.assert_close(net.cells[0].h2h[0].weight.grad, three, rtol=1e-8, atol=1e-12)


def test_a_validation_loss_that_is_not_finite_never_reaches_the_network():
    run = Setting(OPTIMIZERS["sgd"], every=2)
    run.train(range(2))
    before = copy.deepcopy(run.meta.net.state_dict())
    good = run.meta.val_loss
    run.meta.val_loss = lambda: good() * math.nan
    with pytest.warns(UserWarning, match="a meta-update was skipped: the validation loss is nan"):
        run.train(range(2, 4))
    assert run.meta.skipped_updates == 1
    torch.testing.assert_close(run.meta.net.state_dict(), before, rtol=0, atol=0)
    assert torch.isfinite(run.weights()).all()
    run.meta.val_loss = good
    run.train(range(4, 6))
    assert run.meta.num_updates == 2


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


def test_the_authors_departures_are_named_and_change_the_run():
    def trained(**options):
        run = Setting(OPTIMIZERS["sgd"], batch_norm=False, every=3, **options)
        run.train(range(9))
        return run

    plain = trained()
    for name in ("advance-twice",):
        assert not torch.equal(trained(compat=[name]).weights(), plain.weights())
    epochs = trained(compat=["epoch-period"], steps_per_epoch=4)  # steps 2 and 6
    assert epochs.meta.num_updates == 2
    official = Setting(
        OPTIMIZERS["sgd"], net=None, every=None, compat="official", steps_per_epoch=383, dtype=torch.float32
    )
    assert official.meta.every == 300
    assert official.meta.net.layout == "official-train"
    assert official.meta.schedule().card.gamma.policy == "per-phase"
    assert official.meta._boundaries() == [1, 15, 30]
    with pytest.raises(ValueError, match="steps_per_epoch must be a whole number"):
        Setting(OPTIMIZERS["sgd"], compat="official")
    with pytest.raises(
        ValueError, match=r"every must be at most steps_per_epoch .*, got 300 and 4: no step would update"
    ):
        Setting(OPTIMIZERS["sgd"], every=None, compat="official", steps_per_epoch=4)
    with pytest.raises(ValueError, match="compat must be one of official, layout"):
        Setting(OPTIMIZERS["sgd"], compat="theirs")


def test_advancing_twice_is_exactly_that():
    run = Setting(
        OPTIMIZERS["sgd"], batch_norm=False, compat=["advance-twice"], meta_optimizer=lambda p: SGD(p, lr=0.0)
    )
    loss = run.backward(0)
    run.meta.step(loss)
    net, state = run.meta.net, run.meta.net.initial_state()
    for _ in range(2):
        _, state = net(loss.detach().reshape(1), state)
    torch.testing.assert_close(run.meta._engine.copy_memory(), state.detach())


class Unknown(SGD):
    pass


@pytest.mark.parametrize("kind", [Rprop, LBFGS, ASGD, Unknown])
def test_an_optimizer_that_is_not_linear_is_refused_with_the_reason(kind):
    model = make_model()
    optimizer = kind(model.parameters(), lr=0.1)
    with pytest.raises(
        TypeError, match=f"optimizer must take steps that are linear in its LR, and {kind.__name__} is not"
    ):
        MetaTrainer(model, optimizer, total_steps=9, val_loss=lambda: None, num_classes=5)
    if kind is Unknown:
        MetaTrainer(model, optimizer, total_steps=9, val_loss=lambda: None, num_classes=5, assume_linear=True)


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


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"every": 0}, ValueError, "every must be a whole number >= 1, got 0"),
        ({"bptt": 0}, ValueError, "bptt must be a whole number >= 1, got 0"),
        ({"num_phases": 0}, ValueError, "num_phases must be a whole number >= 1, got 0"),
        ({"num_classes": None}, ValueError, "num_classes must be given"),
        ({"meta_optimizer": SGD([nn.Parameter(torch.ones(1))], lr=1.0)}, ValueError, "meta_optimizer must hold"),
    ],
)
def test_a_bad_argument_is_named(options, error, message):
    with pytest.raises(error, match=message):
        Setting(OPTIMIZERS["sgd"], **options)


def test_coarse_weights_a_missing_backward_and_a_bad_val_loss_are_named():
    model = make_model(False, torch.bfloat16)
    with pytest.raises(TypeError, match=r"parameters must be float32 or float64, got torch.bfloat16"):
        MetaTrainer(model, SGD(model.parameters(), lr=0.1), total_steps=9, val_loss=lambda: None, num_classes=5)
    with pytest.raises(TypeError, match="val_loss must be a function"):
        MetaTrainer(make_model(), SGD(make_model().parameters(), lr=0.1), total_steps=9, val_loss=1.0, num_classes=5)
    run = Setting(OPTIMIZERS["sgd"])
    with pytest.raises(RuntimeError, match=r"call loss.backward\(\) before meta.step"):
        run.meta.step(1.5)
    run = Setting(OPTIMIZERS["sgd"])
    run.meta.val_loss = lambda: 1.0
    loss = run.backward(0)
    with pytest.raises(ValueError, match=r"val_loss\(\) must return a scalar tensor with a gradient, got 1.0"):
        run.meta.step(loss)
    with pytest.raises(ValueError, match="step needs this batch's loss, got None"):
        run.meta.step()
    with pytest.raises(ValueError, match="state_dict must be one saved by MetaTrainer"):
        run.meta.load_state_dict({"net": {}})


def test_an_open_step_can_be_put_anywhere_on_its_line():
    model, data = make_model(False), make_data()
    optimizer = SGD(model.parameters(), lr=0.1)
    batch_loss(model, data, 0).backward()
    start = [p.detach().clone() for p in model.parameters()]
    step = OpenStep(optimizer, optimizer.step, [1.0], 0.3)
    for alpha in (0.3, 0.05, 0.0):
        step.move(alpha)
        for p, w in zip(model.parameters(), start, strict=True):
            torch.testing.assert_close(p.detach(), w - alpha * p.grad, rtol=1e-9, atol=1e-12)


def test_no_trace_survives_new_gradients():
    model = make_model()
    with no_trace(model, []):
        model(torch.randn(4, 6, dtype=torch.float64)).sum().backward()
        assert model[0].weight.grad is not None
    assert model[0].weight.grad is None
    assert model[1].num_batches_tracked == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.eval()


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


class Careless(nn.Module):
    """Buffers of every kind, one of them assigned anew in every pass."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, CLASSES)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("graph", torch.eye(3).to_sparse())
        self.register_buffer("wide", torch.zeros(1).expand(3))
        self.register_buffer("coarse", torch.zeros(3, dtype=torch.uint8))
        self.register_buffer("flag", torch.tensor(False))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.flag.fill_(True)
        return self.linear(x)


def test_buffers_of_every_kind_are_put_back():
    model = Careless()
    mean, flag = model.mean, model.flag
    with no_trace(model, []):
        model(torch.randn(4, 6))
        assert model.mean is not mean
    assert model.mean is mean
    assert not flag
    assert not model.mean.any()


def test_gradients_of_every_parameter_of_the_optimizer_are_put_back():
    model, head = make_model(False), nn.Linear(CLASSES, CLASSES).double()
    optimizer = SGD([{"params": model.parameters()}, {"params": head.parameters(), "lr": 0.0}], lr=0.1)
    data = make_data()

    def loss_of(index):
        return cross_entropy(head(model(data[0][index])), data[1][index])

    meta = MetaTrainer(model, optimizer, total_steps=9, val_loss=lambda: loss_of(-1), num_classes=CLASSES)
    loss = loss_of(0)
    loss.backward()
    gradient = head.weight.grad.clone()
    meta.step(loss)
    assert torch.equal(head.weight.grad, gradient)


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


def test_sparse_gradients_are_refused_before_anything_moves():
    model = nn.Sequential(nn.EmbeddingBag(10, CLASSES, sparse=True))
    optimizer = SGD(model.parameters(), lr=0.1)
    meta = MetaTrainer(model, optimizer, total_steps=9, val_loss=lambda: None, num_classes=CLASSES)
    loss = cross_entropy(model(torch.randint(10, (4, 3))), torch.zeros(4, dtype=torch.int64))
    loss.backward()
    before = model[0].weight.detach().clone()
    with pytest.raises(TypeError, match="gradients must be dense for meta-training"):
        meta.step(loss)
    assert torch.equal(model[0].weight, before)


def test_a_failing_step_does_not_leave_the_measuring_lr():
    run = Setting(OPTIMIZERS["sgd"], every=1)
    loss = run.backward(0)

    def broken():
        raise RuntimeError("out of memory")

    run.meta._take = broken
    with pytest.raises(RuntimeError, match="out of memory"):
        run.meta.step(loss)
    assert run.optimizer.param_groups[0]["lr"] < 1


def test_autocast_around_a_meta_step_leaves_the_network_alone():
    meta = Setting(OPTIMIZERS["sgd"], dtype=torch.float32, batch_norm=False).meta
    moment = meta._engine.moment(1.5)
    expected = meta._alpha(1.5, moment)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(meta._alpha(1.5, moment), expected, strict=True))


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scaler": True}, "scaler must be a torch.amp.GradScaler or None, got True"),
        ({"gamma": "paper"}, "gamma must be a mlrsnet.Gamma or None, got 'paper'"),
        ({"meta_optimizer": "adam"}, "meta_optimizer must be an optimizer or a function that makes one, got 'adam'"),
        ({"net": LSTMNet(4).bfloat16()}, "net must be float32 or float64, got torch.bfloat16"),
        ({"net": "lstm"}, "net must be a schedule network or None, got 'lstm': pass LSTMNet"),
        ({"net": nn.Linear(1, 1)}, "net must be a schedule network or None, got Linear"),
        ({"compat": 5}, "compat must be a name or a list of names, got 5"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_named(options, message):
    with pytest.raises(TypeError, match=message):
        Setting(OPTIMIZERS["sgd"], **options)
    with pytest.raises(ValueError, match="steps_per_epoch must be a whole number >= 1, got -3"):
        Setting(OPTIMIZERS["sgd"], steps_per_epoch=-3)
    with pytest.raises(TypeError, match=r"optimizer must be a torch.optim.Optimizer, got \[1\]"):
        MetaTrainer(make_model(), [1], total_steps=9, val_loss=lambda: None, num_classes=5)
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got None"):
        MetaTrainer(None, SGD(make_model().parameters()), total_steps=9, val_loss=lambda: None, num_classes=5)


def test_gradients_of_ones_own_teach_the_network_as_a_validation_loss_does():
    """`val_gradients` is for those who compute them elsewhere, in a CUDA graph, say."""
    with_loss = Setting(OPTIMIZERS["adam"], batch_norm=False)
    without = Setting(OPTIMIZERS["adam"], batch_norm=False)

    def val_gradients():
        loss = without.val_loss()
        return loss.detach(), torch.autograd.grad(loss, list(without.model.parameters()))

    without.meta.val_loss, without.meta.val_gradients = None, val_gradients
    assert with_loss.train(range(12)) == pytest.approx(without.train(range(12)), rel=1e-12)
    torch.testing.assert_close(with_loss.weights(), without.weights(), rtol=1e-10, atol=1e-12)
    assert without.meta.num_updates == 4


def test_parameters_without_a_validation_gradient_do_not_count():
    run = Setting(OPTIMIZERS["sgd"], batch_norm=False)
    run.meta.val_loss = None
    number = len(list(run.model.parameters()))
    run.meta.val_gradients = lambda: (torch.tensor(1.0), [None] * number)
    run.train(range(1))
    assert run.meta.last_hypergradient == 0


def test_gradients_of_another_number_are_named():
    run = Setting(OPTIMIZERS["sgd"], batch_norm=False)
    run.meta.val_loss, run.meta.val_gradients = None, lambda: (torch.tensor(1.0), [None])
    number = len(list(run.model.parameters()))
    message = rf"val_gradients\(\) must return one gradient or None for each of the model's {number} parameters, got 1"
    with pytest.raises(ValueError, match=message):
        run.train(range(1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "pass val_loss, or val_gradients instead of it"),
        ({"val_loss": lambda: 0, "val_gradients": lambda: 0}, "pass val_loss, or val_gradients instead of it"),
        ({"val_gradients": 3}, "val_gradients must be a function that returns a loss and gradients, got 3"),
    ],
)
def test_the_held_out_data_is_given_in_one_way(given, message):
    model = make_model()
    with pytest.raises(TypeError, match=message):
        MetaTrainer(model, SGD(model.parameters(), lr=0.1), total_steps=3, num_classes=CLASSES, **given)


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
