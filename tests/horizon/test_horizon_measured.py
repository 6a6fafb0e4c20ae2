"""Measured steps of many trainings at once: the equations by hand, with torch's own optimizers, one training at a time."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mlrsnet.baselines.hand_designed import factors
from mlrsnet.horizon import Data, Task
from mlrsnet.horizon.batches import Batches
from mlrsnet.horizon.fitness import find_fitness
from mlrsnet.horizon.measured import STRUCTURES, Layout
from mlrsnet.horizon.policies import Decays
from mlrsnet.horizon.pool import Pool
from mlrsnet.horizon.rows import Rows
from mlrsnet.horizon.updates import SGD

STEPS = 24
OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, weight_decay=0.01), 0.0, 1.0),
    "sgdm": (lambda p: torch.optim.SGD(p, momentum=0.9, weight_decay=0.01), 0.9, 0.1),
    "adam": (lambda p: torch.optim.Adam(p, weight_decay=0.01), 0.9, 0.01),
    "adamw": (lambda p: torch.optim.AdamW(p, weight_decay=0.01), 0.9, 0.01),
}
LEVEL, SHORTEST, SETTLED = 0.05, 10, 0.3


def network(data):
    """One of its matrices is longer than counts."""
    made = nn.Sequential(nn.Linear(6, 10), nn.LayerNorm(10), nn.Tanh(), nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 3))
    with torch.no_grad():
        made[0].weight.mul_(8)
    return made


def task(optimizer):
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(200, 6, generator=random, dtype=torch.float64)
    targets = (inputs @ torch.randn(6, 3, generator=random, dtype=torch.float64)).argmax(1)
    return Task(Data(inputs, targets, dtype=torch.float64), network, STEPS, 16, optimizer=optimizer, weight_decay=0.01)


def population(chosen, sizes, powers, structures):
    values = [torch.tensor(numbers, dtype=torch.float64) for numbers in (sizes, powers)]
    pool = Pool(lambda _: Decays(*values, structures, STEPS), torch.device("cpu"), "fp64")
    shape = torch.tensor(factors("linear", STEPS, 1, warmup=0.2), dtype=torch.float64)
    return next(iter(pool.train([chosen], [shape.expand(len(sizes), -1)], find_fitness("loss")))).trained


def squares(steps, lengths, matrices, structure, parameters):
    """x of every parameter, from the lengths of a step at an LR of 1 and of the matrices."""
    relative = [(s / w) ** 2 for s, w in zip(steps, lengths, strict=True)]
    together = sum(s**2 for s in steps) / sum(w**2 for w in lengths)
    counts = [min(1.0, p[0].numel() / len(p)) for p in matrices]
    one = {
        "weighted": sum(k * s**2 for k, s in zip(counts, steps, strict=True))
        / sum(k * w**2 for k, w in zip(counts, lengths, strict=True)),
        "each": sum(relative) / len(relative),
        "middle": math.exp(sum(map(math.log, relative)) / len(relative)),
    }.get(structure, together)
    found = dict.fromkeys(parameters, one)
    if structure == "layer":
        found |= {id(p): value for p, value in zip(matrices, relative, strict=True)}
    return found


def by_hand(chosen, size, fall_power, rise_power, wait, structure):
    """The losses of one training, with torch's optimizer and one parameter group per tensor."""
    make, momentum, optimizer_scale = OPTIMIZERS[
        next(name for name in OPTIMIZERS if task(name).optimizer == chosen.optimizer)
    ]
    model, losses = chosen.fresh_model().double(), []
    optimizer = make([{"params": [p]} for p in model.parameters()])
    matrices = [p for p in model.parameters() if p.ndim > 1]
    indices, _ = Batches(chosen).take(STEPS)
    shape = factors("linear", STEPS, 1, warmup=0.2)
    scale = optimizer_scale if structure == "absolute" else math.sqrt((1 - momentum) / (1 + momentum))
    keep, level_keep = math.exp(-1 / (0.1 * STEPS)), math.exp(-min(1 / STEPS / LEVEL, 1 / SHORTEST))
    mean, weight = dict.fromkeys(map(id, model.parameters()), 0.0), 0.0
    level_sum = level_weight = 0.0
    lowest, settled, shrink = math.inf, None, None
    for step in range(STEPS):
        x, y = chosen.data.inputs[indices[step]], chosen.data.targets[indices[step]]
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        if step:  # no progress has passed before the first one
            level_sum = level_keep * level_sum + (1 - level_keep) * losses[-1]
            level_weight = level_keep * level_weight + 1 - level_keep
        level = level_sum / level_weight / losses[0] if step else 1.0
        if level_weight > SETTLED:
            lowest, settled = min(lowest, level), settled or level
        reads = min(1, level) ** fall_power * max(0.1, min(1.0, lowest / level) ** rise_power)
        reads *= max(wait, 1 - level / settled / 0.9 if settled else 0.0)
        lengths = [max(p.norm().item(), math.sqrt(len(p) / 3)) for p in matrices]
        if structure == "weighted":
            shrink = shrink or [min(1.0, 3 * math.sqrt(len(p) / 3) / p.norm().item()) for p in matrices]
            lengths = [max(s * p.norm().item(), math.sqrt(len(p) / 3)) for p, s in zip(matrices, shrink, strict=True)]
        first = math.hypot(*lengths) / max(
            math.hypot(*(p.grad.norm().item() for p in matrices)), math.sqrt(sum(p.numel() for p in matrices))
        )
        alphas = {}
        longest = squares([p.grad.norm().item() for p in matrices], lengths, matrices, structure, mean)
        for group in optimizer.param_groups:
            own = id(group["params"][0])
            ratio = 1.0 if structure == "absolute" else first if not step else 1 / math.sqrt(mean[own] / weight)
            if chosen.optimizer == SGD() and structure != "absolute":
                ratio = min(ratio, 1 / math.sqrt(longest[own]))
            group["lr"] = alphas[own] = size * scale * shape[step] * reads * ratio
        before = [p.detach().clone() for p in matrices]
        optimizer.step()
        steps = [(b - p.detach()).norm().item() / alphas[id(p)] for b, p in zip(before, matrices, strict=True)]
        found = squares(steps, lengths, matrices, structure, mean)
        mean = {own: keep * mean[own] + (1 - keep) * found[own] for own in mean}
        weight = keep * weight + 1 - keep
    return losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_structure_takes_the_steps_of_its_equation(optimizer):
    chosen, sizes = task(optimizer), [0.5, *[0.1] * (len(STRUCTURES) - 1)]
    found = population(chosen, sizes, [(0.0, 0.0, 1.0)] * len(sizes), STRUCTURES)
    for place, structure in enumerate(STRUCTURES):
        expected = torch.tensor(by_hand(chosen, sizes[place], 0.0, 0.0, 1.0, structure), dtype=torch.float64)
        torch.testing.assert_close(found.losses[place], expected, rtol=1e-8, atol=1e-10)


def test_powers_of_the_loss_shorten_the_steps_as_their_equation_says():
    chosen, powers = task("sgdm"), [(0.5, 0.0, 1.0), (0.0, 3.0, 1.0), (0.25, 2.0, 0.1)]
    found = population(chosen, [0.6] * 3, powers, ["each"] * 3)
    for losses, power in zip(found.losses, powers, strict=True):
        expected = torch.tensor(by_hand(chosen, 0.6, *power, "each"), dtype=torch.float64)
        torch.testing.assert_close(losses, expected, rtol=1e-7, atol=1e-9)


def test_vectors_and_padding_belong_to_no_matrix():
    layout = Layout.of(Rows(network(None), 2))
    assert layout.count == 3
    counted = [(layout.owner == place).sum().item() for place in range(3)]
    assert counted == [60, 80, 24]
    torch.testing.assert_close(layout.floors, torch.tensor([10 / 3, 8 / 3, 1.0]))


def test_a_training_that_diverges_does_not_disturb_its_neighbours():
    chosen = task("sgd")
    alone = population(chosen, [0.1], [(0.25, 2.0, 0.1)], ["each"])
    beside = population(chosen, [0.1, 1e9], [(0.25, 2.0, 0.1)] * 2, ["each", "absolute"])
    torch.testing.assert_close(alone.losses[0], beside.losses[0], rtol=1e-12, atol=0)
    assert not torch.isfinite(beside.fitness[1]) or beside.fitness[1] > 10 * beside.fitness[0]
