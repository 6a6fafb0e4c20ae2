"""Many trainings at once: each is the training that plain PyTorch gives alone."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from trainings import (
    BATCH,
    CLASSES,
    NETWORKS,
    OPTIMIZERS,
    PEAKS,
    STEPS,
    assert_same,
    convolution,
    linear,
    make_data,
    make_tasks,
    one_by_one,
    results,
    table,
    train_together,
)

from mlrsnet_lab.distributions import LARGE_NETWORKS, SMALL_NETWORKS
from mlrsnet_lab.horizon import Compute, Data, Task
from mlrsnet_lab.horizon.fitness import loss as mean_loss
from mlrsnet_lab.horizon.population import CHUNK, Population
from mlrsnet_lab.horizon.training import Training
from mlrsnet_lab.models import build_image

# The main proof: a population is as many trainings


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_training_of_a_population_is_the_one_that_plain_pytorch_gives(network, optimizer):
    kind, model = NETWORKS[network]
    tasks = make_tasks(make_data(kind), model, optimizer=OPTIMIZERS[optimizer][0])
    _, together = train_together(tasks, table(tasks))
    alone = one_by_one(tasks, optimizer)
    assert set(together) == set(alone[0])
    assert_same(together, alone)


@pytest.mark.parametrize(
    "network", [*SMALL_NETWORKS, *LARGE_NETWORKS], ids=lambda told: "-".join(map(str, told.values()))
)
def test_the_networks_that_the_library_learns_from_train_together_as_alone(network):
    options = dict(network)
    kind = options.pop("model")
    tasks = make_tasks(make_data("squares"), lambda data: build_image(kind, (1, 8, 8), data.num_classes, **options))
    _, together = train_together(tasks, table(tasks))
    assert_same(together, one_by_one(tasks, "sgd"))


def test_the_comparison_would_see_another_lr_batch_or_decay():
    tasks = make_tasks(make_data(), linear)
    _, together = train_together(tasks, table(tasks))
    others = [
        one_by_one(tasks, "sgd", peaks=(0.301, *PEAKS[1:])),
        one_by_one([replace(tasks[0], weight_decay=0.021), tasks[1]], "sgd"),
        one_by_one([tasks[0], replace(tasks[1], seed=7)], "sgd"),
        one_by_one([replace(task, label_smoothing=0.001) for task in tasks], "sgd"),
    ]
    for alone in others:
        with pytest.raises(AssertionError):
            assert_same(together, alone)


def test_trainings_go_on_where_a_chunk_of_batches_ends():
    tasks = make_tasks(make_data(), linear, total_steps=CHUNK + 9)
    _, together = train_together(tasks, table(tasks))
    assert together["losses"].shape == (6, CHUNK + 9)
    assert_same(together, one_by_one(tasks, "sgd"))


def test_members_of_a_task_begin_with_the_same_weights_and_see_the_same_batches():
    tasks = make_tasks(make_data(), linear)
    _, together = train_together(tasks, table(tasks, peaks=(0.2, 0.2, 0.2)))
    for values in together.values():
        torch.testing.assert_close(values[[0, 3]], values[[1, 4]], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(values[[0, 3]], values[[2, 5]], rtol=1e-10, atol=1e-10)
    assert not torch.equal(together["losses"][0], together["losses"][3])


def test_the_fitness_is_that_of_the_outputs_member_by_member():
    tasks = make_tasks(make_data(), linear)
    population = Population(tasks[0], 2, 3, table(tasks), Compute(precision="fp64"))
    trained = Training(population, tasks, lambda outputs, targets: outputs.flatten(1).sum(1) + targets.sum(1)).run()
    outputs, targets = population.evaluate(tasks)
    assert trained.fitness.tolist() == pytest.approx((outputs.flatten(1).sum(1) + targets.sum(1)).tolist())


# What a task may ask for


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("classes", [([3, 1], [4, 0, 2]), (None, [2, 3]), ([1, 0, 4, 3, 2], None)])
def test_a_task_of_some_classes_trains_as_a_network_with_that_many_outputs(classes, optimizer):
    data = make_data(count=120)
    tasks, labels = [], []
    for seed, chosen in enumerate(classes):
        names = list(range(CLASSES)) if chosen is None else chosen
        own = torch.tensor([i for i, target in enumerate(data.targets.tolist()) if target in names])
        told = OPTIMIZERS[optimizer][0]
        tasks.append(Task(data, linear, STEPS, BATCH, own[9:], own[:9], chosen, told, seed=seed))
        labels.append(torch.tensor([names.index(t) if t in names else -1 for t in data.targets.tolist()]))
    _, together = train_together(tasks, table(tasks))
    alone = [one for task, own in zip(tasks, labels, strict=True) for one in one_by_one([task], optimizer, labels=own)]
    assert_same(together, alone)
    assert together["outputs"].isfinite().sum(-1).unique().tolist() == sorted({task.num_classes for task in tasks})


def test_masked_outputs_are_neither_trained_nor_chosen():
    data = make_data()
    own = (data.targets < 2).nonzero().squeeze(1)
    task = Task(data, linear, STEPS, 4, own[5:], own[:5], classes=[0, 1], seed=3)
    _, together = train_together([task], table([task]))
    torch.manual_seed(task.seed)
    fresh = linear(data).double()
    assert torch.equal(together["2.weight"][:, 2:], fresh[2].weight[2:].expand(3, -1, -1))
    assert not torch.equal(together["2.weight"][:, :2], fresh[2].weight[:2].expand(3, -1, -1))
    assert together["outputs"].argmax(-1).max() < 2


@pytest.mark.parametrize("noise", [0.2, 0.7])
def test_noise_stays_with_its_example_and_off_the_held_out_ones(noise):
    tasks = make_tasks(make_data(), linear, label_noise=noise)
    _, together = train_together(tasks, table(tasks))
    assert_same(together, [one for task in tasks for one in one_by_one([task], "sgd", labels=task.labels())])
    clean = torch.stack([task.data.targets[task.val] for task in tasks]).repeat_interleave(len(PEAKS), dim=0)
    assert torch.equal(together["targets"], clean)
    with pytest.raises(AssertionError):
        assert_same(together, one_by_one(tasks, "sgd"))


@pytest.mark.parametrize(("kind", "model"), [("vectors", linear), ("text", NETWORKS["tied"][1])])
def test_label_smoothing_is_torchs(kind, model):
    tasks = make_tasks(make_data(kind), model, label_smoothing=0.15)
    _, together = train_together(tasks, table(tasks))
    assert_same(together, one_by_one(tasks, "sgd"))


def test_label_smoothing_spreads_over_the_tasks_own_classes():
    data = make_data()
    own = (data.targets < 3).nonzero().squeeze(1)
    task = Task(data, linear, STEPS, BATCH, own[9:], own[:9], classes=[0, 1, 2], label_smoothing=0.2)
    _, together = train_together([task], table([task]))
    assert_same(together, one_by_one([task], "sgd"))


@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adam"])
@pytest.mark.parametrize("clip_norm", [0.1, 0.8, 100.0])
def test_gradients_are_clipped_as_torch_clips_them(clip_norm, optimizer):
    tasks = make_tasks(make_data(), linear, clip_norm=clip_norm, optimizer=OPTIMIZERS[optimizer][0])
    _, together = train_together(tasks, table(tasks))
    assert_same(together, one_by_one(tasks, optimizer))


def test_pictures_are_mirrored_as_the_batches_say():
    data = make_data("pictures", mirrored=True)
    tasks = make_tasks(data, convolution)
    _, together = train_together(tasks, table(tasks))
    assert_same(together, one_by_one(tasks, "sgd", mirrored=True))
    with pytest.raises(AssertionError):
        assert_same(together, one_by_one(tasks, "sgd", mirrored=False))


# Populations are used again


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", ["batch-norm-1d", "tied"])
def test_other_tasks_of_the_same_kind_find_nothing_of_the_ones_before(network, optimizer):
    kind, model = NETWORKS[network]
    data, told = make_data(kind), OPTIMIZERS[optimizer][0]
    first = make_tasks(data, model, optimizer=told, total_steps=70)
    second = [
        replace(task, seed=task.seed + 10, weight_decay=0.1, total_steps=9, train=task.val, val=task.train[:11])
        for task in first
    ]
    used, _ = train_together(first, table(first))
    again = results(used, second)
    _, fresh = train_together(second, table(second))
    assert again["losses"].shape == (6, 9)
    for name, values in fresh.items():
        assert torch.equal(again[name], values), name


def test_class_subsets_and_noise_do_not_outlive_their_tasks():
    data = make_data()
    own = (data.targets < 3).nonzero().squeeze(1)
    subset = Task(data, linear, STEPS, BATCH, own[11:], own[:11], [2, 0, 1], label_noise=0.5)
    full = replace(subset, classes=None, label_noise=0.0, train=torch.arange(11, 60), val=torch.arange(11))
    used, _ = train_together([subset], table([subset]))
    again = results(used, [full])
    assert_same(again, one_by_one([full], "sgd"))


@pytest.mark.parametrize("peak", [1e12, math.inf])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_diverging_member_does_not_disturb_its_neighbours(network, optimizer, peak):
    kind, model = NETWORKS[network]
    tasks = make_tasks(make_data(kind), model, optimizer=OPTIMIZERS[optimizer][0])
    _, calm = train_together(tasks, table(tasks, (0.3, 0.05, 0.8)))
    _, wild = train_together(tasks, table(tasks, (0.3, peak, 0.8)))
    others = [0, 2, 3, 5]
    assert not (wild["losses"][[1, 4], 1:] < 4).all()
    assert math.isfinite(peak) or not wild["losses"][[1, 4], 2:].isfinite().any()
    for name, values in calm.items():
        assert torch.equal(wild[name][others], values[others]), name


def test_single_precision_trains_nearly_as_double():
    """Fifteen steps amplify float32's rounding of 6e-8 by a few hundred at most on this convex-like task: 1e-3 is generous."""
    tasks = make_tasks(make_data(), linear)
    _, double = train_together(tasks, table(tasks))
    population, single = train_together(tasks, table(tasks, dtype=torch.float32), "fp32")
    assert population.models.rows.weights.dtype == single["losses"].dtype == single["outputs"].dtype == torch.float32
    torch.testing.assert_close(single["losses"].double(), double["losses"], rtol=1e-3, atol=1e-3)


def test_double_precision_is_kept_from_the_data_to_the_fitness():
    tasks = make_tasks(make_data(), linear, optimizer="adam")
    population, together = train_together(tasks, table(tasks))
    floats = [population.data.inputs, population.models.rows.weights, *population.state.values(), *together.values()]
    assert {values.dtype for values in floats if values.is_floating_point()} == {torch.float64}


def test_a_network_in_another_precision_is_refused_by_name():
    tasks = make_tasks(make_data(), lambda data: linear(data).double())
    with pytest.raises(TypeError, match=r"model must have float32 parameters, got torch.float64 in 0.weight: call"):
        train_together(tasks, table(tasks), "fp32")


class HalfFrozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8).requires_grad_(False), nn.Linear(8, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_frozen_weights_stay_as_they_are_and_the_others_are_trained():
    data = Data(torch.randn(40, 6), torch.arange(40) % 4)
    task = Task(data, lambda data: HalfFrozen(), 5, 8, weight_decay=0.1)
    population = Population(task, 1, len(PEAKS), table([task]), Compute(precision="fp64"))
    population.begin([task])
    before = {name: value.clone() for name, value in (population.models.fixed | population.models.rows.views).items()}
    Training(population, [task], mean_loss).run()
    assert torch.equal(population.models.fixed["first.weight"], before["first.weight"])
    assert not torch.equal(population.models.rows.views["second.weight"], before["second.weight"])


def test_an_unknown_precision_is_named():
    data = Data(torch.randn(40, 6), torch.arange(40) % 4)
    task = Task(data, lambda data: nn.Linear(6, 4), 9, 8)
    with pytest.raises(ValueError, match="precision must be one of fp32, fp64; got 'fp16'"):
        Population(task, 1, 1, table([task]), Compute(precision="fp16"))
