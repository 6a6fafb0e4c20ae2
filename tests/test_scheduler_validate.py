"""LearnedLR.validate: where the validation loss stops falling, steps get shorter; a new lowest loss takes it back."""

import math
import subprocess
import sys

import pytest
import torch
from cases import line
from sklearn.datasets import load_diabetes
from steps import exactly, lrs_for, sgd, through_a_file
from torch import nn
from torch.nn.functional import mse_loss

from mlrsnet import LearnedLR, Schedule
from mlrsnet._validation import Validation
from mlrsnet.card import Card
from mlrsnet.nets import LSTMNet
from mlrsnet.ranges import PhaseGamma

TOTAL = 40
RISING = (2.0, 1.5, 1.2, 1.3, 1.25, 1.4)
"""Three in a row above the lowest, at the end."""

pytestmark = pytest.mark.filterwarnings("ignore:the loss does not fall")  # the training losses here are constant


def running(kind, schedule=None, steps=10, **options):
    lr = LearnedLR(sgd(kind()), schedule or line(), total_steps=TOTAL, **options)
    lrs_for(lr, [1.0] * steps)
    return lr


@pytest.mark.parametrize("schedule", ["universal", None], ids=["default", "network"])
def test_where_the_validation_loss_stops_falling_every_lr_is_a_tenth_until_a_new_lowest_one(schedule, kind):
    plain, lr = running(kind, schedule), running(kind, schedule)
    assert [lr.validate(loss) for loss in RISING] == [1.0] * 5 + [0.1]
    assert lrs_for(lr, [1.0] * 5) == pytest.approx([0.1 * used for used in lrs_for(plain, [1.0] * 5)], rel=1e-6)
    assert lr.status()["share"] == 0.1
    assert [lr.validate(loss) for loss in (1.3, 1.19)] == [0.1, 1.0]
    assert lrs_for(lr, [1.0] * 5) == pytest.approx(lrs_for(plain, [1.0] * 5), rel=1e-6)


def test_a_range_that_every_phase_computes_anew_keeps_the_cut(kind):
    torch.manual_seed(0)
    schedule = Schedule([LSTMNet(4), LSTMNet(4)], Card(gamma=PhaseGamma()))
    plain, lr = (running(kind, schedule, num_classes=5) for _ in range(2))
    for loss in RISING:
        lr.validate(loss)
    assert lrs_for(lr, [1.0] * 20) == pytest.approx([0.1 * used for used in lrs_for(plain, [1.0] * 20)], rel=1e-6)


def test_steps_get_shorter_every_three_losses_but_never_0(kind):
    lr = running(kind)
    told = [lr.validate(loss) for loss in (1.2, 1.0, *[1.1] * 15)]
    assert told == pytest.approx([1.0] * 4 + [0.1] * 3 + [0.01] * 3 + [0.001] * 7)
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


@pytest.mark.parametrize("seen", [0, 4, 6])
def test_a_resumed_run_shortens_its_steps_when_the_other_would(kind, seen):
    lr, again = running(kind), running(kind)
    for loss in RISING[:seen]:
        lr.validate(loss)
    for loss in RISING:  # what it saw is replaced
        again.validate(loss)
    again.load_state_dict(through_a_file(lr.state_dict()))
    for each in (lr, again):
        each.told = [each.validate(loss) for loss in RISING[seen:]], lrs_for(each, [1.0] * 5)
    assert again.told == lr.told
    assert exactly(lr.state_dict()) == exactly(again.state_dict())


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("value", ["low", math.nan, 7, 0.5, -5, None])
def test_a_damaged_state_is_refused(place, value):
    lr = running(lambda: 0.1, steps=1)
    lr.validate(1.0)
    state = lr.state_dict()
    state["validation"][place] = value
    if place == 0 and value in (7, 0.5, -5):
        lr.load_state_dict(state)
    else:
        with pytest.raises(ValueError, match="another kind of value under 'validation'"):
            lr.load_state_dict(state)


def test_a_captured_step_follows_since_the_share_is_written_in_place(on_device):
    lr = running(lambda: torch.tensor(0.1))
    place = lr._driver.numbers.share.data_ptr()
    for loss in RISING:
        lr.validate(torch.tensor(loss))
    assert lr._driver.numbers.share.data_ptr() == place
    assert float(lr._driver.numbers.share) == pytest.approx(0.1)


def test_a_loss_before_the_first_step_is_what_a_fine_tuning_has_to_keep(kind):
    lr = running(kind, steps=0)
    assert [lr.validate(loss) for loss in (1.0, 1.1, 1.2, 1.3, 1.4)] == [1.0] * 5  # there is nothing to shorten yet
    lrs_for(lr, [1.0] * 10)
    assert [lr.validate(loss) for loss in (1.01, 1.1)] == [1.0] * 2
    with pytest.warns(UserWarning, match=r"got nothing below its first loss, 1, .* 0.1 times .* pass 1 - accuracy"):
        assert lr.validate(1.2) == pytest.approx(0.1)


def test_a_validation_loss_that_is_not_finite_is_told_and_not_read():
    lr = running(lambda: 0.1)
    with pytest.warns(UserWarning, match=r"a validation loss was not finite \(nan\)"):
        assert lr.validate(math.nan) == 1.0
    lr.validate(math.inf)  # told once
    assert lr.state_dict()["validation"] == running(lambda: 0.1).state_dict()["validation"]


@pytest.mark.parametrize("loss", ["low", None, torch.ones(2)])
def test_what_is_no_loss_is_refused(loss):
    with pytest.raises((TypeError, ValueError), match="loss must be a"):
        running(lambda: 0.1).validate(loss)


def test_limits_apply_after_the_cut(kind):
    lr = running(kind, min_lr=0.2)
    for loss in RISING:
        lr.validate(loss)
    assert lrs_for(lr, [1.0])[0] == pytest.approx(0.2)


def test_a_whole_number_is_a_validation_loss_too():
    """Such as a count of errors."""
    lr = running(lambda: 0.1)
    assert [lr.validate(loss) for loss in (9, 5, 6, 7, torch.tensor(8))] == [1.0] * 4 + [0.1]


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
@pytest.mark.parametrize("seed", range(2))
def test_a_network_that_over_fits_ends_better_if_it_is_validated(seed):
    assert over_fit(True, seed) < 0.9 * over_fit(False, seed)


WORKER = """
import os, sys, warnings
import torch
import torch.distributed as dist
from mlrsnet import LearnedLR

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2, 2))], lr=0.1)
lr = LearnedLR(optimizer, total_steps=40)
warnings.simplefilter("ignore")
optimizer.step()
told = [lr.validate(float(loss) + (0.3 if rank else -0.3) * (-1) ** k) for k, loss in enumerate(sys.argv[3:])]
torch.save(torch.tensor([*told, lr.status()["share"]], dtype=torch.float64), f"{folder}/told{rank}.pt")
dist.barrier()
os._exit(0)  # the result is on disk; gloo's threads can abort a normal exit
"""


def test_all_ranks_shorten_their_steps_together_by_the_mean_loss(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    workers = [subprocess.Popen([sys.executable, script, str(rank), tmp_path, *map(str, RISING)]) for rank in range(2)]
    assert [worker.wait(timeout=180) for worker in workers] == [0, 0]
    first, second = (torch.load(tmp_path / f"told{rank}.pt", weights_only=True) for rank in range(2))
    assert first.tolist() == second.tolist() == pytest.approx([1.0] * 5 + [0.1] * 2)
