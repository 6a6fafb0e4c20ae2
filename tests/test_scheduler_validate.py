"""LearnedLR.validate: where the validation loss rises, steps get shorter; where it is only noisy, they do not."""

import io
import math
import subprocess
import sys

import pytest
import torch
from engines import lrs_for, sgd
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn.functional import mse_loss

from mlrsnet import Card, DecayNet, Gamma, LearnedLR, LSTMNet, Schedule
from mlrsnet._engine import validation
from mlrsnet._engine.validation import Validation, noise

TOTAL = 40
RISING = (2.0, 1.5, 1.2, 1.3, 1.45, 1.6, 1.75)
"""The last three are above the lowest by more than noise explains, for the first time, after the last one but one."""

pytestmark = pytest.mark.filterwarnings("ignore:the loss does not fall")  # the training losses here are constant


def line(policy="fixed") -> Schedule:
    """A schedule that reads only the progress."""
    return Schedule(DecayNet(0.0, 0.0).double(), Card(gamma=Gamma(policy, value=0.5)))


def running(kind, schedule=None, steps=10, **options):
    lr = LearnedLR(sgd(kind()), schedule or line(), total_steps=TOTAL, **options)
    lrs_for(lr, [1.0] * steps)
    return lr


def test_where_the_validation_loss_rises_every_lr_is_a_tenth_of_what_it_was(kind):
    plain, lr = running(kind), running(kind)
    assert [lr.validate(loss) for loss in RISING] == [False] * 5 + [True, False]
    assert lrs_for(lr, [1.0] * 20) == pytest.approx([0.1 * used for used in lrs_for(plain, [1.0] * 20)], rel=1e-6)
    assert lr.status()["gamma"] == pytest.approx(0.05)


def test_a_loss_that_goes_on_rising_shortens_steps_again_after_three_more(kind):
    lr = running(kind)
    told = [lr.validate(loss) for loss in (*RISING, 1.9, 2.05, 2.2)]
    assert [place for place, cut in enumerate(told) if cut] == [5, 8]
    assert lr.status()["gamma"] == pytest.approx(0.005)


def alarms(curves):
    """How many of these lists of losses shorten steps at least once."""
    return sum(any([seen.see(loss) for loss in curve]) for curve in curves for seen in [Validation()])


@pytest.mark.parametrize(("fall", "most"), [(0.5, 30), (1.0, 3)])
def test_a_falling_loss_that_is_noisy_seldom_shortens_steps(fall, most, monkeypatch):
    """300 trainings of 20 evaluations; `fall` in each of them, in standard deviations of the noise."""
    noisy = torch.randn(300, 20, generator=torch.Generator().manual_seed(0))
    curves = (noisy - fall * torch.arange(20)).tolist()
    assert alarms(curves) <= most
    monkeypatch.setattr(validation, "noise", lambda losses: 0.0)
    assert alarms(curves) > 2 * most + 6  # patience alone


def test_noise_around_a_line_is_measured_whatever_its_slope():
    random = torch.Generator().manual_seed(0)
    curve = 3.0 - 0.7 * torch.arange(400) + 0.2 * torch.randn(400, generator=random)
    assert noise(curve.tolist()) == pytest.approx(0.2, rel=0.15)


def test_a_scaled_or_shifted_loss_is_read_alike():
    plain, other = Validation(), Validation()
    assert [plain.see(loss) for loss in RISING] == [other.see(1000 * loss - 5000) for loss in RISING]


def test_what_is_kept_does_not_grow_with_the_training():
    seen = Validation()
    for place in range(1000):
        seen.see(1 / (1 + place))
    assert len(seen.losses) == validation.MOST_KEPT
    assert seen.count == 1000


def test_a_resumed_run_shortens_its_steps_when_the_other_would(kind):
    def rest(lr):
        return [lr.validate(loss) for loss in RISING[4:]], lrs_for(lr, [1.0] * 5)

    lr = running(kind)
    for loss in RISING[:4]:
        lr.validate(loss)
    saved = io.BytesIO()
    torch.save(lr.state_dict(), saved)
    saved.seek(0)
    again = running(kind, steps=0)
    again.load_state_dict(torch.load(saved, weights_only=True))
    assert rest(again) == rest(lr)
    assert lr.status()["gamma"] == pytest.approx(0.05)


def test_a_state_without_validation_losses_has_nothing_of_them_and_clears_them():
    lr = running(lambda: 0.1)
    state = lr.state_dict()
    assert not [name for name in state if name.startswith("validation")]
    other = running(lambda: 0.1)
    for loss in RISING:
        other.validate(loss)
    other.load_state_dict(state)
    assert other.engine.validation.count == 0
    assert other.status()["gamma"] == 0.5


@pytest.mark.parametrize(
    ("name", "value"),
    [("validation_losses", [1.0]), ("validation_losses", torch.tensor([math.nan])), ("validation_count", "many")],
)
def test_a_damaged_state_is_refused(name, value):
    lr = running(lambda: 0.1)
    lr.validate(1.0)
    with pytest.raises(ValueError, match=f"another kind of value under '{name}'"):
        running(lambda: 0.1).load_state_dict({**lr.state_dict(), name: value})


def test_a_captured_step_would_follow_since_the_range_is_written_in_place():
    lr = running(lambda: torch.tensor(0.1))
    place = lr.engine.backend.carry.gamma.data_ptr()
    for loss in RISING:
        lr.validate(torch.tensor(loss))
    assert lr.engine.backend.carry.gamma.data_ptr() == place
    assert float(lr.engine.backend.carry.gamma) == pytest.approx(0.05)


def test_a_loss_before_the_first_step_is_what_a_fine_tuning_has_to_keep(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
    lr.validate(1.0)
    lrs_for(lr, [1.0] * 10)
    lr.validate(1.01)
    lr.validate(1.1)
    with pytest.warns(UserWarning, match=r"got nothing lower than its first loss, 1, .* pass 1 - accuracy"):
        assert lr.validate(1.2)


def test_losses_before_the_first_step_change_nothing(kind):
    lr = LearnedLR(sgd(kind()), line(), total_steps=TOTAL)
    assert not any([lr.validate(loss) for loss in RISING])
    lrs_for(lr, [1.0])
    assert lr.status()["gamma"] == 0.5


def test_a_validation_loss_that_is_not_finite_is_told_and_not_read():
    lr = running(lambda: 0.1)
    with pytest.warns(UserWarning, match=r"a validation loss was not finite \(nan\)"):
        assert not lr.validate(math.nan)
    lr.validate(math.inf)  # told once
    assert lr.engine.validation.count == 0


@pytest.mark.parametrize("loss", [3, "low", torch.ones(2)])
def test_what_is_no_loss_is_refused(loss):
    with pytest.raises((TypeError, ValueError), match="loss must be a"):
        running(lambda: 0.1).validate(loss)


def test_a_range_that_every_phase_computes_anew_is_refused():
    lr = LearnedLR(
        sgd(), Schedule([LSTMNet(4), LSTMNet(4)], Card(gamma=Gamma("per-phase"))), total_steps=9, num_classes=3
    )
    with pytest.raises(ValueError, match="needs a schedule that keeps its range"):
        lr.validate(1.0)


def over_fit(reads, seed):
    """The default on 200 rows of diabetes, seen 60 times: the squared error of the rows that it has not seen."""
    torch.manual_seed(seed)
    x, y = (torch.tensor(part) for part in load_diabetes(return_X_y=True, scaled=False))
    x, y = (x - x.mean(0)) / x.std(0), ((y - y.mean()) / y.std()).unsqueeze(1)
    train, val, test = torch.randperm(len(x)).split((200, 100, len(x) - 300))
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).double()
    optimizer = torch.optim.AdamW(model.parameters())
    lr = LearnedLR(optimizer, total_steps=60 * 10)
    for _ in range(60):
        for rows in train[torch.randperm(200)].split(20):
            loss = mse_loss(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            lr.step(loss)
            optimizer.step()
        with torch.no_grad():
            error = mse_loss(model(x[val]), y[val])
        if reads:
            lr.validate(error)
    with torch.no_grad():
        return float(mse_loss(model(x[test]), y[test]))


@pytest.mark.filterwarnings("ignore:validate.loss. got nothing lower")
@pytest.mark.parametrize("seed", range(3))
def test_a_network_that_over_fits_ends_better_if_it_is_validated(seed):
    assert over_fit(True, seed) < 0.9 * over_fit(False, seed)


WORKER = """
import os, sys, warnings
import torch
import torch.distributed as dist
from mlrsnet import LearnedLR

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
lr = LearnedLR(torch.optim.SGD([torch.nn.Parameter(torch.ones(2, 2))], lr=0.1), "universal", total_steps=40)
warnings.simplefilter("ignore")
lr.step(1.0)
told = [lr.validate(float(loss) + (0.3 if rank else -0.3) * (-1) ** k) for k, loss in enumerate(sys.argv[3:])]
torch.save(torch.tensor([*told, lr.status()["gamma"]], dtype=torch.float64), f"{folder}/told{rank}.pt")
dist.barrier()
os._exit(0)  # the result is on disk; gloo's threads can abort a normal exit
"""


def test_all_ranks_shorten_their_steps_together_by_the_mean_loss(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    workers = [subprocess.Popen([sys.executable, script, str(rank), tmp_path, *map(str, RISING)]) for rank in range(2)]
    assert [worker.wait(timeout=180) for worker in workers] == [0, 0]
    first, second = (torch.load(tmp_path / f"told{rank}.pt", weights_only=True) for rank in range(2))
    assert torch.equal(first, second)
    assert first[:-1].tolist() == [0] * 5 + [1, 0]
