"""The relative range, alpha = r |w| / |d|, against the steps that torch's optimizers then take."""

import copy
import math
import subprocess
import sys

import pytest
import torch
from test_metatrain_distributed import LOWEST_FSDP
from torch import nn
from torch.optim import SGD, Adam, AdamW, RMSprop

from mlrsnet import Card, Gamma, LearnedLR, MetaTrainer, MLPNet, Schedule
from mlrsnet._engine.capture import captured
from mlrsnet.horizon import Data, Task, updates
from mlrsnet.horizon.fitness import loss as mean_loss
from mlrsnet.horizon.policies import Networks
from mlrsnet.horizon.population import Population
from mlrsnet.horizon.training import Training
from mlrsnet.horizon.updates import Relative

PART = 0.03
OPTIMIZERS = {
    "sgd": lambda p, **k: SGD(p, weight_decay=0.01, **k),
    "heavy-ball": lambda p, **k: SGD(p, momentum=0.9, dampening=0.1, weight_decay=0.01, **k),
    "nesterov": lambda p, **k: SGD(p, momentum=0.9, nesterov=True, **k),
    "maximize": lambda p, **k: SGD(p, momentum=0.5, maximize=True, **k),
    "adam": lambda p, **k: Adam(p, weight_decay=0.01, **k),
    "amsgrad": lambda p, **k: Adam(p, amsgrad=True, betas=(0.8, 0.5), **k),
    "adamw": lambda p, **k: AdamW(p, weight_decay=0.1, **k),
}


def relative_schedule(part=PART):
    """A schedule with a nearly constant r = `part`."""
    torch.manual_seed(0)
    net = MLPNet(4).double()
    with torch.no_grad():
        net.out.weight.zero_()
        net.out.bias.zero_()
    return Schedule(net, Card(gamma=Gamma("relative", value=2 * part)))


def model():
    """In double precision, and without a bias before batch norm, whose gradient is rounding error that Adam scales up."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).double()


def batches(count):
    random = torch.Generator().manual_seed(2)
    return [
        (torch.randn(16, 5, generator=random, dtype=torch.float64), torch.randint(3, (16,), generator=random))
        for _ in range(count)
    ]


def lengths(network, before):
    moved = [(p - q).detach().flatten() for p, q in zip(network.parameters(), before, strict=True)]
    return float(torch.cat(moved).norm()), float(torch.cat([p.flatten() for p in before]).norm())


def part_moved(network, optimizer, lr, batch, trained):
    """Take one step. Returns how far it moved the trained weights, relative to their norm."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(network(batch[0]), batch[1])
    loss.backward()
    lr.step(loss)
    before = copy.deepcopy([p.detach() for p in trained.parameters()])
    optimizer.step()
    moved, length = lengths(trained, before)
    return moved / length


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_every_step_moves_the_weights_by_a_part_of_their_length(name, tensor_lr):
    network = model()
    optimizer = OPTIMIZERS[name](network.parameters(), lr=torch.tensor(0.1) if tensor_lr else 0.1)
    lr = LearnedLR(optimizer, relative_schedule(), total_steps=12)
    for batch in batches(12):
        # a tensor LR is float32, whose own rounding is 6e-8
        assert part_moved(network, optimizer, lr, batch, network) == pytest.approx(
            PART, rel=1e-6 if tensor_lr else 1e-9
        )


def test_groups_keep_the_ratio_of_their_lrs_and_move_together():
    network = model()
    groups = [{"params": network[0].parameters(), "lr": 0.3}, {"params": network[3].parameters(), "lr": 0.1}]
    optimizer = SGD(groups, momentum=0.9)
    lr = LearnedLR(optimizer, relative_schedule(), total_steps=5)
    trained = nn.ModuleList([network[0], network[3]])
    for batch in batches(5):
        assert part_moved(network, optimizer, lr, batch, trained) == pytest.approx(PART, rel=1e-9)
        first, second = lr.get_last_lr()
        assert first == pytest.approx(3 * second, rel=1e-12)


@pytest.mark.filterwarnings("ignore:the schedule's relative range could not be measured")
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_a_gradient_that_is_not_finite_keeps_the_last_ratio(tensor_lr):
    weight = nn.Parameter(torch.ones(4))
    optimizer = SGD([weight], lr=torch.tensor(0.1) if tensor_lr else 0.1)
    lr = LearnedLR(optimizer, relative_schedule(), total_steps=9)
    found = []
    for gradient in (None, 2.0, math.nan, math.inf, 0.0):
        weight.grad = None if gradient is None else torch.full((4,), gradient)
        lr.step(1.0)
        found.append(float(lr.get_last_lr()[0]))
    assert found[0] < 1e-12
    assert found[1:] == pytest.approx([PART / 2] * 4)


def test_a_resumed_training_goes_on_with_the_same_lrs():
    def run(network, optimizer, lr, those):
        found = []
        for x, y in those:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(x), y)
            loss.backward()
            lr.step(loss)
            optimizer.step()
            found.append(lr.get_last_lr()[0])
        return found

    def make():
        network = model()
        optimizer = AdamW(network.parameters(), lr=0.1)
        return network, optimizer, LearnedLR(optimizer, relative_schedule(), total_steps=10)

    whole, first, second = make(), make(), make()
    expected = run(*whole, batches(10))
    run(*first, batches(10)[:4])
    for new, old in zip(second, first, strict=True):
        new.load_state_dict(copy.deepcopy(old.state_dict()))
    assert run(*second, batches(10)[4:]) == expected[4:]


def test_a_resumed_training_remembers_the_ratio_where_the_next_gradient_is_not_finite():
    def make():
        weight = nn.Parameter(torch.ones(4))
        return weight, LearnedLR(SGD([weight], lr=0.1), relative_schedule(), total_steps=9)

    (weight, lr), (other, resumed) = make(), make()
    weight.grad = torch.full((4,), 2.0)
    lr.step(1.0)
    resumed.load_state_dict(lr.state_dict())
    other.grad = torch.full((4,), math.inf)
    resumed.step(1.0)
    assert resumed.get_last_lr() == lr.get_last_lr() == pytest.approx([PART / 2])


def test_a_group_that_does_not_move_does_not_count():
    still, moving = nn.Parameter(torch.full((9,), 1000.0)), nn.Parameter(torch.ones(4))
    lr = LearnedLR(
        SGD([{"params": [moving], "lr": 0.1}, {"params": [still], "lr": 0.0}]), relative_schedule(), total_steps=9
    )
    still.grad, moving.grad = torch.ones(9), torch.full((4,), 2.0)
    lr.step(1.0)
    assert lr.get_last_lr() == pytest.approx([PART / 2, 0.0])


@pytest.mark.parametrize("tensor_lr", [False, True])
def test_a_range_that_cannot_be_measured_is_told(tensor_lr):
    weight = nn.Parameter(torch.zeros(4))
    lr = LearnedLR(SGD([weight], lr=torch.tensor(0.1) if tensor_lr else 0.1), relative_schedule(), total_steps=9)
    weight.grad = torch.ones(4)
    with pytest.warns(UserWarning, match="relative range could not be measured, so the LR is practically 0"):
        lr.step(1.0)
        lr.report_problems()


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e-8])
def test_small_gradients_keep_their_direction(size):
    """The direction is read off a step of 2^12 gradients: of a weight of 1 and a gradient of 1e-8, 11 digits are left."""
    weights = torch.ones(1, 4, dtype=torch.float64)
    gradients = size * torch.tensor([[1.0, 2.0, -2.0, 0.0]], dtype=torch.float64)
    lr = torch.tensor([[0.3]], dtype=torch.float64)
    Relative(updates.SGD()).apply(weights, gradients, {}, lr, torch.zeros_like(lr))
    torch.testing.assert_close(weights, 1 - 0.2 * gradients / size, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_small_gradients_keep_their_direction_in_single_precision(size):
    """As above, of 7 digits: of a gradient of 1e-6, 4 digits are left, and an error of 1 % would be another direction."""
    weights, gradients = torch.ones(1, 4), size * torch.tensor([[1.0, 2.0, -2.0, 0.0]])
    Relative(updates.SGD()).apply(weights, gradients, {}, torch.tensor([[0.3]]), torch.zeros(1, 1))
    torch.testing.assert_close(weights, 1 - 0.2 * gradients / size, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adam", "adamw"])
def test_a_population_trains_as_learned_lr_does(optimizer):
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(80, 5, generator=random, dtype=torch.float64)
    data = Data(inputs, torch.arange(80) % 3, dtype=torch.float64)
    train, val = torch.arange(16, 80), torch.arange(16)
    task = Task(data, lambda data: model(), 8, 64, train, val, optimizer=optimizer, weight_decay=0.02)
    schedule = relative_schedule()
    policy = Networks(schedule, 1, torch.device("cpu"), dtype=torch.float64)
    policy.configure(torch.cat([p.detach().flatten() for p in schedule.net.parameters()]).view(1, -1))
    trained = Training(Population(task, 1, 1, policy, data, "fp64"), [task], mean_loss).run()
    network = model()
    made = {
        "sgd": lambda p: SGD(p, lr=0.1, weight_decay=0.02),
        "sgdm": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.02),
        "adam": lambda p: Adam(p, lr=0.1, weight_decay=0.02),
        "adamw": lambda p: AdamW(p, lr=0.1, weight_decay=0.02),
    }[optimizer](network.parameters())
    lr, losses = LearnedLR(made, schedule, total_steps=8), []
    for _ in range(8):
        made.zero_grad()
        loss = nn.functional.cross_entropy(network(data.inputs[train]), data.targets[train])
        loss.backward()
        lr.step(loss)
        made.step()
        losses.append(loss.detach())
    torch.testing.assert_close(trained.losses[0], torch.stack(losses), rtol=1e-9, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["heavy-ball", "adamw"])
def test_a_captured_step_moves_the_weights_by_a_part_of_their_length_too(name):
    network, cuda = model().cuda(), torch.device("cuda")
    x, y = (tensor.to(cuda) for tensor in batches(1)[0])
    capturable = {"capturable": True} if name == "adamw" else {"fused": True}  # required by torch for a tensor LR
    optimizer = OPTIMIZERS[name](network.parameters(), lr=torch.tensor(0.1, device=cuda), **capturable)
    lr = LearnedLR(optimizer, relative_schedule(), total_steps=40)
    noise = torch.zeros_like(x)

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.cross_entropy(network(x + noise), y)
        loss.backward()
        lr.step(loss)
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
        graph, _ = captured(step)
        for _ in range(5):
            noise.normal_()
            before = copy.deepcopy([p.detach() for p in network.parameters()])
            graph.replay()
            moved, length = lengths(network, before)
            assert moved == pytest.approx(PART * length, rel=1e-3)


def test_other_optimizers_and_algorithm_1_are_refused():
    class SignSGD(SGD):
        pass

    with pytest.raises(ValueError, match="got SignSGD"):
        LearnedLR(SignSGD(model().parameters()), relative_schedule(), total_steps=5)
    with pytest.raises(ValueError, match=r"optimizer must be torch's SGD, Adam or AdamW .* got RMSprop"):
        LearnedLR(RMSprop(model().parameters()), relative_schedule(), total_steps=5)
    network = model()
    with pytest.raises(ValueError, match="gamma must not be relative for Algorithm 1"):
        MetaTrainer(
            network,
            SGD(network.parameters(), lr=0.1),
            gamma=Gamma("relative", value=0.1),
            total_steps=5,
            val_loss=mean_loss,
        )
    with pytest.raises(ValueError, match="gamma value must be a finite number, got None"):
        Gamma("relative")


SHARDED = """
import os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.optim import SGD
from mlrsnet import LearnedLR

kind, folder = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
mesh, model = init_device_mesh("cpu", (1,)), nn.Linear(4, 2)
if kind.startswith("FullyShardedDataParallel"):
    model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params="original" in kind)
elif kind == "fully_shard":
    fully_shard(model, mesh=mesh)
else:  # one of two weights
    model.weight = nn.Parameter(distribute_tensor(model.weight.detach(), mesh, [Shard(0)]))
optimizer = SGD(model.parameters(), lr=0.1)
try:
    LearnedLR(optimizer, folder + "/relative.safetensors", total_steps=5)
except ValueError as error:
    print(error)
lr = LearnedLR(optimizer, "universal", total_steps=5, num_classes=3)  # as the error suggests
lr.step(1.1)
print(lr.get_last_lr()[0] > 0, flush=True)
os._exit(0)  # gloo's threads can abort a normal exit
"""


@pytest.mark.parametrize(
    "kind", ["fully_shard", "FullyShardedDataParallel", "FullyShardedDataParallel, original", "one weight"]
)
def test_sharded_weights_are_refused_with_what_works_instead(kind, tmp_path):
    if kind == "fully_shard" and torch.torch_version.TorchVersion(torch.__version__) < LOWEST_FSDP:
        pytest.skip(f"fully_shard on CPUs is right from torch {LOWEST_FSDP} on")
    relative_schedule().save(tmp_path / "relative.safetensors")
    words = [sys.executable, "-c", SHARDED, kind, tmp_path]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.splitlines() == [
        "optimizer must have whole weights for a schedule with a relative range, got weights sharded over processes: "
        "use a schedule whose range is not relative, such as 'universal-2'",
        "True",
    ]
