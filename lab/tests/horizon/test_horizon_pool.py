"""Trainings in progress: taken in turns they end as they do one after another, and a population is reused."""

import itertools

import pytest
import torch
from torch import nn
from trainings import BATCH, PEAKS, assert_same, layer_norm, linear, make_data, make_tasks, one_by_one, table

from mlrsnet_lab.horizon import Compute, Data, Task
from mlrsnet_lab.horizon.batches import Batches
from mlrsnet_lab.horizon.fitness import loss as mean_loss
from mlrsnet_lab.horizon.policies import Factors
from mlrsnet_lab.horizon.pool import Pool
from mlrsnet_lab.horizon.population import CHUNK, Population
from mlrsnet_lab.horizon.training import Training

FACTORS = torch.tensor([1.0 - 0.5 * step / 100 for step in range(100)], dtype=torch.float64).expand(len(PEAKS), -1)


def make_pool(most_steps=100, at_once=1):
    """A pool of tables, in double precision."""
    peaks = torch.tensor(PEAKS, dtype=torch.float64)
    pool = Pool(lambda trainings: Factors(peaks.repeat(trainings // len(peaks)), most_steps), Compute(precision="fp64"))
    pool.at_once = at_once
    return pool


def dropping(data):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), linear(data))


@pytest.mark.parametrize("at_once", [1, 3])
def test_tasks_of_different_kinds_come_back_in_their_own_places(at_once):
    data = make_data()
    tasks = [
        Task(data, (linear, layer_norm)[i % 2], (4, 7)[i // 3], BATCH, optimizer=("sgd", "adam")[i == 4], seed=i)
        for i in range(6)
    ]
    pool = make_pool(at_once=at_once)
    for _ in range(2):
        found = list(pool.train(tasks, [FACTORS] * 6, mean_loss))
        assert sorted(index for group in found for index in group.indices) == list(range(6))
        assert sorted(group.indices for group in found) == [[0, 2], [1], [3, 5], [4]]
        for group in found:
            alone = one_by_one([tasks[index] for index in group.indices], "adam" if 4 in group.indices else "sgd")
            assert_same({"losses": group.trained.losses, "lrs": group.trained.lrs}, alone)
            outputs, targets = (torch.stack([one[name] for one in alone]) for name in ("outputs", "targets"))
            torch.testing.assert_close(group.trained.fitness, mean_loss(outputs, targets), rtol=1e-9, atol=1e-9)


def test_every_task_is_trained_with_its_own_values():
    data = make_data()
    tasks = [Task(data, linear, 4, BATCH, seed=seed) for seed in range(2)]
    (group,) = make_pool().train(tasks, [FACTORS, 0.5 * FACTORS], mean_loss)
    peaks = torch.tensor(PEAKS, dtype=torch.float64)
    assert torch.equal(group.trained.lrs[:3], peaks.unsqueeze(1) * FACTORS[:, :4])
    assert torch.equal(group.trained.lrs[3:], peaks.unsqueeze(1) * (0.5 * FACTORS[:, :4]))


def lengths_and_models():
    data = make_data()
    return [
        Task(data, model, steps, BATCH, seed=seed)
        for seed, (model, steps) in enumerate(itertools.product((linear, dropping), (CHUNK + 5, 2 * CHUNK + 3, 7)))
    ]


def test_populations_at_the_same_time_are_those_one_after_another():
    tasks = lengths_and_models()

    def losses(at_once):
        pool = make_pool(200, at_once)
        found = pool.train(tasks, [torch.ones(len(PEAKS), 200)] * len(tasks), mean_loss)
        ends = {group.indices[0]: torch.cat((group.trained.losses.flatten(), group.trained.fitness)) for group in found}
        assert len(pool.populations) == 2  # one for all lengths
        return list(ends), [ends[index] for index in range(len(tasks))]

    (order, alone), (other_order, together) = losses(1), losses(4)
    assert order == list(range(6)) != other_order
    assert all(map(torch.equal, alone, together))


def loop(population, task):
    """A training written out: one loop, without chunks in turns, streams or saved random states."""
    batches = Batches(task)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(task.seed)
        population.begin([task])
        chunks = [
            population.advance([batches], min(CHUNK, task.total_steps - first))
            for first in range(0, task.total_steps, CHUNK)
        ]
        fitness = mean_loss(*population.evaluate([task]))
    return torch.cat([*(chunk[0].flatten() for chunk in chunks), fitness])


def test_a_pool_gives_bit_for_bit_what_a_plain_loop_gives():
    tasks, pool = lengths_and_models(), make_pool(200, at_once=4)
    values = [torch.ones(len(PEAKS), 200)] * len(tasks)
    for group in pool.train(tasks, values, mean_loss):
        losses = group.trained.losses.split(CHUNK, dim=1)
        found = torch.cat([*(chunk.flatten() for chunk in losses), group.trained.fitness])
        population = make_pool(200)._population([tasks[group.indices[0]]], len(PEAKS))
        population[1].configure(values[0])
        assert torch.equal(found, loop(population[0], tasks[group.indices[0]]))


def test_a_training_is_advanced_chunk_by_chunk_and_then_judged():
    task = Task(make_data(), linear, CHUNK + 5, BATCH)
    training = Training(Population(task, 1, len(PEAKS), table([task]), Compute(precision="fp64")), [task], mean_loss)
    for left in (CHUNK + 5, 5, 0):
        assert training.steps_left == left
        with pytest.raises(
            RuntimeError, match=rf"the training has {left} steps left: call advance\(\) until it is done"
        ):
            training.result  # noqa: B018
        training.advance()
    assert training.done
    assert training.result.losses.shape == (len(PEAKS), CHUNK + 5)
    with pytest.raises(RuntimeError, match="the training is done: read its result"):
        training.advance()


def test_a_pool_forgets_the_populations_that_were_not_used_for_longest(monkeypatch):
    monkeypatch.setattr("mlrsnet_lab.horizon.pool.MOST_POPULATIONS", 2)
    tasks = [make_tasks(make_data(), linear, total_steps=2, batch_size=size)[0] for size in (2, 3, 4)]
    pool = Pool(lambda trainings: Factors(torch.full((1,), 0.1), 5), Compute())
    for task in (tasks[0], tasks[1], tasks[0], tasks[2]):
        list(pool.train([task], [torch.ones(1, 5)], mean_loss))
    assert [population.indices.shape[2] for population, _ in pool.populations.values()] == [2, 4]


def test_the_users_random_numbers_are_left_alone_by_a_training():
    tasks = make_tasks(make_data(), linear)
    population = Population(tasks[0], 2, 3, table(tasks), Compute(precision="fp64"))
    torch.manual_seed(0)
    Training(population, tasks, mean_loss).run()
    found = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand(3))


def test_dropout_is_the_same_every_time_and_leaves_the_users_random_numbers_alone():
    data = Data(torch.randn(40, 6), torch.arange(40) % 4)
    task = Task(data, lambda data: nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 4)), 9, 8)
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    once = Training(Population(task, 1, len(PEAKS), table([task]), Compute(precision="fp64")), [task], mean_loss).run()
    assert torch.equal(torch.rand(2), expected)
    again = Training(Population(task, 1, len(PEAKS), table([task]), Compute(precision="fp64")), [task], mean_loss).run()
    assert torch.equal(once.losses, again.losses)
