"""Populations of trainings in CUDA graphs; run by hand on a machine with a GPU."""

import pytest
import torch
from torch import nn

from mlrsnet.card import Card
from mlrsnet.ranges import Fixed
from mlrsnet.schedule import Schedule
from mlrsnet_lab.horizon import Compute, Data, Evolution, HeldOut, HorizonTrainer, Tasks, TaskSampler
from mlrsnet_lab.horizon.first_net import first_net
from mlrsnet_lab.horizon.fitness import calibrated_loss
from mlrsnet_lab.horizon.policies import Defaults, Factors, Networks
from mlrsnet_lab.horizon.pool import Pool
from mlrsnet_lab.horizon.population import CHUNK, Population
from mlrsnet_lab.horizon.training import Training
from mlrsnet_lab.models import build_image

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
CUDA = torch.device("cuda")
TASKS, MEMBERS = 2, 4


@pytest.fixture(scope="module")
def data():
    random = torch.Generator().manual_seed(0)
    targets = torch.arange(400) % 4
    pictures = torch.randn(400, 3, 8, 8, generator=random) + targets.view(-1, 1, 1, 1) / 2
    return Data(pictures, targets, mirrored=True)


def patch_net(data):
    return build_image("patch_net", (3, 8, 8), data.num_classes)


def layer_net(data):
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, data.num_classes))


def convolutions(data):
    return build_image("small_cnn", (3, 8, 8), data.num_classes, width=4)


def norm_net(data):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 16, bias=False),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, data.num_classes),
    )


def sampler(data, model=patch_net, optimizer="sgd", steps=40):
    settings = {"batch_sizes": (16,), "val_size": 100, "num_classes": (2, None), "label_noises": (0.0, 0.2)}
    return TaskSampler([data], [model], horizons=(steps, steps), optimizers=(optimizer,), **settings)


def population(tasks, data, precision="fp32", capture=True):
    net, run = first_net(), Compute(data.inputs.device, precision, capture)
    policy = Networks(Schedule(net, Card(gamma=Fixed(0.3))), TASKS * MEMBERS, run.device, run.dtype)
    row = torch.cat([p.detach().flatten() for p in net.parameters()])
    noise = torch.randn(TASKS * MEMBERS, len(row), generator=torch.Generator().manual_seed(1))
    policy.configure(row + 0.1 * noise)
    return Population(tasks[0], TASKS, MEMBERS, policy, run, data)


@pytest.mark.parametrize("model", [patch_net, layer_net, convolutions])
@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adam", "adamw"])
def test_a_captured_population_is_the_one_on_the_cpu(data, model, optimizer):
    tasks = sampler(data, model, optimizer).sample(0, TASKS)
    on_cpu = Training(population(tasks, data), tasks, calibrated_loss).run()
    captured = population(tasks, data.to(CUDA))
    on_gpu = Training(captured, tasks, calibrated_loss).run()
    assert captured.graph is not None
    torch.testing.assert_close(on_gpu.losses[:, :10].cpu(), on_cpu.losses[:, :10], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(on_gpu.lrs[:, :10].cpu(), on_cpu.lrs[:, :10], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(on_gpu.fitness.cpu(), on_cpu.fitness, rtol=0.1, atol=0.02)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_captured_population_with_the_default_is_the_one_on_the_cpu(data, optimizer):
    tasks, found = sampler(data, layer_net, optimizer).sample(0, TASKS), []
    for device in ("cpu", CUDA):
        run = Compute(device, "fp64")
        made = Population(tasks[0], TASKS, MEMBERS, Defaults(TASKS * MEMBERS, run.device), run)
        found.append(Training(made, tasks, calibrated_loss).run())
        assert (made.graph is not None) == (device == CUDA)
    torch.testing.assert_close(found[1].losses.cpu(), found[0].losses, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[1].lrs.cpu(), found[0].lrs, rtol=1e-6, atol=1e-9)


def test_a_graph_is_used_again_for_other_tasks_and_lengths(data):
    on_gpu = data.to(CUDA)
    first, second = sampler(data).sample(0, TASKS), sampler(data, steps=75).sample(1, TASKS)
    used = population(first, on_gpu)
    Training(used, first, calibrated_loss).run()
    again, fresh = (
        Training(used, second, calibrated_loss).run(),
        Training(population(second, on_gpu), second, calibrated_loss).run(),
    )
    torch.testing.assert_close(again.losses[:, :20], fresh.losses[:, :20], rtol=1e-3, atol=1e-4)
    assert again.losses.shape == (TASKS * MEMBERS, 75)


@pytest.mark.parametrize("model", [patch_net, layer_net, norm_net])
@pytest.mark.parametrize("optimizer", ["sgdm", "adamw"])
def test_a_captured_population_in_double_precision_is_the_one_on_the_cpu(data, model, optimizer):
    tasks = sampler(data, model, optimizer).sample(0, TASKS)
    on_cpu = Training(population(tasks, data, "fp64"), tasks, calibrated_loss).run()
    captured = population(tasks, data.to(CUDA), "fp64")
    on_gpu = Training(captured, tasks, calibrated_loss).run()
    assert captured.graph is not None
    torch.testing.assert_close(on_gpu.losses.cpu(), on_cpu.losses, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(on_gpu.lrs.cpu(), on_cpu.lrs, rtol=1e-6, atol=1e-9)


def test_a_meta_training_goes_on_to_the_same_schedule(data):
    def make():
        return HorizonTrainer(
            Tasks(sampler(data), 2, held_out=2), None, Evolution(generations=3, members=4), Compute(CUDA)
        )

    whole, first, second = make(), make(), make()
    whole.run(every=3)
    first.step()
    second.load_state_dict(first.state_dict())
    second.run(every=3)
    assert torch.equal(second.mean_weights, whole.mean_weights)
    assert second.number == whole.number == 3


@pytest.mark.parametrize("steps", [2, CHUNK + 9])
def test_hand_designed_schedules_are_captured_too_whatever_their_length(data, steps):
    tasks = sampler(data, steps=steps).sample(0, TASKS)
    on_cpu, on_gpu = (HeldOut(tasks, "loss", Compute(device), grid=(0.02, 0.05)).grids() for device in ("cpu", CUDA))
    for kind, found in on_gpu.items():
        torch.testing.assert_close(found, on_cpu[kind], rtol=0.05, atol=0.01)


def test_dropout_is_the_same_in_every_training(data):
    def dropping(data):
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, data.num_classes))

    tasks = sampler(data, dropping).sample(0, TASKS)
    used = population(tasks, data.to(CUDA))
    first, again = Training(used, tasks, calibrated_loss).run(), Training(used, tasks, calibrated_loss).run()
    assert torch.equal(first.losses[:, 10:], again.losses[:, 10:])


def test_populations_at_the_same_time_are_those_one_after_another(data):
    def dropping(data):
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(192, data.num_classes))

    models = (patch_net, layer_net, convolutions, dropping)
    tasks = [task for model in models for steps in (70, 150) for task in sampler(data, model, steps=steps).sample(0, 2)]

    def trained(at_once):
        pool = Pool(lambda total: Factors(torch.full((total,), 0.05, device=CUDA), 150), Compute(CUDA))
        pool.at_once = at_once
        found = {}
        values = [torch.ones(4, 150)] * len(tasks)
        for group in pool.train(tasks, values, calibrated_loss):
            found[tuple(group.indices)] = group.trained.losses.cpu(), group.trained.fitness.cpu()
        return found

    alone, together = trained(1), trained(8)
    assert alone.keys() == together.keys()
    for indices, (losses, fitness) in alone.items():
        torch.testing.assert_close(together[indices][0][:, :20], losses[:, :20], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(together[indices][1], fitness, rtol=0.1, atol=0.02)


def test_a_model_that_cannot_be_captured_trains_without(data):
    class Copies(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(192, 4)

        def forward(self, x):
            return self.out(x.flatten(1)) * torch.ones(1).to(x.device)

    tasks = Tasks(sampler(data, lambda data: Copies()), 2, held_out=0)
    trainer = HorizonTrainer(tasks, None, Evolution(generations=1, members=2), Compute(CUDA, capture=False))
    assert trainer.run().num_phases == 1
