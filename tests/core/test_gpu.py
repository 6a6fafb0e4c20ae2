"""Trainings on a real GPU, whole steps in CUDA graphs among them; run by hand with `pytest -m gpu`."""

import contextlib
import gc
import math
import warnings

import pytest
import torch
from cases import Task, line
from torch import nn
from torch.optim import SGD, Adam, AdamW

from mlrsnet import LearnedLR, MetaTrainer
from mlrsnet.meta import Learning
from mlrsnet.nets import LSTMNet

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
STEPS = 30
KINDS = (torch.float32, torch.float64)
OPTIMIZERS = {
    "sgd": lambda p, lr: SGD(p, lr=lr, fused=True),
    "heavy-ball": lambda p, lr: SGD(p, lr=lr, momentum=0.9, fused=True),
    "adam": lambda p, lr: Adam(p, lr=lr, capturable=isinstance(lr, torch.Tensor)),
    "adamw": lambda p, lr: AdamW(p, lr=lr, fused=True, capturable=isinstance(lr, torch.Tensor)),
}


def on_gpu():
    """The small task, with matrices of which not all entries are looked at."""
    task = Task()
    torch.manual_seed(3)
    task.model = nn.Sequential(nn.Linear(6, 1000), nn.Tanh(), nn.Linear(1000, 5)).cuda()
    task.inputs, task.labels = task.inputs.cuda(), task.labels.cuda()
    return task


def gpu_lr(lr=0.1):
    return torch.tensor(lr, device="cuda")


@contextlib.contextmanager
def no_waiting():
    """Whatever waits for the GPU raises."""
    torch.cuda.synchronize()
    with warnings.catch_warnings(action="ignore"):  # "a prototype feature"
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Captured:
    """A training whose whole step is one CUDA graph, after a first step outside of it. Inputs and labels are static buffers."""

    def __init__(self, schedule, name, total_steps=STEPS):
        self.task = on_gpu()
        self.x, self.y = self.task.inputs[0].clone(), self.task.labels[0].clone()
        self.optimizer = OPTIMIZERS[name](self.task.model.parameters(), gpu_lr())
        self.lr = LearnedLR(self.optimizer, schedule, total_steps=total_steps, num_classes=5)
        self.step = 0
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.train()
        torch.cuda.current_stream().wait_stream(stream)
        self.used = [self.lr.get_last_lr()[0].item()]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.train()

    def train(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.task.model(self.x), self.y)
        loss.backward()
        self.lr.step(loss)
        self.optimizer.step()

    def run(self, steps):
        """So many more; the LRs of all steps so far."""
        for _ in range(steps):
            self.step += 1
            self.x.copy_(self.task.inputs[self.step % 64])
            self.y.copy_(self.task.labels[self.step % 64])
            self.graph.replay()
            self.used.append(self.lr.get_last_lr()[0].item())
        return self.used


def eager(schedule, name, lr, steps):
    """The same training in a plain loop."""
    task = on_gpu()
    optimizer = OPTIMIZERS[name](task.model.parameters(), lr)
    learned, used = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5), []
    for step in range(steps):
        learned.step(task.backward(step, optimizer))
        optimizer.step()
        used.append(float(learned.get_last_lr()[0]))
    return used, learned


@pytest.mark.filterwarnings("ignore:step 3. is past total_steps")
@pytest.mark.parametrize("lr", [lambda: 0.1, gpu_lr], ids=["float", "tensor"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_captured_training_is_the_plain_one(schedule, name, lr):
    run = Captured(schedule, name)
    expected, learned = eager(schedule, name, lr(), STEPS + 3)
    assert run.run(STEPS + 2) == pytest.approx(expected, rel=5e-3)
    seen, known = run.lr.status(), learned.status()
    assert seen["step"] == known["step"] == STEPS + 3
    assert seen["distance"] == pytest.approx(known["distance"], rel=5e-3)
    assert run.lr.history == pytest.approx(learned.history, rel=5e-3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_with_an_lr_on_the_gpu_never_waits(schedule, name):
    task = on_gpu()
    optimizer = OPTIMIZERS[name](task.model.parameters(), gpu_lr())
    lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5)
    lr.step(task.backward(0, optimizer))
    optimizer.step()  # the first one looks at the weights
    with no_waiting():
        for step in range(1, STEPS):
            loss = task.backward(step, optimizer)
            lr.observe(loss)
            lr.step(loss)
            lr.step()
            optimizer.step()
            lr.get_last_lr()
        lr.extend(2 * STEPS)
    assert lr.status()["step"] == STEPS


@pytest.mark.parametrize("name", ["heavy-ball", "adam", "adamw"])
def test_a_step_with_a_float_lr_never_waits_for_its_backward_pass(name):
    """The numbers of a step are on their way to the host while the next batch is computed."""
    task = on_gpu()
    optimizer = OPTIMIZERS[name](task.model.parameters(), 0.1)
    lr = LearnedLR(optimizer, total_steps=STEPS)
    for step in range(4):
        task.backward(step, optimizer)
        if step:
            with no_waiting():
                optimizer.step()
        else:
            optimizer.step()
    assert lr.status()["step_length"] > 0


@pytest.mark.filterwarnings("ignore:step 1. is past total_steps")
def test_phases_switch_and_extend_works_inside_a_graph(schedule):
    run = Captured(schedule, "sgd", total_steps=12)
    for step in range(1, 14):
        run.run(1)
        assert run.lr.status()["progress"] == pytest.approx(min(step + 1, 11) / 12)
    run.lr.extend(60)
    run.run(1)
    assert run.lr.status()["progress"] == pytest.approx(15 / 60)
    assert run.lr.status()["step"] == 15


def test_a_new_end_reaches_a_captured_step():
    run = Captured(line(), "sgd", total_steps=40)
    run.run(9)
    run.lr.anneal(8)
    assert run.run(8)[10:] == pytest.approx([0.375 * (1 - k / 8) for k in range(8)], rel=1e-5)


@pytest.mark.filterwarnings("ignore:.*validate.loss. got nothing below")
def test_validation_losses_reach_a_captured_step():
    run = Captured(line(), "sgd", total_steps=40)
    for loss in (1.0, 1.1, 1.2, 1.3):
        share = run.lr.validate(loss)
    assert share == 0.1
    assert run.run(1)[-1] == pytest.approx(0.1 * 0.5 * (1 - 1 / 40), rel=1e-5)


@pytest.mark.parametrize("name", ["heavy-ball", "adamw"])
def test_a_captured_training_resumes(schedule, name):
    whole = list(Captured(schedule, name).run(STEPS - 1))
    first, second = Captured(schedule, name), Captured(schedule, name)
    first.run(9)
    second.task.model.load_state_dict(first.task.model.state_dict())
    with torch.no_grad():  # what a graph holds stays where it is
        for state, other in zip(second.optimizer.state.values(), first.optimizer.state.values(), strict=True):
            for key, value in state.items():
                value.copy_(other[key])
    second.lr.load_state_dict(first.lr.state_dict())
    second.step = first.step
    assert first.used + second.run(STEPS - 10)[1:] == whole


def test_a_loss_that_is_not_finite_inside_a_graph_is_not_read_and_told_later(schedule):
    run = Captured(schedule, "sgd")
    run.run(4)
    with torch.no_grad():
        run.task.model[2].bias.fill_(math.nan)
    before = run.used[-1]
    assert math.isfinite(run.run(1)[-1])
    if schedule.needs_loss:
        assert run.used[-1] == before
    with pytest.warns(UserWarning, match="a loss was not finite"):
        assert run.lr.status()["nonfinite"] == 1


@pytest.mark.parametrize(("lr", "on_nonfinite"), [(0.1, "hold"), (torch.tensor(0.1), "hold"), (gpu_lr, "raise")])
def test_what_cannot_be_captured_says_so(lr, on_nonfinite):
    task = on_gpu()
    lr = lr() if callable(lr) else lr
    optimizer = SGD(task.model.parameters(), lr=lr)
    learned = LearnedLR(optimizer, total_steps=STEPS, on_nonfinite=on_nonfinite)
    learned.step(task.backward(0, optimizer))
    optimizer.step()
    loss = task.backward(1, optimizer)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss.add_(0)
        with pytest.raises(RuntimeError, match="cannot be captured in a graph"):
            learned.step(loss.detach())
            optimizer.step()


def test_the_first_step_is_not_captured():
    task = on_gpu()
    optimizer = SGD(task.model.parameters(), lr=gpu_lr(), fused=True)
    LearnedLR(optimizer, total_steps=STEPS)
    task.backward(0, optimizer)
    graph, some = torch.cuda.CUDAGraph(), torch.zeros(1, device="cuda")
    with torch.cuda.graph(graph):
        some.add_(1)
        with pytest.raises(RuntimeError, match="take a step before the capture"):
            optimizer.step()


def test_other_weights_than_before_are_not_captured():
    task = on_gpu()
    optimizer = SGD(task.model.parameters(), lr=gpu_lr(), fused=True)
    LearnedLR(optimizer, total_steps=STEPS)
    task.backward(0, optimizer)
    optimizer.step()
    task.model[0].weight.grad = None
    graph, some = torch.cuda.CUDAGraph(), torch.zeros(1, device="cuda")
    with torch.cuda.graph(graph):
        some.add_(1)
        with pytest.raises(RuntimeError, match="the same weights as one of the last steps"):
            optimizer.step()


def test_export_lambda_replays_a_captured_run(schedule):
    run = Captured(schedule, "sgd")
    used = run.run(STEPS - 1)
    optimizer = SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    replay, replayed = run.lr.export_lambda(optimizer), []
    for _ in used:
        replayed.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        replay.step()
    assert replayed == pytest.approx(used, rel=1e-6)


def test_a_cpu_tensor_lr_waits_for_a_loss_on_the_gpu(schedule):
    def lrs(device):
        weight = nn.Parameter(torch.ones(2, 2, device="cuda"))
        optimizer = SGD([weight], lr=torch.tensor(0.1, device=device))
        lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5)
        busy, used = torch.randn(4096, 4096, device="cuda"), []
        for step in range(5):
            for _ in range(20):  # work before the loss is ready
                busy = busy @ busy / 64
            weight.grad = torch.full_like(weight, 0.1)
            lr.step((busy.sum() * 0).nan_to_num() + 1.6 - 0.1 * step)
            optimizer.step()
            used.append(float(lr.get_last_lr()[0]))
        return used

    assert lrs("cpu") == pytest.approx(lrs("cuda"), rel=1e-4)


def test_loading_the_optimizer_between_replays_keeps_the_lrs_in_step(schedule):
    run = Captured(schedule, "sgd")
    run.run(4)
    run.optimizer.load_state_dict(run.optimizer.state_dict())
    run.run(3)
    assert run.lr.get_last_lr()[0].item() == pytest.approx(run.lr.status()["lr"])
    assert run.lr.status()["step"] == 8


def test_a_captured_step_never_writes_into_memory_of_others():
    """What a graph reads and writes must stay, or it spoils whatever torch puts there next."""
    run = Captured("universal", "sgd")
    expected = list(Captured("universal", "sgd").run(7))
    run.run(4)
    run.optimizer.load_state_dict(run.optimizer.state_dict())
    run.lr.load_state_dict(run.lr.state_dict())
    gc.collect()
    shapes = [(2, 2, 4096), (4096,), (2,), ()]
    others = [torch.zeros(shape, dtype=kind, device="cuda") for shape in shapes for kind in KINDS for _ in range(300)]
    assert run.run(3) == expected
    assert not any(bool(other.any()) for other in others)


@pytest.mark.parametrize("tensor_lr", [False, True])
def test_the_default_device_may_be_the_gpu(tensor_lr):
    torch.set_default_device("cuda")
    try:
        optimizer = AdamW(nn.Linear(100, 100).parameters(), lr=gpu_lr() if tensor_lr else 0.1, fused=True)
        lr, scaler = LearnedLR(optimizer, total_steps=STEPS), torch.amp.GradScaler("cuda")
        for _ in range(3):
            optimizer.zero_grad()
            loss = optimizer.param_groups[0]["params"][0].square().mean()
            scaler.scale(loss).backward()
            lr.step(loss)
            scaler.step(optimizer)
            scaler.update()
        lr.load_state_dict(lr.state_dict())
        assert lr.status()["step"] == 3
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize(("optimizer", "tensor_lr"), [("SGD", False), ("SGD", True), ("AdamW", False)])
def test_weights_on_two_devices_are_one_network(tensor_lr, optimizer):
    def run(devices):
        torch.manual_seed(2)
        weights = [nn.Parameter(torch.randn(6, 6).to(device)) for device in devices]
        lr = gpu_lr() if tensor_lr else 0.1
        made = getattr(torch.optim, optimizer)(weights, lr=lr, foreach=False)
        learned = LearnedLR(made, total_steps=STEPS)
        for step in range(8):
            for weight in weights:
                weight.grad = torch.sin(weight.detach() * (step + 1))
            learned.step(1.5)
            made.step()
        return [float(value) for value in learned.get_last_lr()]

    assert run(["cuda", "cpu"]) == pytest.approx(run(["cuda", "cuda"]), rel=1e-3)


@pytest.mark.parametrize("tensor_lr", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_what_a_grad_scaler_skips_does_not_count(tensor_lr, fused):
    task = on_gpu()
    optimizer = AdamW(task.model.parameters(), lr=gpu_lr(0.01) if tensor_lr else 0.01, fused=fused)
    lr, scaler = LearnedLR(optimizer, total_steps=STEPS), torch.amp.GradScaler("cuda", init_scale=2.0**12)
    for step in range(12):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = task.loss(step)
        scaler.scale(loss).backward()
        if step in (0, 5, 6):
            task.model[0].weight.grad[0, 0] = math.inf
        lr.step(loss)
        scaler.step(optimizer)
        scaler.update()
    assert lr.status()["step"] == 9
    assert all(math.isfinite(one) and one > 0 for one in lr.history)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_meta_training_on_the_gpu_follows_the_cpu(precision, tensor_lr):
    def run(device):
        task, scaler = Task(), None
        if device == "cuda":
            task.model.cuda()
            task.inputs, task.labels = task.inputs.cuda(), task.labels.cuda()
        if precision == "float16" and device == "cuda":
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0**12)
        dtype = getattr(torch, precision)
        lr = torch.tensor(0.1, device=device) if tensor_lr else 0.1
        optimizer = SGD(task.model.parameters(), lr=lr, momentum=0.9)
        torch.manual_seed(0)

        def loss_of(index):
            with torch.autocast(device, dtype, enabled=device == "cuda" and precision != "float32"):
                return task.loss(index)

        batches = iter(range(63, 0, -1))
        meta = MetaTrainer(
            task.model,
            optimizer,
            total_steps=STEPS,
            val_loss=lambda: loss_of(next(batches)),
            net=LSTMNet(),
            num_classes=5,
            learning=Learning(every=3),
            scaler=scaler,
        )
        used = []
        for step in range(12):
            loss = loss_of(step)
            optimizer.zero_grad()
            (scaler.scale(loss) if scaler else loss).backward()
            meta.step(loss)
            used.append(float(optimizer.param_groups[0]["lr"]))
        return used, meta

    (on_cpu, _), (found, meta) = run("cpu"), run("cuda")
    assert found == pytest.approx(on_cpu, rel=1e-3 if precision == "float32" else 3e-2)
    assert (meta.num_updates, meta.skipped_updates) == (4, 0)
