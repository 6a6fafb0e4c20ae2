"""A scheduler that is saved in mid-training goes on bit for bit; a new one over an old optimizer says so."""

import copy
import io
import warnings

import pytest
import pytorch_optimizer
import torch
from loops import backward, lrs_of, network, train, weights_of
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR
from mlrsnet._optimizers import has_stepped

STEPS = 16
MAKE = {
    "sgd": lambda p, lr: SGD(p, lr=lr),
    "momentum": lambda p, lr: SGD(p, lr=lr, momentum=0.9),
    "adamw": lambda p, lr: AdamW(p, lr=lr),
}


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Training:
    """A network, its optimizer and its scheduler, as a script makes them at every start."""

    def __init__(self, make, kind, dtype=torch.float32, schedule="universal", total_steps=STEPS):
        self.model = network(dtype)
        self.optimizer = make(self.model.parameters(), kind())
        self.lr = LearnedLR(self.optimizer, schedule, total_steps=total_steps, num_classes=5)

    def train(self, steps, tells=True):
        return train(self.model, self.optimizer, steps, self.lr.last_epoch, self.lr if tells else None)

    def saved(self):
        return through_a_file([one.state_dict() for one in (self.model, self.optimizer, self.lr)])

    def load(self, states, *, scheduler_first=False):
        model, optimizer, lr = copy.deepcopy(states)  # torch's optimizers go on in the tensors that they were given
        self.model.load_state_dict(model)
        if scheduler_first:
            self.lr.load_state_dict(lr)
        self.optimizer.load_state_dict(optimizer)
        if not scheduler_first:
            self.lr.load_state_dict(lr)
        return self


def same(one, other):
    assert torch.equal(weights_of(one.model), weights_of(other.model))
    seen, known = one.lr.status(), other.lr.status()
    assert repr(seen) == repr(known)
    assert (one.lr.history == other.lr.history).all()
    assert repr(one.lr.state_dict()) == repr(other.lr.state_dict())


@pytest.mark.parametrize("scheduler_first", [False, True], ids=["optimizer first", "scheduler first"])
@pytest.mark.parametrize("steps", [0, 1, 7, STEPS])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_a_training_goes_on_bit_for_bit(make, steps, scheduler_first, kind):
    whole = Training(make, kind)
    whole.train(steps)
    resumed = Training(make, kind).load(whole.saved(), scheduler_first=scheduler_first)
    same(resumed, whole)
    assert lrs_of(resumed.optimizer) == lrs_of(whole.optimizer)
    assert resumed.train(STEPS - steps) == whole.train(STEPS - steps)
    same(resumed, whole)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["universal", "paper", "horizon"])
def test_any_schedule_goes_on_bit_for_bit_in_any_precision(name, dtype, kind, request):
    schedule = name if name == "universal" else request.getfixturevalue(name)
    whole = Training(MAKE["adamw"], kind, dtype, schedule)
    whole.train(5)
    resumed = Training(MAKE["adamw"], kind, dtype, schedule).load(whole.saved())
    assert resumed.train(STEPS - 5) == whole.train(STEPS - 5)
    same(resumed, whole)


def test_a_state_does_not_change_with_the_training_that_it_was_taken_of(kind):
    whole = Training(MAKE["adamw"], kind)
    whole.train(5)
    kept, saved = whole.lr.state_dict(), whole.saved()
    first = whole.train(STEPS - 5)
    assert repr(kept) == repr(saved[2])
    again = Training(MAKE["adamw"], kind).load(saved)
    assert again.train(STEPS - 5) == first
    again.load(saved)  # back in the same process, as a search for settings does it
    assert again.train(STEPS - 5) == first


def test_losses_that_wait_for_their_step_are_part_of_the_state(paper, kind):
    """Saved in the middle of an accumulation, and between `step(loss)` and the optimizer's step."""
    whole = Training(MAKE["sgd"], kind, schedule=paper)
    whole.train(4)
    whole.lr.observe(1.25)
    middle = Training(MAKE["sgd"], kind, schedule=paper).load(whole.saved())
    for one in (whole, middle):
        one.lr.step(torch.tensor(1.75))
    end = Training(MAKE["sgd"], kind, schedule=paper).load(middle.saved())
    used = []
    for one in (whole, middle, end):
        one.optimizer.zero_grad()
        backward(one.model, 4)
        one.optimizer.step()
        used.append(lrs_of(one.optimizer) + one.train(3))
    assert used[0] == used[1] == used[2]


def test_a_training_without_losses_goes_on_bit_for_bit(kind):
    whole = Training(MAKE["adamw"], kind)
    whole.train(6, tells=False)
    resumed = Training(MAKE["adamw"], kind).load(whole.saved())
    assert resumed.train(STEPS - 6, tells=False) == whole.train(STEPS - 6, tells=False)


def with_a_head(kind, begins=0):
    """A network whose second layer joins the optimizer later."""
    model = network()
    optimizer = AdamW(model[0].parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    return model, optimizer, lr


def join(model, optimizer, kind):
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": kind(0.2)})


@pytest.mark.parametrize("later", [0, 3], ids=["before its next step", "three steps later"])
def test_a_group_that_joined_in_mid_training_is_resumed_with_the_rest(later, kind):
    """What was known of the weights before was dropped where a group had joined since the last step."""
    model, optimizer, lr = with_a_head(kind)
    model[0].weight.data *= 30  # a matrix that begins too long counts as shorter for ever
    used = train(model, optimizer, 6, lr=lr)
    model[2].zero_grad()
    join(model, optimizer, kind)
    used += train(model, optimizer, later, begin=6, lr=lr)
    saved = through_a_file([one.state_dict() for one in (model, optimizer, lr)])

    for joins_before in (True, False):
        other, fresh, resumed = with_a_head(kind)
        if joins_before:
            join(other, fresh, kind)
        other.load_state_dict(saved[0])
        if not joins_before:
            join(other, fresh, kind)
        fresh.load_state_dict(copy.deepcopy(saved[1]))
        resumed.load_state_dict(saved[2])
        twin, own = copy.deepcopy((model, lr))
        left = STEPS - 6 - later
        assert train(other, fresh, left, 6 + later, resumed) == train(twin, own.optimizer, left, 6 + later, own)
        assert torch.equal(weights_of(other), weights_of(twin))
        assert resumed.status()["distance"] == own.status()["distance"]


def test_a_group_may_join_after_a_resume_too(kind):
    model, optimizer, lr = with_a_head(kind)
    train(model, optimizer, 6, lr=lr)
    saved = through_a_file([one.state_dict() for one in (model, optimizer, lr)])
    other, fresh, resumed = with_a_head(kind)
    for one, state in zip((other, fresh, resumed), saved, strict=True):
        one.load_state_dict(state)
    used = []
    for net, one, schedule in ((model, optimizer, lr), (other, fresh, resumed)):
        net[2].zero_grad()
        join(net, one, kind)
        used.append(train(net, one, STEPS - 6, 6, schedule))
        assert all(b == pytest.approx(2 * a) for a, b in used[-1])
    assert used[0] == used[1]


def test_a_copy_can_load_a_state_before_its_first_step(kind):
    whole = Training(MAKE["adamw"], kind)
    whole.train(5)
    saved = whole.saved()
    model, lr = copy.deepcopy((whole.model, whole.lr))
    whole.train(3)
    lr.optimizer.load_state_dict(copy.deepcopy(saved[1]))
    lr.load_state_dict(saved[2])
    model.load_state_dict(saved[0])
    assert train(model, lr.optimizer, 3, 5, lr) == Training(MAKE["adamw"], kind).load(saved).train(3)


BEGINS_ANEW = "the optimizer has taken steps before, and this LearnedLR begins its schedule anew"


@pytest.mark.parametrize("make", [MAKE["momentum"], MAKE["adamw"]], ids=["momentum", "adamw"])
def test_forgetting_the_schedules_state_is_said_at_the_first_step(make, kind):
    """It restarted the warm-up silently, and never annealed."""
    whole = Training(make, kind)
    whole.train(5)
    model, optimizer, _ = whole.saved()
    forgetful = Training(make, kind)
    forgetful.model.load_state_dict(model)
    forgetful.optimizer.load_state_dict(optimizer)  # no warning yet: the schedule's state may follow
    with pytest.warns(UserWarning, match=BEGINS_ANEW) as told:
        forgetful.train(3)
    assert len(told) == 1


COUNTS_ELSEWHERE = {
    "inside a wrapper": lambda p, lr: pytorch_optimizer.Lookahead(AdamW(p, lr=lr)),
    "for a whole group": lambda p, lr: pytorch_optimizer.Lion(p, lr=lr),
}


@pytest.mark.parametrize("make", COUNTS_ELSEWHERE.values(), ids=COUNTS_ELSEWHERE)
def test_forgetting_is_said_wherever_an_optimizer_counts_its_steps(make, kind):
    whole = Training(make, kind)
    whole.train(5)
    with pytest.warns(UserWarning, match="which the new one replaces"):
        LearnedLR(whole.optimizer, total_steps=STEPS)
    with pytest.warns(UserWarning, match=BEGINS_ANEW):
        train(whole.model, whole.optimizer, 1)


def test_a_count_that_is_no_number_stops_no_training():
    """Whatever a third-party optimizer may keep under this name."""
    fresh = Training(MAKE["adamw"], lambda: 0.1)
    for count in ({"first": 7}, None, "7", torch.zeros(3)):
        fresh.optimizer.state[next(fresh.model.parameters())] = {"step": count}
        assert not has_stepped(fresh.optimizer)


def test_nothing_is_said_where_a_training_only_begins_or_goes_on(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh = Training(MAKE["adamw"], kind)
        get_optimizer_state_dict(fresh.model, fresh.optimizer)  # a distributed checkpoint makes a step of its own
        fresh.train(3)
        Training(MAKE["adamw"], kind).load(fresh.saved()).train(3)


def test_a_frozen_network_with_a_new_head_is_no_old_training():
    """A new optimizer over old weights: fine-tuning, not a resume."""
    old = Training(MAKE["adamw"], lambda: 0.1)
    old.train(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = AdamW(old.model.parameters(), lr=0.1)
        LearnedLR(optimizer, total_steps=STEPS)
        train(old.model, optimizer, 3)


def one_weight(total_steps, kind=lambda: 0.1):
    weight = nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.full((2, 2), 0.01)
    optimizer = SGD([weight], lr=kind(), momentum=0.5, foreach=False)
    return optimizer, LearnedLR(optimizer, total_steps=total_steps)


def size_of(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.tell()


def test_the_record_of_a_long_training_stays_small():
    """1.6 MB were in every checkpoint after 200,000 steps."""
    optimizer, lr = one_weight(1000)
    for _ in range(500):
        optimizer.step()
    assert len(lr.history) == 500
    lr.extend(200_000)
    assert lr.history_stride == 32
    for _ in range(64):
        optimizer.step()
    assert len(lr.history) == -(-564 // 32)
    saved = lr.state_dict() | {"history": torch.rand(200_000 // 32, dtype=torch.float64)}  # at its end
    assert size_of(saved) < 60_000
    resumed = one_weight(200_000)[1]
    resumed.load_state_dict(through_a_file(lr.state_dict()))
    assert (resumed.history == lr.history).all()
    assert resumed.history_stride == 32


@pytest.mark.filterwarnings("ignore:the training has taken")
def test_the_record_of_a_training_without_an_end_is_thinned_as_it_grows():
    optimizer, lr = one_weight(None)
    for _ in range(5_500):
        optimizer.step()
    assert lr.history_stride == 2
    assert len(lr.history) == 2_750
    assert lr.last_epoch == 5_500


def test_the_record_on_a_device_is_thinned_alike(on_device):
    floats, tensors = one_weight(500), one_weight(500, lambda: torch.tensor(0.1, dtype=torch.float64))
    for optimizer, lr in (floats, tensors):
        for _ in range(300):
            optimizer.step()
        lr.extend(40_000)
        for _ in range(100):
            optimizer.step()
    assert tensors[1].history == pytest.approx(floats[1].history, rel=1e-6)
    assert len(tensors[1].history) == 100


def test_a_training_far_beyond_its_end_keeps_no_more():
    optimizer, lr = one_weight(10)
    with pytest.warns(UserWarning, match="is past total_steps=10"):
        for _ in range(10_200):
            optimizer.step()
    assert len(lr.history) == 10_000
    assert lr.last_epoch == 10_200


def test_a_state_of_the_version_before_says_what_to_do():
    lr = Training(MAKE["sgd"], lambda: 0.1).lr
    with pytest.raises(
        ValueError,
        match=r"saved before version 0.2.* finish that training with the version that began it, or make a new",
    ):
        lr.load_state_dict({"version": 1, "last_epoch": 7})
