"""Closures, optimizers inside of optimizers, and those that no schedule can serve."""

import inspect

import pytest
import pytorch_optimizer
import schedulefree
import torch
from loops import backward, loss_of, lrs_of, network, train, weights_of
from torch.optim import SGD, AdamW, Optimizer
from transformers.trainer_pt_utils import LayerWiseDummyOptimizer

from mlrsnet import LearnedLR, MetaTrainer
from mlrsnet.meta import Learning

STEPS = 12
MAKE = {"sgd": SGD, "momentum": lambda p, lr: SGD(p, lr=lr, momentum=0.9), "adamw": AdamW}
CALLS = {
    "by position": lambda optimizer, closure: optimizer.step(closure),
    "by keyword": lambda optimizer, closure: optimizer.step(closure=closure),
    "none": lambda optimizer, closure: (closure(), optimizer.step(closure=None)),
    "none by position": lambda optimizer, closure: (closure(), optimizer.step(None)),
}


def with_closures(model, optimizer, call, steps=STEPS, lr=None):
    """A loop whose gradients are computed inside of `optimizer.step`."""
    used, losses = [], []
    for step in range(steps):

        def closure(step=step):
            optimizer.zero_grad()
            losses.append(backward(model, step))
            if lr is not None:
                lr.step(losses[-1])
            return losses[-1]

        call(optimizer, closure)
        used.append(lrs_of(optimizer))
    assert len(losses) == steps  # once each: a batch must not be read twice
    return used


@pytest.mark.parametrize("tells", [False, True], ids=["without losses", "with losses"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_a_closure_trains_as_the_plain_loop(make, call, tells, kind):
    model, plain = network(), network()
    optimizer, other = make(model.parameters(), lr=kind()), make(plain.parameters(), lr=kind())
    lr, beside = LearnedLR(optimizer, total_steps=STEPS), LearnedLR(other, total_steps=STEPS)
    used = with_closures(model, optimizer, call, lr=lr if tells else None)
    assert used == train(plain, other, STEPS, lr=beside if tells else None)
    assert torch.equal(weights_of(model), weights_of(plain))
    assert lr.last_epoch == STEPS


def test_the_loss_of_a_closure_comes_back():
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    LearnedLR(optimizer, total_steps=STEPS)
    assert optimizer.step(lambda: 7.5) == 7.5


class Stepwise(Optimizer):
    """A third-party optimizer that computes the gradients itself, from a function that it takes by position."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, loss_fn, scale=1.0):
        weights = [weight for group in self.param_groups for weight in group["params"]]
        with torch.enable_grad():
            loss = loss_fn()
            gradients = torch.autograd.grad(loss * scale, weights)
        with torch.no_grad():
            for group in self.param_groups:
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight -= group["lr"] * gradient
        return loss


def test_a_third_partys_step_with_an_argument_of_its_own_is_called_as_it_is(kind):
    """It gave a TypeError. Its first step is a careful one, since its gradients are not there before it; then it is measured."""
    model, plain = network(), network()
    optimizer, other = Stepwise(model.parameters(), lr=kind()), SGD(plain.parameters(), lr=kind(), momentum=1e-9)
    lr = LearnedLR(optimizer, total_steps=60)
    LearnedLR(other, total_steps=60)
    used = []
    for step in range(60):
        optimizer.step(lambda: loss_of(model, step), 1.0)  # noqa: B023
        used += lrs_of(optimizer)
    assert lr.last_epoch == 60
    assert used[10:] == pytest.approx([one for (one,) in train(plain, other, 60)][10:], rel=0.25)


class SAM(Optimizer):
    """Sharpness-aware minimisation as most people copy it: up to the worst point nearby, then a step from where it was."""

    def __init__(self, params, base, rho=0.05, **settings):
        super().__init__(params, {"rho": rho, **settings})
        self.base_optimizer = base(self.param_groups, **settings)
        self.param_groups = self.base_optimizer.param_groups
        self.defaults.update(self.base_optimizer.defaults)

    def weights(self):
        return [weight for group in self.param_groups for weight in group["params"] if weight.grad is not None]

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        length = torch.stack([weight.grad.norm() for weight in self.weights()]).norm() + 1e-12
        for weight in self.weights():
            self.state[weight]["start"] = weight.clone()
            weight.add_(weight.grad * (self.defaults["rho"] / length))
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for weight in self.weights():
            weight.copy_(self.state[weight]["start"])
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        closure = torch.enable_grad()(closure)
        self.first_step(zero_grad=True)
        closure()
        self.second_step()

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.base_optimizer.param_groups = self.param_groups


def in_two_halves(model, optimizer, steps=STEPS, begin=0):
    used = []
    for step in range(begin, begin + steps):
        backward(model, step)
        optimizer.first_step(zero_grad=True)
        backward(model, step)
        optimizer.second_step(zero_grad=True)
        used.append(lrs_of(optimizer))
    return used


def in_one_call(model, optimizer, steps=STEPS, begin=0):
    used = []
    for step in range(begin, begin + steps):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step(lambda: backward(model, step))  # noqa: B023
        used.append(lrs_of(optimizer))
    return used


def own_sam(model, kind):
    return SAM(model.parameters(), AdamW, lr=kind())


def packaged_sam(model, kind):
    return pytorch_optimizer.SAM(model.parameters(), AdamW, lr=kind())


@pytest.mark.parametrize("make", [own_sam, packaged_sam])
@pytest.mark.parametrize("loop", [in_two_halves, in_one_call])
def test_sam_is_measured_from_where_its_step_begins(make, loop, kind):
    """Its halves fire no hook of its own. Measured from the worst point nearby, steps would seem longer than they are."""
    model = network()
    optimizer = make(model, kind)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    before = [weight.detach().clone() for weight in model.parameters() if weight.ndim > 1]
    used = loop(model, optimizer, steps=1)
    matrices = [weight.detach() for weight in model.parameters() if weight.ndim > 1]
    moved = sum((b - a).square().sum() for a, b in zip(before, matrices, strict=True))
    length = sum(a.square().sum() for a in before)
    assert lr.status()["step_length"] == pytest.approx(
        float((moved / length).sqrt()), rel=0.2
    )  # matrices count as if square
    used += loop(model, optimizer, steps=STEPS - 1, begin=1)
    assert lr.last_epoch == STEPS
    assert all(0 < one < 0.5 for (one,) in used)
    other = network()
    halves = make(other, kind)
    LearnedLR(halves, total_steps=STEPS)
    assert in_two_halves(other, halves) == used


def test_sam_goes_on_after_its_state_was_loaded(kind):
    model, other = network(), network()
    optimizer, fresh = own_sam(model, kind), own_sam(other, kind)
    lr, resumed = LearnedLR(optimizer, total_steps=STEPS), LearnedLR(fresh, total_steps=STEPS)
    in_two_halves(model, optimizer, 5)
    mine = fresh.param_groups[0]["lr"]
    other.load_state_dict(model.state_dict())
    fresh.load_state_dict(optimizer.state_dict())
    fresh.base_optimizer.state.update(zip(other.parameters(), optimizer.base_optimizer.state.values(), strict=True))
    resumed.load_state_dict(lr.state_dict())
    assert isinstance(mine, float) or fresh.param_groups[0]["lr"] is mine
    optimizer.base_optimizer.load_state_dict(optimizer.base_optimizer.state_dict())
    optimizer.param_groups = optimizer.base_optimizer.param_groups
    assert lr.last_epoch == resumed.last_epoch == 5
    assert in_two_halves(other, fresh, 1, 5)[0][0] > 0
    assert resumed.last_epoch == 6


def wrapped(name):
    kind = getattr(pytorch_optimizer, name)
    return lambda model, lr: kind(AdamW(model.parameters(), lr=lr))


@pytest.mark.parametrize("name", ["Lookahead", "OrthoGrad", "TRAC"])
def test_a_wrapper_counts_each_step_once(name, kind):
    model = network()
    optimizer = wrapped(name)(model, kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    used = train(model, optimizer, STEPS, lr=lr)
    assert lr.last_epoch == lr.status()["step"] == STEPS
    assert all(0 < one < 0.5 for (one,) in used)
    assert len(set(map(tuple, used))) == STEPS


def test_lookahead_may_be_given_to_it_inside_or_outside():
    """As where a framework wraps the optimizer of a scheduler that exists."""
    lrs = []
    for is_inside in (True, False):
        model = network()
        inner = AdamW(model.parameters(), lr=0.1)
        optimizer = pytorch_optimizer.Lookahead(inner)
        LearnedLR(inner if is_inside else optimizer, total_steps=STEPS)
        lrs.append(train(model, optimizer, STEPS))
    assert lrs[0] == lrs[1]


WEIGHTS = [torch.nn.Parameter(torch.ones(2, 2))]
UNSUITABLE = {
    "ScheduleFreeWrapper": lambda: pytorch_optimizer.ScheduleFreeWrapper(SGD(WEIGHTS, lr=0.1)),
    "ScheduleFreeAdamW": lambda: pytorch_optimizer.ScheduleFreeAdamW(WEIGHTS),
    "AdamWScheduleFree": lambda: schedulefree.AdamWScheduleFree(WEIGHTS),
    "ScheduleFreeWrapper of its own package": lambda: schedulefree.ScheduleFreeWrapper(
        SGD(WEIGHTS, lr=0.1), momentum=0.9
    ),
    "ASGD": lambda: torch.optim.ASGD(WEIGHTS),
    "Rprop": lambda: torch.optim.Rprop(WEIGHTS),
    "LayerWiseDummyOptimizer": lambda: LayerWiseDummyOptimizer({}),  # as with optim="galore_adamw_layerwise"
    "LBFGS": lambda: torch.optim.LBFGS(WEIGHTS),
    "Prodigy": lambda: pytorch_optimizer.Prodigy(WEIGHTS),
    "SAM around ASGD": lambda: SAM(WEIGHTS, torch.optim.ASGD, lr=0.1),
    "Lookahead around ScheduleFreeAdamW": lambda: pytorch_optimizer.Lookahead(
        pytorch_optimizer.ScheduleFreeAdamW(WEIGHTS)
    ),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_an_optimizer_that_no_schedule_can_serve_is_refused_by_its_name(name):
    optimizer = UNSUITABLE[name]()
    found = name.split()[0] if " around " not in name else name.split()[-1]
    with pytest.raises(
        ValueError, match=f"optimizer must leave its LR to the schedule, got {found}, which .*: use another"
    ):
        LearnedLR(optimizer, total_steps=STEPS)


def test_a_step_that_failed_is_not_counted(kind):
    model, plain = network(), network()
    optimizer, other = SGD(model.parameters(), lr=kind()), SGD(plain.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(other, total_steps=STEPS)
    used = train(model, optimizer, 3)

    def fails():
        raise OSError("out of pictures")

    with pytest.raises(OSError, match="out of pictures"):
        optimizer.step(fails)
    handle = optimizer.register_step_pre_hook(lambda *_: fails())
    with pytest.raises(OSError, match="out of pictures"):
        optimizer.step()
    handle.remove()
    assert lr.last_epoch == 3
    assert used + train(model, optimizer, STEPS - 3, begin=3) == train(plain, other, STEPS)


def test_every_step_of_torch_that_takes_a_closure_calls_it_so():
    """The name by which a closure is found."""
    kinds = [
        one
        for one in vars(torch.optim).values()
        if isinstance(one, type) and issubclass(one, Optimizer) and one is not Optimizer
    ]
    assert len(kinds) > 10
    assert all(list(inspect.signature(kind.step).parameters)[1] == "closure" for kind in kinds)


def test_a_wrapped_optimizer_may_be_meta_trained():
    """`MetaTrainer` opens and ends the steps itself: no hook of either optimizer may do it too."""
    model = network(torch.float64)
    inner = SGD(model.parameters(), lr=0.1)
    optimizer = pytorch_optimizer.OrthoGrad(inner)
    meta = MetaTrainer(
        model,
        optimizer,
        total_steps=STEPS,
        val_loss=lambda: loss_of(model, 31),
        num_classes=5,
        learning=Learning(every=4, assume_linear=True),
    )
    for step in range(STEPS):
        optimizer.zero_grad()
        meta.step(backward(model, step))
    assert (meta.step_count, meta.num_updates) == (STEPS, 3)
    saved = inner.state_dict()
    meta.lr.remove()
    inner.load_state_dict(saved)
    assert not inner._optimizer_load_state_dict_post_hooks
