"""Numbers to predict instead of classes."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from mlrsnet_lab.horizon import Compute, Data, Evolution, HorizonTrainer, Task, Tasks, TaskSampler
from mlrsnet_lab.horizon.batches import Batches
from mlrsnet_lab.horizon.fitness import find_fitness
from mlrsnet_lab.horizon.policies import Factors
from mlrsnet_lab.horizon.pool import Pool


def numbers(outputs=2, dtype=torch.float64):
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(120, 5, generator=random, dtype=dtype)
    return Data(inputs, inputs @ torch.randn(5, outputs, generator=random, dtype=dtype), dtype=dtype)


def linear(data):
    return nn.Linear(5, data.num_classes)


def test_a_population_trains_on_the_mean_squared_error():
    task = Task(numbers(), linear, 12, 10, seed=3)
    pool = Pool(lambda n: Factors(torch.full((n,), 0.05, dtype=torch.float64), 12), Compute(precision="fp64"))
    trained = next(iter(pool.train([task], [torch.ones(1, 12, dtype=torch.float64)], find_fitness("loss")))).trained
    model = task.fresh_model().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, index in enumerate(Batches(task).take(12)[0]):
        loss = mse_loss(model(task.data.inputs[index]), task.data.targets[index])
        torch.testing.assert_close(trained.losses[0, step], loss.detach(), rtol=1e-10, atol=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    targets = task.data.targets[task.val]
    unexplained = mse_loss(model(task.data.inputs[task.val]), targets) / (targets - targets.mean(0)).square().mean()
    torch.testing.assert_close(trained.fitness[0], unexplained.detach(), rtol=1e-10, atol=0)


def test_targets_of_one_number_each_have_one_output():
    data = Data(torch.zeros(4, 2), torch.tensor([0.5, 1.0, -2.0, 3.0]))
    assert (data.num_classes, data.is_regression, data.is_sequence) == (1, True, False)
    assert data.to("cpu", torch.float64).targets.dtype == torch.float64


def test_a_schedule_can_be_learned_from_numbers():
    tasks = TaskSampler([numbers(1, torch.float32)], [linear], horizons=(5, 9), val_size=20)
    trainer = HorizonTrainer(Tasks(tasks, 2, held_out=2), evolution=Evolution(generations=2, members=4))
    trainer.run()
    assert all(torch.isfinite(torch.tensor(found.learned)).all() for found in trainer.comparisons)


@pytest.mark.parametrize("options", [{"classes": (0, 1)}, {"label_noise": 0.1}, {"label_smoothing": 0.1}])
def test_what_needs_classes_is_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} .*"):
        Task(numbers(), linear, 5, 10, **options)
