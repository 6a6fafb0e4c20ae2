"""Which weights are looked at, and how: never those that are not trained, and always as they are now."""

import copy
import gc
import math
import pickle
import random
import weakref

import pytest
import torch
from loops import backward, lrs_of, network, train, weights_of
from torch import nn
from torch.optim import SGD, Adam, AdamW, SparseAdam

from mlrsnet import LearnedLR, sensors
from mlrsnet.sensors import Layout

STEPS = 12
MAKE = {"sgd": SGD, "adamw": AdamW}


def mask(value, dtype, device="cpu"):
    return nn.Parameter(torch.full((40, 40), value, dtype=torch.float32).to(dtype).to(device), requires_grad=False)


STRANGERS = {
    "a frozen mask of -inf": lambda: mask(-math.inf, torch.float32),
    "a frozen matrix of NaN": lambda: mask(math.nan, torch.float32),
    "a frozen large matrix": lambda: mask(1e19, torch.float32),
    "integers": lambda: mask(3, torch.int64),
    "8-bit codes": lambda: mask(3, torch.int8),
    "unsigned 8-bit codes": lambda: mask(3, torch.uint8),
    "8-bit floats": lambda: mask(3, torch.float8_e4m3fn),
    "8-bit floats that ask for gradients": lambda: nn.Parameter(torch.ones(40, 40).to(torch.float8_e4m3fn)),
    "truth values": lambda: mask(1, torch.bool),
    "a matrix without storage": lambda: nn.Parameter(torch.ones(40, 40, device="meta")),
    "a matrix that never gets a gradient": lambda: nn.Parameter(torch.full((40, 40), 100.0)),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
@pytest.mark.parametrize("name", STRANGERS)
def test_a_parameter_that_is_not_trained_changes_no_lr(name, make, kind):
    """A frozen mask gave NaN as the LR, and destroyed the weights; 8-bit codes could not be trained beside at all."""
    model, plain = network(), network()
    optimizer = make([STRANGERS[name](), *model.parameters(), STRANGERS[name]()], lr=kind())
    other = make(plain.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(other, total_steps=STEPS)
    used, expected = train(model, optimizer, STEPS, lr=lr), train(plain, other, STEPS)
    if name == "a matrix that never gets a gradient":  # it is one of the weights that could be trained: a fact
        assert lr.status()["parameters"] == 113 + 2 * 1600
        assert all(0 < a[0] <= b[0] for a, b in zip(used, expected, strict=True))
        return
    assert lr.status()["parameters"] == 113
    lr.status(), lr.state_dict(), copy.deepcopy(lr)


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_only_biases_are_trained_with_all_weights_in_the_optimizer(make, kind):
    """As in BitFit. It gave an LR that had nothing to do with the biases, and blamed the user."""
    model, plain = network(), network()
    for one in (model, plain):
        one[0].weight.requires_grad_(False)
        one[2].weight.requires_grad_(False)
    optimizer = make(model.parameters(), lr=kind())
    other = make([plain[0].bias, plain[2].bias], lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(other, total_steps=STEPS)
    assert train(model, optimizer, STEPS) == train(plain, other, STEPS)
    assert lr.status()["step_length"] > 0


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_only_biases_get_gradients(make, kind):
    model = network()
    optimizer = make(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    before = weights_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        backward(model, step)
        model[0].weight.grad = model[2].weight.grad = None
        optimizer.step()
    assert 0 < lr.status()["step_length"] < 0.5
    assert 1e-3 < float((weights_of(model) - before).norm()) < 5


def test_weights_that_take_their_shape_in_the_first_forward_pass_wait_for_it(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.LazyLinear(9), nn.Tanh(), nn.Linear(9, 5))
    optimizer = SGD(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    used = train(model, optimizer, STEPS)
    assert lr.status()["parameters"] == 113
    assert all(0 < one < 10 for (one,) in used)
    assert lr.status()["step_length"] > 0


@pytest.mark.parametrize("size", [1e18, 1e19, 3e19, 1e30], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("pull", [1e-20, 1.0, 1e18], ids=str)
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_huge_weights_never_get_an_lr_that_is_not_finite(size, dtype, pull, make, kind):
    weight = nn.Parameter(torch.full((9, 6), size, dtype=dtype))
    optimizer = make([weight], lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    for step in range(4):
        weight.grad = torch.full_like(weight, pull) * (-1) ** step
        optimizer.step()
        assert all(0 <= one < math.inf for one in lrs_of(optimizer))
    assert 0 <= lr.status()["lr"] < math.inf
    assert all(map(math.isfinite, lr.history))


@pytest.mark.filterwarnings("ignore:a loss was not finite", "ignore:the loss grows")
@pytest.mark.parametrize(
    "losses", [[1e300] * 6, [1.0, 1e300, 1.0, 1e300, 1.0, 1.0], [1e-300, 1.0, 1e300, 1e-300, 1.0, 1.0]], ids=str
)
@pytest.mark.parametrize("name", ["universal", "paper", "horizon"])
def test_a_huge_loss_never_gives_an_lr_that_is_not_finite(losses, name, kind, request):
    model = network()
    optimizer = AdamW(model.parameters(), lr=kind())
    schedule = name if name == "universal" else request.getfixturevalue(name)
    if name == "paper":
        losses = [1.0, *losses]  # its gamma needs a first loss that a network can have
    lr = LearnedLR(optimizer, schedule, total_steps=9, num_classes=5)
    for step, loss in enumerate(losses):
        backward(model, step)
        lr.step(loss)
        optimizer.step()
        assert all(0 <= one < math.inf for one in lrs_of(optimizer))
    lr.status()


@pytest.mark.parametrize("scale", [1e150, 1e-150, 1e300, 1e-300], ids=str)
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_huge_and_tiny_gradients_in_double_precision(scale, make, kind):
    """1 / LR^2 of an SGD whose gradients are 1e200 long is no number any more."""
    model = network(torch.float64)
    optimizer = make(model.parameters(), lr=kind())
    LearnedLR(optimizer, total_steps=STEPS)
    for step in range(4):
        optimizer.zero_grad()
        backward(model, step)
        for weight in model.parameters():
            weight.grad *= scale
        optimizer.step()
        assert all(0 <= one < math.inf for one in lrs_of(optimizer))
    assert all(weight.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize("make", [SGD, Adam])
@pytest.mark.parametrize("shape", [(4, 6), (9, 3), (40, 130)], ids=str)
def test_complex_weights_count_like_their_real_pairs(shape, make, kind):
    """As in Fourier layers; the largest has more entries than are looked at."""

    def training(is_complex):
        torch.manual_seed(0)
        pairs = torch.randn(*shape, 2, dtype=torch.float64)
        weight = nn.Parameter(torch.view_as_complex(pairs) if is_complex else pairs)
        real = nn.Parameter(torch.ones(5, 5, dtype=torch.float64))
        optimizer = make([weight, real], lr=kind())
        lr = LearnedLR(optimizer, total_steps=STEPS)
        used = []
        for _ in range(STEPS):
            gradient = torch.randn(*shape, 2, dtype=torch.float64)
            weight.grad = torch.view_as_complex(gradient) if is_complex else gradient
            real.grad = torch.randn(5, 5, dtype=torch.float64)
            optimizer.step()
            used += lrs_of(optimizer)
        return used, lr.status()

    (used, seen), (expected, known) = training(True), training(False)
    assert used == pytest.approx(expected, rel=1e-12)
    assert seen["parameters"] == known["parameters"]
    assert seen["distance"] == pytest.approx(known["distance"], rel=0.1)


def with_words(sparse, make, kind, count=1000):
    torch.manual_seed(0)
    words = nn.Embedding(count, 4, sparse=sparse)
    optimizer = make(words.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    used = []
    for step in range(STEPS):
        optimizer.zero_grad()
        (words(torch.arange(step, step + 300) * 7 % count).square().sum()).backward()
        optimizer.step()
        used += lrs_of(optimizer)
    return used, lr


def test_sparse_gradients_are_read_whole(kind):
    """An embedding of many words, of which a batch has few."""
    used, _ = with_words(True, SGD, kind)
    expected, _ = with_words(False, SGD, kind)
    assert used == pytest.approx(expected, rel=1e-5)
    used, lr = with_words(True, SGD, kind, 3000)  # of so many, those of the weights are a sample
    assert used == pytest.approx(with_words(False, SGD, kind, 3000)[0], rel=0.3)
    assert with_words(True, SparseAdam, kind)[1].last_epoch == lr.last_epoch == STEPS


def swapped(model, optimizer, step, average):
    """An average of the weights is evaluated, and the weights are put back: by `p.data`, as most code for EMA does it."""
    kept = [weight.data for weight in model.parameters()]
    for weight, mean in zip(model.parameters(), average, strict=True):
        weight.data = mean
    for weight, own in zip(model.parameters(), kept, strict=True):
        weight.data = own


def replaced(model, optimizer, step, average):
    for weight in model.parameters():
        weight.data = weight.data.clone()


def loaded(model, optimizer, step, average):
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})


def copied_back(model, optimizer, step, average):
    with torch.no_grad():
        kept = [weight.clone() for weight in model.parameters()]
        for weight, mean in zip(model.parameters(), average, strict=True):
            weight.copy_(mean)
        for weight, own in zip(model.parameters(), kept, strict=True):
            weight.copy_(own)


@pytest.mark.parametrize("change", [swapped, replaced, loaded, copied_back])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_weights_that_others_swap_and_put_back_do_not_count_as_steps(change, make, kind):
    model, plain = network(), network()
    optimizer, other = make(model.parameters(), lr=kind()), make(plain.parameters(), lr=kind())
    LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(other, total_steps=STEPS)
    average = [torch.zeros_like(weight) + 9 for weight in model.parameters()]
    used = []
    for step in range(STEPS):
        used += train(model, optimizer, 1, begin=step)
        change(model, optimizer, step, average)
    assert used == train(plain, other, STEPS)


def test_a_jump_of_the_weights_between_two_steps_is_no_step(kind):
    """A checkpoint that is loaded in the middle: what counts is how far a step moves them."""
    model, plain = network(), network()
    optimizer, other = SGD(model.parameters(), lr=kind()), SGD(plain.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    LearnedLR(other, total_steps=STEPS)
    used, expected = train(model, optimizer, 4), train(plain, other, 4)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(-1)
    assert train(model, optimizer, 1, begin=4)[0][0] == pytest.approx(train(plain, other, 1, begin=4)[0][0], rel=0.6)
    assert used == expected
    assert lr.status()["step_length"] < 0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_weights_may_change_their_precision(dtype, kind):
    model = network()
    optimizer = SGD(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    used = train(model, optimizer, 4)
    model.to(dtype)
    used += train(model, optimizer, STEPS - 4, begin=4)
    plain = network()
    other = SGD(plain.parameters(), lr=kind())
    LearnedLR(other, total_steps=STEPS)
    expected = train(plain, other, STEPS)
    assert [a for (a,) in used] == pytest.approx([b for (b,) in expected], rel=0.3)
    assert lr.status()["step_length"] > 0


def test_layers_may_be_frozen_and_thawed(kind):
    """Gradual unfreezing: the frozen half is not measured, and keeps what was known of it."""
    model = network()
    optimizer = AdamW(model.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    for step in range(STEPS):
        model[0].requires_grad_(step % 6 > 2)
        still = model[0].weight.clone()
        train(model, optimizer, 1, begin=step)
        assert torch.equal(model[0].weight, still) == (step % 6 <= 2)
        assert 0 < lr.status()["step_length"] < 0.5


def test_channels_last_weights_are_read_in_their_own_order():
    def training(memory_format):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 40, 7), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5))
        pictures = torch.randn(4, 3, 8, 8)
        model(pictures)
        model.to(memory_format=memory_format)
        optimizer = AdamW(model.parameters(), lr=0.1)
        LearnedLR(optimizer, total_steps=STEPS)
        used = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(pictures).square().mean().backward()
            optimizer.step()
            used += lrs_of(optimizer)
        return used

    assert training(torch.channels_last) == pytest.approx(training(torch.contiguous_format), rel=1e-3)


def test_layers_that_are_dropped_at_random_do_not_fill_the_memory(kind):
    """Stochastic depth: every step moves other weights, and what is kept of them must not grow."""
    dice = random.Random(0)
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(10))
    optimizer = AdamW(layers.parameters(), lr=kind())
    lr = LearnedLR(optimizer, total_steps=60)
    for _ in range(60):
        x = torch.ones(4, 8)
        for layer in layers:
            if dice.random() < 0.7:
                x = x + layer(x)
        optimizer.zero_grad()
        (x.square().mean() + layers[0].bias.sum()).backward()
        optimizer.step()
    gc.collect()
    assert sum(type(one) is Layout for one in gc.get_objects()) < 60 // 3
    assert 0 < lr.status()["step_length"] < 0.5


def test_weights_that_others_replace_are_let_go(kind):
    """Points of a scene are cloned and pruned by putting a new parameter in the place of the old one, again and again."""
    points = nn.Parameter(torch.randn(50, 3))
    optimizer = AdamW([points, nn.Parameter(torch.randn(4, 4))], lr=kind())
    lr, old = LearnedLR(optimizer, total_steps=STEPS), []
    for _ in range(STEPS):
        old.append(weakref.ref(points))
        for weight in optimizer.param_groups[0]["params"]:
            weight.grad = torch.randn_like(weight)
        optimizer.step()
        del optimizer.state[points]
        points = nn.Parameter(torch.cat((points.detach(), torch.randn(5, 3))))
        optimizer.param_groups[0]["params"][0] = points
    assert 0 < lr.status()["distance"] < 1
    assert 0 < copy.deepcopy(lr).status()["distance"] < 1
    del weight
    gc.collect()
    assert not any(one() is not None for one in old[:-1])


def test_another_default_device_changes_nothing(kind):
    """`torch.set_default_device("cuda")` makes new tensors there; meta is such a device that every machine has."""

    def training(device):
        sensors.places.cache_clear()
        model = nn.Sequential(network(), nn.Linear(5, 1000), nn.Linear(1000, 5))  # not all entries are looked at
        optimizer = SGD(model.parameters(), lr=kind(), momentum=0.9)
        lr, used = LearnedLR(optimizer, total_steps=STEPS), []
        for step in range(4):
            optimizer.zero_grad()
            backward(model, step)
            with torch.device(device):
                lr.step(1.5)
                optimizer.step()
                used += lrs_of(optimizer)
                lr.load_state_dict(lr.state_dict())
        return used

    expected = training("cpu")
    assert training("meta") == expected


def test_what_is_kept_does_not_grow_with_the_network():
    """4 bytes a weight were kept: a fifth of the memory of a training with AdamW."""
    model = nn.Linear(1000, 1000)
    optimizer = AdamW(model.parameters(), lr=0.1)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    own = {id(weight) for weight in model.parameters()}
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 1000)).square().mean().backward()
        optimizer.step()
    own |= {id(one) for state in optimizer.state.values() for one in state.values()}
    own |= {id(weight.grad) for weight in model.parameters()}
    gc.collect()
    tensors = [one for one in gc.get_objects() if type(one) is torch.Tensor and id(one) not in own]
    assert not [
        one for one in tensors if one.numel() >= 10**6 and one.untyped_storage().nbytes() and one.shape == (1000, 1000)
    ]
    assert len(pickle.dumps(lr.state_dict())) < 20_000
    assert lr.last_epoch == 3


def test_the_lr_of_bfloat16_weights_is_that_of_a_network_that_moves(kind):
    """The first steps of a warm-up are too short for bfloat16: they double until something moves."""
    model, plain = network(torch.bfloat16), network()
    optimizer, other = SGD(model.parameters(), lr=kind()), SGD(plain.parameters(), lr=kind())
    LearnedLR(optimizer, total_steps=60)
    LearnedLR(other, total_steps=60)
    used, expected = train(model, optimizer, 60), train(plain, other, 60)
    ratios = torch.tensor(used[10:]) / torch.tensor(expected[10:])
    assert 0.8 < float(ratios.median()) < 1.25
    assert 0.5 < float(ratios.min()) < float(ratios.max()) < 2


def test_flat_weights_in_place_of_matrices_are_refused_at_the_first_step(kind):
    """DeepSpeed's ZeRO puts them into the groups after everything was made: their LR would be that of a network of biases."""
    model = network()
    optimizer = AdamW(model.parameters(), lr=kind())
    LearnedLR(optimizer, total_steps=STEPS)
    flat = nn.Parameter(weights_of(model))
    flat.grad = torch.ones_like(flat)
    optimizer.param_groups[0]["params"] = [flat]
    before = flat.detach().clone()
    with pytest.raises(ValueError, match="must have weights of their own shapes, got flat ones, as those of FSDP1"):
        optimizer.step()
    assert torch.equal(flat, before)
