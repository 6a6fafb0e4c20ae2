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
from mlrsnet.default import Default
from mlrsnet.ranges import optimizer_scale
from mlrsnet.sensors import ENTRIES
from mlrsnet_lab.horizon import Compute, Data, Task
from mlrsnet_lab.horizon.fitness import find_fitness
from mlrsnet_lab.horizon.policies import Defaults
from mlrsnet_lab.horizon.pool import Pool
from mlrsnet_lab.horizon.stacked_models import Rows
from mlrsnet_lab.table.columns import Sizes, Sizing

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
    assert_same(together, expected, rtol=1e-6)
    torch.testing.assert_close(together["lrs"], torch.stack([one["lrs"] for one in expected]), rtol=1e-6, atol=0)
    assert (together["lrs"] > 0).all()


def test_clipped_gradients_and_other_horizons_are_followed_too():
    task = make_tasks(make_data(), uneven, clip_norm=0.3, total_steps=70)[0]
    population, together = train_together([task], Defaults(len(PEAKS), CPU))
    assert_same(together, [alone(task, "sgd")] * len(PEAKS), rtol=1e-6)
    shorter = replace(task, total_steps=11, seed=8)
    assert_same(results(population, [shorter]), [alone(shorter, "sgd")] * len(PEAKS), rtol=1e-6)


COLUMNS = (Sizing("weighted", 0.1), Sizing("weighted", 0.4, 0.5, 3.0), Sizing("absolute", 0.2))


@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adamw"])
def test_a_column_of_the_table_has_its_own_size(optimizer):
    """A share of the weights' length is the default without its law; an LR is the default's course times the LR."""
    task = make_tasks(make_data(), uneven, optimizer=optimizer, total_steps=STEPS)[0]
    _, together = train_together([task], Sizes(COLUMNS, CPU))
    fixed = {"horizon_power": 0.0, "size_power": 0.0, "depth_power": 0.0}
    laws = [Default(size=column.size, fall=column.fall, rise=column.rise, **fixed) for column in COLUMNS[:2]]
    shares = {name: values[:2] for name, values in together.items()}
    assert_same(shares, [alone(task, optimizer, law) for law in laws], rtol=1e-6)
    peak, line = COLUMNS[2].size * optimizer_scale(task.optimizer.group), torch.linspace(0, 1, STEPS + 1).double()[:-1]
    expected = peak * (line / 0.05).clamp(0.01, 1.0) * (1 - line)
    torch.testing.assert_close(together["lrs"][2], expected, rtol=1e-6, atol=0)


def test_a_column_that_waits_begins_with_that_share_of_its_steps():
    columns = (Sizing("weighted", 0.1), Sizing("weighted", 0.1, wait=0.2), Sizing("absolute", 0.1, wait=0.5))
    task = make_tasks(make_data(), linear)[0]
    lrs = train_together([task], Sizes(columns, CPU))[1]["lrs"][:, 0]
    assert lrs[1] == pytest.approx(0.2 * float(lrs[0]))
    assert lrs[2] == pytest.approx(0.5 * 0.1 * 0.01)


def test_other_structures_of_kept_tables_are_not_trained():
    with pytest.raises(ValueError, match="structure must be one of absolute, weighted; got 'each'"):
        Sizes([Sizing("each", 0.1)], CPU)


def test_vectors_and_padding_belong_to_no_matrix():
    rows = Rows(uneven(make_data()), 2)
    assert [tuple(shape) for shape in rows.shapes] == [(30, 6), (4, 30), (5, 4)]
    expected = torch.stack([torch.full((2,), shape.numel() ** 0.5) for shape in rows.shapes], dim=1)
    torch.testing.assert_close(rows.lengths(torch.ones_like(rows.weights)), expected)


def test_a_training_that_diverges_does_not_disturb_its_neighbours():
    task = make_tasks(make_data(), linear, total_steps=STEPS)[0]

    def trained(columns):
        pool = Pool(lambda trainings: Sizes(columns, CPU), Compute(precision="fp64"))
        return next(iter(pool.train([task], [torch.empty(len(columns), 0)], find_fitness("loss")))).trained

    found, beside = trained(COLUMNS[:1]), trained([COLUMNS[0], Sizing("absolute", 1e9)])
    torch.testing.assert_close(found.losses[0], beside.losses[0], rtol=1e-12, atol=0)
    assert not torch.isfinite(beside.fitness[1]) or beside.fitness[1] > 10 * beside.fitness[0]


def test_the_default_reads_numbers_to_predict():
    random = torch.Generator().manual_seed(0)
    data = Data(torch.randn(60, 6, generator=random), torch.randn(60, 2, generator=random))
    task = Task(data, linear, 5, BATCH)
    pool = Pool(lambda trainings: Defaults(trainings, CPU), Compute())
    trained = next(iter(pool.train([task], [torch.empty(1, 0)], find_fitness("loss")))).trained
    assert (trained.lrs > 0).all()
    assert torch.isfinite(trained.fitness).all()
