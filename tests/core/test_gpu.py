"""The device engine on a real GPU; run by hand with `pytest -m gpu`."""

import math
import warnings

import pytest
import torch
from cases import SCHEDULES, Task, weight_with_gradient
from mlrsnet._engine.contract import Rule
from mlrsnet._engine.device import DeviceBackend
from torch.optim import SGD, Adam

from mlrsnet import Card, DecayNet, Gamma, LearnedLR, LSTMNet, MetaTrainer, Schedule

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
STEPS = 30


def move(task):
    task.model.cuda()
    task.inputs, task.labels = task.inputs.cuda(), task.labels.cuda()
    return task


def make(name, parameters, lr):
    if name == "sgd":
        return SGD(parameters, lr=lr, fused=True)
    if name == "heavy-ball":
        return SGD(parameters, lr=lr, momentum=0.9, fused=True)
    return Adam(parameters, lr=lr, capturable=True)


def capture(call):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


class Captured:
    """A training whose whole step is one CUDA graph. Inputs and labels are static buffers."""

    def __init__(self, schedule, optimizer_name, total_steps=STEPS):
        self.task = move(Task())
        self.x, self.y = self.task.inputs[0].clone(), self.task.labels[0].clone()
        lr = torch.tensor(0.1, device="cuda")
        self.optimizer = make(optimizer_name, self.task.model.parameters(), lr)
        self.lr = LearnedLR(self.optimizer, schedule, total_steps=total_steps, num_classes=5)
        begin = [p.detach().clone() for p in self.task.model.parameters()]
        saved = self.lr.state_dict()
        self.graph = capture(self.step)
        with torch.no_grad():
            for parameter, value in zip(self.task.model.parameters(), begin, strict=True):
                parameter.copy_(value)
        for state in self.optimizer.state.values():
            for value in state.values():
                if value is not None:
                    value.zero_()
        self.lr.load_state_dict(saved)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.task.model(self.x), self.y)
        loss.backward()
        self.lr.step(loss)
        self.optimizer.step()

    def run(self, steps):
        used = []
        for step in steps:
            self.x.copy_(self.task.inputs[step % 64])
            self.y.copy_(self.task.labels[step % 64])
            self.graph.replay()
            used.append(self.lr.get_last_lr()[0])
        return [lr.item() for lr in used]


@pytest.fixture(params=SCHEDULES)
def schedule(request):
    torch.manual_seed(1)
    return SCHEDULES[request.param]()


def test_the_kernel_equals_the_torch_path(schedule):
    rule = Rule(schedule, 5, 1.0, 1e-7, 50.0)
    device = torch.device("cuda", 0)
    engines = [DeviceBackend(rule, STEPS, None, 0.1, device, fused=fused) for fused in (True, False)]
    for engine in engines:
        engine.bind([{"lr": lr} for lr in (0.1, 0.2, 0.0)], [1.0, 2.0, 0.0])
        engine.set_ratio(torch.tensor(2.5))
    for step in range(STEPS + 5):
        loss = torch.tensor(math.nan if step in (0, 7) else 2.3 - 0.05 * step + 0.3 * math.sin(step), device="cuda")
        for engine in engines:
            engine.step(loss)
        fused, plain = engines
        torch.testing.assert_close(fused.group_lrs, plain.group_lrs, rtol=2e-5, atol=1e-9)
        torch.testing.assert_close(fused.counts, plain.counts)
        torch.testing.assert_close(fused.values, plain.values, rtol=2e-5, atol=1e-9, equal_nan=True)
        torch.testing.assert_close(fused.carry.memory, plain.carry.memory, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(engines[0].history, engines[1].history, rtol=2e-5, atol=1e-9, equal_nan=True)


@pytest.mark.filterwarnings("ignore:step 31 is past total_steps")
@pytest.mark.parametrize("name", ["sgd", "heavy-ball", "adam"])
def test_a_captured_step_equals_the_eager_one_on_the_host(schedule, name):
    used = Captured(schedule, name).run(range(STEPS + 3))
    task = move(Task())
    optimizer = make(name, task.model.parameters(), 0.1 if name != "adam" else torch.tensor(0.1, device="cuda"))
    lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5)
    expected = []
    for step in range(STEPS + 3):
        loss = task.backward(step, optimizer)
        lr.step(loss)
        optimizer.step()
        expected.append(float(lr.get_last_lr()[0]))
    assert used == pytest.approx(expected, rel=2e-3)


@pytest.mark.filterwarnings("ignore:step 31 is past total_steps")
def test_a_step_never_synchronises(schedule):
    task = move(Task())
    optimizer = SGD(task.model.parameters(), lr=torch.tensor(0.1, device="cuda"), fused=True)
    lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5)
    task.backward(0, optimizer)
    torch.cuda.synchronize()
    with warnings.catch_warnings(action="ignore"):  # "a prototype feature"
        torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(STEPS):
            loss = task.backward(step, optimizer)
            lr.observe(loss)
            lr.observe(loss)
            lr.step()
            lr.step(loss)
            lr.step()
            lr.get_last_lr()
            optimizer.step()
        lr.extend(2 * STEPS)
        lr.step(loss)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert lr.status()["step"] == 2 * STEPS + 1


def test_phases_switch_and_extend_works_inside_a_graph(schedule):
    run = Captured(schedule, "sgd", total_steps=12)
    k = schedule.num_phases
    for step in range(14):
        run.run([step])
        assert run.lr.status()["phase"] == min(k * step // 12, k - 1)
    run.lr.extend(60)
    run.run([14])
    assert run.lr.status()["phase"] == min(k * 14 // 60, k - 1)


def test_a_new_end_reaches_a_captured_step():
    schedule = Schedule(DecayNet(0.0, 0.0), Card(gamma=Gamma("fixed", value=0.5)))
    run = Captured(schedule, "sgd", total_steps=40)
    run.run(range(10))
    run.lr.anneal(8)
    assert run.run(range(10, 18)) == pytest.approx([0.375 * (1 - k / 8) for k in range(8)], rel=1e-5)


def test_a_captured_run_resumes_in_another_process_form(schedule):
    whole = Captured(schedule, "sgd").run(range(STEPS))
    first = Captured(schedule, "sgd")
    used = first.run(range(10))
    second = Captured(schedule, "sgd")
    second.task.model.load_state_dict(first.task.model.state_dict())
    second.lr.load_state_dict(first.lr.state_dict())
    assert used + second.run(range(10, STEPS)) == whole


def test_a_nonfinite_loss_inside_a_graph_is_held_and_told_later(schedule):
    run = Captured(schedule, "sgd")
    before = run.run(range(5))[-1]
    with torch.no_grad():
        good = run.task.model[0].bias.clone()
        run.task.model[0].bias.fill_(math.nan)
    assert run.run([5]) == [before]
    with torch.no_grad():
        run.task.model[0].bias.copy_(good)
    with pytest.warns(UserWarning, match="a loss was not finite"):
        run.lr.report_problems()
    report = run.lr.status()
    assert (report["step"], report["nonfinite"]) == (5, 1)


def test_raising_is_refused_under_capture(schedule):
    optimizer = SGD([weight_with_gradient("cuda")], lr=torch.tensor(0.1, device="cuda"), fused=True)
    lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5, on_nonfinite="raise")
    loss = torch.tensor(1.6, device="cuda")
    lr.step(loss)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss.add_(0)
        with pytest.raises(RuntimeError, match="cannot be captured in a graph"):
            lr.step(loss)


def test_export_lambda_replays_a_captured_run(schedule):
    run = Captured(schedule, "sgd")
    used = run.run(range(STEPS))
    optimizer = SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    replay = run.lr.export_lambda(optimizer)
    replayed = []
    for _ in used:
        replayed.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        replay.step()
    assert replayed == used


def test_a_cpu_tensor_lr_waits_for_a_loss_on_the_gpu(schedule):
    def lrs(device):
        weight = weight_with_gradient("cuda")
        lr = LearnedLR(SGD([weight], lr=torch.tensor(0.1, device=device)), schedule, total_steps=STEPS, num_classes=5)
        busy, used = torch.randn(4096, 4096, device="cuda"), []
        for step in range(5):
            for _ in range(20):  # work before the loss is ready
                busy = busy @ busy / 64
            lr.step((busy.sum() * 0).nan_to_num() + 1.6 - 0.1 * step)
            used.append(float(lr.get_last_lr()[0]))
        return used

    assert lrs("cpu") == pytest.approx(lrs("cuda"), rel=1e-4)


def test_loading_the_optimizer_between_replays_keeps_the_lrs_in_step(schedule):
    run = Captured(schedule, "sgd")
    run.run(range(5))
    run.optimizer.load_state_dict(run.optimizer.state_dict())
    run.run(range(5, 8))
    assert run.lr.get_last_lr()[0].item() == run.lr.status()["lr"]
    assert run.lr.status()["step"] == 8


def test_a_graph_from_before_extend_cannot_be_exported(schedule):
    run = Captured(schedule, "sgd")
    run.run(range(3))
    run.lr.extend(10 * STEPS + 2000)
    run.run(range(3, 6))
    with pytest.raises(RuntimeError, match="3 of 6 LRs are on record"):
        run.lr.export_lambda()


def test_without_a_compiler_the_torch_path_is_used(monkeypatch, schedule):
    from mlrsnet._engine import kernel

    if type(schedule.net).__name__ == "MLPNet":
        pytest.skip("has no kernel")

    def no_compiler(*arguments, **keywords):
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(kernel.FusedStep, "__call__", no_compiler)
    optimizer = SGD([weight_with_gradient("cuda")], lr=torch.tensor(0.1, device="cuda"))
    with pytest.warns(UserWarning, match="could not be compiled"):
        lr = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5)
    lr.step(torch.tensor(1.6, device="cuda"))
    assert lr.status()["step"] == 1


@pytest.mark.parametrize("name", ["sgd", "heavy-ball", "adam"])
def test_a_captured_measurement_equals_the_eager_one(name):
    """Also after the first state is loaded again: the graph was captured when something had been measured."""
    torch.manual_seed(1)
    schedule = SCHEDULES["measured"]()
    run, task = Captured(schedule, name), move(Task())
    used = run.run(range(STEPS))
    optimizer = make(name, task.model.parameters(), torch.tensor(0.1, device="cuda"))
    lr, expected = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=5), []
    for step in range(STEPS):
        lr.step(task.backward(step, optimizer))
        optimizer.step()
        expected.append(float(lr.get_last_lr()[0]))
    assert used == pytest.approx(expected, rel=1e-4)
    assert run.lr.engine.meter.numbers() == pytest.approx(lr.engine.meter.numbers(), rel=1e-3)


@pytest.mark.parametrize(("optimizer", "tensor_lr"), [("SGD", False), ("SGD", True), ("AdamW", False)])
def test_a_measured_range_with_weights_on_two_devices(tensor_lr, optimizer):
    def run(devices):
        torch.manual_seed(2)
        weights = [torch.nn.Parameter(torch.randn(6, 6).to(device)) for device in devices]
        lr = torch.tensor(0.1, device="cuda") if tensor_lr else 0.1
        torch.manual_seed(1)
        schedule = SCHEDULES["measured"]()
        made = getattr(torch.optim, optimizer)(weights, lr=lr, foreach=False)
        learned = LearnedLR(made, schedule, total_steps=STEPS, num_classes=5)
        for step in range(8):
            for weight in weights:
                weight.grad = torch.sin(weight.detach() * (step + 1))
            learned.step(1.5)
            made.step()
        return [float(value) for value in learned.get_last_lr()]

    assert run(["cuda", "cpu"]) == pytest.approx(run(["cuda", "cuda"]), rel=1e-3)


@pytest.mark.parametrize("fused", [False, True])
def test_a_float_lr_with_weights_on_the_gpu_waits_for_nothing_in_the_optimizers_step(fused):
    task = move(Task())
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=0.1, fused=fused)
    lr = LearnedLR(optimizer, SCHEDULES["measured"](), total_steps=STEPS, num_classes=5)
    for step in range(4):
        lr.step(task.backward(step, optimizer))
        torch.cuda.synchronize()
        with warnings.catch_warnings(action="ignore"):  # "a prototype feature"
            torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert lr.engine.meter.numbers()[1] > 0


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_meta_training_on_the_gpu_follows_the_cpu(precision, tensor_lr):
    def run(device):
        task, scaler = Task(), None
        if device == "cuda":
            move(task)
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
            every=3,
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

    (on_cpu, _), (on_gpu, meta) = run("cpu"), run("cuda")
    assert on_gpu == pytest.approx(on_cpu, rel=1e-3 if precision == "float32" else 3e-2)
    assert (meta.num_updates, meta.skipped_updates) == (4, 0)
