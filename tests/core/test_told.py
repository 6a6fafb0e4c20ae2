"""What a user tells of a training beyond its steps: the batch, and the model."""

import warnings

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from mlrsnet import LearnedLR, _optimizers, preview


def network(*between):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), *between, nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3))


def begun(network, **options):
    """A `LearnedLR` after one step."""
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    optimizer = AdamW(trained)
    lr = LearnedLR(optimizer, total_steps=50, **options)
    for weight in trained:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    return lr


def lr_of(network, **options):
    return begun(network, **options).get_last_lr()[0]


def test_larger_batches_take_longer_steps_and_32_is_assumed():
    assert lr_of(network(), batch_size=1024) == pytest.approx(2 * lr_of(network()))
    assert lr_of(network(), batch_size=32) == pytest.approx(lr_of(network()))


def test_a_preview_knows_the_batch_and_the_model_too():
    model = network(nn.LayerNorm(20, elementwise_affine=False))
    small, large = (
        preview(AdamW(model.parameters()), total_steps=50, batch_size=one).moves.max() for one in (32, 1024)
    )
    assert large == pytest.approx(2 * small)
    deep = nn.Sequential(*[nn.Linear(6, 6) for _ in range(8)], nn.LayerNorm(6, elementwise_affine=False))
    plain, told = (preview(AdamW(deep.parameters()), total_steps=50, model=one).moves.max() for one in (None, deep))
    assert told > 2 * plain


@pytest.mark.parametrize("frozen", [False, True], ids=["without gains", "frozen"])
def test_a_model_shows_norms_that_an_optimizer_cannot_see(frozen):
    norm = nn.LayerNorm(20, elementwise_affine=frozen).requires_grad_(False)
    model = network(norm)
    assert not begun(model).status()["has_norms"]
    assert begun(model, model=model).status()["has_norms"]


def test_a_model_takes_nothing_back_that_weights_show():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(20))

        def forward(self, x):
            return x

    model = network(Own())
    assert begun(model, model=model).status()["has_norms"]


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm])
def test_norms_of_weights_are_none_of_layers(norm):
    model = network()
    norm(model[0])
    assert not begun(network(), model=model).status()["has_norms"]


def test_a_block_that_is_called_a_norm_is_none():
    class LayerNormBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(20, 20)

    assert not begun(network(), model=nn.Sequential(network(), LayerNormBlock())).status()["has_norms"]


class Adapted(nn.Module):
    """A frozen layer, and two small ones beside it that have been trained before."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(20, 20).requires_grad_(False)
        self.down, self.up = nn.Linear(20, 2, bias=False), nn.Linear(2, 20, bias=False)


def test_a_model_shows_adapters_that_were_trained_before():
    model = nn.Sequential(*[Adapted() for _ in range(6)])
    assert not begun(model).status()["are_adapters"]
    lr = begun(model, model=model)
    assert lr.status()["are_adapters"]
    assert lr.get_last_lr()[0] > 3 * lr_of(nn.Sequential(*[Adapted() for _ in range(6)]))  # no depth


@pytest.mark.parametrize("frozen", [(0, 1), (1, 2, 3, 5)], ids=["a new head", "some layers"])
def test_a_network_that_is_partly_frozen_has_no_adapters(frozen):
    model = nn.Sequential(*[nn.Linear(20, 20) for _ in range(8)])
    for place in frozen:
        model[place].requires_grad_(False)
    assert not begun(model, model=model).status()["are_adapters"]


@pytest.mark.parametrize("by", ["size", "sampler"])
def test_a_loader_tells_the_batch_of_a_step(by):
    data = torch.zeros(64, 6)
    sampler = (
        {"batch_sampler": BatchSampler(SequentialSampler(data), 8, False)} if by == "sampler" else {"batch_size": 8}
    )
    lr = LearnedLR.for_loader(SGD(network().parameters(), 0.1), DataLoader(data, **sampler), 2, accumulate=4)
    assert lr.status()["batch_size"] == 32
    told = LearnedLR.for_loader(SGD(network().parameters(), 0.1), DataLoader(data, **sampler), 2, batch_size=512)
    assert told.status()["batch_size"] == 512


def test_a_batch_is_no_larger_than_the_data():
    loader = DataLoader(torch.zeros(100, 6), batch_size=512)
    lr = LearnedLR.for_loader(SGD(network().parameters(), 0.1), loader, 2, accumulate=8)
    assert lr.status()["batch_size"] == 100


def test_aggregated_momentum_takes_the_steps_of_momentum():
    """It has betas, as Adam, but does not divide by the size of the gradient."""
    optimizer = pytest.importorskip("pytorch_optimizer").AggMo(network().parameters(), lr=0.1)
    assert not _optimizers.is_adaptive(_optimizers.settings(optimizer, optimizer.param_groups[0]))


def test_a_list_of_batches_tells_no_batch():
    assert "batch_size" not in LearnedLR.for_loader(SGD(network().parameters(), 0.1), [1, 2, 3], 2).status()


def test_a_resumed_run_keeps_the_batch_that_it_began_with_and_says_so():
    saved = begun(network(), batch_size=64).state_dict()
    model = network()
    other = LearnedLR(AdamW(model.parameters()), total_steps=50, batch_size=256)
    with pytest.warns(UserWarning, match="the saved run had batch_size=64, which replaces 256: pass batch_size=None"):
        other.load_state_dict(saved)
    assert other.status()["batch_size"] == 64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LearnedLR(AdamW(model.parameters()), total_steps=50, batch_size=64).load_state_dict(saved)


@pytest.mark.parametrize("value", [0, -3, 2.5, float("nan"), "many", True])
def test_a_batch_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"batch_size must be .*: examples in an optimizer step, over all processes"):
        LearnedLR(SGD(network().parameters(), 0.1), total_steps=9, batch_size=value)


def test_what_is_no_model_is_refused():
    optimizer = SGD(network().parameters(), 0.1)
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got SGD: pass the network"):
        LearnedLR(optimizer, total_steps=9, model=optimizer)
