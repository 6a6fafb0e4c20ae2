"""The default schedule, as someone meets it who passes nothing but an optimizer and a number of steps."""

import copy
import itertools
import math

import pytest
import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn.functional import cross_entropy, gaussian_nll_loss, mse_loss

from mlrsnet import LearnedLR, Schedule
from mlrsnet.default import Default, Size
from mlrsnet.facts import read_facts
from mlrsnet.law import Facts, Seen
from mlrsnet.ops import DEVICE, HOST, leaves, rebuilt
from mlrsnet.plan import Plan

STEPS = 40


def network(norm=True, depth=2, width=16, seed=0):
    torch.manual_seed(seed)
    layers = [nn.Linear(8, width)]
    for _ in range(depth):
        layers += [nn.LayerNorm(width)] * norm + [nn.Tanh(), nn.Linear(width, width)]
    return nn.Sequential(*layers, nn.Tanh(), nn.Linear(width, 3)).double()


def batches(count=STEPS):
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 32, 8, generator=random, dtype=torch.float64)
    return [(x, (x[:, :3] * torch.tensor([1.0, 2.0, 3.0])).argmax(1)) for x in inputs]


def train(model, optimizer, lr, loss_of=None, data=None):
    """The LRs of the first group."""
    found = []
    for x, y in data or batches():
        loss = (loss_of or cross_entropy)(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        lr.step(loss)
        optimizer.step()
        found.append(float(lr.get_last_lr()[0]))
    return found


def lrs(model, make=torch.optim.AdamW, loss_of=None, **options):
    optimizer = make(model.parameters(), **options)
    return train(model, optimizer, LearnedLR(optimizer, total_steps=STEPS), loss_of)


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad])
def test_the_lr_of_the_optimizer_is_ignored(make):
    assert lrs(network(), make, lr=1e-5) == pytest.approx(lrs(network(), make, lr=10.0), rel=1e-7)


def test_a_loss_that_is_a_thousand_times_larger_trains_alike():
    """Plain SGD then takes a thousandth of the LR. Only the first step, before any was measured, differs a little."""
    plain = lrs(network(), torch.optim.SGD, lr=0.1)
    scaled = lrs(network(), torch.optim.SGD, lambda z, y: 1000 * cross_entropy(z, y), lr=0.1)
    assert [1000 * used for used in scaled[1:9]] == pytest.approx(plain[1:9], rel=0.1)


@pytest.mark.parametrize("shift", [-10.0, -1.1, 0.0])
def test_a_loss_that_is_not_positive_still_trains(shift):
    """As in reinforcement learning, or a Gaussian likelihood."""
    model = network()
    used = lrs(model, torch.optim.SGD, lambda z, y: cross_entropy(z, y) + shift, lr=0.1)
    assert all(0 < one < math.inf for one in used)
    x, y = batches()[-1]
    assert cross_entropy(model(x), y) < 0.6 * math.log(3)


def test_regression_with_large_targets_learns():
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).double()
    optimizer = torch.optim.Adam(model.parameters())
    lr = LearnedLR(optimizer, total_steps=400)
    data = [(x, 100 * x[:, :1]) for x, _ in batches(400)]
    train(model, optimizer, lr, mse_loss, data)
    x, y = data[-1]
    assert mse_loss(model(x), y) < 0.2 * y.var()


def test_the_order_of_the_groups_does_not_matter():
    found = {}
    for order in (0, 1):
        model = network()
        groups = [{"params": model[0].parameters(), "lr": 1e-5}, {"params": model[1:].parameters(), "lr": 1e-3}]
        optimizer = torch.optim.AdamW(groups[::-1] if order else groups)
        lr = LearnedLR(optimizer, total_steps=STEPS)
        train(model, optimizer, lr)
        found[order] = lr.get_last_lr()[:: -1 if order else 1]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0][1] / found[0][0] == pytest.approx(100)


def test_a_trained_network_begins_with_short_steps_and_a_fresh_one_does_not():
    fresh = network()
    trained = copy.deepcopy(fresh)
    with torch.no_grad():
        for layer in trained:
            if isinstance(layer, nn.LayerNorm):
                layer.weight.uniform_(0.6, 1.4)
    ratio = lrs(trained)[1] / lrs(fresh)[1]
    assert ratio == pytest.approx(0.3, rel=0.2)


def test_weights_that_are_loaded_after_construction_are_seen_as_they_are():
    """Scripts make everything first and load a pretrained network then, or shard and move it."""
    trained, late = network(), network(seed=1)
    with torch.no_grad():
        for layer in trained:
            if isinstance(layer, nn.LayerNorm):
                layer.weight.uniform_(0.6, 1.4)
    optimizer = torch.optim.AdamW(late.parameters())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    late.load_state_dict(trained.state_dict())
    assert train(late, optimizer, lr) == lrs(trained)
    assert lr.status()["is_trained"]


def lr_after(losses, law=None, x=1.0, total_steps=100, **facts):
    """The LR after these losses, of a training whose steps are all as long as x says."""
    law = law or Default()
    state = law.begin(Facts(**facts))
    for loss in losses:
        lr, state = law.advance(state, Seen(loss, x=x, guess=x), Plan.of(total_steps))
    return lr


@pytest.mark.parametrize(
    ("last", "expected"), [(1.0, 0.3), (0.1, 0.43), (math.nan, 0.5)], ids=["level", "falls", "untold"]
)
def test_the_steps_of_a_trained_network_grow_when_its_loss_falls(last, expected):
    losses = [last if math.isnan(last) or step >= 20 else 1.0 for step in range(80)]
    assert lr_after(losses, is_trained=True) / lr_after(losses) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize(("size", "share"), [(20_000, 0.5), (240_000, 0.5), (960_000, 0.25), (6_000_000, 0.1)])
def test_a_large_trained_network_stays_near_where_it_is(size, share):
    new, trained = (Default().begin(Facts(parameters=size, is_trained=one)).size for one in (False, True))
    assert trained / new == pytest.approx(share)


@pytest.mark.parametrize(("size", "share"), [(20_000, 0.5), (375_000, 0.4), (600_000_000, 0.01)])
def test_a_trained_network_that_is_told_no_loss_takes_half_or_what_it_keeps_to_if_that_is_less(size, share):
    new, trained = (lr_after([math.nan], is_trained=one, parameters=size) for one in (False, True))
    assert trained / new == pytest.approx(share)


def plain(seed=0):
    """Without norms."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3)).double()


def looks_trained(model, **options):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    lr = LearnedLR(optimizer, total_steps=STEPS, **options)
    train(model, optimizer, lr, data=batches(1))
    return lr.status()["is_trained"]


def test_a_network_without_norms_is_known_to_be_trained_and_a_new_one_is_not():
    model = plain()
    assert not looks_trained(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for x, y in batches(150):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    assert looks_trained(model)


NEW = {
    "torch": lambda weight: None,
    "normal": lambda weight: nn.init.normal_(weight, std=0.02),
    "orthogonal": nn.init.orthogonal_,
    "truncated": lambda weight: nn.init.trunc_normal_(weight, std=0.02),
    "zeros": nn.init.zeros_,
    "sparse": lambda weight: nn.init.sparse_(weight, 0.1),
    "identity": nn.init.eye_,
    "masked": lambda weight: weight.data[:, ::2].zero_(),
    "constant": lambda weight: nn.init.constant_(weight, 0.3),
    "signs": lambda weight: nn.init.normal_(weight).sign_().mul_(0.3),
}


@pytest.mark.parametrize("kind", NEW)
def test_however_a_network_is_initialised_it_is_not_taken_for_a_trained_one(kind):
    model = nn.Sequential(*[nn.Linear(48, 48) for _ in range(3)])
    with torch.no_grad():
        for layer in model:
            NEW[kind](layer.weight)
    assert not read_facts(model.parameters()).is_trained


@pytest.mark.parametrize("kind", ["drawn", "constant"])
def test_gains_that_were_drawn_or_set_are_not_taken_for_trained_ones(kind):
    """GANs draw theirs around 1, others set them to a small number, whose deviation is a rounding error."""
    gains = [nn.Parameter(torch.full((192,), 1e-6 if kind == "constant" else 1.0)) for _ in range(3)]
    if kind == "drawn":
        for gain in gains:
            nn.init.normal_(gain, 1.0, 0.02)
    facts = read_facts([*gains, *nn.Linear(48, 48).parameters()])
    assert (facts.is_trained, facts.depth) == (False, 1)


@pytest.mark.parametrize("width", [16, 32])
def test_a_small_new_network_is_hardly_ever_taken_for_a_trained_one(width):
    """Without losses it would keep to a tenth of its steps."""
    random = torch.Generator().manual_seed(0)
    drawn = (nn.Parameter(torch.rand(width, 64, generator=random) - 0.5) for _ in range(1000))
    assert sum(bool(read_facts([weight]).is_trained) for weight in drawn) <= 2


@pytest.mark.parametrize("trained", [True, False])
def test_what_a_user_says_of_a_network_counts_more_than_how_it_looks(trained):
    assert looks_trained(plain(), trained=trained) is trained
    with pytest.raises(ValueError, match="trained must be True, False or None, got 'yes'"):
        LearnedLR(torch.optim.SGD(plain().parameters(), lr=0.1), total_steps=9, trained="yes")
    with pytest.raises(ValueError, match="trained must be True, False or None, got 2"):
        LearnedLR(torch.optim.SGD(plain().parameters(), lr=0.1), total_steps=9, trained=2)


def test_a_resumed_run_says_that_it_goes_on_as_it_began_whatever_is_said_of_its_network_now():
    model = plain()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    train(model, optimizer, lr, data=batches(1))
    again = LearnedLR(torch.optim.AdamW(plain().parameters()), total_steps=STEPS, trained=True)
    with pytest.warns(UserWarning, match="the saved run had trained=False, which replaces True: pass trained=None"):
        again.load_state_dict(lr.state_dict())
    LearnedLR(torch.optim.AdamW(plain().parameters()), total_steps=STEPS, trained=False).load_state_dict(
        lr.state_dict()
    )
    assert again.status()["is_trained"] is False


def test_adapters_are_not_taken_for_a_deep_network():
    """As of LoRA: a pair for each layer, of which one begins at zero."""
    pairs = [
        weight for _ in range(12) for weight in (nn.Parameter(torch.randn(4, 64)), nn.Parameter(torch.zeros(64, 4)))
    ]
    assert read_facts(pairs).depth == 1
    assert read_facts(pairs[::2]).depth == 12


def test_deep_networks_without_normalisation_take_shorter_steps():
    def first(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        lr = LearnedLR(optimizer, total_steps=STEPS)
        train(model, optimizer, lr, data=batches(5))
        return lr.status()["step_length"]

    assert first(network(norm=False, depth=10)) < 0.5 * first(network(norm=True, depth=10))
    assert first(network(width=64)) < first(network(width=16))


def test_a_resumed_run_keeps_what_its_weights_told_before_the_first_step():
    """Its weights look trained by then."""
    data = batches()
    whole, stopped = network(), network()
    expected = lrs(whole)
    optimizer = torch.optim.AdamW(stopped.parameters())
    lr = LearnedLR(optimizer, total_steps=STEPS)
    first = train(stopped, optimizer, lr, data=data[:25])
    again = torch.optim.AdamW(stopped.parameters())
    again.load_state_dict(optimizer.state_dict())
    resumed = LearnedLR(again, total_steps=STEPS)
    resumed.load_state_dict(copy.deepcopy(lr.state_dict()))
    assert first + train(stopped, again, resumed, data=data[25:]) == expected


def test_a_longer_training_takes_shorter_steps():
    assert Size()(Facts(), 50_000) < Size()(Facts(), 500)
    assert lr_after([1.0] * 50, total_steps=100) > lr_after([1.0] * 5000, total_steps=10_000)


def test_the_equation_in_its_own_words():
    """The head of the file, step by step, without losses."""
    facts = Facts(9, 2_000_000, is_adaptive=True, batch_size=256)
    total, lengths = 300, [0.01 * (1 + step % 7) for step in range(200)]
    law, state, known = Default(), Default().begin(facts), []
    r = 0.13 * (total / 500) ** -0.15 * 200**-0.17 * 1.9 * (256 / 32) ** 0.2 * (9 / 4) ** -1.4
    for step, x in enumerate(lengths):
        known.append(x)
        weights = [math.exp(-age / (0.1 * total)) for age in reversed(range(len(known)))]
        mean = sum(w * one for w, one in zip(weights, known, strict=True)) / sum(weights)
        u = step / total
        expected = r * 0.3 * min(1, max(0.01, u / 0.05)) * (1 - u) / math.sqrt(mean)
        lr, state = law.advance(state, Seen(math.nan, x=x, scale=0.3), Plan.of(total))
        assert lr == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("matrices", "share"), [(3, 1.0), (8, 2**-0.2), (12, 3**-0.2), (300, 3**-0.2)])
def test_depth_counts_little_where_there_are_norms_and_not_at_all_for_adapters(matrices, share):
    alone = Size()(Facts(1, 9_000))
    assert Size()(Facts(matrices, 9_000, has_norms=True)) == pytest.approx(share * alone)
    assert Size()(Facts(matrices, 9_000, are_adapters=True)) == pytest.approx(alone)


def test_numbers_on_the_host_and_tensors_of_many_trainings_give_the_same():
    """A population of trainings calls the same equation, with one dimension more."""
    random, law = torch.Generator().manual_seed(2), Default()
    losses, x = torch.rand(2, 60, 3, generator=random, dtype=torch.float64)
    losses[10:13, 1], x[20, 2], x[30, 0] = math.inf, math.nan, 0.0
    facts = [Facts(parameters=100), Facts(8, 10_000), Facts(is_trained=True)]
    alone = []
    for member, one in enumerate(facts):
        state, lrs = law.begin(one), []
        for loss, moved in zip(losses[:, member].tolist(), x[:, member].tolist(), strict=True):
            lr, state = law.advance(state, Seen(loss, x=moved), Plan.of(50), HOST)
            lrs.append(lr)
        alone.append(lrs)
    states = [
        torch.tensor(column, dtype=torch.float64)
        for column in zip(*(leaves(law.begin(one)) for one in facts), strict=True)
    ]
    together = rebuilt(law.begin(facts[0]), iter(states))
    plan = Plan(*map(torch.tensor, Plan.of(50)))
    for step in range(60):
        lr, together = law.advance(together, Seen(losses[step], x=x[step]), plan, DEVICE)
        assert lr.tolist() == pytest.approx([lrs[step] for lrs in alone], rel=1e-6)


def test_the_default_is_what_its_name_loads_and_needs_no_file():
    assert Schedule.load("universal") == Default()
    assert Schedule.load("universal").fingerprint() == Default().fingerprint() != Default(size=0.12).fingerprint()


def test_a_loss_of_0_for_a_while_changes_nothing():
    """As where no example of a batch is hard enough for a margin."""

    def last_lr(losses):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2, 2))], lr=0.1)
        lr = LearnedLR(optimizer, total_steps=200)
        for loss in losses:
            optimizer.param_groups[0]["params"][0].grad = torch.ones(2, 2)
            lr.step(loss)
            optimizer.step()
            optimizer.param_groups[0]["params"][0].data.fill_(1.0)
        return float(lr.get_last_lr()[0])

    falling = [0.99**step for step in range(200)]
    for zeros in (range(20), range(80, 100), range(150, 151)):
        assert last_lr([0.0 if step in zeros else loss for step, loss in enumerate(falling)]) == pytest.approx(
            last_lr(falling), rel=0.05
        )


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_a_likelihood_that_falls_below_0_does_not_stop_the_training(noise):
    random = torch.Generator().manual_seed(0)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2, 2))], lr=0.1)
    lr, used = LearnedLR(optimizer, total_steps=400), []
    for step in range(400):
        optimizer.param_groups[0]["params"][0].grad = torch.ones(2, 2)
        lr.step(1.4 - 0.01 * min(step, 150) + noise * torch.randn((), generator=random).item())
        optimizer.step()
        optimizer.param_groups[0]["params"][0].data.fill_(1.0)
        used.append(float(lr.get_last_lr()[0]))
    assert all(0.4 * one < other < 2 * one for one, other in itertools.pairwise(used[20:200]))
    assert used[300] == pytest.approx(used[200] / 2, rel=0.3)  # by its plan


def test_a_gaussian_likelihood_is_learned():
    """On average: such a loss jumps. Without the inputs, the best is -1.8."""
    ends = []
    for seed in range(1, 6):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2)).double()
        optimizer = torch.optim.Adam(model.parameters())
        losses = []

        def loss_of(output, y, losses=losses):
            loss = gaussian_nll_loss(output[:, :1], y, output[:, 1:].exp())
            losses.append(loss.item())
            return loss

        train(
            model,
            optimizer,
            LearnedLR(optimizer, total_steps=600),
            loss_of,
            [(x, 0.1 * x[:, :1]) for x, _ in batches(600)],
        )
        assert losses[0] > 0
        ends.append(sum(losses[-20:]) / 20)
    assert sum(ends) / len(ends) < -2.3


@pytest.mark.parametrize("seed", range(8))
def test_a_squared_error_under_plain_sgd_does_not_explode(seed):
    """Its gradients grow with the error: by the average of past steps alone, every third of these trainings was lost."""
    torch.manual_seed(seed)
    x, y = (torch.tensor(part) for part in load_diabetes(return_X_y=True, scaled=False))
    x, y = (x - x.mean(0)) / x.std(0), ((y - y.mean()) / y.std()).unsqueeze(1)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    chosen = [torch.randint(len(x), (16,)) for _ in range(60)]
    train(model, optimizer, LearnedLR(optimizer, total_steps=60), mse_loss, [(x[i], y[i]) for i in chosen])
    assert mse_loss(model(x), y) < 0.75  # 1 is guessing


def test_a_training_that_blew_up_goes_on():
    """However far the loss has risen, steps keep a tenth of their length: else they would end where it landed."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2, 2))], lr=0.1)
    lr, used = LearnedLR(optimizer, total_steps=200), []
    with pytest.warns(UserWarning, match="the loss grows"):
        for step in range(100):
            optimizer.param_groups[0]["params"][0].grad = torch.ones(2, 2)
            lr.step(1.0 if step < 50 else 1000.0)
            optimizer.step()
            optimizer.param_groups[0]["params"][0].data.fill_(1.0)
            used.append(float(lr.get_last_lr()[0]))
    assert used[99] == pytest.approx(0.1 * used[49] * (100 / 150), rel=0.05)
