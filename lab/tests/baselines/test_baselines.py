"""What a user of an optimizer expects of L4, HD and RTHO: states, gradients of every kind, few launches."""

import copy
import io

import pytest
import torch
from methods import METHODS, START, Small, advance, backward, lr, parameter, quadratic, validation
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mlrsnet_lab.baselines import HDSGD, L4, RTHO, HDAdam
from mlrsnet_lab.baselines.base import dot

NEEDS_GPU = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))


def test_a_method_learns(make):
    small = Small()
    optimizer, before = make(small.model.parameters()), small.loss(0).item()
    for _ in range(80):
        if isinstance(optimizer, RTHO):
            optimizer.step(lambda: small.loss(0), lambda: small.loss(0))
        else:
            loss = small.loss(0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step(loss) if isinstance(optimizer, L4) else optimizer.step()
    assert small.loss(0) < 0.8 * before


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_method_goes_on_bit_for_bit_from_its_state(make, steps):
    w = parameter(*START)
    optimizer = make([w])
    for _ in range(steps):
        advance(optimizer, w)
    content = io.BytesIO()
    torch.save(optimizer.state_dict(), content)
    content.seek(0)
    again = nn.Parameter(w.detach().clone())
    resumed = make([again])
    resumed.load_state_dict(torch.load(content, weights_only=True))
    copied = copy.deepcopy(optimizer)
    (twin,) = copied.param_groups[0]["params"]
    for _ in range(3):
        advance(optimizer, w)
        advance(resumed, again)
        advance(copied, twin)
        assert lr(resumed) == lr(optimizer) == lr(copied)
        assert torch.equal(again, w)
        assert torch.equal(twin, w)


def test_an_lr_set_by_hand_is_the_one_that_is_adapted():
    for kind in (HDSGD, RTHO):
        w = parameter(*START)
        optimizer = kind([w], lr=0.05, hyper_lr=0.0)
        advance(optimizer, w)
        optimizer.param_groups[0]["lr"] = 0.01
        before = w.tolist()
        advance(optimizer, w)
        assert w.tolist() == pytest.approx([before[0] - 0.01 * before[0], before[1] - 0.01 * 4 * before[1]])


def test_parameters_without_a_gradient_are_left_alone(make):
    w, unused, frozen = parameter(*START), parameter(5.0), parameter(7.0)
    frozen.requires_grad_(False)
    optimizer = make([w, unused, frozen])
    for _ in range(3):
        advance(optimizer, w)
    assert (unused.item(), frozen.item()) == (5.0, 7.0)
    assert w.tolist() != list(START)


@pytest.mark.parametrize("kind", [name for name in METHODS if not name.startswith("rtho")])
def test_gradients_that_are_zeroed_in_place_make_no_difference(kind):
    """The last direction is kept, not the tensor that the next gradient is written into."""
    w, other = parameter(*START), parameter(*START)
    optimizer, reference = METHODS[kind]([w]), METHODS[kind]([other])
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        loss = quadratic(w)
        loss.backward()
        optimizer.step(*[loss] if isinstance(optimizer, L4) else [])
        advance(reference, other)
    assert torch.equal(w, other)
    assert lr(optimizer) == lr(reference)


def test_hd_forgets_the_move_of_a_parameter_that_did_not_move():
    always, sometimes = parameter(2.0), parameter(1.0)
    optimizer = HDSGD([always, sometimes], lr=0.05, hyper_lr=0.01)
    gradients = []
    for both in (True, False, True):
        optimizer.zero_grad()
        backward(*((always, sometimes) if both else (always,)), loss=lambda w: (w**2).sum() / 2)
        gradients.append(always.grad.item())
        optimizer.step()
    assert optimizer.param_groups[0]["hypergradient"] == pytest.approx(-gradients[1] * gradients[2])


class Operations(TorchDispatchMode):
    """Counts what is dispatched: on a GPU about as many launches, one or a few for a whole list of tensors."""

    def __init__(self):
        super().__init__()
        self.count, self.reads, self.counts = 0, 0, True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += self.counts and "detach" not in str(function)  # which launches nothing
        self.reads += self.counts and "_local_scalar_dense" in str(function)
        return function(*args, **(kwargs or {}))

    def without(self, call):
        """The same function, whose operations are not counted."""

        def uncounted(*args, **kwargs):
            self.counts = False
            try:
                return call(*args, **kwargs)
            finally:
                self.counts = True

        return uncounted


def operations(method, num_parameters):
    parameters = [parameter(*START) for _ in range(num_parameters)]
    optimizer = method(parameters, weight_decay=0.1)
    advance(optimizer, *parameters)
    loss = backward(*parameters).item()
    with Operations() as found:
        optimizer.step(*[loss] if isinstance(optimizer, L4) else [])
    return found.count


def operations_of_rtho(method, num_parameters, monkeypatch, **options):
    """Those of a step that has all of its parts, less those of the losses' own passes, forward and backward."""
    parameters = [parameter(*START) for _ in range(num_parameters)]
    optimizer, found = method(parameters, weight_decay=0.1, **options), Operations()
    train, val = (found.without(lambda f=f: sum(f(w) for w in parameters)) for f in (quadratic, validation))
    optimizer.step(train, val)
    with monkeypatch.context() as patch, found:
        patch.setattr(torch.autograd, "grad", found.without(torch.autograd.grad))
        optimizer.step(train, val)
    return found


@pytest.mark.parametrize("kind", [name for name in METHODS if not name.startswith("rtho")])
def test_a_step_with_many_parameters_launches_little_more_than_one_with_few(kind):
    """Only the inner products have an operation for each parameter: HD's one, L4's three (loss, gradient, g . v)."""
    few, many = (operations(METHODS[kind], number) for number in (10, 60))
    assert (many - few) / 50 <= (3 if kind.startswith("l4") else 1)
    assert few <= 60


@pytest.mark.parametrize("clip_norm", [None, 0.1])
@pytest.mark.parametrize("kind", [name for name in METHODS if name.startswith("rtho")])
def test_rtho_with_many_parameters_launches_little_more_and_waits_no_more_often(kind, clip_norm, monkeypatch):
    """For each parameter two inner products; to clip two more."""
    few, many = (operations_of_rtho(METHODS[kind], count, monkeypatch, clip_norm=clip_norm) for count in (10, 60))
    assert (many.count - few.count) / 50 <= (4 if clip_norm else 2)
    assert few.count <= 80
    assert few.reads == many.reads
    assert many.reads <= (5 if clip_norm else 3)


@pytest.mark.parametrize(
    "placed",
    [
        pytest.param([{"dtype": dtype} for dtype in (torch.float32, torch.bfloat16, torch.float64)], id="dtypes"),
        pytest.param([{"device": "cpu"}, {"device": "cuda"}], id="devices", marks=NEEDS_GPU),
    ],
)
def test_parameters_need_not_be_alike(make, placed):
    mixed, alike = [nn.Parameter(torch.tensor(START, **each)) for each in placed], [parameter(*START) for _ in placed]
    one, two = make(mixed, weight_decay=0.1), make(alike, weight_decay=0.1)
    for _ in range(4):
        advance(one, *mixed, loss=validation)
        advance(two, *alike, loss=validation)
    for w, other, each in zip(mixed, alike, placed, strict=True):
        assert (w.dtype, w.device.type) == (each.get("dtype", torch.float32), each.get("device", "cpu"))
        assert w.tolist() != list(START)
        assert w.tolist() == pytest.approx(other.tolist(), rel=0.05)  # bfloat16 rounds by 0.4 %
    assert lr(one) == pytest.approx(lr(two), rel=0.05)


def test_a_second_group_is_refused_because_there_is_one_lr(make):
    with pytest.raises(ValueError, match="must have one parameter group, because it finds one LR"):
        make([{"params": [parameter(*START)]}, {"params": [parameter(*START)]}])


def test_averages_are_corrected_for_the_steps_that_each_parameter_took():
    ours, torchs = ([parameter(*START), parameter(1.0, 3.0)] for _ in range(2))
    optimizer, reference = HDAdam(ours, lr=0.05, hyper_lr=0.0), torch.optim.Adam(torchs, lr=0.05)
    for both in (False, True, False, True):
        for weights, method in ((ours, optimizer), (torchs, reference)):
            method.zero_grad()
            backward(*weights if both else weights[:1])
            method.step()
    assert torch.allclose(torch.stack(ours), torch.stack(torchs), rtol=1e-12, atol=0)


def test_l4_without_gradients_says_so_and_changes_nothing():
    w = parameter(*START)
    optimizer = L4([w])
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(RuntimeError, match=r"no parameter has a gradient: call loss\.backward\(\)"):
        optimizer.step(quadratic(w))
    assert optimizer.state_dict() == before


def test_products_of_half_precision_are_added_up_in_full():
    ones = torch.full((4096,), 1.001, dtype=torch.bfloat16)
    assert dot([(ones, ones)]) == pytest.approx(float((ones.double() ** 2).sum()), rel=1e-6)
