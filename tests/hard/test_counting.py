"""What is counted: the optimizer's own steps, whoever calls `step` how often."""

import importlib

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from loops import backward, lrs_of, network, train
from torch.optim import SGD, AdamW
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from mlrsnet import LearnedLR

STEPS = 12


def test_construction_leaves_the_lrs_of_the_user_alone(kind):
    model = network()
    optimizer = AdamW(
        [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": kind(0.5)}], lr=kind(0.25)
    )
    lr = LearnedLR(optimizer, total_steps=STEPS)
    assert lrs_of(optimizer) == lr.base_lrs == [0.25, 0.5]
    assert [float(one) for one in lr.get_last_lr()] == [float(one) for one in lr._last_lr] == [0.25, 0.5]
    for step in range(3):
        for moment in (lambda: backward(model, 0), lambda: lr.step(1.0), optimizer.step, lr.step):
            moment()
            assert [float(one) for one in lr.get_last_lr()] == [float(one) for one in lr._last_lr] == lrs_of(optimizer)
        assert lrs_of(optimizer)[0] == pytest.approx(lr.history[step])  # what a logger sees is the LR of the last step


@pytest.mark.parametrize("calls", [0, 1, 4], ids="{} calls".format)
def test_accumulation_does_not_end_a_training_early(calls, kind):
    """However often a framework calls `step`, and wherever: 3 optimizer steps of 4 batches are 3 steps."""
    model = network()
    optimizer = SGD(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=3)
    used = []
    for batch in range(12):
        backward(model, batch)
        for _ in range(calls):
            lr.step()
        if batch % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
            used.append(lrs_of(optimizer)[0])
        for _ in range(calls):
            lr.step()
    assert lr.last_epoch == lr.status()["step"] == lr.total_steps == 3
    assert used == pytest.approx(lr.history.tolist())
    assert used == reference_of_accumulation(kind)


def reference_of_accumulation(kind):
    model = network()
    optimizer = SGD(model.parameters(), lr=kind())
    LearnedLR(optimizer, total_steps=3)
    used = []
    for first in range(0, 12, 4):
        optimizer.zero_grad()
        for batch in range(first, first + 4):
            backward(model, batch)
        optimizer.step()
        used.append(lrs_of(optimizer)[0])
    return used


def test_what_frameworks_write_into_torchs_counters_changes_nothing():
    model, other = network(), network()
    optimizer, plain = SGD(model.parameters(), lr=0.1), SGD(other.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(plain, total_steps=STEPS)
    used = []
    for step in range(STEPS):
        lr._step_count += 1
        used += train(model, optimizer, 1, begin=step)
        assert lr._step_count == lr.last_epoch == step + 1
    assert used == train(other, plain, STEPS)
    with pytest.raises(
        TypeError, match="counts optimizer steps, so an outer scheduler such as SequentialLR cannot move it"
    ):
        lr.last_epoch = 0


def test_a_scheduler_that_is_imported_by_its_path_and_stepped_last_trains_the_same():
    """As in trainers that read `lr_scheduler: {path: mlrsnet.LearnedLR, total_steps: 12}`."""
    module, _, name = "mlrsnet.LearnedLR".rpartition(".")
    scheduler_of = getattr(importlib.import_module(module), name)
    model, other = network(), network()
    optimizer, plain = SGD(model.parameters(), lr=0.1), SGD(other.parameters(), lr=0.1)
    scheduler = scheduler_of(optimizer=optimizer, **{"total_steps": STEPS})
    assert isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler)
    used = []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        backward(model, step)
        optimizer.step()
        scheduler.step()
        used.append(scheduler.get_last_lr())
    LearnedLR(plain, total_steps=STEPS)
    assert used == train(other, plain, STEPS)


@pytest.fixture
def accelerator():
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    yield Accelerator(gradient_accumulation_steps=2, cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    PartialState._reset_state()


@pytest.mark.parametrize("tells", [False, True], ids=["step()", "step(loss)"])
def test_accelerate_with_accumulation_takes_the_steps_that_there_are(accelerator, tells):
    model = network()
    optimizer = AdamW(model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=STEPS // 2)
    data = DataLoader(TensorDataset(torch.arange(STEPS)), batch_size=1)
    model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, lr)
    for batch in data:
        with accelerator.accumulate(model):
            loss = backward(model, int(batch[0]))
            optimizer.step()
            scheduler.step(*[loss] * tells)
            optimizer.zero_grad()
    assert lr.last_epoch == lr.status()["step"] == lr.total_steps


def test_one_step_too_many_is_said_once():
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=3)
    train(model, optimizer, 3)
    with pytest.warns(
        UserWarning, match="step 4 is past total_steps=3, which counts optimizer steps, not epochs"
    ) as told:
        train(model, optimizer, 3)
    assert len(told) == 1
    assert lr.last_epoch == 6


def test_the_status_says_what_the_sensors_see(kind):
    model = network()
    start = [weight.detach().clone() for weight in model.parameters() if weight.ndim > 1]
    optimizer = SGD(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    before = lr.status()
    assert (before["step"], before["total_steps"], before["progress"]) == (0, STEPS, 0)
    train(model, optimizer, 4, lr=lr)
    now = lr.status()
    assert (now["schedule"], now["step"], now["total_steps"], now["progress"]) == ("universal", 4, STEPS, 4 / STEPS)
    assert (now["matrices"], now["parameters"], now["has_norms"], now["is_trained"]) == (2, 113, False, False)
    assert now["lr"] == pytest.approx(lrs_of(optimizer)[0], rel=1e-6)
    matrices = [weight.detach() for weight in model.parameters() if weight.ndim > 1]
    moved = sum((a - b).square().sum() for a, b in zip(matrices, start, strict=True))
    assert now["distance"] == pytest.approx(float((moved / sum(one.square().sum() for one in start)).sqrt()), rel=1e-4)
    assert 0 < now["step_length"] < now["distance"]
    assert 0.5 < now["level"] < 1.5


class Words(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(10))


class WordsOfAGuessedLength(Words):
    def __len__(self):
        return 99


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("accumulate", [1, 3, 4, 50])
def test_a_loader_is_counted_as_the_loop_goes_through_it(drop_last, accumulate):
    """The rest of an epoch is a step too: with a wrong count a training ends before its LR has fallen, or trains on at 0."""
    loader = DataLoader(torch.arange(103), batch_size=8, drop_last=drop_last)
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    lr = LearnedLR.for_loader(optimizer, loader, epochs=2, accumulate=accumulate)
    for _ in range(2):
        for number, _ in enumerate(loader, 1):
            backward(model, number)
            if number % accumulate == 0 or number == len(loader):
                optimizer.step()
                optimizer.zero_grad()
    assert lr.last_epoch == lr.total_steps
    assert lr.status()["batch_size"] == 8 * min(accumulate, len(loader))


def test_the_options_of_a_scheduler_go_through_for_loader():
    model = network()
    optimizer = SGD(model.parameters(), lr=0.1)
    lr = LearnedLR.for_loader(optimizer, [1, 2, 3], 4, 2, "universal", scale=0.5, max_lr=1e-5)
    assert lr.total_steps == 8
    assert train(model, optimizer, 1) == [[1e-5]]


class Endless:
    """A loader of a library whose base class promises a length."""

    def __len__(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("loader", "found"),
    [
        (DataLoader(Words(), batch_size=2), "DataLoader"),
        (DataLoader(WordsOfAGuessedLength(), batch_size=2), "DataLoader"),
        (Words(), "Words"),
        (iter([1, 2]), "list_iterator"),
        (Endless(), "Endless"),
        (DataLoader(torch.arange(3), batch_size=8, drop_last=True), "DataLoader"),
    ],
    ids=["IterableDataset", "one with a guess", "without a loader", "iterator", "a promise", "no whole batch"],
)
def test_a_loader_without_a_length_is_not_guessed(loader, found):
    optimizer = SGD(network().parameters(), lr=0.1)
    with pytest.raises(ValueError, match=rf"loader must .*{found}.*: pass total_steps="):
        LearnedLR.for_loader(optimizer, loader, epochs=2)


@pytest.mark.parametrize(("name", "value"), [("epochs", 0), ("epochs", 1.5), ("accumulate", 0), ("accumulate", 2.5)])
def test_counts_that_are_none_are_refused(name, value):
    optimizer = SGD(network().parameters(), lr=0.1)
    with pytest.raises(ValueError, match=f"{name} must be a whole number >= 1, got {value}"):
        LearnedLR.for_loader(optimizer, [1, 2], **({"epochs": 1} | {name: value}))
