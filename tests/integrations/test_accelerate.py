"""Hugging Face Accelerate on the CPU: one LR per optimizer step, however it wraps loops and optimizers."""

import importlib
import math
import os
import subprocess
import sys

import pytest
import torch
from accelerate import Accelerator, DistributedType
from accelerate.state import AcceleratorState, GradientState
from cases import KNOWS_HORIZON, SCHEDULES
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from mlrsnet import Card, Gamma, LearnedLR, LSTMNet, Schedule
from mlrsnet.integrations import accelerate as integration
from mlrsnet.integrations.accelerate import AcceleratedLR

BATCH, CLASSES = 4, 5


@pytest.fixture(autouse=True)
def fresh_accelerate():
    """Reset Accelerate's state, which is global to the process."""
    forget()
    yield
    forget()


def make_schedule():
    """A schedule whose LR depends on loss and progress, as a learned one's: 10 % more loss changes it by 4 %."""
    torch.manual_seed(1)
    net = LSTMNet(**KNOWS_HORIZON)
    for parameter in net.parameters():
        parameter.data *= 4
    return Schedule(net, Card(gamma=Gamma("fixed", value=1.0)))


@pytest.fixture
def schedule():
    return make_schedule()


def forget():
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def data(batches):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(batches * BATCH, 6, generator=generator)
    return TensorDataset(inputs, torch.randint(CLASSES, (batches * BATCH,), generator=generator))


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def heavy_ball(net, lr=0.1):
    return torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)


def weights(net):
    return torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])


def plain_loop(schedule, batches, window, total_steps):
    """The same training without Accelerate: loss and gradients are means over every `window` batches."""
    net = model()
    optimizer = heavy_ball(net)
    lr = LearnedLR(optimizer, schedule, total_steps=total_steps, num_classes=CLASSES)
    micro, used = list(DataLoader(data(batches), BATCH)), []
    for start in range(0, batches, window):
        optimizer.zero_grad()
        for x, y in micro[start : start + window]:
            loss = cross_entropy(net(x), y)
            (loss / window).backward()
            lr.observe(loss)
        lr.step()
        optimizer.step()
        used.append(lr.get_last_lr()[0])
    return weights(net), used


def lrs_for(lr, losses):
    used = []
    for loss in losses:
        lr.step(loss)
        used.append(lr.get_last_lr()[0])
    return used


class Training:
    """A training written as in Accelerate's guide, stopped and resumed where a test wants."""

    def __init__(self, schedule, *, batches=8, build="after", lr=0.1, total_steps=8, scaler=None, **settings):
        self.accelerator = Accelerator(**{"cpu": True, **settings})
        if scaler is not None:
            self.accelerator.scaler = scaler
        net, loader = model(), DataLoader(data(batches), BATCH)
        optimizer = heavy_ball(net, lr)
        options = {"total_steps": total_steps, "num_classes": CLASSES}
        if build == "before":
            self.lr = AcceleratedLR(self.accelerator, optimizer, schedule, **options)
        if build in ("prepared", "plain"):
            made = LearnedLR(optimizer, schedule, **options)
            if build == "prepared":
                made = AcceleratedLR(self.accelerator, optimizer, schedule, **options)
            self.net, self.optimizer, self.loader, self.lr = self.accelerator.prepare(net, optimizer, loader, made)
        else:
            self.net, self.optimizer, self.loader = self.accelerator.prepare(net, optimizer, loader)
        if build == "after":
            self.lr = AcceleratedLR(self.accelerator, self.optimizer, schedule, **options)
        self.used, self.losses = [], []

    def run(self, batches=None, first=0):
        for number, (x, y) in enumerate(self.loader):
            if first <= number < (batches or math.inf):
                with self.accelerator.accumulate(self.net):
                    loss = cross_entropy(self.net(x), y)
                    self.accelerator.backward(loss)
                    self.lr.step(loss)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                self.losses.append(float(loss.detach()))
                if self.accelerator.sync_gradients:
                    self.used.append(self.lr.get_last_lr()[0])
        return self


@pytest.mark.parametrize("build", ["before", "after", "prepared"])
def test_accumulation_gives_the_lrs_and_weights_of_a_plain_loop(schedule, build):
    training = Training(schedule, build=build, total_steps=4, gradient_accumulation_steps=2).run()
    expected, lrs = plain_loop(schedule, 8, 2, 4)
    assert training.lr.last_epoch == 4
    assert training.used == pytest.approx(lrs, rel=1e-6)
    torch.testing.assert_close(weights(training.net), expected)


def test_a_last_window_that_is_short_sets_the_lr_of_what_it_saw(schedule):
    training = Training(schedule, batches=5, total_steps=3, gradient_accumulation_steps=2).run()
    lr = LearnedLR(heavy_ball(model()), schedule, total_steps=3, num_classes=CLASSES)
    means = [sum(losses) / len(losses) for losses in (training.losses[:2], training.losses[2:4], training.losses[4:])]
    assert training.used == pytest.approx(lrs_for(lr, means), rel=1e-5)


def test_a_plain_learned_lr_goes_through_prepare_as_it_is(schedule):
    training = Training(schedule, build="plain").run()
    expected, lrs = plain_loop(schedule, 8, 1, 8)
    assert type(training.lr) is LearnedLR
    assert training.used == pytest.approx(lrs, rel=1e-6)
    torch.testing.assert_close(weights(training.net), expected)


@pytest.mark.parametrize("kind", ["float", "tensor"])
@pytest.mark.parametrize("build", ["after", "plain"])
def test_a_run_resumed_from_save_state_equals_one_that_never_stopped(schedule, tmp_path, kind, build):
    settings = {
        "build": build,
        "lr": torch.tensor(0.1) if kind == "tensor" else 0.1,
        "gradient_accumulation_steps": 1 if build == "plain" else 2,
    }
    whole = Training(schedule, **settings).run()
    forget()
    first = Training(schedule, **settings).run(batches=4)
    first.accelerator.save_state(tmp_path)
    forget()
    second = Training(schedule, **settings)
    second.accelerator.load_state(tmp_path)
    second.run(first=4)
    assert first.used + second.used == whole.used
    assert torch.equal(weights(second.net), weights(whole.net))
    torch.testing.assert_close(second.lr.state_dict(), whole.lr.state_dict(), rtol=0, atol=0, equal_nan=True)


def test_a_checkpoint_of_another_schedule_is_refused(schedule, paper, tmp_path):
    Training(schedule).run(batches=2).accelerator.save_state(tmp_path)
    forget()
    with pytest.raises(ValueError, match="saved with another schedule"):
        Training(paper).accelerator.load_state(tmp_path)


def test_bf16_reads_the_loss_it_has(schedule):
    training = Training(schedule, mixed_precision="bf16").run()
    _, lrs = plain_loop(schedule, 8, 1, 8)
    assert training.used == pytest.approx(lrs, rel=0.05)
    assert training.used != pytest.approx(lrs, rel=1e-9)  # bf16 was really on


def test_a_relative_range_does_not_mind_scaled_gradients():
    plain = Training("universal-relative").run()
    forget()
    scaled = Training("universal-relative", scaler=torch.amp.GradScaler("cpu", init_scale=256.0)).run()
    assert scaled.used == pytest.approx(plain.used, rel=1e-4)


def test_a_measured_range_does_not_mind_scaled_gradients():
    torch.manual_seed(1)
    schedule = SCHEDULES["measured"]()
    scaled = Training(schedule, scaler=torch.amp.GradScaler("cpu", init_scale=4.0)).run()
    assert scaled.used == pytest.approx(Training(schedule).run().used, rel=1e-4)


def test_a_loss_whose_step_the_scaler_skips_is_read_like_any_other(schedule):
    """A real GradScaler, and a gradient that is not finite in the third of eight batches."""
    training = Training(schedule, scaler=torch.amp.GradScaler("cpu"))
    training.run(batches=2)
    before = weights(training.net).clone()
    overflow = next(training.net.parameters()).register_hook(lambda gradient: gradient * math.inf)
    training.run(batches=3, first=2)
    assert training.accelerator.optimizer_step_was_skipped
    assert torch.equal(weights(training.net), before)
    overflow.remove()
    training.run(first=3)
    assert not training.accelerator.optimizer_step_was_skipped
    lr = LearnedLR(heavy_ball(model()), schedule, total_steps=8, num_classes=CLASSES)
    assert training.used == pytest.approx(lrs_for(lr, training.losses), rel=1e-6)


def test_an_optimizer_that_steps_inside_backward_is_refused(schedule, monkeypatch):
    accelerator = Accelerator(cpu=True)
    monkeypatch.setitem(accelerator.state.__dict__, "distributed_type", DistributedType.DEEPSPEED)
    with pytest.raises(ValueError, match=r"got DEEPSPEED, which steps inside accelerator.backward"):
        AcceleratedLR(accelerator, heavy_ball(model()), schedule, total_steps=8)


def test_arguments_in_learned_lrs_own_order_are_refused_by_name(schedule):
    with pytest.raises(TypeError, match=r"accelerator must be an accelerate.Accelerator, got SGD"):
        AcceleratedLR(heavy_ball(model()), schedule, total_steps=8)


def test_without_accelerate_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match=r"pip install 'mlrsnet\[accelerate\]'"):
        importlib.reload(integration)


WORKER = """
import os, sys, warnings
sys.path[:0] = sys.argv[1].split(os.pathsep)
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader
from test_accelerate import BATCH, CLASSES, cross_entropy, data, heavy_ball, model, weights
from mlrsnet import LearnedLR, Schedule
from mlrsnet.integrations.accelerate import AcceleratedLR

folder, torch_threads = sys.argv[2], torch.set_num_threads(1)
schedule = Schedule.load(folder + "/s.safetensors")


def train(name, kind, window=1, batch=BATCH, resume=False, first=0, last=8, **loading):
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=window, dataloader_config=DataLoaderConfiguration(**loading)
    )
    net = model()
    parts = accelerator.prepare(net, heavy_ball(net), DataLoader(data(16), batch))
    net, optimizer, loader = parts
    options = {"total_steps": 8 // window, "num_classes": CLASSES}
    if kind == "plain":
        lr = accelerator.prepare(LearnedLR(optimizer, schedule, **options))
    else:
        lr = AcceleratedLR(accelerator, optimizer, schedule, **options)
    if resume:
        accelerator.load_state(folder + "/half")
    used = []
    for number, (x, y) in enumerate(loader):
        if first <= number < last:
            with accelerator.accumulate(net):
                loss = cross_entropy(net(x), y)
                accelerator.backward(loss)
                lr.step(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                used.append(lr.get_last_lr()[0])
    if last < 8:
        accelerator.save_state(folder + "/half")
    found[name] = {"lrs": used, "weights": weights(net), "steps": lr.last_epoch, "ranks": accelerator.num_processes}


found = {}
train("accumulated", "integration", window=2)
train("first half", "integration", window=2, last=4)
train("second half", "integration", window=2, first=4, resume=True)
train("plain", "plain")
train("split", "plain", batch=2 * BATCH, split_batches=True)
train("dispatched", "integration", dispatch_batches=True)
torch.save(found, f"{folder}/found{os.environ['RANK']}.pt")
torch.distributed.barrier()
os._exit(0)  # the result is on disk; gloo's threads can abort a normal exit
"""


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """Several trainings in two processes over gloo, in one launch."""
    folder = tmp_path_factory.mktemp("two")
    schedule = make_schedule()
    schedule.save(folder / "s.safetensors")
    (folder / "worker.py").write_text(WORKER)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    here = os.pathsep.join(sys.path)
    done = subprocess.run([*launch, folder / "worker.py", here, folder], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return schedule, [torch.load(folder / f"found{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize(("name", "window"), [("accumulated", 4), ("plain", 2), ("split", 2), ("dispatched", 2)])
def test_two_processes_step_the_network_once_with_the_mean_loss(two_processes, name, window):
    schedule, ranks = two_processes
    first, second = (rank[name] for rank in ranks)
    expected, lrs = plain_loop(schedule, 16, window, 16 // window)
    assert first["ranks"] == 2
    assert first["steps"] == second["steps"] == 16 // window
    assert first["lrs"] == second["lrs"]
    assert first["lrs"] == pytest.approx(lrs, rel=1e-5)
    torch.testing.assert_close(first["weights"], expected)


def test_two_processes_resume_bit_for_bit(two_processes):
    for found in two_processes[1]:
        assert found["first half"]["lrs"] + found["second half"]["lrs"] == found["accumulated"]["lrs"]
        assert torch.equal(found["second half"]["weights"], found["accumulated"]["weights"])


@pytest.mark.gpu
def test_fp16_on_a_gpu_steps_once_a_batch_also_where_the_scaler_skips(schedule):
    training = Training(schedule, cpu=False, mixed_precision="fp16").run()
    assert training.accelerator.scaler is not None
    lr = LearnedLR(heavy_ball(model()), schedule, total_steps=8, num_classes=CLASSES)
    assert training.used == pytest.approx(lrs_for(lr, training.losses), rel=1e-6)
