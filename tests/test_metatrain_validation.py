"""The validation pass of a meta-update: it leaves no trace, and the user's own gradients can replace it."""

import copy
import math
import warnings

import pytest
import torch
from cases import OPTIMIZERS
from meta_setting import CLASSES, Setting, batch_loss, make_data, make_model
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from mlrsnet import MetaTrainer
from mlrsnet.meta import Learning
from mlrsnet.meta.validation import no_trace
from mlrsnet.nets import LSTMNet


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
        options = {"net": LSTMNet(4), "num_classes": CLASSES, "learning": Learning(every=1), "val_loss": val_loss}
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


class Careless(nn.Module):
    """Buffers of every kind. One is replaced by a new tensor in every pass."""

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


def test_gradients_of_ones_own_teach_the_network_as_a_validation_loss_does():
    """`val_gradients`, for users who compute gradients elsewhere, for example in a CUDA graph."""
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
        ({}, "pass either val_loss or val_gradients"),
        ({"val_loss": lambda: 0, "val_gradients": lambda: 0}, "pass either val_loss or val_gradients"),
        (
            {"val_gradients": 3},
            "val_gradients must be a .*Callable.*, got 3: pass a function that returns a loss and gradients",
        ),
    ],
)
def test_the_held_out_data_is_given_in_one_way(given, message):
    model = make_model()
    with pytest.raises(TypeError, match=message):
        MetaTrainer(model, SGD(model.parameters(), lr=0.1), total_steps=3, num_classes=CLASSES, **given)
