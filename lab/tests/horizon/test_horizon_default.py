"""The default over many trainings at once is `LearnedLR` over each of them alone, in plain PyTorch."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from trainings import (
    BATCH,
    OPTIMIZERS,
    PEAKS,
    assert_same,
    linear,
    make_data,
    make_tasks,
    results,
    train_alone,
    train_together,
)

from mlrsnet import LearnedLR
from mlrsnet.sensors import ENTRIES
from mlrsnet_lab.horizon import Compute, Data, Task
from mlrsnet_lab.horizon.fitness import find_fitness
from mlrsnet_lab.horizon.policies import Defaults
from mlrsnet_lab.horizon.pool import Pool
from mlrsnet_lab.horizon.stacked_models import Rows

STEPS = 40
CPU = torch.device("cpu")


def uneven(data):
    """Has a norm, wide and narrow matrices, and one that is longer than counts."""
    made = nn.Sequential(
        nn.Linear(6, 30), nn.LayerNorm(30), nn.Tanh(), nn.Linear(30, 4), nn.Tanh(), nn.Linear(4, data.num_classes)
    )
    with torch.no_grad():
        made[0].weight.mul_(8)
    return made


def used(data):
    """As after another training: it waits until the loss falls."""
    made = uneven(data)
    with torch.no_grad():
        made[1].weight.copy_(torch.linspace(0.5, 1.5, 30))
    return made


def pictures(data):
    return nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(45, data.num_classes))


def vectors(data):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scales = nn.Parameter(torch.randn(6))

        def forward(self, x):
            return (x * self.scales)[..., : data.num_classes]

    return Scaled()


GROWN = 1e-5
"""What rounding in single precision may grow to over a training."""

MODELS = {"linear": linear, "uneven": uneven, "used": used, "pictures": pictures, "vectors": vectors}


def alone(task, optimizer, law="universal"):
    """One training under `LearnedLR`, which sees all entries of such small networks."""
    made = []

    def set_lr(optimizer, step, loss):
        if not step:
            made.append(LearnedLR(optimizer, law, total_steps=task.total_steps))
        made[0].step(loss)

    return train_alone(task, OPTIMIZERS[optimizer][1], set_lr)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_trainings_under_the_default_are_those_under_learnedlr(model, optimizer):
    data = make_data("pictures" if model == "pictures" else "vectors")
    tasks = make_tasks(data, MODELS[model], optimizer=OPTIMIZERS[optimizer][0], total_steps=STEPS)
    population, together = train_together(tasks, Defaults(len(tasks) * len(PEAKS), CPU))
    assert all(view[0].numel() <= ENTRIES for view in population.models.rows.views.values())
    expected = [one for task in tasks for one in [alone(task, optimizer)] * len(PEAKS)]
    assert_same(together, expected, rtol=GROWN)
    torch.testing.assert_close(together["lrs"], torch.stack([one["lrs"] for one in expected]), rtol=GROWN, atol=0)
    assert (together["lrs"] > 0).all()


def test_clipped_gradients_and_other_horizons_are_followed_too():
    task = make_tasks(make_data(), uneven, clip_norm=0.3, total_steps=70)[0]
    population, together = train_together([task], Defaults(len(PEAKS), CPU))
    assert_same(together, [alone(task, "sgd")] * len(PEAKS), rtol=1e-6)
    shorter = replace(task, total_steps=11, seed=8)
    assert_same(results(population, [shorter]), [alone(shorter, "sgd")] * len(PEAKS), rtol=1e-6)


def test_vectors_and_padding_belong_to_no_matrix():
    rows = Rows(uneven(make_data()), 2)
    assert [tuple(shape) for shape in rows.shapes] == [(30, 6), (4, 30), (5, 4)]
    expected = torch.stack([torch.full((2,), shape.numel() ** 0.5) for shape in rows.shapes], dim=1)
    torch.testing.assert_close(rows.lengths(torch.ones_like(rows.weights)), expected)


def test_a_training_that_diverges_does_not_disturb_its_neighbours():
    """The second sees inputs that are no numbers."""
    data = make_data()
    data.inputs[30:] = torch.nan
    task = Task(data, linear, STEPS, BATCH, train=torch.arange(20), val=torch.arange(20, 30))
    lost = replace(task, train=torch.arange(30, 60))

    def losses(tasks):
        pool = Pool(lambda trainings: Defaults(trainings, CPU), Compute(precision="fp64"))
        (group,) = pool.train(tasks, [torch.empty(1, 0)] * len(tasks), find_fitness("loss"))
        return group.trained.losses

    alone, beside = losses([task]), losses([task, lost])
    torch.testing.assert_close(beside[0], alone[0], rtol=1e-12, atol=0)
    assert not torch.isfinite(beside[1]).all()


def test_the_default_reads_numbers_to_predict():
    random = torch.Generator().manual_seed(0)
    data = Data(torch.randn(60, 6, generator=random), torch.randn(60, 2, generator=random))
    task = Task(data, linear, 5, BATCH)
    pool = Pool(lambda trainings: Defaults(trainings, CPU), Compute())
    trained = next(iter(pool.train([task], [torch.empty(1, 0)], find_fitness("loss")))).trained
    assert (trained.lrs > 0).all()
    assert torch.isfinite(trained.fitness).all()
