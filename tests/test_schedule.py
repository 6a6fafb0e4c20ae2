import json
import math

import numpy as np
import pytest
import torch
from cases import NETWORKS
from hypothesis import given
from hypothesis import strategies as st
from reference import lstm_factors
from torch.optim import SGD

from mlrsnet import LearnedLR, Schedule
from mlrsnet.card import Card
from mlrsnet.files.storage import ScheduleError
from mlrsnet.nets import LSTMNet, MLPNet, predict
from mlrsnet.ranges import Fixed, Gamma, PerplexityGamma, PhaseGamma


@pytest.fixture(params=NETWORKS)
def schedule(request):
    """The default is no network: nothing here is for it."""
    torch.manual_seed(1)
    return NETWORKS[request.param]()


LOSSES = [2.3, 2.1, 1.9, 1.5, 1.2, 0.9, 0.7, 0.5, 0.3, 0.1]


def official_checkpoint(path, seed, hidden=50):
    """A file with the names, shapes and format of the authors' checkpoints."""
    generator = torch.Generator().manual_seed(seed)
    width = hidden // 2
    shapes = {
        "layer1.fc_i2h.0": (width, 1),
        "layer1.fc_i2h.2": (4 * hidden, width),
        "layer1.fc_h2h.0": (width, hidden),
        "layer1.fc_h2h.2": (4 * hidden, width),
        "layer3": (1, hidden),
    }
    state = {}
    for name, shape in shapes.items():
        state[f"{name}.weight"] = 0.5 * torch.randn(shape, generator=generator)
        state[f"{name}.bias"] = 0.5 * torch.randn(shape[0], generator=generator)
    torch.save(state, path)
    renamed = {
        name.replace("layer1.fc_", "cells.0.").replace("layer3", "out"): tensor for name, tensor in state.items()
    }
    return path, renamed


@pytest.mark.parametrize("layout", ["official-test", "official-train"])
def test_from_official_equals_the_equations_of_its_layout(tmp_path, layout):
    path, weights = official_checkpoint(tmp_path / "a.pth", seed=1)
    expected = lstm_factors(weights, [[loss] for loss in LOSSES], layout, 1, 1.0)
    found = Schedule.from_official(path, layout=layout)
    assert found.num_phases == 1
    np.testing.assert_allclose(Schedule(found.net.double(), found.card).simulate(LOSSES), expected, rtol=1e-10)


def test_from_official_catches_a_swapped_gate_order(tmp_path):
    path, weights = official_checkpoint(tmp_path / "a.pth", seed=1)
    swapped = lstm_factors(weights, [[loss] for loss in LOSSES], "paper", 1, 1.0)  # o and g swapped
    assert np.abs(Schedule.from_official(path).simulate(LOSSES) - swapped).max() > 1e-2


def test_from_official_takes_one_phase_a_file(tmp_path):
    paths = [official_checkpoint(tmp_path / f"{seed}.pth", seed)[0] for seed in (1, 2, 3)]
    schedule = Schedule.from_official(paths, name="three")
    assert schedule.num_phases == 3
    assert schedule.card.name == "three"
    assert schedule.card.gamma == PhaseGamma()
    for phase, path in zip(schedule.phases, paths, strict=True):
        torch.testing.assert_close(phase.out.weight, torch.load(path, weights_only=True)["layer3.weight"])


def test_the_published_checkpoints_equal_the_reference_trace(official_folder):
    trace = json.loads((official_folder / "trace.json").read_text())
    for epoch, factors in trace["p"].items():
        path = official_folder / f"mlr_snet_{epoch}.pth"
        simulated = Schedule.from_official(path).simulate(trace["losses"])
        np.testing.assert_allclose(simulated, factors, rtol=0, atol=1e-6)
        if epoch != "1":
            other = Schedule.from_official(path, layout="official-train").simulate(trace["losses"])
            assert np.abs(other - factors).max() > 1e-2


def lrs_for(schedule, losses, **options):
    """The LR of each step, and the status after it."""
    optimizer = SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    lr = LearnedLR(optimizer, schedule, total_steps=len(losses), num_classes=10, **options)
    used, gammas = [], []
    for loss in losses:
        lr.step(loss)
        optimizer.step()
        used.append(lr.get_last_lr()[0])
        gammas.append(lr.status()["gamma"])
    return used, gammas


def test_the_published_checkpoints_begin_with_the_lrs_of_the_authors_program(official_folder):
    """gamma from an untrained network's mean loss, log 10, times the recorded factors: 0.487 at first, as their program has."""
    trace = json.loads((official_folder / "trace.json").read_text())
    schedule = Schedule.from_official([official_folder / f"mlr_snet_{epoch}.pth" for epoch in (1, 100, 200)])
    steps, losses = len(trace["losses"]), trace["losses"] * 3
    used, _ = lrs_for(schedule, losses, initial_loss=math.log(10))
    sizes = [Gamma()(loss, 10) for loss in (math.log(10), losses[0], losses[0])]  # computed again where a phase begins
    np.testing.assert_allclose(used[:steps], sizes[0] * np.array(trace["p"]["1"]), rtol=1e-5)
    np.testing.assert_allclose(used, np.repeat(sizes, steps) * schedule.simulate(losses), rtol=1e-5)
    assert round(used[0], 3) == 0.487


@pytest.mark.parametrize(("when", "second"), [("initial", 2.3), ("per-phase", 1.0)])
def test_from_official_computes_gamma_once_as_in_the_paper_where_asked(tmp_path, when, second):
    paths = [official_checkpoint(tmp_path / f"{seed}.pth", seed)[0] for seed in (1, 2)]
    _, gammas = lrs_for(Schedule.from_official(paths, gamma=when), (2.3, 2.0, 1.0, 0.5))
    assert gammas == [Gamma()(2.3, 10)] * 2 + [Gamma()(second, 10)] * 2
    with pytest.raises(ValueError, match="gamma must be one of per-phase, initial; got 'twice'"):
        Schedule.from_official(paths, gamma="twice")


def test_from_official_refuses_what_is_not_theirs(tmp_path):
    with pytest.raises(ScheduleError, match="there is no checkpoint"):
        Schedule.from_official(tmp_path / "none.pth")
    with pytest.raises(ScheduleError, match="paths must name at least one checkpoint"):
        Schedule.from_official([])
    torch.save({"weight": torch.ones(1)}, tmp_path / "other.pth")
    with pytest.raises(ScheduleError, match="must hold the authors' tensors"):
        Schedule.from_official(tmp_path / "other.pth")
    (tmp_path / "noise.pth").write_bytes(b"\x80\x02noise")
    with pytest.raises(ScheduleError, match="nothing in it was executed"):
        Schedule.from_official(tmp_path / "noise.pth")
    path, _ = official_checkpoint(tmp_path / "a.pth", seed=1)
    with pytest.raises(ScheduleError, match="does not fit the layout 'paper'"):
        Schedule.from_official(path, layout="paper")


def test_save_and_load_keep_every_bit(schedule, tmp_path):
    schedule.save(tmp_path / "s.safetensors")
    loaded = Schedule.load(tmp_path / "s.safetensors")
    assert loaded.card == schedule.card
    assert loaded.net.config() == schedule.net.config()
    assert loaded.fingerprint() == schedule.fingerprint()
    np.testing.assert_array_equal(loaded.simulate(LOSSES), schedule.simulate(LOSSES))


def test_a_full_card_survives(tmp_path):
    card = Card(
        name="mine",
        description="for the test",
        learned_on="digits",
        optimizer="SGD(momentum=0.9)",
        total_steps=570,
        gamma=Fixed(0.7),
        loss_range=(0.01, 2.5),
        results={"digits": {"accuracy": 97.2}},
    )
    Schedule(MLPNet(), card).save(tmp_path / "s.safetensors")
    assert Schedule.load(tmp_path / "s.safetensors").card == card


@pytest.mark.parametrize("name", ["Mine", "MLPNet"])
def test_a_network_of_ones_own_is_refused_before_a_file_is_written_that_nobody_can_read(tmp_path, name):
    own = type(name, (MLPNet,), {})
    with pytest.raises(
        ScheduleError,
        match=f"networks must be one of LSTMNet, TrendNet, MLPNet to be saved, got {name}",
    ):
        Schedule(own(2)).save(tmp_path / "s.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_card_of_numpy_numbers_survives(tmp_path):
    found = {"accuracy": np.float32(4), "seeds": [np.int64(1), torch.tensor(2.5)]}
    card = Card(total_steps=np.int64(4), gamma=Fixed(np.float32(0.5)), results={"digits": found})
    Schedule(MLPNet(), card).save(tmp_path / "s.safetensors")
    loaded = Schedule.load(tmp_path / "s.safetensors").card
    assert loaded == card
    assert loaded.results == {"digits": {"accuracy": 4.0, "seeds": [1, 2.5]}}


@pytest.mark.parametrize("value", [1, 1.0])
def test_a_range_keeps_the_fingerprint_it_had(value):
    torch.manual_seed(0)
    schedule = Schedule(MLPNet(2), Card(gamma=Fixed(value)))
    assert schedule.card.to_dict()["gamma"]["value"] is value


def test_phases_are_spread_over_the_losses_and_share_the_memory():
    torch.manual_seed(0)
    nets = [LSTMNet(6) for _ in range(3)]
    expected, state = [], nets[0].initial_state()
    for step, loss in enumerate(LOSSES):
        factor, state = nets[min(3 * step // 10, 2)](torch.tensor([loss]), state)
        expected.append(2.0 * factor.item())
    np.testing.assert_allclose(Schedule(nets).simulate(LOSSES, gamma=2.0), expected, rtol=1e-6)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_simulated_lrs_are_positive_and_at_most_gamma(losses, gamma):
    torch.manual_seed(0)
    for net in (LSTMNet(6), LSTMNet(6, inputs=("loss", "progress"), sharpness=4.0, anneal="linear")):
        lrs = Schedule([net, net]).simulate(losses, gamma)
        assert lrs.shape == (len(losses),)
        assert np.all((lrs > 0) & (lrs <= gamma))


def test_losses_are_scaled_as_the_card_says():
    torch.manual_seed(0)
    plain = LSTMNet(6)
    for scale, divisor in (("log_classes", math.log(10)), ("initial", LOSSES[0])):
        net = LSTMNet(6, loss_scale=scale)
        net.load_state_dict(plain.state_dict())
        expected = Schedule(plain).simulate([loss / divisor for loss in LOSSES])
        np.testing.assert_allclose(Schedule(net).simulate(LOSSES, num_classes=10), expected, rtol=1e-6)
        # without classes, the first loss replaces log(classes)
        relative = Schedule(plain).simulate([loss / LOSSES[0] for loss in LOSSES])
        np.testing.assert_allclose(Schedule(net).simulate(LOSSES), relative, rtol=1e-6)


def test_for_text_divides_by_log_vocabulary_and_reads_the_perplexity(paper):
    text = paper.for_text()
    assert text.net.loss_scale == "log_classes"
    assert text.card.gamma == PerplexityGamma()
    scaled = paper.simulate([loss / math.log(10_000) for loss in LOSSES])
    np.testing.assert_allclose(text.simulate(LOSSES, num_classes=10_000), scaled, rtol=1e-6)
    assert paper.net.loss_scale == "none"


def test_a_schedule_is_not_touched_by_later_training():
    net = LSTMNet(6)
    schedule = Schedule(net)
    before = schedule.simulate(LOSSES)
    for parameter in net.parameters():
        parameter.data.zero_()
    np.testing.assert_array_equal(schedule.simulate(LOSSES), before)
    assert not any(parameter.requires_grad for parameter in schedule.net.parameters())


def test_the_beginning_of_a_training_can_be_simulated(schedule):
    """Losses so far, of a training that goes on: the LRs that LearnedLR set, not those of a short training."""
    whole = schedule.simulate(LOSSES, num_classes=10)
    np.testing.assert_array_equal(schedule.simulate(LOSSES, num_classes=10, total_steps=len(LOSSES)), whole)
    part = schedule.simulate(LOSSES[:3], num_classes=10, total_steps=len(LOSSES))
    np.testing.assert_array_equal(part, whole[:3])


def test_plot_draws_a_curve_a_phase(schedule, tmp_path):
    axes = schedule.plot(tmp_path / "s.png")
    assert len(axes.lines) == schedule.num_phases
    assert all(len(line.get_ydata()) > 100 and np.isfinite(line.get_ydata()).all() for line in axes.lines)
    assert (tmp_path / "s.png").stat().st_size > 5000


def test_the_map_shows_what_a_training_at_each_loss_would_get(schedule, tmp_path):
    axes = schedule.plot_map(tmp_path / "map.png", max_loss=2.0)
    drawn = np.asarray(axes.images[0].get_array())
    assert drawn.shape == (121, 100)
    for row in (0, 60, 120):
        state = schedule.net.initial_state()
        for step in range(100):  # phases are equally long
            net = schedule.phases[step * schedule.num_phases // 100]
            factor, state = predict(net, torch.tensor(row * 2.0 / 120), step / 100, state)
            assert drawn[row, step] == pytest.approx(factor.item(), rel=1e-5)
    assert (tmp_path / "map.png").stat().st_size > 5000
    with pytest.raises(ValueError, match="max_loss must be > 0, got 0"):
        schedule.plot_map(max_loss=0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Schedule([]), TypeError, "phases must be one or more schedule networks"),
        (lambda: Schedule(torch.nn.Linear(1, 1)), TypeError, "phases must be one or more schedule networks"),
        (lambda: Schedule([LSTMNet(5), LSTMNet(6)]), ValueError, "all phases must have the same description"),
        (lambda: Schedule(MLPNet()).simulate([]), ValueError, "losses must be a non-empty list of finite numbers"),
        (lambda: Schedule(MLPNet()).simulate([1.0, math.nan]), ValueError, "losses must be a non-empty list of finite"),
        (lambda: Schedule(MLPNet()).simulate(["a"]), ValueError, "losses must be a non-empty list of finite numbers"),
        (
            lambda: Schedule(MLPNet()).simulate([1.0, 0.9, 0.8], total_steps=2),
            ValueError,
            "total_steps must be a whole number >= 3, got 2: steps of the whole training, of which losses are the first",
        ),
        (
            lambda: Schedule(MLPNet()).simulate([1.0], num_classes=1),
            ValueError,
            "num_classes must be a whole number >= 2",
        ),
        (lambda: Card(results=[1]), TypeError, "results of a card must be a dict"),
        (lambda: Schedule(MLPNet()).simulate([1.0], gamma=0), ValueError, "gamma must be > 0, got 0"),
        (lambda: Schedule(MLPNet(loss_scale="initial")).simulate([-1.0]), ValueError, "the first loss must be > 0"),
        (lambda: Card(learned_on=5), TypeError, "learned_on of a card must be a str, got 5"),
        (lambda: Card(optimizer=None), TypeError, "optimizer of a card must be a str, got None"),
        (lambda: Card(gamma=1.0), TypeError, "gamma of a card must be a Gamma or Fixed, got 1.0"),
        (
            lambda: Card(results={"a": {"b": object}}),
            TypeError,
            "results of a card must hold numbers and words, got <class",
        ),
        (lambda: Card(loss_range=(2.0, 1.0)), ValueError, "loss_range must be"),
        (lambda: Card(total_steps=0), ValueError, "total_steps must be a whole number >= 1"),
        (lambda: Card.from_dict({"nam": "x"}), ValueError, "unknown card fields"),
    ],
)
def test_a_bad_argument_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_weights_that_are_not_finite_are_refused():
    net = LSTMNet(4)
    net.out.bias.data.fill_(math.nan)
    with pytest.raises(ScheduleError, match=r"out.bias of phase 0 is not finite"):
        Schedule(net)
