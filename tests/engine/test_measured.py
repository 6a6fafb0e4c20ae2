"""The measured range, alpha = r c(m) / sqrt(mean of x), against a plain transcription and real loops."""

import copy
import gc
import math
import pickle
import weakref

import pytest
import torch
from test_device import NoReadBack
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import SGD, Adafactor, Adagrad, Adam, AdamW, Optimizer, RMSprop, SparseAdam

from mlrsnet import Card, DecayNet, Gamma, LearnedLR, MetaTrainer, MLPNet, Schedule
from mlrsnet._engine import measured, movement
from mlrsnet._engine.measured import DeviceMean, HostMean
from mlrsnet.horizon import Data, Task
from mlrsnet.horizon.batches import Batches
from mlrsnet.horizon.fitness import find_fitness
from mlrsnet.horizon.policies import Networks
from mlrsnet.horizon.population import Population
from mlrsnet.horizon.training import Training

PART, STEPS = 0.03, 14


class Signs(Optimizer):
    """Nobody has heard of it: signs of an average, with its own name for momentum."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "beta1": 0.8})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    average = self.state[weight].setdefault("average", torch.zeros_like(weight))
                    average.lerp_(weight.grad, 1 - group["beta1"])
                    weight.sub_(group["lr"] * average.sign())
        return loss


class Nested(Adam):
    """A subclass whose step calls its parent's."""

    def step(self, closure=None):
        return super().step(closure)


OPTIMIZERS = {
    "sgd": (lambda p, lr: SGD(p, lr=lr), 0.0),
    "sgd, decay": (lambda p, lr: SGD(p, lr=lr, weight_decay=0.1), 0.0),
    "heavy-ball": (lambda p, lr: SGD(p, lr=lr, momentum=0.9), 0.9),
    "dampening": (lambda p, lr: SGD(p, lr=lr, momentum=0.8, dampening=0.3, weight_decay=0.1), 0.8),
    "nesterov": (lambda p, lr: SGD(p, lr=lr, momentum=0.9, nesterov=True), 0.9),
    "maximize": (lambda p, lr: SGD(p, lr=lr, momentum=0.5, maximize=True), 0.5),
    "adam": (lambda p, lr: Adam(p, lr=lr), 0.9),
    "adamw": (lambda p, lr: AdamW(p, lr=lr, betas=(0.8, 0.99), weight_decay=0.1), 0.8),
    "rmsprop": (lambda p, lr: RMSprop(p, lr=lr, momentum=0.5), 0.5),
    "adagrad": (lambda p, lr: Adagrad(p, lr=lr), 0.0),
    "adafactor": (lambda p, lr: Adafactor(p, lr=lr), 0.0),
    "unknown": (Signs, 0.8),
    "nested": (lambda p, lr: Nested(p, lr=lr), 0.9),
}
if hasattr(torch.optim, "Muon"):
    OPTIMIZERS["muon"] = (lambda p, lr: torch.optim.Muon([w for w in p if w.ndim == 2], lr=lr), 0.95)


def measured_schedule(part=PART):
    """A schedule with a constant r = `part`."""
    torch.manual_seed(0)
    net = MLPNet(4).double()
    with torch.no_grad():
        net.out.weight.zero_()
        net.out.bias.zero_()
    return Schedule(net, Card(gamma=Gamma("measured", value=2 * part)))


def model(dtype=torch.float64):
    """Its first matrix begins longer than counts."""
    torch.manual_seed(1)
    made = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)
    with torch.no_grad():
        made[0].weight.mul_(6)
    return made


def batches(count=STEPS):
    random = torch.Generator().manual_seed(2)
    return [
        (torch.randn(16, 5, generator=random, dtype=torch.float64), torch.randint(3, (16,), generator=random))
        for _ in range(count)
    ]


def backward(network, optimizer, batch):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(network(batch[0]), batch[1])
    loss.backward()
    return loss


def train(network, optimizer, lr, those=None):
    found = []
    for batch in those or batches():
        loss = backward(network, optimizer, batch)
        lr.step(loss)
        optimizer.step()
        found.append(float(lr.get_last_lr()[0]))
    return found


def learned(network, make, lr=0.1, part=PART, **options):
    optimizer = make(network.parameters(), lr)
    return network, optimizer, LearnedLR(optimizer, measured_schedule(part), total_steps=STEPS, **options)


class Reference:
    """The equations on lists of Python numbers; nothing is shared with the library."""

    def __init__(self, optimizer, m=0.0, part=PART, total_steps=STEPS):
        self.optimizer, self.shrink = optimizer, {}
        self.size = part * math.sqrt((1 - m) / (1 + m))
        self.keep = math.exp(-1 / (0.1 * total_steps))
        self.n = self.weight = 0.0
        first = next(g["lr"] for g in optimizer.param_groups if g["lr"])
        self.shares = [g["lr"] / first for g in optimizer.param_groups]

    def those(self):
        pairs = [
            (w, g, s) for g, s in zip(self.optimizer.param_groups, self.shares, strict=True) for w in g["params"] if s
        ]
        return [p for p in pairs if p[0].ndim >= 2] or pairs

    @staticmethod
    def length(tensor):
        return math.sqrt(math.fsum(value**2 for value in tensor.detach().double().flatten().tolist()))

    @staticmethod
    def shortest(weight):
        return math.sqrt((weight.shape[0] if weight.ndim else 1) / 3)

    def as_it_counts(self, length, weight):
        """What began too long is shorter by as much ever after."""
        shortest = self.shortest(weight)
        shrink = self.shrink.setdefault(id(weight), min(1.0, 3 * shortest / length) if length else 1.0)
        return max(shrink * length, shortest)

    @staticmethod
    def count(weight):
        return min(1.0, weight[0].numel() / len(weight)) if weight.ndim > 1 else 1.0

    def rho(self):
        average = self.average()
        if type(self.optimizer) is not SGD or self.optimizer.param_groups[0]["momentum"]:
            return average
        those = [(w, s, self.count(w)) for w, _, s in self.those() if w.grad is not None]
        step = math.fsum(k * (s * self.length(w.grad)) ** 2 for w, s, k in those)
        return min(average, math.sqrt(math.fsum(k * self.counted(w) ** 2 for w, _, k in those) / step))

    def counted(self, weight):
        return self.as_it_counts(self.length(weight), weight)

    def average(self):
        if self.weight:
            return 1 / math.sqrt(self.n / self.weight)
        w = g = n = 0.0
        for weight, _, share in self.those():
            w += self.counted(weight) ** 2
            g += (share * self.length(weight.grad)) ** 2 if weight.grad is not None else 0
            n += share**2 * weight.numel() / (0.01 if isinstance(self.optimizer, RMSprop) else 1)
        return math.sqrt(w) / max(math.sqrt(g), math.sqrt(n))

    def step(self):
        alpha = self.size * self.rho()
        for group, share in zip(self.optimizer.param_groups, self.shares, strict=True):
            group["lr"] = alpha * share
        those = [(w, g, s, w.detach().clone()) for w, g, s in self.those() if w.grad is not None]
        self.optimizer.step()
        moved = [self.length(w.detach() - b) * s / g["lr"] for w, g, s, b in those]
        lengths = [self.as_it_counts(self.length(b), w) for w, _, _, b in those]
        counts = [self.count(w) for w, _, _, _ in those]
        x = math.fsum(k * d**2 for k, d in zip(counts, moved, strict=True)) / math.fsum(
            k * w**2 for k, w in zip(counts, lengths, strict=True)
        )
        if 0 < x < math.inf:
            self.n = self.keep * self.n + (1 - self.keep) * x
            self.weight = self.keep * self.weight + (1 - self.keep)
        return alpha


def reference_lrs(network, make, m=0.0, lr=0.1, **options):
    optimizer = make(network.parameters(), lr)
    reference, found = Reference(optimizer, m, **options), []
    for batch in batches():
        backward(network, optimizer, batch)
        found.append(reference.step())
    return found


def tensor_lr(value=0.1):
    return torch.tensor(value)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_gets_the_lrs_of_the_equations(name):
    make, m = OPTIMIZERS[name]
    assert train(*learned(model(), make)) == pytest.approx(reference_lrs(model(), make, m), rel=1e-9)


@pytest.mark.parametrize("name", ["sgd", "heavy-ball", "nesterov", "adamw", "unknown"])
def test_tensor_lrs_are_those_of_the_equations_too(name):
    make, m = OPTIMIZERS[name]
    used = train(*learned(model(), make, tensor_lr()))
    assert used == pytest.approx(reference_lrs(model(), make, m), rel=1e-4)  # a tensor LR is float32


def test_a_long_embedding_does_not_outweigh_the_other_matrices():
    """Torch's embeddings begin with numbers of size 1, and have many rows."""
    torch.manual_seed(0)
    dense = nn.Linear(16, 16)
    rho = {}
    for rows in (16, 4000):
        weights = [nn.Embedding(rows, 16).weight, dense.weight]
        optimizer = SGD(weights, lr=0.1)
        lr = LearnedLR(optimizer, measured_schedule(), total_steps=9)
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
            weight.grad[:16] = 0.1
        for _ in range(3):
            lr.step(1.0)
            optimizer.step()
        rho[rows] = lr.engine.backend.ratio
    assert rho[4000] == pytest.approx(rho[16], rel=0.5)


@pytest.mark.parametrize("with_closure", [False, True])
@pytest.mark.parametrize("name", ["sgd", "heavy-ball", "dampening", "maximize"])
def test_sgd_is_measured_without_a_copy_of_the_weights_and_the_same(name, with_closure, monkeypatch):
    def run():
        network, optimizer, lr = learned(model(), OPTIMIZERS[name][0])
        found = []
        for batch in batches():

            def closure(batch=batch):
                loss = backward(network, optimizer, batch)
                lr.step(loss)
                return loss

            if with_closure:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
            found.append(lr.get_last_lr()[0])
        return found, lr.engine.meter._buffers

    fast, buffers = run()
    monkeypatch.setattr(movement, "known_direction", lambda optimizer: None)
    slow, copies = run()
    assert fast == pytest.approx(slow, rel=1e-9)
    assert (len(buffers), len(copies)) == (0, 2)


@pytest.mark.parametrize("name", ["sgd", "heavy-ball", "adamw", "unknown"])
def test_a_closure_gives_the_same_lrs(name):
    network, optimizer, lr = learned(model(), OPTIMIZERS[name][0])
    found = []
    for batch in batches():

        def closure(batch=batch):
            loss = backward(network, optimizer, batch)
            lr.step(loss)
            return loss

        optimizer.step(closure)
        found.append(lr.get_last_lr()[0])
    assert found == train(*learned(model(), OPTIMIZERS[name][0]))


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_clipping_after_the_lr_is_measured_as_it_was_done(name):
    def clipped(network, optimizer, step):
        found = []
        for batch in batches():
            loss = backward(network, optimizer, batch)
            found.append(step(network, loss))
        return found

    make, m = OPTIMIZERS[name]
    network, optimizer, lr = learned(model(), make)

    def ours(network, loss):
        lr.step(loss)
        nn.utils.clip_grad_norm_(network.parameters(), 0.05)
        optimizer.step()
        return lr.get_last_lr()[0]

    other = model()
    other_optimizer = make(other.parameters(), 0.1)
    reference = Reference(other_optimizer, m)

    def theirs(network, loss):
        nn.utils.clip_grad_norm_(network.parameters(), 0.05)
        return reference.step()

    # |g| < sqrt(n), so that the first step does not depend on when gradients are clipped
    assert clipped(network, optimizer, ours) == pytest.approx(clipped(other, other_optimizer, theirs), rel=1e-9)


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_gradients_need_no_thought_and_skipped_steps_count_nothing(fused):
    def run(scale):
        network = model(torch.float32)
        optimizer = SGD(network.parameters(), lr=0.1, momentum=0.9, fused=fused)
        lr = LearnedLR(optimizer, measured_schedule(), total_steps=STEPS)
        scaler = torch.amp.GradScaler("cpu", enabled=scale, init_scale=4.0)
        found = []
        for i, (x, y) in enumerate(batches()):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(x.float()), y)
            scaler.scale(loss).backward()
            lr.step(loss)
            before = lr.engine.meter.numbers()
            if i == 5:
                if not scale:
                    continue
                network[0].weight.grad[0, 0] = math.inf
            scaler.step(optimizer)
            assert (before == lr.engine.meter.numbers()) is (i == 5)
            scaler.update(4.0)
            found.append(lr.get_last_lr()[0])
        return found[:5] + found[6 if scale else 5 :]

    assert run(True) == pytest.approx(run(False), rel=1e-4)


def test_accumulated_gradients_equal_one_big_batch():
    network, optimizer, lr = learned(model(), OPTIMIZERS["adam"][0])
    found = []
    for x, y in batches():
        optimizer.zero_grad()
        for part in (slice(0, 8), slice(8, 16)):
            loss = nn.functional.cross_entropy(network(x[part]), y[part])
            (loss / 2).backward()
            lr.observe(loss)
        lr.step()
        optimizer.step()
        found.append(lr.get_last_lr()[0])
    assert found == pytest.approx(train(*learned(model(), OPTIMIZERS["adam"][0])), rel=1e-9)


def test_a_first_step_is_a_small_part_of_the_weights():
    """Whatever the optimizer, before anything is known about it: at most r."""
    for make, _ in OPTIMIZERS.values():
        network, optimizer, lr = learned(model(), make)
        before = copy.deepcopy(network)
        train(network, optimizer, lr, batches(1))
        pairs = [(a.detach(), b.detach()) for a, b in zip(network.parameters(), before.parameters(), strict=True)]
        moved = Reference.length(torch.cat([(a - b).flatten() for a, b in pairs if a.ndim == 2]))
        lengths = [max(Reference.length(b), Reference.shortest(b)) for _, b in pairs if b.ndim == 2]
        assert 0 < moved <= PART * math.hypot(*lengths) * (1 + 1e-9)


def test_large_gradients_make_the_first_step_short():
    weight = nn.Parameter(torch.ones(3, 3, dtype=torch.float64))
    lr = LearnedLR(SGD([weight], lr=0.1), measured_schedule(), total_steps=9)
    weight.grad = torch.full((3, 3), 50.0, dtype=torch.float64)
    lr.step(1.0)
    assert lr.get_last_lr() == pytest.approx([PART * 3 / 150])


@pytest.mark.parametrize("kind", [float, tensor_lr])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_a_step_that_moved_nothing_or_is_not_finite_changes_nothing(kind, bad):
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = SGD([weight], lr=kind(0.1))
    lr, found = LearnedLR(optimizer, measured_schedule(), total_steps=9), []
    for gradient in (2.0, bad, 2.0):
        weight.data.fill_(1.0)
        weight.grad = torch.full((2, 2), gradient)
        lr.step(1.0)
        optimizer.step()
        found.append(lr.engine.meter.numbers())
    assert found[1] == found[0]
    assert float(lr.get_last_lr()[0]) == pytest.approx(PART / 2)


@pytest.mark.parametrize("kind", [float, tensor_lr])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "weight_decay": 0.1}])
def test_a_step_at_an_lr_of_0_changes_nothing(kind, options):
    """As torch.distributed.checkpoint takes it, to create the optimizer's state, before the first loss or after."""
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = SGD([weight], lr=kind(0.1), **options)
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=9)
    group = optimizer.param_groups[0]
    for gradient in (0.0, 2.0):
        weight.grad, lr_before = torch.full((2, 2), gradient), copy.copy(group["lr"])
        group["lr"] = lr_before * 0
        optimizer.step()
        group["lr"] = lr_before
    assert lr.engine.meter.numbers() == (0.0, 0.0)
    optimizer.state.clear()
    lr.engine.optimizer_steps.take()
    lr.step(1.0)
    scale = math.sqrt(0.1 / 1.9) if options else 1.0
    assert float(lr.get_last_lr()[0]) == pytest.approx(
        scale * PART * 2 / 4
    )  # |w| / |g|: the first ratio was still to come


@pytest.mark.parametrize("kind", [float, tensor_lr])
def test_a_checkpoint_that_creates_the_optimizers_state_is_not_measured(kind):
    network, optimizer, lr = learned(model(), OPTIMIZERS["adam"][0], kind(0.1))
    get_optimizer_state_dict(network, optimizer)  # takes a step with gradients of 0 and an LR of 0
    assert optimizer.state
    assert lr.engine.meter.numbers() == (0.0, 0.0)


@pytest.mark.parametrize("name", ["sgd", "heavy-ball", "adam"])
def test_a_tensor_lr_reads_nothing_back_to_measure_a_step(name):
    network, optimizer, lr = learned(model(), OPTIMIZERS[name][0], tensor_lr())
    for batch in batches(3):
        loss = backward(network, optimizer, batch)
        with NoReadBack():
            lr.step(loss)
        optimizer.step()  # torch's own step reads a tensor LR back on a CPU
        with NoReadBack():
            lr.engine.meter.enter(optimizer, with_closure=False)
            lr.engine.meter.leave(optimizer)


@pytest.mark.parametrize("kind", [float, tensor_lr])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_weights_in_bf16_that_do_not_move_double_the_first_ratio_until_they_do(kind, name):
    weight = nn.Parameter(torch.ones(8, 8, dtype=torch.bfloat16))
    optimizer = OPTIMIZERS[name][0]([weight], kind(0.1))
    lr = LearnedLR(optimizer, measured_schedule(1e-4), total_steps=40)
    used, moved = [], []
    for _ in range(12):
        weight.grad = torch.full_like(weight, 1.0)
        before = weight.detach().clone()
        lr.step(1.0)
        optimizer.step()
        used.append(float(lr.get_last_lr()[0]))
        moved.append(not torch.equal(before, weight))
    first = moved.index(True)
    assert 2 < first < 10
    assert used[: first + 1] == pytest.approx([used[0] * 2**i for i in range(first + 1)])
    assert lr.engine.meter.numbers()[1] > 0


def test_groups_keep_their_ratios_and_one_with_an_lr_of_0_does_not_count():
    def groups(network, lr):
        return [
            {"params": network[0].parameters(), "lr": 0.0},
            {"params": [network[2].weight], "lr": lr},
            {"params": [network[2].bias], "lr": 5 * lr},
        ]

    def make(network, lr):
        return SGD(groups(network, lr), momentum=0.9)

    network, other = model(), model()
    optimizer = make(network, 0.1)
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=STEPS)
    reference = Reference(make(other, 0.1), 0.9)
    for batch in batches():
        train(network, optimizer, lr, [batch])
        backward(other, reference.optimizer, batch)
        alpha = reference.step()
        assert lr.get_last_lr() == pytest.approx([0.0, alpha, 5 * alpha], rel=1e-9)


@pytest.mark.parametrize("kind", [float, tensor_lr])
def test_two_groups_of_matrices_are_measured_at_their_own_lrs(kind):
    def make(network, lr):
        return Adam(
            [{"params": network[0].parameters(), "lr": lr(0.2)}, {"params": network[2].parameters(), "lr": lr(0.5)}]
        )

    network, other = model(), model()
    optimizer, reference = make(network, kind), Reference(make(other, float), 0.9)
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=STEPS)
    for batch in batches():
        (used,) = train(network, optimizer, lr, [batch])
        backward(other, reference.optimizer, batch)
        assert used == pytest.approx(reference.step(), rel=1e-9 if kind is float else 1e-4)


@pytest.mark.parametrize("kind", [float, tensor_lr])
def test_a_group_that_is_added_later_is_measured_from_its_first_loss_on(kind):
    network = model()
    optimizer = AdamW(network[2].parameters(), lr=kind(0.1))
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=STEPS)
    train(network, optimizer, lr, batches()[:4])
    optimizer.add_param_group({"params": network[0].parameters(), "lr": kind(0.2)})
    train(network, optimizer, lr, batches()[4:8])
    first, second = (float(value) for value in lr.get_last_lr())
    assert second == pytest.approx(2 * first)
    assert len(lr.engine.meter._buffers) == 2


@pytest.mark.parametrize("kind", [float, tensor_lr])
def test_a_group_that_is_removed_leaves_the_steps_of_the_others_as_they_were(kind):
    """Also if it was the one whose LR is alpha: the other's LR goes on from its own."""

    def run(remove):
        weights = [nn.Parameter(torch.ones(2, 2)) for _ in range(2)]
        groups = [{"params": [w], "lr": kind(value)} for w, value in zip(weights, (0.1, 0.4), strict=True)]
        optimizer = SGD(groups)
        lr = LearnedLR(optimizer, measured_schedule(), total_steps=9)
        for step in range(4):
            for weight, gradient in zip(weights, (4.0, 1.0), strict=True):  # both move by the same
                weight.data.fill_(1.0)
                weight.grad = torch.full((2, 2), gradient)
            if step == 2 and remove:
                del optimizer.param_groups[0]
            lr.step(1.0)
            optimizer.step()
        return float(lr.get_last_lr()[-1])

    assert run(True) == pytest.approx(run(False))


@pytest.mark.parametrize(
    "make", [lambda p: SGD(p, lr=0.1), lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: SparseAdam(p, lr=0.1)]
)
def test_sparse_gradients_of_embeddings_are_measured(make):
    def run(sparse):
        torch.manual_seed(3)
        network = nn.EmbeddingBag(20, 4, sparse=sparse, mode="sum").double()
        optimizer = make(list(network.parameters())) if sparse else SGD(network.parameters(), lr=0.1)
        lr, found = LearnedLR(optimizer, measured_schedule(), total_steps=STEPS), []
        for _ in range(6):
            optimizer.zero_grad()
            loss = network(torch.arange(6).view(2, 3)).square().mean()
            loss.backward()
            lr.step(loss)
            optimizer.step()
            found.append(lr.get_last_lr()[0])
        assert lr.engine.meter.numbers()[1] > 0
        return found

    found = run(True)
    assert all(0 < value < math.inf for value in found)
    if (
        type(make([nn.Parameter(torch.ones(1))])) is SGD
        and not make([nn.Parameter(torch.ones(1))]).defaults["momentum"]
    ):
        assert found == pytest.approx(run(False), rel=1e-9)


def test_weights_without_a_gradient_do_not_count_in_that_step():
    """Frozen ones never do, and a branch that is used now and then counts when it is."""

    def make(network):
        return Adam([*network.parameters(), *branch(network)], lr=0.1)

    def branch(network):
        torch.manual_seed(4)
        network.extra = nn.Linear(3, 3, bias=False).double()
        network.frozen = nn.Linear(50, 50).double().requires_grad_(False)
        return []

    def loss_of(network, batch, used):
        out = nn.Sequential.forward(network[:3], batch[0])
        return nn.functional.cross_entropy(network.extra(out) if used else out, batch[1])

    network, other = model(), model()
    for one in (network, other):
        branch(one)
    optimizer, reference = make(network), Reference(make(other), 0.9)
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=STEPS)
    for i, batch in enumerate(batches()):
        for one, its in ((network, optimizer), (other, reference.optimizer)):
            its.zero_grad()
            loss = loss_of(one, batch, i % 3 == 1)
            loss.backward()
        lr.step(loss)
        optimizer.step()
        assert lr.get_last_lr() == pytest.approx([reference.step()], rel=1e-9)


def test_tied_weights_count_once():
    torch.manual_seed(5)
    network = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)).double()
    network[1].weight = network[0].weight
    optimizer = AdamW(network.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=STEPS)
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(torch.arange(7)), torch.arange(7))
        loss.backward()
        lr.step(loss)
        optimizer.step()
    assert len(lr.engine.meter.counted.weights) == 1
    assert 0 < lr.get_last_lr()[0] < 1


def test_weights_that_begin_at_0_move_as_if_torch_had_initialised_them():
    weight = nn.Parameter(torch.zeros(12, 100, dtype=torch.float64))
    optimizer = SGD([weight], lr=0.1)
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=9)
    for _ in range(3):
        before = weight.detach().clone()
        weight.grad = torch.full_like(weight, 7.0)
        lr.step(1.0)
        optimizer.step()
        assert float((weight - before).detach().norm()) == pytest.approx(PART * 2.0)  # sqrt(12 / 3)


@pytest.mark.parametrize("shape", [(), (6,)])
def test_without_any_matrix_all_tensors_count(shape):
    weight = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
    optimizer = Adam([weight], lr=0.1)
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=40)
    for _ in range(30):
        optimizer.zero_grad()
        loss = (weight - 0.1).square().sum()
        loss.backward()
        lr.step(loss)
        optimizer.step()
    assert torch.allclose(weight, torch.full_like(weight, 0.1), atol=0.05)


def test_vectors_beside_matrices_do_not_count():
    make = OPTIMIZERS["adam"][0]
    plain, scaled = model(), model()
    with torch.no_grad():
        scaled[0].bias.add_(0)  # the same network; only the gradients of its biases differ
    scaled[0].bias.register_hook(lambda gradient: 0 * gradient)
    scaled[2].bias.register_hook(lambda gradient: 0 * gradient)
    assert train(*learned(plain, make))[1] == train(*learned(scaled, make))[1]


def test_host_and_device_means_agree():
    host, ratio = HostMean(50), torch.ones((), dtype=torch.float64)
    device = DeviceMean(50, torch.device("cpu"))
    for i, x in enumerate([0.0, 4.0, math.nan, 9.0, math.inf, 0.0, 1e-30, 1e30]):
        host.add(x)
        device.add(torch.tensor(x, dtype=torch.float64), ratio)
        assert device.numbers() == pytest.approx(host.numbers(), rel=1e-12)
        assert float(ratio) == pytest.approx(host.ratio if i else 1.0, rel=1e-12)


@pytest.mark.parametrize("kind", [float, tensor_lr])
def test_extend_changes_the_window_from_then_on(kind):
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = SGD([weight], lr=kind(0.1))
    lr = LearnedLR(optimizer, measured_schedule(), total_steps=10)
    n = total = 0.0
    for i, x in enumerate((1.0, 4.0, 9.0)):
        if i == 2:
            lr.extend(100)
        keep = math.exp(-1 / (10 if i == 2 else 1))
        weight.data.fill_(1.0)
        weight.grad = torch.full((2, 2), math.sqrt(x))
        lr.step(1.0)
        optimizer.step()
        n, total = keep * n + (1 - keep) * x, keep * total + 1 - keep
    assert lr.engine.meter.numbers() == pytest.approx((n, total), rel=1e-5)


def test_a_state_has_two_more_numbers_and_only_where_they_are_needed():
    network, optimizer, lr = learned(model(), OPTIMIZERS["adam"][0])
    train(network, optimizer, lr, batches(3))
    state = lr.state_dict()
    assert (state["measured_sum"], state["measured_weight"]) == lr.engine.meter.numbers()
    fixed = LearnedLR(optimizer, Schedule(MLPNet(4), Card(gamma=Gamma("fixed", value=1.0))), total_steps=5)
    assert not {"measured_sum", "measured_weight"} & fixed.state_dict().keys()
    del state["measured_sum"]
    with pytest.raises(ValueError, match=r"keys .*measured_sum"):
        lr.load_state_dict(state)


@pytest.mark.parametrize("kind", [float, tensor_lr])
@pytest.mark.parametrize("name", ["sgd", "heavy-ball", "adamw"])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_copied_or_pickled_training_goes_on_with_the_same_lrs(kind, name, after):
    network, optimizer, lr = learned(model(), OPTIMIZERS[name][0], kind(0.1))
    if after:
        train(network, optimizer, lr, batches()[:after])
    copies = [copy.deepcopy((network, lr)), pickle.loads(pickle.dumps((network, lr)))]
    expected = train(network, optimizer, lr, batches()[after:])
    for other, its_lr in copies:
        assert not its_lr.engine.meter._buffers
        assert train(other, its_lr.optimizer, its_lr, batches()[after:]) == expected


def test_an_optimizer_does_not_keep_its_schedule_alive():
    network, optimizer, lr = learned(model(), OPTIMIZERS["adam"][0])
    gone = weakref.ref(lr.engine.meter)
    del lr
    gc.collect()
    assert gone() is None
    backward(network, optimizer, batches(1)[0])
    optimizer.step()


def test_a_step_that_raised_does_not_end_the_measurements():
    network, optimizer, lr = learned(model(), OPTIMIZERS["adam"][0])

    def broken():
        raise RuntimeError("out of memory")

    train(network, optimizer, lr, batches(2))
    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.step(broken)
    train(network, optimizer, lr, batches(2))
    before = lr.engine.meter.numbers()
    train(network, optimizer, lr, batches(1))
    assert lr.engine.meter.numbers() != before


def test_a_compiled_optimizer_step_is_measured():
    network, optimizer, lr = learned(model(), OPTIMIZERS["sgd"][0], tensor_lr())
    update, found = torch.compile(optimizer.step, backend="aot_eager"), []
    for batch in batches():
        lr.step(backward(network, optimizer, batch))
        update()
        found.append(float(lr.get_last_lr()[0]))
    assert found == pytest.approx(train(*learned(model(), OPTIMIZERS["sgd"][0], tensor_lr())), rel=1e-5)


@pytest.mark.parametrize("kind", [float, tensor_lr])
def test_a_user_hears_if_no_step_can_be_measured(kind):
    lr = LearnedLR(SGD([nn.Parameter(torch.ones(2, 2))], lr=kind(0.1)), measured_schedule(), total_steps=30)
    for _ in range(measured.PATIENCE):
        lr.step(1.0)
    with pytest.warns(UserWarning, match="no step of the optimizer could be measured"):
        lr.step(1.0)
        lr.report_problems()


def test_what_cannot_be_measured_is_refused():
    network = model()
    with pytest.raises(ValueError, match=r"got LBFGS, .*: use another optimizer"):
        LearnedLR(torch.optim.LBFGS(network.parameters()), measured_schedule(), total_steps=5)

    class Bare(Optimizer):
        def __init__(self, parameters):
            self.param_groups, self.state, self.defaults = [{"params": list(parameters), "lr": 0.1}], {}, {}

    with pytest.raises(ValueError, match=r"got Bare, which does not call Optimizer.__init__: call it there"):
        LearnedLR(Bare(network.parameters()), measured_schedule(), total_steps=5)
    with pytest.raises(ValueError, match="gamma must not be measured for Algorithm 1"):
        MetaTrainer(
            network,
            SGD(network.parameters(), lr=0.1),
            gamma=Gamma("measured", value=0.1),
            total_steps=5,
            val_loss=lambda: None,
        )
    with pytest.raises(ValueError, match="momentum or beta_1 must be in"):
        LearnedLR(SGD(network.parameters(), lr=0.1, momentum=1.0), measured_schedule(), total_steps=5)


@pytest.mark.parametrize("optimizer", ["sgd", "sgdm", "adam", "adamw"])
def test_a_population_takes_the_steps_of_the_schedule_it_learns(optimizer):
    """With a law, a loss that is read, and a network that looks trained."""

    def network(data):
        made = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3)).double()
        with torch.no_grad():
            made[1].weight.uniform_(0.8, 1.2)
        return made

    inputs, targets = torch.randn(64, 5, dtype=torch.float64), torch.arange(64) % 3
    data = Data(inputs, targets, dtype=torch.float64)
    task = Task(data, network, STEPS, 8, torch.arange(48), torch.arange(48, 64), optimizer=optimizer)
    gamma = Gamma("measured", value=0.3, horizon_power=-0.3, depth_power=-0.5, caution=0.2)
    schedule = Schedule(DecayNet().double(), Card(gamma=gamma))
    policy = Networks(schedule, 1, torch.device("cpu"), dtype=torch.float64)
    policy.configure(schedule.net.powers.detach().unsqueeze(0))
    trained = Training(Population(task, 1, 1, policy, data, "fp64"), [task], find_fitness("loss")).run()
    alone = task.fresh_model()
    make = {
        "sgd": lambda p: SGD(p, lr=0.1),
        "sgdm": lambda p: SGD(p, lr=0.1, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p),
        "adamw": lambda p: torch.optim.AdamW(p, weight_decay=0.0),
    }
    own = make[optimizer](alone.parameters())
    lr = LearnedLR(own, schedule, total_steps=STEPS)
    losses = []
    for index in Batches(task).take(STEPS)[0]:
        loss = nn.functional.cross_entropy(alone(inputs[index]), targets[index])
        own.zero_grad()
        loss.backward()
        lr.step(loss)
        own.step()
        losses.append(loss.item())
    assert trained.losses[0].tolist() == pytest.approx(losses, rel=1e-6)


def test_a_long_run_measures_one_step_in_four_and_resumes_alike():
    """The mean looks back over a tenth of the training, so fewer steps tell as much."""
    data = batches(140)

    def begin(network):
        optimizer = SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        return network, optimizer, LearnedLR(optimizer, measured_schedule(), total_steps=140)

    whole = train(*begin(model()), data)
    network, optimizer, lr = begin(model())
    first = train(network, optimizer, lr, data[:101])
    assert lr.engine.meter.steps == 101
    again = SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    again.load_state_dict(optimizer.state_dict())
    resumed = LearnedLR(again, measured_schedule(), total_steps=140)
    resumed.load_state_dict(copy.deepcopy(lr.state_dict()))
    assert first + train(network, again, resumed, data[101:]) == whole
    assert len(set(whole[64:])) == pytest.approx(len(whole[64:]) / 4, abs=2)
