"""Many trainings at once: every one of them is the training that plain PyTorch gives alone."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, parameters_to_vector

from mlrsnet import Card, Gamma, LearnedLR, LSTMNet, MLPNet, Schedule
from mlrsnet.horizon import SGD, Data, Task
from mlrsnet.horizon.batches import Batches
from mlrsnet.horizon.fitness import loss as mean_loss
from mlrsnet.horizon.policies import Networks, Table
from mlrsnet.horizon.pool import Pool
from mlrsnet.horizon.population import CHUNK, Population
from mlrsnet.lab.distributions import LARGE_NETWORKS, SMALL_NETWORKS
from mlrsnet.lab.models import build_image

STEPS, BATCH, CLASSES, LENGTH = 15, 8, 5, 6
PEAKS = (0.3, 0.05, 0.8)

OPTIMIZERS = {  # what a task is told, torch's own, and how much smaller than SGD's its LRs are
    "sgd": ("sgd", lambda p, **settings: torch.optim.SGD(p, **settings), 1.0),
    "sgdm": ("sgdm", lambda p, **settings: torch.optim.SGD(p, momentum=0.9, **settings), 0.1),
    "nesterov": (
        SGD(0.9, nesterov=True),
        lambda p, **settings: torch.optim.SGD(p, momentum=0.9, nesterov=True, **settings),
        0.1,
    ),
    "adam": ("adam", lambda p, **settings: torch.optim.Adam(p, **settings), 0.01),
    "adamw": ("adamw", lambda p, **settings: torch.optim.AdamW(p, **settings), 0.01),
}


# Networks: no bias that a following layer takes away again, whose gradient is rounding only, which Adam would blow up.


class Recurrent(nn.Module):
    """h' = tanh(W x + V h), as plain matrix products."""

    def __init__(self, width=7):
        super().__init__()
        self.tokens, self.first = nn.Embedding(CLASSES, width), nn.Parameter(torch.zeros(width))
        self.W, self.V = (nn.Parameter(0.4 * torch.randn(width, width)) for _ in range(2))
        self.out = nn.Linear(width, CLASSES)

    def forward(self, tokens):
        x, h, seen = self.tokens(tokens), self.first, []
        for position in range(tokens.shape[1]):
            h = torch.tanh(x[:, position] @ self.W + h @ self.V)
            seen.append(h)
        return self.out(torch.stack(seen, dim=1))


class Attention(nn.Module):
    """A causal block with two heads; the output layer is the embedding."""

    def __init__(self, width=8):
        super().__init__()
        self.tokens, self.places = nn.Embedding(CLASSES, width), nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.norm, self.inputs, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False), nn.Linear(8, 8)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places
        q, k, v = self.inputs(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return functional.linear(x + self.out(heads.transpose(1, 2).flatten(2)), 0.5 * self.tokens.weight)


class Tied(nn.Module):
    """One matrix under two names."""

    def __init__(self, width=6):
        super().__init__()
        self.tokens, self.mix, self.out = (
            nn.Embedding(CLASSES, width),
            nn.Linear(width, width),
            nn.Linear(width, CLASSES),
        )
        self.out.weight = self.tokens.weight

    def forward(self, tokens):
        return self.out(self.mix(self.tokens(tokens)).tanh())


class Bag(nn.Module):
    """The mean of a sequence's embeddings."""

    def __init__(self, width=6):
        super().__init__()
        self.tokens, self.out = nn.Embedding(CLASSES, width), nn.Linear(width, CLASSES)

    def forward(self, tokens):
        return self.out(self.tokens(tokens).mean(-2).tanh())


def linear(data):
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, data.num_classes))


def norm_1d(data):
    return nn.Sequential(nn.Linear(6, 9, bias=False), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, data.num_classes))


def layer_norm(data):
    return nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, data.num_classes))


def convolution(data):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 4, 3, stride=2, groups=4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, data.num_classes),
    )


def norm_2d(data):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4, momentum=0.3),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 6, 2, bias=False),
        nn.BatchNorm2d(6, affine=False),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, data.num_classes),
    )


NETWORKS = {
    "linear": ("vectors", linear),
    "batch-norm-1d": ("vectors", norm_1d),
    "layer-norm": ("vectors", layer_norm),
    "convolution": ("pictures", convolution),
    "batch-norm-2d": ("pictures", norm_2d),
    "embedding": ("sequences", lambda data: Bag()),
    "recurrent": ("text", lambda data: Recurrent()),
    "tied": ("text", lambda data: Tied()),
    "attention": ("text", lambda data: Attention()),
}


def make_data(kind="vectors", count=60, **options):
    random = torch.Generator().manual_seed(3)
    targets = torch.randint(CLASSES, (count,), generator=random)
    if kind in ("sequences", "text"):
        tokens = (targets.unsqueeze(1) + 2 * torch.arange(LENGTH + 1)) % CLASSES
        tokens[torch.rand(tokens.shape, generator=random) < 0.3] = 0
        return Data(tokens[:, :-1], tokens[:, 1:] if kind == "text" else targets, CLASSES, **options)
    shape = {"vectors": (6,), "pictures": (2, 5, 5), "squares": (1, 8, 8)}[kind]
    inputs = torch.randn(count, *shape, generator=random)
    inputs.flatten(1)[torch.arange(count), targets] += 2.0
    return Data(inputs, targets, **options)


def make_tasks(data, model, **options):
    """Two, of different seeds, decays and parts of the data."""
    order = torch.randperm(60, generator=torch.Generator().manual_seed(4))
    options = {"total_steps": STEPS, "batch_size": BATCH, **options}
    return [
        Task(data, model, train=order[11:], val=order[:11], seed=5, weight_decay=0.02, **options),
        Task(data, model, train=order[:30], val=order[30:41], seed=6, **options),
    ]


def table(tasks, peaks=PEAKS, most_steps=100):
    policy = Table(torch.tensor(peaks).repeat(len(tasks)), most_steps)
    policy.set_factors([1.0 - 0.5 * step / most_steps for step in range(most_steps)])
    return policy


def train_together(tasks, policy, **options):
    """The population, and its losses, weights, buffers, outputs and targets, a training a row."""
    population = Population(tasks[0], len(tasks), len(PEAKS), policy, tasks[0].data, **options)
    return population, results(population, tasks)


def results(population, tasks):
    seen = []

    def fitness(outputs, targets):
        seen.extend((outputs, targets))
        return mean_loss(outputs, targets)

    trained = population.train(tasks, fitness)
    weights = {name: view.detach().clone() for name, view in population.rows.views.items()}
    buffers = {name: buffer.clone() for name, buffer in population.fixed.items()}
    outputs, targets = seen
    return {"losses": trained.losses, "lrs": trained.lrs, **weights, **buffers, "outputs": outputs, "targets": targets}


def train_alone(task, make_optimizer, set_lr, labels=None, mirrored=False):
    """One training in plain PyTorch; `set_lr(optimizer, step, loss)` is called before each step."""
    torch.manual_seed(task.seed)
    model, data = task.model(task.data), task.data
    optimizer = make_optimizer(model.parameters(), lr=0.1, weight_decay=task.weight_decay)
    index, mirror = Batches(task).take(task.total_steps)
    labels, losses, lrs = data.targets if labels is None else labels, [], []
    for step, (chosen, flipped) in enumerate(zip(index, mirror, strict=True)):
        inputs = data.inputs[chosen]
        if mirrored:
            inputs = torch.stack([x.flip(-1) if f else x for x, f in zip(inputs, flipped, strict=True)])
        outputs = model(inputs)[..., : task.num_classes]
        loss = functional.cross_entropy(
            outputs.flatten(0, -2), labels[chosen].flatten(), label_smoothing=task.label_smoothing
        )
        optimizer.zero_grad()
        loss.backward()
        if task.clip_norm is not None:
            clip_grad_norm_(model.parameters(), task.clip_norm)
        set_lr(optimizer, step, loss.detach())
        optimizer.step()
        losses.append(loss.detach())
        lrs.append(float(optimizer.param_groups[0]["lr"]))
    model.eval()
    with torch.no_grad():
        outputs = model(data.inputs[task.val])
    outputs[..., task.num_classes :] = -math.inf
    named = {name: value.detach() for name, value in (*model.named_parameters(), *model.named_buffers())}
    targets = labels[task.val]
    return {"losses": torch.stack(losses), "lrs": torch.tensor(lrs), **named, "outputs": outputs, "targets": targets}


def one_by_one(tasks, optimizer, peaks=PEAKS, **options):
    _, make, scale = OPTIMIZERS[optimizer]
    found = []
    for task in tasks:
        for peak in peaks:

            def set_lr(optimizer, step, loss, peak=peak):
                optimizer.param_groups[0]["lr"] = peak * scale * (1.0 - 0.5 * step / 100)

            found.append(train_alone(task, make, set_lr, **options))
    return found


def assert_same(together, alone, rtol=5e-5, atol=5e-6):
    """Rounding, which differs between CPUs, is a part of a tensor's largest number, not of its smallest."""
    for name, values in together.items():
        expected = torch.stack([one[name] for one in alone])
        largest = float(expected[expected.isfinite()].abs().max())
        torch.testing.assert_close(
            values, expected, rtol=rtol, atol=atol * max(1.0, largest), msg=lambda told, name=name: f"{name}: {told}"
        )


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
    assert_same(together, one_by_one(tasks, "sgd"), rtol=1e-3)


def test_members_of_a_task_begin_with_the_same_weights_and_see_the_same_batches():
    tasks = make_tasks(make_data(), linear)
    _, together = train_together(tasks, table(tasks, peaks=(0.2, 0.2, 0.2)))
    for values in together.values():
        torch.testing.assert_close(values[[0, 3]], values[[1, 4]], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(values[[0, 3]], values[[2, 5]], rtol=1e-6, atol=1e-6)
    assert not torch.equal(together["losses"][0], together["losses"][3])


def test_the_fitness_is_that_of_the_outputs_member_by_member():
    tasks = make_tasks(make_data(), linear)
    population = Population(tasks[0], 2, 3, table(tasks), tasks[0].data)
    trained = population.train(tasks, lambda outputs, targets: outputs.flatten(1).sum(1) + targets.sum(1))
    outputs, targets = population.evaluate(tasks)
    assert trained.fitness.tolist() == pytest.approx((outputs.flatten(1).sum(1) + targets.sum(1)).tolist())


# What a task may ask for


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("classes", [([3, 1], [4, 0, 2]), (None, [2, 3]), ([1, 0, 4, 3, 2], None)])
def test_a_task_of_some_classes_trains_as_a_network_with_so_many_outputs(classes, optimizer):
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


def test_shut_outputs_are_neither_trained_nor_chosen():
    data = make_data()
    own = (data.targets < 2).nonzero().squeeze(1)
    task = Task(data, linear, STEPS, 4, own[5:], own[:5], classes=[0, 1], seed=3)
    _, together = train_together([task], table([task]))
    torch.manual_seed(task.seed)
    fresh = linear(data)
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


@pytest.mark.parametrize("at_once", [1, 3])
def test_tasks_of_different_kinds_come_back_in_their_own_places(at_once):
    data = make_data()
    tasks = [
        Task(data, (linear, layer_norm)[i % 2], (4, 7)[i // 3], BATCH, optimizer=("sgd", "adam")[i == 4], seed=i)
        for i in range(6)
    ]
    pool = Pool(lambda total: Table(torch.tensor(PEAKS).repeat(total // len(PEAKS)), 100), torch.device("cpu"), "fp32")
    pool.at_once = at_once

    def prepare(policy, indices):
        policy.set_factors([1.0 - 0.5 * step / 100 for step in range(100)])

    for _ in range(2):
        found = list(pool.train(tasks, len(PEAKS), mean_loss, prepare))
        assert sorted(index for indices, _, _ in found for index in indices) == list(range(6))
        assert sorted(indices for indices, _, _ in found) == [[0, 2], [1], [3, 5], [4]]
        for indices, _, trained in found:
            those = [tasks[index] for index in indices]
            alone = one_by_one(those, "adam" if 4 in indices else "sgd")
            assert_same({"losses": trained.losses, "lrs": trained.lrs}, alone)
            outputs, targets = (torch.stack([one[name] for one in alone]) for name in ("outputs", "targets"))
            torch.testing.assert_close(trained.fitness, mean_loss(outputs, targets))


def test_populations_at_the_same_time_are_those_one_after_another():
    def dropping(data):
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), linear(data))

    data = make_data()
    tasks = [
        Task(data, model, steps, BATCH, seed=seed)
        for seed, (model, steps) in enumerate(itertools.product((linear, dropping), (CHUNK + 5, 2 * CHUNK + 3, 7)))
    ]

    def losses(at_once):
        pool = Pool(lambda total: Table(torch.tensor(PEAKS), 200), torch.device("cpu"))
        pool.at_once = at_once
        found = pool.train(tasks, len(PEAKS), mean_loss, lambda policy, indices: policy.set_factors([1.0] * 200))
        ends = {indices[0]: torch.cat((trained.losses.flatten(), trained.fitness)) for indices, _, trained in found}
        assert len(pool.populations) == 2  # one for all horizons
        return list(ends), [ends[index] for index in range(len(tasks))]

    (order, alone), (other_order, together) = losses(1), losses(4)
    assert order == list(range(6)) != other_order
    assert all(map(torch.equal, alone, together))


def test_a_pool_forgets_the_populations_that_were_not_used_for_longest(monkeypatch):
    monkeypatch.setattr("mlrsnet.horizon.pool.MOST_POPULATIONS", 2)
    tasks = [make_tasks(make_data(), linear, total_steps=2, batch_size=size)[0] for size in (2, 3, 4)]
    pool = Pool(lambda total: Table(torch.tensor([0.1]), 5), torch.device("cpu"), "fp32")
    for task in (tasks[0], tasks[1], tasks[0], tasks[2]):
        list(pool.train([task], 1, mean_loss, lambda policy, indices: None))
    assert [population.order.shape[2] for population, _ in pool.populations.values()] == [2, 4]


def test_the_users_random_numbers_are_left_alone_by_a_training():
    tasks = make_tasks(make_data(), linear)
    population = Population(tasks[0], 2, 3, table(tasks), tasks[0].data)
    torch.manual_seed(0)
    population.train(tasks, mean_loss)
    found = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand(3))


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


def test_half_precision_trains_nearly_as_single():
    tasks = make_tasks(make_data(), linear)
    _, single = train_together(tasks, table(tasks))
    population, half = train_together(tasks, table(tasks), precision="bf16")
    assert population.rows.weights.dtype == half["losses"].dtype == half["outputs"].dtype == torch.float32
    assert not torch.equal(half["losses"], single["losses"])
    torch.testing.assert_close(half["losses"], single["losses"], rtol=0.05, atol=0.05)


def test_a_network_in_another_precision_is_refused_by_name():
    tasks = make_tasks(make_data(), lambda data: linear(data).double())
    with pytest.raises(TypeError, match=r"model must have float32 parameters, got torch.float64 in 0.weight: call"):
        train_together(tasks, table(tasks))


# Policies: what sets the LRs

LOSS_SCALES = ("none", "log_classes", "initial")
GAMMAS = {"fixed": Gamma("fixed", value=0.7), "initial": Gamma(), "text": Gamma(statistic="perplexity")}


def make_schedules(count, gamma, loss_scale, kind=LSTMNet):
    torch.manual_seed(8)
    nets = [
        kind(6, inputs=("loss", "progress"), loss_scale=loss_scale, sharpness=3.0, anneal="linear")
        for _ in range(count)
    ]
    return [Schedule(net, Card(gamma=gamma)) for net in nets]


def networks(schedules):
    policy = Networks(schedules[0], len(schedules), torch.device("cpu"))
    policy.set_weights(torch.stack([parameters_to_vector(schedule.net.parameters()) for schedule in schedules]))
    return policy


def lrs_of_learnedlr(make_optimizer, schedule, losses, num_classes, total_steps):
    optimizer = make_optimizer([nn.Parameter(torch.ones(1))], lr=0.1)
    lr, used = LearnedLR(optimizer, schedule, total_steps=total_steps, num_classes=num_classes), []
    for loss in losses:
        lr.step(loss)
        used.append(lr.get_last_lr()[0])
    return used


@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adam"])
@pytest.mark.parametrize("loss_scale", LOSS_SCALES)
@pytest.mark.parametrize("gamma", ["fixed", "initial"])
def test_trainings_under_networks_are_those_under_learnedlr(gamma, loss_scale, optimizer):
    told, make, _ = OPTIMIZERS[optimizer]
    data = make_data()
    own = (data.targets < 3).nonzero().squeeze(1)
    task = make_tasks(data, linear, optimizer=told)[0]
    subset = replace(task, classes=[0, 1, 2], train=own[11:], val=own[:11], seed=9)
    schedules = make_schedules(6, GAMMAS[gamma], loss_scale)
    _, together = train_together([task, subset], networks(schedules))

    alone = []
    for member, schedule in enumerate(schedules):
        chosen, scheduler = (task, task, task, subset, subset, subset)[member], []

        def set_lr(optimizer, step, loss, chosen=chosen, schedule=schedule, scheduler=scheduler):
            if not step:
                settings = {"total_steps": chosen.total_steps, "num_classes": chosen.num_classes}
                scheduler.append(LearnedLR(optimizer, schedule, **settings))
            scheduler[0].step(loss)

        alone.append(train_alone(chosen, make, set_lr))
    assert_same(together, alone)
    assert len(together["lrs"].unique()) > 6 * (STEPS - 1)


LOSSES = [1.7, 1.5, math.nan, 1.3, 9.0, math.inf, -math.inf, 1.1, 0.4, 0.02, 0.3, 0.2]


@pytest.mark.parametrize("kind", [LSTMNet, MLPNet])
@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adam"])
@pytest.mark.parametrize("loss_scale", LOSS_SCALES)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_networks_give_the_lrs_of_learnedlr_also_after_a_nan(gamma, loss_scale, optimizer, kind):
    schedules, classes = make_schedules(4, GAMMAS[gamma], loss_scale, kind), [5, 2, 10, 3]
    _, make, scale = OPTIMIZERS[optimizer]
    policy = networks(schedules)
    policy.begin(12, torch.full((4,), scale), torch.tensor(classes, dtype=torch.float32))
    losses = torch.tensor(LOSSES).unsqueeze(1) * torch.tensor([1.0, 0.7, 1.3, 0.9])
    found = torch.stack([policy.lrs(row).clone() for row in losses], dim=1)
    for member in range(4):
        with pytest.warns(UserWarning, match="a loss was not finite"):
            expected = lrs_of_learnedlr(make, schedules[member], losses[:, member], classes[member], total_steps=12)
        assert found[member].tolist() == pytest.approx(expected, rel=1e-4)
    assert torch.equal(found[:, 1], found[:, 2])
    assert torch.equal(found[:, 4], found[:, 6])


@pytest.mark.parametrize("loss_scale", LOSS_SCALES)
def test_networks_know_what_they_see_the_losses_divided_by(loss_scale):
    policy = networks(make_schedules(2, GAMMAS["fixed"], loss_scale))
    policy.begin(10, torch.ones(2), torch.tensor([5.0, 10.0]))
    for loss in (2.0, 1.0):
        policy.lrs(torch.tensor([loss, 3 * loss]))
    expected = {"none": [1, 1], "log_classes": [math.log(5), math.log(10)], "initial": [2, 6]}[loss_scale]
    assert policy.divisors().tolist() == pytest.approx(expected)


def test_networks_begin_again_as_if_new():
    schedules = make_schedules(2, Gamma(), "initial")
    used, new = networks(schedules), networks(schedules)
    used.begin(50, torch.full((2,), 0.1), torch.tensor([5.0, 7.0]))
    for loss in (2.0, math.nan, 1.0):
        used.lrs(torch.tensor([loss, loss]))
    for policy in (used, new):
        policy.begin(4, torch.ones(2), torch.tensor([3.0, 4.0]))
    for loss in (1.5, 1.2, 0.9):
        assert torch.equal(used.lrs(torch.tensor([loss, 1.0])), new.lrs(torch.tensor([loss, 1.0])))


def test_a_member_whose_first_losses_are_lost_waits_with_an_lr_of_0():
    policy = networks(make_schedules(2, Gamma(), "initial"))
    policy.begin(10, torch.ones(2), torch.tensor([5.0, 5.0]))
    first = policy.lrs(torch.tensor([math.nan, 1.5])).tolist()
    assert first[0] == 0 < first[1]
    assert (policy.lrs(torch.tensor([1.5, 1.4])) > 0).all()


def test_a_schedule_of_several_phases_is_refused():
    with pytest.raises(ValueError, match="schedule must have one phase, got 3"):
        Networks(Schedule([LSTMNet(4) for _ in range(3)]), 2, torch.device("cpu"))


def test_a_table_gives_each_member_its_peak_times_the_factor_of_the_step():
    policy = Table(torch.tensor([0.1, 0.4]), 5)
    for factors in ([1.0, 0.5, 0.25, 0.0, 0.125], [0.3, 0.2]):
        policy.set_factors(factors)
        policy.begin(len(factors), torch.tensor([1.0, 0.01]), torch.tensor([5.0, 5.0]))
        for factor in factors:
            assert policy.lrs(torch.tensor([math.nan, 1.0])).tolist() == pytest.approx([0.1 * factor, 0.004 * factor])


class HalfFrozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8).requires_grad_(False), nn.Linear(8, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_frozen_weights_stay_as_they_are_and_the_others_are_trained():
    data = Data(torch.randn(40, 6), torch.arange(40) % 4)
    task = Task(data, lambda data: HalfFrozen(), 5, 8, weight_decay=0.1)
    population = Population(task, 1, len(PEAKS), table([task]), data)
    population.begin([task])
    before = {name: value.clone() for name, value in (population.fixed | population.rows.views).items()}
    population.train([task], mean_loss)
    assert torch.equal(population.fixed["first.weight"], before["first.weight"])
    assert not torch.equal(population.rows.views["second.weight"], before["second.weight"])


def test_dropout_is_the_same_every_time_and_leaves_the_users_random_numbers_alone():
    data = Data(torch.randn(40, 6), torch.arange(40) % 4)
    task = Task(data, lambda data: nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 4)), 9, 8)
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    once = Population(task, 1, len(PEAKS), table([task]), data).train([task], mean_loss)
    assert torch.equal(torch.rand(2), expected)
    again = Population(task, 1, len(PEAKS), table([task]), data).train([task], mean_loss)
    assert torch.equal(once.losses, again.losses)


def test_an_unknown_precision_is_named():
    data = Data(torch.randn(40, 6), torch.arange(40) % 4)
    task = Task(data, lambda data: nn.Linear(6, 4), 9, 8)
    with pytest.raises(ValueError, match="precision must be one of fp32, bf16; got 'fp16'"):
        Population(task, 1, 1, table([task]), data, "fp16")


def test_a_training_that_is_judged_early_has_the_lrs_of_its_whole_horizon():
    data = Data(torch.randn(40, 6), torch.arange(40) % 4)
    whole, early = (Task(data, linear, 20, 8, judged_after=part) for part in (1.0, 0.25))
    net = LSTMNet(4, inputs=("loss", "progress"), anneal="linear")
    policy = Networks(Schedule(net, Card(gamma=Gamma("fixed", value=1.0))), 1, torch.device("cpu"))
    policy.set_weights(parameters_to_vector(net.parameters()).detach().unsqueeze(0))
    ends = [Population(task, 1, 1, policy, data).train([task], mean_loss) for task in (whole, early)]
    assert ends[1].lrs.shape == (1, 5)
    assert torch.equal(ends[0].lrs[:, :5], ends[1].lrs)
