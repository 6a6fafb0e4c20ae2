"""Optimizers of others under the default schedule: each trains a small network on real data, or is refused with what to do."""

import math
import warnings

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from mlrsnet import LearnedLR

try:
    import timm.optim as timm
except ImportError:  # it comes with torchvision
    timm = None
others = pytest.importorskip("pytorch_optimizer")

STEPS = 100


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


def train(make, *, second_order=False):
    """A user's loop: the mean of the first losses and of the last."""
    pictures, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(pictures / 8 - 1).float(), torch.tensor(digits)
    random = torch.Generator().manual_seed(1)
    model, losses = network(), []
    with warnings.catch_warnings(action="ignore"):  # what an optimizer says about itself
        optimizer = make(model)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    for _ in range(STEPS):
        batch = torch.randint(len(x), (64,), generator=random)
        loss = cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        with warnings.catch_warnings(action="ignore"):  # torch's about create_graph
            loss.backward(create_graph=second_order)
        lr.step(loss)
        optimizer.step()
        used = [float(group["lr"]) for group in optimizer.param_groups]
        assert used == lr.get_last_lr()
        assert all(0 < one < math.inf for one in used)
        losses.append(loss.item())
    assert lr.status()["nonfinite"] == 0
    return sum(losses[:5]) / 5, sum(losses[-10:]) / 10


def matrices_apart(model, **matrices):
    """Matrices in one group and biases in another."""
    ours = [weight for weight in model.parameters() if weight.ndim > 1]
    rest = [weight for weight in model.parameters() if weight.ndim == 1]
    return [{"params": ours, **matrices}, {"params": rest, **dict.fromkeys(matrices, False)}]


TORCH = ("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD")


@pytest.mark.parametrize("name", TORCH)
def test_torchs_optimizers_train(name):
    first, last = train(lambda model: getattr(torch.optim, name)(model.parameters()))
    assert last < first / 3


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_torchs_muon_trains():
    first, last = train(lambda model: torch.optim.Muon([model[0].weight, model[2].weight]))
    assert last < first / 3


@pytest.mark.parametrize("options", [{}, {"scale_parameter": False}, {"beta1": 0.9}], ids=str)
def test_the_adafactor_of_transformers_trains(options):
    adafactor = pytest.importorskip("transformers").Adafactor
    first, last = train(lambda model: adafactor(model.parameters(), lr=1e-3, relative_step=False, **options))
    assert last < first / 3


BITS = ("AdEMAMix8bit", "Adagrad8bit", "Adam8bit", "AdamW8bit", "LAMB8bit", "Lion8bit", "RMSprop8bit")


@pytest.mark.parametrize("name", [*BITS, "SGD8bit", "LARS8bit"])
def test_optimizers_of_8_bits_train(name):
    bits = pytest.importorskip("bitsandbytes").optim
    options = {} if name in BITS else {"momentum": 0.9}
    first, last = train(lambda model: getattr(bits, name)(model.parameters(), lr=1e-3, min_8bit_size=0, **options))
    assert last < first / 2


NOT_HERE = ("bnb", "fused")  # they need a GPU
COMPILED = ("kron",)  # minutes of compilation


TIMMS = timm.list_optimizers() if timm else ["every one"]
needs_timm = pytest.mark.skipif(timm is None, reason="needs timm: pip install './lab[vision]'")


@needs_timm
@pytest.mark.parametrize("name", [name for name in TIMMS if not name.startswith((*NOT_HERE, *COMPILED))])
def test_timms_optimizers_train(name):
    first, last = train(
        lambda model: timm.create_optimizer_v2(model, opt=name, lr=1e-3), second_order=name == "adahessian"
    )
    assert last < first / 2


@needs_timm
def test_a_wrapper_of_timm_trains():
    first, last = train(lambda model: timm.Lookahead(torch.optim.AdamW(model.parameters())))
    assert last < first / 2


OWN_LR = ("asgd", "dadaptadagrad", "dadaptadam", "dadaptadan", "dadaptlion", "dadaptsgd", "prodigy")
REFUSED = (*OWN_LR, "a2grad", "alig", "ftrl", "lbfgs", "schedulefreeadamw", "schedulefreeradam", "schedulefreesgd")
LEFT_OUT = {
    "adalomo lomo": "step inside backward",
    "bsam demo ranger21 spectralsphere": "need other arguments, packages or networks",
    "adago adamuon distributedmuon muonclip normuon": "as muon",
    "kron": "minutes of compilation",
    "lorarite sara": "train parts of a network that is trained already",
    "gravity kate nero srmm": "take steps whose length does not follow the LR; docs/learned_lr.md says so",
}
OPTIONS = {"adafactor": {"relative_step": False}, "adashift": {"keep_num": 5}}
KNOWN = [name for name in others.get_supported_optimizers() if name not in " ".join(LEFT_OUT).split()]


def make_other(name):
    kind, options = others.load_optimizer(name), OPTIONS.get(name, {})
    if name == "adammini":
        return lambda model: kind(model, **options)
    if name == "muon":
        return lambda model: kind(matrices_apart(model, use_muon=True), **options)
    return lambda model: kind(model.parameters(), **options)


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in REFUSED])
def test_the_optimizers_of_pytorch_optimizer_train(name):
    first, last = train(make_other(name), second_order=name in ("adahessian", "sophiah"))
    assert last < first / 1.5  # some are slow, whatever sets their LR


@pytest.mark.parametrize("name", REFUSED)
def test_those_that_no_schedule_can_serve_are_refused(name):
    optimizer = make_other(name)(network())
    with pytest.raises(ValueError, match=r"^optimizer must .* got .*: (use another|pass)") as told:
        LearnedLR(optimizer, total_steps=STEPS)
    assert "AdamW" in str(told.value)
