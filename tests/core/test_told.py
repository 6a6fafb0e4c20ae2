"""What a user tells of a training beyond its steps: the batch, and the model."""

import warnings

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from mlrsnet import LearnedLR, preview


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


def test_a_block_that_is_called_a_norm_is_none():
    class NormedBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(20, 20)

    assert not begun(network(), model=nn.Sequential(network(), NormedBlock())).status()["has_norms"]


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


def test_new_last_layers_are_no_adapters():
    model = nn.Sequential(
        nn.Linear(20, 20).requires_grad_(False), nn.Linear(20, 20).requires_grad_(False), nn.Linear(20, 3)
    )
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


def test_a_list_of_batches_tells_no_batch():
    assert "batch_size" not in LearnedLR.for_loader(SGD(network().parameters(), 0.1), [1, 2, 3], 2).status()


def test_a_resumed_run_keeps_the_batch_that_it_began_with_and_says_so():
    saved = begun(network(), batch_size=64).state_dict()
    model = network()
    other = LearnedLR(AdamW(model.parameters()), total_steps=50, batch_size=256)
    with pytest.warns(
        UserWarning, match="the saved run had batch_size=64.0, which replaces 256.0: leave batch_size out"
    ):
        other.load_state_dict(saved)
    assert other.status()["batch_size"] == 64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LearnedLR(AdamW(model.parameters()), total_steps=50, batch_size=64).load_state_dict(saved)


@pytest.mark.parametrize("value", [0, -3, float("nan"), "many", True])
def test_a_batch_that_is_none_is_refused(value):
    with pytest.raises(ValueError, match=r"batch_size must be .*: examples in an optimizer step, over all processes"):
        LearnedLR(SGD(network().parameters(), 0.1), total_steps=9, batch_size=value)


def test_what_is_no_model_is_refused():
    optimizer = SGD(network().parameters(), 0.1)
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got SGD: pass the network"):
        LearnedLR(optimizer, total_steps=9, model=optimizer)
