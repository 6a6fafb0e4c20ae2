"""Where trainings come from: repeatable draws, nothing held out is trained on, and errors that say what to do."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mlrsnet_lab.horizon import SGD, Adam, Data, Evolution, HorizonTrainer, Mixture, Task, Tasks, TaskSampler
from mlrsnet_lab.horizon.batches import Batches
from mlrsnet_lab.horizon.sampler import log_uniform, pick

CLASSES, COUNT = 5, 100


def make_data(count=COUNT, **options):
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
    return Data(inputs, torch.arange(count) % CLASSES, **options)


def make_text(count=30):
    tokens = torch.randint(7, (count, 9), generator=torch.Generator().manual_seed(0))
    return Data(tokens[:, :-1], tokens[:, 1:], 7)


def model(data):
    return nn.Linear(4, data.num_classes)


def other_model(data):
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, data.num_classes))


DATA = make_data()


def make_task(data=DATA, **options):
    return Task(data, model, **{"total_steps": 9, "batch_size": 8, **options})


def make_sampler(**options):
    return TaskSampler(**{"data": [DATA], "models": [model], "val_size": 20, "batch_sizes": (8,), **options})


def describe(task):
    """Everything that a training depends on."""
    settings = (task.total_steps, task.batch_size, task.classes, task.optimizer, task.weight_decay, task.label_noise)
    more = (task.seed, task.label_smoothing, task.clip_norm, id(task.data), task.model)
    return *settings, *more, tuple(task.train.tolist()), tuple(task.val.tolist())


# Data


def test_the_number_of_classes_is_found_or_given():
    assert DATA.num_classes == CLASSES
    assert make_data(num_classes=9).num_classes == 9
    assert make_text().num_classes == 7


def test_arrays_of_numpy_are_data_too():
    data = Data(np.zeros((4, 2)), np.array([0, 1, 2, 0]))
    assert (data.inputs.dtype, data.targets.dtype, data.num_classes) == (torch.float32, torch.long, 3)


@pytest.mark.parametrize(("name", "wrong"), [("inputs", None), ("inputs", ["a", "b"]), ("targets", 3)])
def test_data_that_are_no_numbers_are_named(name, wrong):
    given = {"inputs": torch.zeros(2, 2), "targets": torch.tensor([0, 1]), name: wrong}
    with pytest.raises(
        ValueError, match=f"{name} must be a tensor or an array of examples, got {type(wrong).__name__}"
    ):
        Data(**given)


def test_targets_of_any_whole_numbers_become_classes():
    for dtype in (torch.uint8, torch.int32, torch.bool):
        assert Data(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]).to(dtype)).targets.dtype == torch.int64


def test_data_moves_with_all_it_knows():
    data = make_data(num_classes=6, name="mine", mirrored=True)
    there = data.to("cpu")
    assert (there.num_classes, there.name, there.mirrored) == (6, "mine", True)
    assert torch.equal(there.inputs, data.inputs)


@pytest.mark.parametrize(
    ("inputs", "targets", "options", "told"),
    [
        (torch.zeros(3, 2), torch.zeros(4).long(), {}, "inputs and targets must have the same length, .* got 3 and 4"),
        (torch.zeros(0, 2), torch.zeros(0).long(), {}, "at least 1; got 0 and 0"),
        (torch.zeros(3, 2), torch.tensor([0.0, math.nan, 1.0]), {}, "targets that are floats must be finite"),
        (torch.zeros(3, 2), torch.zeros(3, 2, 2), {}, r"of shape \(N,\) or \(N, K\), got \(3, 2, 2\)"),
        (
            torch.zeros(3, 2),
            torch.zeros(3, 2),
            {"num_classes": 5},
            "num_classes must be left out for numbers to predict",
        ),
        (torch.zeros(2, 2), torch.tensor([-1, 1]), {}, "targets must be classes, whole numbers from 0, or floats"),
        (torch.tensor([[0.0], [math.nan]]), torch.tensor([0, 1]), {}, "inputs must be finite, got NaN or infinite"),
        (torch.tensor([[0.0], [math.inf]]), torch.tensor([0, 1]), {}, "inputs must be finite, got NaN or infinite"),
        (
            torch.zeros(2, 2),
            torch.tensor([0, 3]),
            {"num_classes": 3},
            "num_classes must be above the largest target 3, got 3",
        ),
        (torch.zeros(2, 2), torch.tensor([0, 0]), {}, "num_classes must be a whole number >= 2, got 1"),
        (
            torch.zeros(2, 2),
            torch.tensor([0, 1]),
            {"num_classes": 2.5},
            "num_classes must be a whole number >= 2, got 2.5",
        ),
        (
            torch.zeros(2, 2),
            torch.tensor([0, 1]),
            {"num_classes": -4},
            "num_classes must be a whole number >= 2, got -4",
        ),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(inputs, targets, options, told):
    with pytest.raises(ValueError, match=told):
        Data(inputs, targets, **options)


# Tasks


@given(st.integers(2, 60), st.integers(0, 99))
def test_a_task_without_indices_splits_all_of_the_data(count, seed):
    task = Task(make_data(count, num_classes=CLASSES), model, 5, 1, seed=seed)
    assert sorted([*task.train.tolist(), *task.val.tolist()]) == list(range(count))
    assert len(task.val) == max(1, count // 5)


def test_the_split_is_that_of_the_seed():
    assert describe(make_task(seed=1)) == describe(make_task(seed=1))
    assert describe(make_task(seed=1))[-2:] != describe(make_task(seed=2))[-2:]


@pytest.mark.parametrize(("name", "update"), [("sgdm", SGD(0.9)), ("adamw", Adam(decoupled=True))])
def test_an_optimizer_by_name_is_the_one_it_names(name, update):
    assert make_task(optimizer=name).optimizer == make_task(optimizer=update).optimizer == update


def test_classes_are_renamed_in_the_order_given():
    own = torch.tensor([i for i in range(COUNT) if i % CLASSES in (4, 1)])
    task = make_task(classes=[4, 1], train=own[8:], val=own[:8])
    assert task.num_classes == 2
    assert task.labels()[own].tolist() == [{4: 0, 1: 1}[i % CLASSES] for i in own.tolist()]


def test_all_classes_keep_their_names():
    assert torch.equal(make_task().labels(), DATA.targets)
    assert torch.equal(make_task(make_text()).labels(), make_text().targets)


@given(st.floats(0.05, 0.95), st.integers(0, 1000))
def test_noise_is_fixed_and_on_training_examples_only(noise, seed):
    task = make_task(label_noise=noise, seed=seed)
    labels = task.labels()
    assert torch.equal(labels, task.labels())
    assert torch.equal(labels[task.val], DATA.targets[task.val])
    assert 0 <= labels.min() <= labels.max() < CLASSES
    assert torch.equal(DATA.targets, torch.arange(COUNT) % CLASSES)


def test_noise_replaces_the_share_asked_for_by_labels_drawn_evenly():
    """A label drawn evenly is the old one in one of five cases; five standard deviations are allowed."""
    count, noise = 20_000, 0.3
    data = make_data(count)
    task = make_task(data, label_noise=noise)
    changed = (task.labels() != data.targets)[task.train].float()
    share = noise * (1 - 1 / CLASSES)
    assert float(changed.mean()) == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / len(changed)))
    moved = (task.labels() - data.targets)[task.train].remainder(CLASSES)[changed.bool()]
    assert torch.bincount(moved, minlength=CLASSES)[1:].min() > 0.2 * len(moved)


def test_noise_stays_within_the_tasks_own_classes():
    own = torch.tensor([i for i in range(COUNT) if i % CLASSES in (4, 1)])
    task = make_task(classes=[4, 1], train=own[8:], val=own[:8], label_noise=0.9)
    assert task.labels()[task.train].unique().tolist() == [0, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"data": make_data()},
        {"model": other_model},
        {"optimizer": "adam"},
        {"batch_size": 4},
        {"val": torch.arange(5), "train": torch.arange(5, 100)},
        {"label_smoothing": 0.1},
        {"clip_norm": 1.0},
    ],
)
def test_tasks_that_cannot_share_a_step_are_of_different_kinds(change):
    assert make_task().kind != replace(make_task(), **change).kind


def test_tasks_that_differ_in_what_a_member_may_have_for_itself_are_of_one_kind():
    own = {"train": torch.arange(20, 40), "val": torch.arange(20)}
    other = make_task(total_steps=4, seed=3, weight_decay=0.1, label_noise=0.2, optimizer=SGD(), **own)
    assert other.kind == make_task().kind
    assert hash(other.kind) == hash(make_task().kind)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"total_steps": 0}, "total_steps must be a whole number >= 1, got 0"),
        ({"total_steps": 2.5}, "total_steps must be a whole number >= 1, got 2.5"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        ({"batch_size": 81}, "batch_size must be at most the number of training examples, 80; got 81"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"optimizer": "lion"}, "optimizer must be one of sgd, sgdm, adam, adamw; got 'lion'"),
        ({"label_noise": 1}, r"label_noise must be in \[0, 1\), got 1"),
        ({"label_noise": -0.1}, r"label_noise must be in \[0, 1\), got -0.1"),
        ({"label_noise": math.nan}, "label_noise must be a finite number, got nan"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\), got 1.0"),
        ({"label_smoothing": "0.1"}, "label_smoothing must be a finite number, got '0.1'"),
        ({"weight_decay": -1e-4}, "weight_decay must be >= 0, got -0.0001"),
        ({"weight_decay": math.inf}, "weight_decay must be a finite number, got inf"),
        ({"clip_norm": 0}, "clip_norm must be > 0, got 0"),
        ({"classes": [0]}, r"classes must be two or more different classes from 0 to 4, .* got \[0\]"),
        ({"classes": []}, r"classes must be two or more different classes from 0 to 4, .* got \[\]"),
        ({"classes": [0, 0]}, r"classes must be two or more .* got \[0, 0\]"),
        ({"classes": [0, 5]}, r"classes must be two or more .* got \[0, 5\]"),
        ({"classes": [0, 1.0]}, r"classes must be two or more .* got \[0, 1.0\]"),
        ({"data": make_text(), "classes": [0, 1]}, r"classes must be .* one class per example, got \[0, 1\]"),
        ({"train": torch.arange(10)}, "train and val must be given together, or neither"),
        ({"val": torch.arange(10)}, "train and val must be given together, or neither"),
    ],
)
def test_a_training_that_makes_no_sense_is_refused_before_it_begins(options, told):
    with pytest.raises(ValueError, match=told):
        make_task(**options)


# Batches


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 99))
def test_a_pass_shows_no_example_twice_and_only_training_examples(size, extra, seed):
    order = torch.randperm(100, generator=torch.Generator().manual_seed(seed))
    train = order[: size + extra]
    task = make_task(batch_size=size, train=train, val=order[-1:], seed=seed)
    a_pass = (size + extra) // size
    index, mirrored = Batches(task).take(3 * a_pass)
    assert index.shape == mirrored.shape == (3 * a_pass, size)
    for examples in index.split(a_pass):
        assert len(examples.unique()) == a_pass * size
        assert set(examples.flatten().tolist()) <= set(train.tolist())


def test_what_is_left_of_a_pass_is_dropped_but_not_always_the_same():
    task = make_task(batch_size=8, train=torch.arange(19), val=torch.arange(20, 30))
    passes = Batches(task).take(100)[0].view(50, 16)
    dropped = [set(range(19)) - set(examples.tolist()) for examples in passes]
    assert all(len(examples) == 3 for examples in dropped)
    assert set().union(*dropped) == set(range(19))


def test_passes_differ():
    first, second = Batches(make_task()).take(20)[0].split(10)
    assert not torch.equal(first, second)
    assert sorted(first.flatten().tolist()) == sorted(second.flatten().tolist())


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(0, 50))
def test_batches_are_those_of_the_seed_however_many_are_taken_at_a_time(counts, seed):
    task, together = make_task(seed=seed), Batches(make_task(seed=seed)).take(sum(counts))[0]
    feed = Batches(task)
    assert torch.equal(torch.cat([feed.take(count)[0] for count in counts]), together)
    assert not torch.equal(Batches(make_task(seed=seed + 1)).take(sum(counts))[0], together)


def test_batches_leave_the_users_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    Batches(make_task()).take(30)
    assert torch.equal(torch.rand(3), expected)


def test_every_other_picture_is_mirrored_where_that_means_the_same():
    task = make_task(make_data(mirrored=True))
    index, mirrored = Batches(task).take(1000)
    assert float(mirrored.float().mean()) == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(mirrored.numel()))
    again = Batches(task).take(1000)
    assert torch.equal(index, again[0])
    assert torch.equal(mirrored, again[1])
    assert not Batches(make_task()).take(1000)[1].any()


# Samplers

VARIED = {
    "data": [DATA, make_data()],
    "models": [model, other_model],
    "horizons": (10, 90),
    "batch_sizes": (4, 8),
    "optimizers": ("sgd", SGD(0.5), "adam"),
    "weight_decays": (0.0, 1e-4, 1e-3),
    "num_classes": (2, 3, None),
    "train_sizes": (10, 40),
    "label_noises": (0.0, 0.1, 0.3),
    "label_smoothings": (0.0, 0.2),
    "clip_norm": 1.5,
}


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_a_seed_gives_the_same_tasks_and_another_seed_others(seed, count):
    sampler = make_sampler(**VARIED)
    tasks = [describe(task) for task in sampler.sample(seed, count)]
    assert len(tasks) == count
    assert tasks == [describe(task) for task in sampler.sample(seed, count)]
    assert tasks == [describe(task) for task in make_sampler(**VARIED).sample(seed, count)]
    assert tasks != [describe(task) for task in sampler.sample(seed + 1, count)]


def test_fewer_tasks_are_the_first_of_more():
    sampler = make_sampler(**VARIED)
    assert [describe(task) for task in sampler.sample(3, 2)] == [describe(task) for task in sampler.sample(3, 5)[:2]]


@given(
    seed=st.integers(0, 10_000),
    horizons=st.tuples(st.integers(1, 50), st.integers(0, 50)).map(lambda pair: (pair[0], sum(pair))),
    batch_size=st.integers(1, 10),
    num_classes=st.sampled_from([2, 4, CLASSES, None]),
    val_size=st.integers(1, 25),
    train_sizes=st.one_of(
        st.none(), st.tuples(st.integers(1, 60), st.integers(0, 60)).map(lambda pair: (pair[0], sum(pair)))
    ),
)
def test_tasks_are_what_was_asked_for_and_hold_out_what_they_do_not_train_on(
    seed, horizons, batch_size, num_classes, val_size, train_sizes
):
    sampler = make_sampler(
        horizons=horizons,
        batch_sizes=(batch_size,),
        num_classes=(num_classes,),
        val_size=val_size,
        train_sizes=train_sizes,
    )
    for task in sampler.sample(seed, 4):
        train, val = set(task.train.tolist()), set(task.val.tolist())
        available = COUNT // CLASSES * task.num_classes - val_size
        assert not train & val
        assert (len(train), len(val)) == (len(task.train), val_size)
        assert horizons[0] <= task.total_steps <= horizons[1]
        assert task.batch_size == batch_size
        assert task.num_classes == (num_classes or CLASSES)
        smallest, largest = train_sizes or (available, available)
        assert min(smallest, available) <= len(train) <= min(max(largest, batch_size), available)
        classes = range(CLASSES) if task.classes is None else task.classes
        assert {int(DATA.targets[i]) for i in train | val} <= set(classes)


def test_everything_that_may_vary_does_and_within_a_generation_only_what_batches_together():
    sampler = make_sampler(**VARIED)
    generations = [sampler.sample(seed, 4) for seed in range(60)]
    tasks = [task for generation in generations for task in generation]
    assert all(len({(*task.kind, task.total_steps) for task in generation}) == 1 for generation in generations)
    assert {task.data for task in tasks} == set(VARIED["data"])
    assert {task.model for task in tasks} == set(VARIED["models"])
    assert {task.batch_size for task in tasks} == {4, 8}
    assert {task.optimizer for task in tasks} == {SGD(), SGD(0.5), Adam()}
    assert {task.weight_decay for task in tasks} == {0.0, 1e-4, 1e-3}
    assert {task.label_noise for task in tasks} == {0.0, 0.1, 0.3}
    assert {task.label_smoothing for task in tasks} == {0.0, 0.2}
    assert {task.num_classes for task in tasks} == {2, 3, 5}
    assert {task.clip_norm for task in tasks} == {1.5}
    assert len({task.total_steps for task in tasks}) > 20
    assert len({task.seed for task in tasks}) == len(tasks)
    assert len({tuple(task.classes) for task in tasks if task.num_classes == 2}) > 10


def test_lengths_are_spread_evenly_in_their_logarithm():
    random = torch.Generator().manual_seed(0)
    drawn = torch.tensor([log_uniform(10, 1000, random) for _ in range(4000)])
    assert 10 <= drawn.min() <= drawn.max() <= 1000
    assert float((drawn < 100).float().mean()) == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(4000))


def test_every_choice_is_as_likely():
    random = torch.Generator().manual_seed(0)
    drawn = torch.tensor([pick((0, 1, 2, 3), random) for _ in range(4000)])
    deviation = math.sqrt(4000 * 0.25 * 0.75)
    assert ((torch.bincount(drawn) - 1000).abs() < 5 * deviation).all()


def test_sampling_leaves_the_users_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    make_sampler(**VARIED).sample(0, 3)
    assert torch.equal(torch.rand(3), expected)


def test_text_is_sampled_too():
    for task in make_sampler(data=[make_text()], val_size=7).sample(0, 3):
        assert (len(task.train), len(task.val), task.num_classes) == (23, 7, 7)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"data": []}, r"data must be a list of one or more to choose from, got \[\]"),
        ({"models": ()}, r"models must be a list of one or more to choose from, got \(\)"),
        ({"batch_sizes": ()}, "batch_sizes must be a list of one or more"),
        ({"optimizers": "sgd"}, "optimizers must be a list of one or more to choose from, got 'sgd'"),
        ({"optimizers": ("sgd", "lion")}, "optimizer must be one of sgd, sgdm, adam, adamw; got 'lion'"),
        ({"weight_decays": []}, "weight_decays must be a list of one or more"),
        ({"num_classes": []}, "num_classes must be a list of one or more"),
        ({"label_noises": []}, "label_noises must be a list of one or more"),
        ({"horizons": (9, 3)}, r"horizons must be \(smallest, largest\), got \(9, 3\)"),
        ({"horizons": (0, 3)}, "each of horizons must be a whole number >= 1, got 0"),
        ({"horizons": 5}, r"horizons must be \(smallest, largest\), got 5"),
        ({"label_smoothings": ()}, "label_smoothings must be a list of one or more"),
        ({"optimizers": (None,)}, "optimizer must be one of sgd, sgdm, adam, adamw; got None"),
        ({"batch_sizes": (0,)}, "batch_size must be a whole number >= 1, got 0"),
        ({"num_classes": (1,), "val_size": 1, "batch_sizes": (1,)}, "classes must be two or more different classes"),
        ({"horizons": (1, 2, 3)}, r"horizons must be \(smallest, largest\), got \(1, 2, 3\)"),
        ({"train_sizes": (40, 10)}, r"train_sizes must be \(smallest, largest\), got \(40, 10\)"),
        ({"val_size": 0}, "val_size must be a whole number >= 1, got 0"),
        ({"val_size": 2.5}, "val_size must be a whole number >= 1, got 2.5"),
    ],
)
def test_a_sampler_that_could_not_draw_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        make_sampler(**options).sample(0, 3)


def test_data_too_small_for_the_held_out_examples_is_told_by_name():
    sampler = make_sampler(data=[make_data(name="mine")], val_size=30, batch_sizes=(16,), num_classes=(2,))
    with pytest.raises(
        ValueError, match=r"val_size must leave a batch .* mine has 40 examples .* val_size=30 and batch"
    ):
        sampler.sample(0, 1)


class Pairs:
    """A sampler of one's own: nothing but `sample`."""

    def sample(self, seed, count):
        return [make_task(seed=seed + i, total_steps=4 + i % 2, label_noise=0.1 * i) for i in range(count)]


class Decaying(TaskSampler):
    """Draws what `TaskSampler` draws, with a decay that goes with the number of examples."""

    def draw(self, shared, random):
        task = super().draw(shared, random)
        return replace(task, weight_decay=1.0 / len(task.train))


def test_a_draw_of_ones_own_changes_what_it_wants_and_keeps_the_rest():
    options = {"data": [DATA], "models": [model], "val_size": 20, "batch_sizes": (8,), "train_sizes": (10, 60)}
    own, plain = Decaying(**options).sample(2, 4), TaskSampler(**options).sample(2, 4)
    assert [task.weight_decay for task in own] == [1.0 / len(task.train) for task in own]
    assert [describe(replace(task, weight_decay=5e-4)) for task in own] == [describe(task) for task in plain]
    assert len({task.weight_decay for task in own}) > 1


@pytest.mark.parametrize(
    "sampler", [Pairs(), Decaying([DATA], [model], horizons=(3, 5), val_size=20, batch_sizes=(8,))]
)
def test_a_sampler_of_ones_own_can_be_learned_from(sampler):
    trainer = HorizonTrainer(Tasks(sampler, 3, held_out=0), evolution=Evolution(generations=2, members=2))
    before = trainer.weights.clone()
    assert math.isfinite(trainer.step().fitness)
    assert not torch.equal(trainer.weights, before)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"train": torch.arange(20), "val": torch.arange(19, 30)}, "val must have no example of train, got 1 of them"),
        ({"train": torch.arange(200), "val": torch.arange(3)}, "train must be indices from 0 to 99, at least one"),
        ({"train": torch.arange(20), "val": torch.arange(0)}, "val must be indices from 0 to 99, at least one"),
        (
            {"train": torch.arange(20), "val": torch.arange(20, 30), "classes": [0, 1]},
            r"train must be examples of the classes \[0, 1\], got some of other classes",
        ),
        ({"optimizer": None}, "optimizer must be one of sgd, sgdm, adam, adamw; got None"),
    ],
)
def test_examples_that_do_not_fit_the_task_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        make_task(**options)


def test_a_task_of_some_classes_takes_their_examples_only():
    task = make_task(classes=[0, 2], batch_size=4)
    assert set(task.data.targets[torch.cat((task.train, task.val))].tolist()) == {0, 2}


def test_noise_on_the_targets_of_sequences_is_refused():
    with pytest.raises(
        ValueError, match=r"label_noise needs one class per example, got 0.5 with sequences: leave it out"
    ):
        Task(make_text(), lambda data: nn.Embedding(7, 7), 3, 4, label_noise=0.5)


def test_inputs_are_single_or_as_asked_for_and_bad_targets_are_told():
    wide, targets = torch.full((2, 3), 1 / 3, dtype=torch.float64), torch.tensor([0, 1])
    assert Data(wide, targets).inputs.dtype == torch.float32
    kept = Data(wide, targets, dtype=torch.float64)
    assert torch.equal(kept.inputs, wide)
    assert kept.to("cpu").inputs.dtype == torch.float64
    assert kept.to("cpu", torch.float32).inputs.dtype == torch.float32
    with pytest.raises(ValueError, match=r"dtype must be torch.float32 or torch.float64, got torch.float16"):
        Data(wide, targets, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"targets must be classes, whole numbers from 0, .* got -1"):
        Data(torch.zeros(2, 3), torch.tensor([-1, 1]))


def test_a_sampler_for_other_data_does_not_draw_from_the_first_ones():
    sampler = make_sampler(num_classes=(2,))
    sampler.sample(0, 2)
    other = Data(torch.randn(100, 4), torch.arange(100) // 50)
    for task in replace(sampler, data=[other]).sample(0, 2):
        assert task.data is other


# mixtures


def kinds(*optimizers):
    return [make_sampler(optimizers=(optimizer,)) for optimizer in optimizers]


def test_a_mixture_takes_some_kinds_and_shares_its_tasks_among_them():
    four = kinds("sgd", "sgdm", "adam", "adamw")
    drawn = Mixture(four, at_once=2).sample(3, 5)
    assert sorted(Counter(task.optimizer for task in drawn).values()) == [2, 3]
    seen = {task.optimizer for seed in range(30) for task in Mixture(four).sample(seed, 2)}
    assert len(seen) == 4
    again = Mixture(four, at_once=2).sample(3, 5)
    assert [(task.seed, task.total_steps) for task in again] == [(task.seed, task.total_steps) for task in drawn]


def test_a_mixture_of_more_kinds_than_tasks_gives_as_many_as_were_asked_for():
    assert len(Mixture(kinds("sgd", "adam"), at_once=2).sample(0, 1)) == 1


@pytest.mark.parametrize("wrong", [[], [3]])
def test_a_mixture_needs_samplers(wrong):
    with pytest.raises(ValueError, match="kinds must be one or more samplers"):
        Mixture(wrong)
