import copy
import math

import pytest
import torch
from reference import affine, lstm_factors, relu, sigmoid
from torch.func import functional_call, stack_module_state

from mlrsnet.nets import LAYOUTS, LSTMNet, MLPNet, TrendNet, build_net, predict
from mlrsnet.ops import DEVICE, HOST

NETS = {
    "paper": lambda: LSTMNet(),
    "official-test": lambda: LSTMNet(layout="official-test"),
    "official-train": lambda: LSTMNet(layout="official-train"),
    "two-layers": lambda: LSTMNet(10, 2, inputs=("loss", "progress"), sharpness=4.0),
    "trend": lambda: TrendNet(9, sharpness=2.0),
    "mlp": lambda: MLPNet(16, inputs=("progress", "loss")),
}


@pytest.fixture(params=NETS)
def net(request):
    torch.manual_seed(0)
    return NETS[request.param]()


def run(net, features):
    state, factors = net.initial_state(*features.shape[1:-1]), []
    for x in features:
        factor, state = net(x, state)
        factors.append(factor)
    return torch.stack(factors)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layers", [1, 2])
def test_lstm_equals_the_paper_equations(layout, layers):
    torch.manual_seed(3)
    net = LSTMNet(7, layers, layout=layout, sharpness=2.0, inputs=("loss", "progress")).double()
    features = torch.rand(20, 2, dtype=torch.float64) * 3
    expected = lstm_factors(net.state_dict(), features.tolist(), layout, layers, 2.0)
    torch.testing.assert_close(run(net, features), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_a_trend_net_is_an_lstm_that_reads_six_numbers():
    torch.manual_seed(3)
    net, plain = TrendNet(7, sharpness=2.0).double(), LSTMNet(7, sharpness=2.0).double()
    plain.cells[0].i2h[0] = net.cells[0].i2h[0]
    plain.load_state_dict(net.state_dict())
    losses, u = 3 * torch.rand(30, dtype=torch.float64) ** 3, torch.arange(30, dtype=torch.float64) / 30
    losses[4] = 0.0  # its logarithm is clipped
    logs = losses.clamp(min=1e-4).log().tolist()

    def average(values, until, window):
        """Weights w_i = keep^(until - i) (1 - keep). The first value also counts for all time before it."""
        keep = math.exp(-1 / 30 / window)
        weights = [keep**until] + [(1 - keep) * keep ** (until - i) for i in range(1, until + 1)]
        return sum(w * value for w, value in zip(weights, values, strict=False))

    fast, slow = ([average(logs, t, window) for t in range(30)] for window in (0.02, 0.1))
    spread = [average([(a - b) ** 2 for a, b in zip(logs, fast, strict=True)], t, 0.1) for t in range(30)]
    told = [
        [loss, u[t], fast[t], 3 * (fast[t] - slow[t]), 3 * math.sqrt(max(spread[t], 1e-8)), logs[0]]
        for t, loss in enumerate(losses)
    ]
    found = run(net, torch.stack((losses, u), dim=-1))
    torch.testing.assert_close(found, run(plain, torch.tensor(told, dtype=torch.float64)), rtol=1e-10, atol=1e-12)


def test_mlp_equals_its_equation():
    net = MLPNet(5, sharpness=3.0).double()
    w = {name: tensor.tolist() for name, tensor in net.state_dict().items()}
    hidden = relu(affine(w["hidden.weight"], w["hidden.bias"], [1.7]))
    expected = sigmoid(3.0 * affine(w["out.weight"], w["out.bias"], hidden)[0])
    assert net(torch.tensor([1.7], dtype=torch.float64), net.initial_state())[0].item() == pytest.approx(
        expected, 1e-12
    )


def test_paper_sizes_and_default_initialisation():
    torch.manual_seed(0)
    net = LSTMNet()
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    assert shapes["cells.0.i2h.0.weight"] == (50, 1)
    assert shapes["cells.0.h2h.2.weight"] == (200, 50)
    assert sum(parameter.numel() for parameter in net.parameters()) == 100 + 10_200 + 2_550 + 10_200 + 51
    assert LSTMNet(layout="official-test").cells[0].i2h[0].weight.shape == (25, 1)
    torch.manual_seed(0)
    torch.testing.assert_close(net.cells[0].i2h[0].weight, torch.nn.Linear(1, 50).weight, rtol=0, atol=0)


def test_calling_a_network_changes_nothing(net):
    before, state = copy.deepcopy(net.state_dict()), net.initial_state()
    x = torch.ones(len(net.inputs))
    first, second = net(x, state), net(x, state)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert not state.any()
    torch.testing.assert_close(net.state_dict(), before, rtol=0, atol=0)


def test_many_trainings_at_once_equal_one_by_one(net):
    features = torch.rand(6, 4, 3, len(net.inputs))
    together = run(net, features)
    for i in range(4):
        for j in range(3):
            torch.testing.assert_close(together[:, i, j], run(net, features[:, i, j]))


def test_many_networks_at_once_equal_one_by_one(net):
    nets = [net, copy.deepcopy(net)]
    for parameter in nets[1].parameters():
        parameter.data += 0.1
    weights, _ = stack_module_state(nets)
    x, state = torch.rand(2, len(net.inputs)), net.initial_state(2)
    factor, after = torch.vmap(lambda w, f, s: functional_call(net, w, (f, s)))(weights, x, state)
    for i, single in enumerate(nets):
        torch.testing.assert_close((factor[i], after[i]), single(x[i], state[i]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_any_dtype(net, dtype):
    """Checks shapes and types only: some CPUs cannot compute in the coarse types."""
    net = net.to("meta", dtype)
    factor, state = net(torch.ones(3, len(net.inputs), dtype=dtype, device="meta"), net.initial_state(3))
    assert factor.dtype == state.dtype == dtype
    assert factor.shape == (3,)
    assert state.device.type == "meta"


def test_compiles_without_a_graph_break(net):
    x, state = torch.rand(3, len(net.inputs)), net.initial_state(3)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, state), net(x, state))


def test_gradients_equal_finite_differences(net):
    net = net.double()
    weights = {name: parameter.detach().requires_grad_() for name, parameter in net.named_parameters()}
    x = torch.rand(2, len(net.inputs), dtype=torch.float64)
    state = torch.randn_like(net.initial_state(2)).requires_grad_()

    def two_steps(state, *values):
        given = dict(zip(weights, values, strict=True))
        _, state = functional_call(net, given, (x, state))
        return functional_call(net, given, (x, state))

    assert torch.autograd.gradcheck(two_steps, (state, *weights.values()), fast_mode=True)


@pytest.mark.parametrize("anneal", ["none", "linear"])
def test_numbers_on_the_host_and_tensors_give_the_same(net, anneal):
    """One equation: LearnedLR computes it with numpy, or where the LRs are."""
    net = net.double()
    net.anneal = anneal
    weights = {name: weight.detach() for name, weight in net.named_parameters()}
    arrays = {name: weight.numpy() for name, weight in weights.items()}
    state = net.initial_state()
    memory = state.numpy().copy()
    for step, loss in enumerate((2.3, 1.7, 0.0, -1.0, 1e9, 0.2)):
        told = torch.tensor(loss, dtype=torch.float64), torch.tensor(step / 6, dtype=torch.float64)
        factor, state = net.predict(weights, *told, state, DEVICE)
        found, memory = net.predict(arrays, loss, step / 6, memory, HOST)
        assert float(found) == pytest.approx(factor.item(), rel=1e-9)
        assert memory == pytest.approx(state.numpy(), rel=1e-9, abs=1e-12)


def test_anneal_is_linear_in_what_is_left():
    torch.manual_seed(0)
    plain, annealed = (build_net({**LSTMNet(6).config(), "anneal": kind}) for kind in ("none", "linear"))
    annealed.load_state_dict(plain.state_dict())
    loss, state = torch.tensor(1.0), plain.initial_state()
    torch.testing.assert_close(predict(annealed, loss, 0.75, state)[0], 0.25 * predict(plain, loss, 0.75, state)[0])


def test_config_rebuilds_the_network(net):
    twin = build_net(net.config())
    twin.load_state_dict(net.state_dict())
    x = torch.ones(len(net.inputs))
    torch.testing.assert_close(twin(x, twin.initial_state()), net(x, net.initial_state()), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LSTMNet(0), "hidden_size must be a whole number >= 1, got 0"),
        (lambda: TrendNet(5), "hidden_size must be a whole number >= 6, got 5"),
        (lambda: TrendNet(inputs=("loss",)), "inputs of a TrendNet must be"),
        (lambda: LSTMNet(num_layers=True), "num_layers must be a whole number >= 1, got True"),
        (lambda: LSTMNet(layout="torch"), "layout must be one of paper, official-test, official-train; got 'torch'"),
        (lambda: LSTMNet(inputs=("gradient",)), "inputs must be one of loss, progress; got 'gradient'"),
        (lambda: LSTMNet(inputs=()), "inputs must name each feature once"),
        (lambda: LSTMNet(inputs=("loss", "loss")), "inputs must name each feature once"),
        (lambda: MLPNet(sharpness=0), "sharpness must be > 0, got 0"),
        (lambda: MLPNet(loss_scale="max"), "loss_scale must be one of none, log_classes, initial; got 'max'"),
        (lambda: MLPNet(anneal="cosine"), "anneal must be one of none, linear; got 'cosine'"),
        (
            lambda: build_net({"kind": "GRUNet"}),
            "network kind must be one of LSTMNet, TrendNet, MLPNet; got 'GRUNet'",
        ),
    ],
)
def test_a_bad_argument_is_named(make, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make()
