"""LearnedLR.validate: where the validation loss stops falling, steps get shorter; a new lowest loss takes it back."""

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
from mlrsnet._engine.validation import Validation

TOTAL = 40
RISING = (2.0, 1.5, 1.2, 1.3, 1.25, 1.4)
"""Three in a row above the lowest, at the end."""

pytestmark = pytest.mark.filterwarnings("ignore:the loss does not fall")  # the training losses here are constant


def line(policy="fixed") -> Schedule:
    """A schedule that reads only the progress."""
    return Schedule(DecayNet(0.0, 0.0).double(), Card(gamma=Gamma(policy, value=0.5)))


def running(kind, schedule=None, steps=10, **options):
    lr = LearnedLR(sgd(kind()), schedule or line(), total_steps=TOTAL, **options)
    lrs_for(lr, [1.0] * steps)
    return lr


def test_where_the_validation_loss_stops_falling_every_lr_is_a_tenth_of_what_it_would_be(kind):
    plain, lr = running(kind), running(kind)
    assert [lr.validate(loss) for loss in RISING] == [1.0] * 5 + [0.1]
    assert lrs_for(lr, [1.0] * 20) == pytest.approx([0.1 * used for used in lrs_for(plain, [1.0] * 20)], rel=1e-6)
    assert lr.status()["gamma"] == pytest.approx(0.05)


def test_a_new_lowest_loss_takes_it_back(kind):
    plain, lr = running(kind), running(kind)
    assert [lr.validate(loss) for loss in (*RISING, 1.3, 1.19)][-3:] == [0.1, 0.1, 1.0]
    assert lrs_for(lr, [1.0] * 20) == pytest.approx(lrs_for(plain, [1.0] * 20), rel=1e-6)


def test_steps_get_shorter_every_three_losses_but_never_0(kind):
    lr = running(kind)
    told = [lr.validate(loss) for loss in (1.2, 1.0, *[1.1] * 15)]
    assert told == pytest.approx([1.0] * 4 + [0.1] * 3 + [0.01] * 3 + [0.001] * 7)
    assert lr.status()["gamma"] == pytest.approx(0.0005)
    assert [lr.validate(0.9 - 0.1 * place) for place in range(4)] == pytest.approx([0.01, 0.1, 1.0, 1.0])


def test_a_loss_that_falls_now_and_then_changes_nothing():
    lr = running(lambda: 0.1)
    assert {lr.validate(2.0 - 0.1 * (place // 3) + 0.01 * (place % 3)) for place in range(30)} == {1.0}


def test_a_scaled_or_shifted_loss_is_read_alike():
    plain, other = Validation(), Validation()
    for loss in (*RISING, *RISING):
        plain.see(loss)
        other.see(1000 * loss - 5000)
        assert plain.share == other.share


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
    again.load_state_dict(lr.state_dict())
    assert rest(again) == rest(lr)
    assert lr.status()["gamma"] == pytest.approx(0.05)
    assert lr.state_dict().keys() == again.state_dict().keys()


def test_a_state_without_validation_losses_has_nothing_of_them_and_clears_them():
    lr = running(lambda: 0.1)
    state = lr.state_dict()
    assert not [name for name in state if name.startswith("validation")]
    other = running(lambda: 0.1)
    for loss in RISING:
        other.validate(loss)
    other.load_state_dict(state)
    assert other.engine.validation == Validation()
    assert other.status()["gamma"] == 0.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("validation_lowest", "low"),
        ("validation_lowest", math.nan),
        ("validation_waited", 7),
        ("validation_cuts", 0.5),
        ("validation_cuts", -5),
        ("validation_cuts", 400),
    ],
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
    assert [lr.validate(loss) for loss in (1.0, 1.1, 1.2, 1.3, 1.4)] == [1.0] * 5  # there is nothing to shorten yet
    lrs_for(lr, [1.0] * 10)
    assert [lr.validate(loss) for loss in (1.01, 1.1)] == [1.0] * 2
    with pytest.warns(UserWarning, match=r"got nothing below its first loss, 1, .* 0.1 times .* pass 1 - accuracy"):
        assert lr.validate(1.2) == pytest.approx(0.1)
    assert lr.status()["gamma"] == pytest.approx(0.05)


def test_a_validation_loss_that_is_not_finite_is_told_and_not_read():
    lr = running(lambda: 0.1)
    with pytest.warns(UserWarning, match=r"a validation loss was not finite \(nan\)"):
        assert lr.validate(math.nan) == 1.0
    lr.validate(math.inf)  # told once
    assert lr.engine.validation == Validation()


@pytest.mark.parametrize("loss", ["low", None, torch.ones(2)])
def test_what_is_no_loss_is_refused(loss):
    with pytest.raises((TypeError, ValueError), match="loss must be a"):
        running(lambda: 0.1).validate(loss)


def test_a_range_that_every_phase_computes_anew_is_refused():
    lr = LearnedLR(
        sgd(), Schedule([LSTMNet(4), LSTMNet(4)], Card(gamma=Gamma("per-phase"))), total_steps=9, num_classes=3
    )
    with pytest.raises(ValueError, match="need a schedule that keeps its range"):
        lr.validate(1.0)


def test_a_range_that_is_computed_again_keeps_the_cut_and_gives_it_back_once(kind):
    schedule = Schedule(LSTMNet(4), Card(gamma=Gamma("initial")))
    lr = LearnedLR(sgd(kind()), schedule, total_steps=TOTAL, num_classes=3)
    lrs_for(lr, [1.5] * 3)
    for loss in RISING:
        lr.validate(loss)
    whole = schedule.card.gamma.size(1.2, 3)
    lr.renew_gamma(1.2)
    assert lr.status()["gamma"] == pytest.approx(0.1 * whole)
    assert lr.validate(1.0) == 1.0
    assert lr.status()["gamma"] == pytest.approx(whole)


@pytest.mark.parametrize("policy", ["relative", "measured"])
def test_a_step_that_is_measured_again_keeps_the_cut(policy):
    """The optimizer's hook measures right before the step, and must not bring back what was there before `validate`."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2, 2))], lr=0.1)
    lr = LearnedLR(optimizer, line(policy), total_steps=TOTAL)

    def step():
        optimizer.param_groups[0]["params"][0].grad = torch.full((2, 2), 0.5)
        lr.step(1.0)

    step()
    optimizer.step()
    step()
    for loss in RISING:
        lr.validate(loss)
    optimizer.step()
    assert lr.status()["gamma"] == pytest.approx(0.05)
    assert lr.validate(1.0) == 1.0
    assert lr.status()["gamma"] == pytest.approx(0.5)


def test_limits_apply_after_the_cut(kind):
    lr = running(kind, min_lr=0.2)
    for loss in RISING:
        lr.validate(loss)
    assert lrs_for(lr, [1.0])[0] == pytest.approx(0.2)


def test_a_whole_number_is_a_validation_loss_too():
    """Such as a count of errors."""
    lr = running(lambda: 0.1)
    assert [lr.validate(loss) for loss in (9, 5, 6, 7, torch.tensor(8))] == [1.0] * 4 + [0.1]


def test_a_training_that_stops_after_a_cut_is_not_told_that_its_lr_was_never_lowered():
    lr = LearnedLR(sgd(), line(), total_steps=1000)
    lrs_for(lr, [1.0] * 150)
    assert lr.engine.course.is_unfinished
    for loss in RISING:
        lr.validate(loss)
    assert not lr.engine.course.is_unfinished
    lr.validate(1.0)
    assert lr.engine.course.is_unfinished
    lr.state_dict()  # so that nothing is told when the tests end


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


@pytest.mark.filterwarnings("ignore:validate.loss. got nothing below")
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
    assert first[:-1].tolist() == pytest.approx([1.0] * 5 + [0.1])
