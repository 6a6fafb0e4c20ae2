"""The default against a plain transcription of its equations, in real loops: what it sees of steps and weights."""

import math
import pickle

import pytest
import torch
from steps import through_a_file
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adafactor, Adagrad, Adam, AdamW, Optimizer, RMSprop, SparseAdam

from mlrsnet import LearnedLR
from mlrsnet._driver import driver_of
from mlrsnet.sensors import ENTRIES, Samples

STEPS = 14


class Signs(Optimizer):
    """Nobody has heard of it: signs of an average, with its own name for momentum."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr, "beta1": 0.8})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    average = self.state[weight].setdefault("average", torch.zeros_like(weight))
                    average.lerp_(weight.grad, 1 - group["beta1"])
                    weight.sub_(group["lr"] * average.sign())


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


def network(dtype=torch.float64):
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


def train(model, optimizer, step=None, those=None, loss_of=lambda model, x, y: cross_entropy(model(x), y)):
    """The LRs of the first group; `step` says what to do after the backward pass."""
    found = []
    for place, (x, y) in enumerate(those or batches()):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        (step or (lambda place: optimizer.step()))(place)
        found.append(float(optimizer.param_groups[0]["lr"]))
    return found


def learned(model, make, lr=0.1):
    optimizer = make(model.parameters(), lr)
    LearnedLR(optimizer, total_steps=STEPS)
    return optimizer


ADAPTIVE = {"betas", "centered", "ns_steps", "initial_accumulator_value", "beta2_decay"}
"""Keys of optimizers that divide by the size of the gradient."""


class Reference:
    """The equations on lists of Python numbers; nothing is shared with the library."""

    def __init__(self, optimizer, m=0.0, total_steps=STEPS):
        self.optimizer, self.total, self.steps, self.shrink = optimizer, total_steps, 0, {}
        weights = [w for g in optimizer.param_groups for w in g["params"]]
        matrices, n = sum(w.ndim >= 2 for w in weights), sum(w.numel() for w in weights)
        self.size = 0.13 * (total_steps / 500) ** -0.15 * (n / 10_000) ** -0.17 * max(1, matrices / 4) ** -1.4
        self.size *= 1.9 if any(ADAPTIVE & g.keys() for g in optimizer.param_groups) else 1
        self.size *= math.sqrt((1 - m) / (1 + m))
        self.keep = math.exp(-1 / (0.1 * total_steps))
        self.sum = self.weight = 0.0
        first = next(g["lr"] for g in optimizer.param_groups if g["lr"])
        self.shares = [g["lr"] / first for g in optimizer.param_groups]

    def those(self):
        groups = zip(self.optimizer.param_groups, self.shares, strict=True)
        pairs = [(w, g, s) for g, s in groups for w in g["params"] if s and w.grad is not None]
        return [p for p in pairs if p[0].ndim >= 2] or pairs

    @staticmethod
    def length(tensor):
        return math.sqrt(math.fsum(value**2 for value in tensor.detach().double().flatten().tolist()))

    def counted(self, weight):
        """|w|: at least torch's own; what began more than three times as long is shorter by as much ever after."""
        length, shortest = self.length(weight), math.sqrt((weight.shape[0] if weight.ndim else 1) / 3)
        shrink = self.shrink.setdefault(id(weight), min(1.0, 3 * shortest / length) if length else 1.0)
        return max(shrink * length, shortest)

    @staticmethod
    def count(weight):
        return min(1.0, weight[0].numel() / len(weight)) if weight.ndim > 1 else 1.0

    def x(self):
        """The mean, or the guess for a first step. Under plain SGD at least as it is now."""
        if self.weight:
            mean = self.sum / self.weight
        else:
            g = math.fsum((s * self.length(w.grad)) ** 2 for w, _, s in self.those())
            per_weight = 100 if isinstance(self.optimizer, RMSprop) else 1
            n = math.fsum(s**2 * w.numel() * per_weight for w, _, s in self.those())
            mean = max(g, n) / math.fsum(self.counted(w) ** 2 for w, _, _ in self.those())
        if type(self.optimizer) is not SGD or self.optimizer.param_groups[0]["momentum"]:
            return mean
        return max(mean, self.relative([(w, s * self.length(w.grad), self.counted(w)) for w, _, s in self.those()]))

    def relative(self, rows):
        above = math.fsum(self.count(w) * moved**2 for w, moved, _ in rows)
        return above / math.fsum(self.count(w) * length**2 for w, _, length in rows)

    def step(self, place=None):
        u = self.steps / self.total
        alpha = self.size * max(0.01, min(1, u / 0.05)) * (1 - u) / math.sqrt(self.x())
        for group, share in zip(self.optimizer.param_groups, self.shares, strict=True):
            group["lr"] = alpha * share
        before = [(w, g["lr"] / s, self.counted(w), w.detach().clone()) for w, g, s in self.those()]
        self.optimizer.step()
        x = self.relative([(w, self.length(w.detach() - b) / lr, length) for w, lr, length, b in before])
        self.steps += 1
        if 0 < x < math.inf:
            self.sum = self.keep * self.sum + (1 - self.keep) * x
            self.weight = self.keep * self.weight + (1 - self.keep)


def expected(model, make, m=0.0, **options):
    optimizer = make(model.parameters(), 0.1)
    return train(model, optimizer, Reference(optimizer, m).step, **options)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_gets_the_lrs_of_the_equations(name):
    make, m = OPTIMIZERS[name]
    model = network()
    assert train(model, learned(model, make)) == pytest.approx(expected(network(), make, m), rel=1e-9)


@pytest.mark.parametrize("name", ["sgd", "heavy-ball", "nesterov", "adamw", "unknown"])
def test_tensor_lrs_are_those_of_the_equations_too(name, kind):
    make, m = OPTIMIZERS[name]
    model = network()
    used = train(model, learned(model, make, kind()))
    assert used == pytest.approx(expected(network(), make, m), rel=1e-4)  # a tensor LR is float32


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_clipping_is_measured_as_it_was_done(name):
    make, m = OPTIMIZERS[name]
    found = []
    for is_ours in (True, False):
        model = network()
        optimizer = learned(model, make) if is_ours else make(model.parameters(), 0.1)
        step = optimizer.step if is_ours else Reference(optimizer, m).step

        def clipped(place, model=model, step=step):
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            step()

        found.append(train(model, optimizer, clipped))
    assert found[0] == pytest.approx(found[1], rel=1e-9)


@pytest.mark.parametrize("name", ["sgd", "heavy-ball"])
@pytest.mark.parametrize("fused", [False, True])
def test_scaled_gradients_need_no_thought_and_skipped_steps_count_nothing(fused, name, kind):
    """A fused optimizer unscales and skips inside of its step. torch's own momentum is lost where its first step is skipped."""
    skipped = (0, 6) if name == "sgd" else (4, 9)
    data = [(x.float(), y) for x, y in batches()]
    model = network(torch.float32)
    optimizer = SGD(model.parameters(), lr=kind(), momentum=0.9 if name == "heavy-ball" else 0.0, fused=fused)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    plain = train(model, optimizer, those=data)

    other = network(torch.float32)
    optimizer = SGD(other.parameters(), lr=kind(), momentum=0.9 if name == "heavy-ball" else 0.0, fused=fused)
    scaled = LearnedLR(optimizer, total_steps=STEPS)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def step(place):
        if place in skipped:
            other[0].weight.grad[0, 0] = math.inf
        scaler.step(optimizer)
        scaler.update(4.0)

    for place in skipped:
        data.insert(place, data[place])
    train(other, optimizer, step, data, lambda model, x, y: scaler.scale(cross_entropy(model(x), y)))
    assert scaled.history.tolist() == pytest.approx(plain, rel=1e-4)
    assert scaled.status()["step"] == lr.status()["step"] == STEPS


def test_a_first_step_is_a_small_part_of_the_weights():
    """Whatever the optimizer, before anything is known about it: at most r, which the warm-up makes a hundredth."""
    for name, (make, m) in OPTIMIZERS.items():
        model, before = network(), network()
        optimizer = learned(model, make)
        size = Reference(optimizer, m).size
        train(model, optimizer, those=batches(1))
        pairs = [(a.detach(), b.detach()) for a, b in zip(model.parameters(), before.parameters(), strict=True)]
        moved = Reference.length(torch.cat([(a - b).flatten() for a, b in pairs if a.ndim == 2]))
        lengths = [max(Reference.length(b), math.sqrt(len(b) / 3)) for _, b in pairs if b.ndim == 2]
        assert 0 < moved <= 0.01 * size * math.hypot(*lengths) * (1 + 1e-9), name


def steps_with(gradients, make, kind=float, weight=None, **options):
    """The LR of each step of one matrix of ones, which these gradients move."""
    weight = nn.Parameter(torch.ones(2, 2)) if weight is None else weight
    optimizer = make([weight], kind(0.1))
    lr = LearnedLR(optimizer, total_steps=100, **options)
    for gradient in gradients:
        with torch.no_grad():
            weight.fill_(1.0)
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    return lr.history.tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_step_that_moved_nothing_or_is_not_finite_changes_nothing(kind, bad, place):
    """A first one takes the LR of a step that moves all weights by 1."""
    make = OPTIMIZERS["heavy-ball"][0]
    gradients = [2.0] * 5
    plain = steps_with(gradients, lambda p, lr: SGD(p, lr=lr), kind)
    gradients[place] = bad
    used = steps_with(gradients, lambda p, lr: SGD(p, lr=lr), kind)
    assert used[place + 1 :] == pytest.approx(plain[place + 1 :], rel=1e-5)
    assert all(math.isfinite(one) for one in used)
    assert steps_with(gradients, make, kind)[0] <= 2.001 * plain[0]


@pytest.mark.parametrize("name", ["sgd", "heavy-ball"])
def test_large_gradients_make_the_first_step_short(name):
    lengths = [steps_with([gradient], OPTIMIZERS[name][0])[0] * gradient for gradient in (1.0, 50.0, 5000.0)]
    assert lengths == pytest.approx([lengths[0]] * 3)


@pytest.mark.parametrize("name", ["sgd", "heavy-ball"])
def test_gradients_whose_squares_overflow_single_precision_are_measured_on_a_device_too(name, on_device):
    def used(kind):
        weight = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
        return steps_with([1e20] * 4, OPTIMIZERS[name][0], kind, weight)

    assert used(lambda lr: torch.tensor(lr, dtype=torch.float64)) == pytest.approx(used(float), rel=1e-6, abs=0)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_weights_in_bf16_that_do_not_move_double_the_first_lr_until_they_do(kind, name):
    weight = nn.Parameter(torch.ones(8, 8, dtype=torch.bfloat16))
    optimizer = OPTIMIZERS[name][0]([weight], kind(0.1))
    lr = LearnedLR(optimizer, total_steps=10**6, scale=0.01)
    moved, used = [], []
    for _ in range(16):
        weight.grad = torch.full_like(weight, 1.0)
        before = weight.detach().clone()
        optimizer.step()
        moved.append(not torch.equal(before, weight))
        used.append(float(lr.get_last_lr()[0]))
    first = moved.index(True)
    assert 2 < first < 14
    assert used[: first + 1] == pytest.approx([used[0] * 2**i for i in range(first + 1)], rel=1e-4)
    assert used[-1] < 2 * used[first]


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_weights_in_bf16_begin_with_the_lr_of_others(kind, name):
    first = []
    for dtype in (torch.float32, torch.bfloat16):
        weight = nn.Parameter(torch.ones(8, 8, dtype=dtype))
        first += steps_with([1.0], OPTIMIZERS[name][0], kind, weight)
    assert first[1] == pytest.approx(first[0], rel=1e-5)


def test_groups_keep_their_ratios_and_one_with_an_lr_of_0_does_not_count(kind):
    def make(model, lr):
        first, second = model[0], model[2]
        groups = [{"params": [second.weight], "lr": lr(0.2)}, {"params": [second.bias], "lr": lr(1.0)}]
        return SGD([*groups, {"params": first.parameters(), "lr": lr(0.0)}], lr=0.1, momentum=0.9)

    model, other = network(), network()
    optimizer, reference = make(model, kind), make(other, float)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    assert train(model, optimizer) == pytest.approx(train(other, reference, Reference(reference, 0.9).step), rel=1e-4)
    assert [float(one) for one in lr.get_last_lr()] == pytest.approx(
        [g["lr"] for g in reference.param_groups], rel=1e-4
    )


def test_two_groups_of_matrices_are_measured_at_their_own_lrs(kind):
    def make(model, lr):
        return Adam(
            [{"params": model[0].parameters(), "lr": lr(0.2)}, {"params": model[2].parameters(), "lr": lr(0.5)}]
        )

    model, other = network(), network()
    optimizer, reference = make(model, kind), make(other, float)
    LearnedLR(optimizer, total_steps=STEPS)
    assert train(model, optimizer) == pytest.approx(train(other, reference, Reference(reference, 0.9).step), rel=1e-4)


@pytest.mark.parametrize("place", [0, 1])
def test_a_group_that_is_removed_leaves_the_others_as_they_were(kind, place):
    """Their LRs, what counts of their lengths, and how far they have come. Also if it was the main one."""

    def run(removed):
        weights = [nn.Parameter(scale * torch.ones(2, 2)) for scale in (20.0, 1.0, 30.0)]
        groups = [{"params": [w], "lr": kind(value)} for w, value in zip(weights, (0.1, 0.4, 0.2), strict=True)]
        optimizer = SGD([group for index, group in enumerate(groups) if removed != "early" or index != place])
        lr = LearnedLR(optimizer, total_steps=100, min_lr=0)
        for step in range(4):
            for weight, gradient in zip(weights, (4.0, 1.0, 2.0), strict=True):  # all move by the same
                weight.grad = torch.full((2, 2), gradient)
            if step == 2 and removed == "late":
                del optimizer.param_groups[place]
            optimizer.step()
        saved = through_a_file(lr.state_dict())
        lr.load_state_dict(saved)
        return lr, saved

    (late, saved), (early, same) = run("late"), run("early")
    torch.testing.assert_close(saved["sensor"]["shrink"], same["sensor"]["shrink"])
    torch.testing.assert_close(saved["distance"], same["distance"])
    assert late.status()["distance"] > 0
    assert len(late.get_last_lr()) == 2
    ratio = [float(one) for one in late.get_last_lr()]
    assert ratio[1] / ratio[0] == pytest.approx(float(early.get_last_lr()[1]) / float(early.get_last_lr()[0]))


@pytest.mark.parametrize(
    "make", [lambda p: SGD(p, lr=0.1), lambda p: SGD(p, lr=0.1, momentum=0.9), lambda p: SparseAdam(p, lr=0.1)]
)
@pytest.mark.parametrize("rows", [20, 3000])
def test_sparse_gradients_of_embeddings_are_measured(make, rows):
    def run(sparse):
        torch.manual_seed(3)
        model = nn.EmbeddingBag(rows, 4, sparse=sparse, mode="sum").double()
        optimizer = make(list(model.parameters())) if sparse else SGD(model.parameters(), lr=0.1)
        lr = LearnedLR(optimizer, total_steps=STEPS)
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.arange(rows).view(2, -1)).square().mean().backward()
            optimizer.step()
        assert lr.status()["step_length"] > 0
        return lr.history.tolist()

    found, kind = run(True), make([nn.Parameter(torch.ones(1))])
    assert all(0 < value < math.inf for value in found)
    if type(kind) is SGD and not kind.defaults["momentum"]:
        assert found == pytest.approx(run(False), rel=1e-9 if rows < 1000 else 0.05)


def test_weights_without_a_gradient_do_not_count_in_that_step():
    """Frozen ones never do, and a branch that is used now and then counts when it is."""

    def extended():
        model = network()
        torch.manual_seed(4)
        model.extra = nn.Linear(3, 3, bias=False).double()
        model.frozen = nn.Linear(50, 50).double().requires_grad_(False)
        return model

    used = iter([place % 3 == 1 for place in range(STEPS)] * 2)

    def loss_of(model, x, y):
        out = model[2](model[1](model[0](x)))
        return cross_entropy(model.extra(out) if next(used) else out, y)

    model, other = extended(), extended()
    optimizer = learned(model, OPTIMIZERS["adam"][0])
    theirs = Adam([w for w in other.parameters() if w.requires_grad], lr=0.1)
    found = train(model, optimizer, loss_of=loss_of)
    assert found == pytest.approx(train(other, theirs, Reference(theirs, 0.9).step, loss_of=loss_of), rel=1e-9)


def test_tied_weights_count_once():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)).double()
    model[1].weight = model[0].weight
    optimizer = learned(model, OPTIMIZERS["adamw"][0])
    data = [(torch.arange(7), torch.arange(7))] * 4
    train(model, optimizer, those=data)
    torch.manual_seed(5)
    one = nn.ParameterList([nn.Embedding(7, 4).double().weight])
    other = learned(one, OPTIMIZERS["adamw"][0])
    used = train(one, other, those=data, loss_of=lambda model, x, y: cross_entropy(model[0][x] @ model[0].T, y))
    assert used[-1] == pytest.approx(float(optimizer.param_groups[0]["lr"]))


def test_weights_that_begin_at_0_move_as_if_torch_had_initialised_them():
    zeros, usual = (nn.Parameter(torch.full((12, 100), value)) for value in (0.0, 2.0 / math.sqrt(1200)))
    make = lambda p, lr: SGD(p, lr=lr)  # noqa: E731
    moved = []
    for weight in (zeros, usual):
        optimizer = make([weight], 0.1)
        LearnedLR(optimizer, total_steps=9)
        before = weight.detach().clone()
        weight.grad = torch.full_like(weight, 7.0)
        optimizer.step()
        moved.append(float((weight - before).detach().norm()))
    assert moved[0] == pytest.approx(moved[1], rel=1e-5)


@pytest.mark.parametrize("shape", [(), (6,)])
def test_without_any_matrix_all_tensors_count(shape, kind):
    weight = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
    optimizer = Adam([weight], lr=kind(0.1))
    LearnedLR(optimizer, total_steps=40)
    for _ in range(40):
        optimizer.zero_grad()
        (weight - 0.1).square().sum().backward()
        optimizer.step()
    assert torch.allclose(weight, torch.full_like(weight, 0.1), atol=0.05)


def test_vectors_and_numbers_count_alike_where_only_they_are_trained(kind):
    """As in fine-tuning biases and a temperature."""

    def trained(make_lr, step_of=None):
        model, temperature = network(), nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
        optimizer = Adam([model[0].bias, temperature, model[2].bias], lr=make_lr(0.1))
        step = step_of(optimizer) if step_of else LearnedLR(optimizer, total_steps=STEPS) and None
        return train(model, optimizer, step, loss_of=lambda model, x, y: cross_entropy(model(x) * temperature, y))

    assert trained(kind) == pytest.approx(trained(float, lambda one: Reference(one, 0.9).step), rel=1e-4)


def test_vectors_beside_matrices_do_not_count():
    plain, scaled = network(), network()
    for layer in (scaled[0], scaled[2]):
        layer.bias.register_hook(lambda gradient: 0 * gradient)
    used = [train(model, learned(model, OPTIMIZERS["adam"][0]))[1] for model in (plain, scaled)]
    assert used[0] == used[1]


def test_a_long_embedding_does_not_outweigh_the_other_matrices():
    """Torch's embeddings begin with numbers of size 1, and have many rows."""
    used = {}
    for rows in (16, 4000):
        torch.manual_seed(0)
        weights = [nn.Embedding(rows, 16).weight, nn.Linear(16, 16).weight]
        optimizer = SGD(weights, lr=0.1)
        lr = LearnedLR(optimizer, total_steps=9)
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
            weight.grad[:16] = 0.1
        for _ in range(3):
            optimizer.step()
        used[rows] = lr.get_last_lr()[0] / Reference(optimizer, total_steps=9).size
    assert used[4000] == pytest.approx(used[16], rel=0.5)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.parametrize("layout", ["plain", "channels last", "transposed"])
def test_a_large_matrix_is_known_from_a_few_entries(name, layout, kind, monkeypatch):
    def run():
        torch.manual_seed(0)
        weight = torch.randn(40, 50, 3, 3) / 20
        if layout == "channels last":
            weight = weight.to(memory_format=torch.channels_last)
        if layout == "transposed":
            weight = weight.transpose(0, 1)
        weight = nn.Parameter(weight)
        optimizer = OPTIMIZERS[name][0]([weight], kind())
        lr, random = LearnedLR(optimizer, total_steps=20), torch.Generator().manual_seed(1)
        for _ in range(20):
            weight.grad = (
                torch.randn(weight.shape, generator=random) * torch.linspace(0.1, 2, 3) + 0.2 * weight.detach()
            )
            optimizer.step()
        return lr

    lr = run()
    kept = [one for one in tensors(lr._driver.sensor) if one.numel() > 1000]
    assert kept
    assert all(one.numel() <= 2 * ENTRIES for one in kept)
    used = lr.history
    monkeypatch.setattr("mlrsnet.sensors.Samples", lambda like, rows, entries=10**6: Samples(like, rows, 10**6))
    assert used == pytest.approx(run().history, rel=0.05)


def test_what_is_sent_to_another_process_has_the_last_step_but_no_weights_in_it():
    """A copy or a pickle between two steps."""
    weight = nn.Parameter(torch.ones(200, 200))
    optimizer = SGD([weight], lr=0.1, momentum=0.9)
    LearnedLR(optimizer, total_steps=9)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    sent = pickle.dumps(driver_of(optimizer).sensor)
    assert len(sent) < weight.numel() / 10
    assert math.isfinite(pickle.loads(sent).x)


def tensors(thing, seen=None):
    """All that something holds, but for the user's weights and their gradients."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, nn.Parameter):
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        for key, one in thing.items():
            if key not in ("params", "_groups"):
                yield from tensors(one, seen)
    elif isinstance(thing, list | tuple):
        for one in thing:
            yield from tensors(one, seen)
    elif hasattr(thing, "__dict__"):
        yield from tensors(vars(thing), seen)
