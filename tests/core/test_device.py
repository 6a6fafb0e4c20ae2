"""The device engine without a GPU: nothing is read back, and the kernel equals the reference."""

import math
import os
import subprocess
import sys

import pytest
import torch
from cases import SCHEDULES, weight_with_gradient
from mlrsnet._engine.contract import Rule
from mlrsnet._engine.device import DeviceBackend
from mlrsnet._engine.host import HostBackend
from mlrsnet._features import Horizon
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode

from mlrsnet import LearnedLR


class NoReadBack(TorchDispatchMode):
    """Fails on every operation that would wait for a GPU."""

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        name = str(function)
        assert "_local_scalar_dense" not in name, f"{name} reads a tensor back to the host"
        assert "nonzero" not in name, f"{name} needs the host to know a size"
        return function(*arguments, **(keywords or {}))


def test_a_step_reads_nothing_back(schedule):
    optimizer = SGD([weight_with_gradient()], lr=torch.tensor(0.1))
    lr = LearnedLR(optimizer, schedule, total_steps=9, num_classes=5)
    losses = [torch.tensor(loss) for loss in (1.6, math.nan, 1.5, 1.2, 1.0)]
    with NoReadBack():
        for loss in losses:
            lr.observe(loss)
            lr.step(loss)
            lr.step()
            lr.get_last_lr()
        lr.extend(12)
        lr.step(losses[0])
    with pytest.warns(UserWarning, match="a loss was not finite"):
        lr.report_problems()
    assert lr.status()["step"] == 5


def test_the_guard_itself_catches_a_read_back():
    with pytest.raises(AssertionError, match="reads a tensor back"), NoReadBack():
        float(torch.ones(1))


def test_host_and_device_engines_agree_step_by_step(schedule):
    rule = Rule(schedule, 5, 0.7, 1e-7, 30.0)
    host = HostBackend(rule, 20, None, 0.1)
    device = DeviceBackend(rule, 20, None, 0.1, torch.device("cpu"))
    device.bind([{"lr": 0.1}, {"lr": 0.3}], [1.0, 3.0])
    for backend in (host, device):
        backend.set_ratio(torch.tensor(2.5))  # |w| / |d|, as a relative range measures it
    for step in range(26):
        if step == 15:
            for backend in (host, device):
                backend.set_horizon(Horizon(20).annealed(13, 7))
        loss = math.nan if step in (0, 7) else 2.0 - 0.06 * step + 0.3 * math.sin(step)
        host.step(loss)
        device.step(torch.tensor(loss))
        assert device.group_lrs.tolist() == pytest.approx([host.alpha(), 3 * host.alpha()], rel=1e-4)
    a, b = host.snapshot(), device.snapshot()
    assert {key: a[key] for key in ("step", "phase", "nonfinite", "outside")} == {
        key: b[key] for key in ("step", "phase", "nonfinite", "outside")
    }
    torch.testing.assert_close(a["memory"], b["memory"], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(a["history"], b["history"], rtol=1e-4, atol=1e-9)


def test_a_compiled_training_step_may_use_a_tensor_lr(paper):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = SGD([weight], lr=torch.tensor(0.1))
    lr = LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    update = torch.compile(optimizer.step, backend="aot_eager")
    for _ in range(3):
        loss = (weight**2).sum()
        optimizer.zero_grad()
        loss.backward()
        before = weight.detach().clone()
        lr.step(loss)
        update()
        expected = before - optimizer.param_groups[0]["lr"] * 2 * before
        torch.testing.assert_close(weight.detach(), expected)


LOCKSTEP = """
import math, os, sys, warnings
sys.path[:0] = sys.argv[1].split(os.pathsep)
warnings.simplefilter("ignore")  # the interpreter uses numpy, which warns about NaN
import torch
from cases import SCHEDULES
from mlrsnet._engine.device import DeviceBackend
from mlrsnet._engine.kernel import FusedStep
from mlrsnet._engine.contract import Rule
from mlrsnet._features import Horizon

torch.manual_seed(1)
rule = Rule(SCHEDULES[sys.argv[2]](), 5, 1.0, 1e-7, 30.0)
device = torch.device("cpu")
plain, fused = (DeviceBackend(rule, 12, None, 0.1, device) for _ in range(2))
fused.kernel = FusedStep.build(rule, device)
assert fused.kernel is not None
for engine in (plain, fused):
    engine.bind([{"lr": lr} for lr in (0.1, 0.3, 0.0)], [1.0, 3.0, 0.0])
    engine.set_ratio(torch.tensor(2.5))
for step in range(16):
    if step in (5, 9):  # an end earlier than planned, and a later one
        line = (line if step == 9 else Horizon(12)).annealed(int(plain.counts[0]), step - 2)
        for engine in (plain, fused):
            engine.set_horizon(line)
    loss = torch.tensor({0: math.nan, 3: 0.0, 7: math.nan, 13: -0.5}.get(step, 2.0 - 0.1 * step))
    plain.step(loss)
    fused.step(loss)
    torch.testing.assert_close(fused.group_lrs, plain.group_lrs, rtol=2e-5, atol=1e-9)
    torch.testing.assert_close(fused.counts, plain.counts)
    torch.testing.assert_close(fused.values, plain.values, rtol=2e-5, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(fused.carry.memory, plain.carry.memory, rtol=1e-4, atol=2e-6)
torch.testing.assert_close(fused.history, plain.history, rtol=2e-5, atol=1e-9, equal_nan=True)
print(int(fused.counts[0]), "steps in lockstep")
"""


MEMBERS = """
import math, os, sys, warnings
sys.path[:0] = sys.argv[1].split(os.pathsep)
warnings.simplefilter("ignore")
import torch
from cases import SCHEDULES
from mlrsnet.lab.horizon.policies import Networks
from mlrsnet._engine.kernel import FusedMembers

torch.manual_seed(1)
schedule, cpu = SCHEDULES[sys.argv[2]](), torch.device("cpu")
schedule = type(schedule)(schedule.net, schedule.card)  # one phase
plain, fused = (Networks(schedule, 5, cpu) for _ in range(2))
fused.kernel = FusedMembers.build(fused.rule, 5, cpu)
assert fused.kernel is not None
row = torch.cat([parameter.detach().flatten() for parameter in schedule.net.parameters()])
weights = row + 0.1 * torch.randn(5, len(row))
for policy in (plain, fused):
    policy.configure(weights)
    policy.begin(12, torch.tensor([1.0, 0.1, 0.01, 2.0, 1.0]), torch.tensor([2.0, 5.0, 10.0, 100.0, 7.0]))
for step in range(16):
    losses = 1.2 + torch.rand(5)
    losses[2] = math.nan if step in (0, 7) else losses[2]
    if sys.argv[2] == "decay":  # the logarithm of a trend would be rounded in other ways
        losses[3] = {3: 0.0, 13: -0.5}.get(step, losses[3])
    torch.testing.assert_close(fused.lrs(losses), plain.lrs(losses), rtol=2e-5, atol=1e-9)
    torch.testing.assert_close(fused.counts[:, :5], plain.counts[:, :5])
    torch.testing.assert_close(fused.values, plain.values, rtol=2e-5, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(fused.memory, plain.memory, rtol=1e-4, atol=2e-6)
print(int(fused.counts[2, 0]), "steps in lockstep")
"""


@pytest.mark.parametrize("code", [LOCKSTEP, MEMBERS], ids=["one", "many"])
@pytest.mark.parametrize("name", [name for name in SCHEDULES if name not in ("mlp", "first-loss", "reading")])
def test_the_kernel_equals_the_reference_in_tritons_interpreter(tmp_path, name, code):
    pytest.importorskip("triton")
    script = tmp_path / "lockstep.py"
    script.write_text(code)
    result = subprocess.run(
        [sys.executable, script, os.pathsep.join(sys.path), name],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "14 steps in lockstep" in result.stdout
