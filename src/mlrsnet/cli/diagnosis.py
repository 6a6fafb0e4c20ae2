"""What `mlrsnet doctor` prints: facts for a bug report, and a self-test of a few seconds.

The checks are plain functions that raise. Each compares two ways to compute the same numbers.
"""

import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

import mlrsnet
from mlrsnet import card
from mlrsnet.cli.schedules import network
from mlrsnet.files import names
from mlrsnet.meta import Learning, MetaTrainer
from mlrsnet.nets import LSTMNet
from mlrsnet.schedule import Schedule
from mlrsnet.scheduler import LearnedLR

STEPS = 30
ENVIRONMENT = ("MLRSNET_HOME", "MLRSNET_DATA", "MLRSNET_DEBUG", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Check:
    """The result of one check; `problem` is empty if it passed."""

    name: str
    seconds: float
    problem: str = ""


def facts() -> dict[str, dict[str, str]]:
    """Versions, installed extras, devices, schedules and settings."""
    return {
        "versions": {
            "mlrsnet": mlrsnet.__version__,
            **card.versions(),
            "safetensors": _version("safetensors"),
            "system": platform.platform(),
        },
        "extras": {
            extra: ", ".join(f"{name} {_version(name)}" for name in names) for extra, names in _extras().items()
        },
        "devices": dict(_devices()),
        "schedules": {name: str(path) for name, path in sorted(names.available().items())},
        "settings": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }


def self_test() -> Iterator[Check]:
    """Run the checks one by one. A check that fails does not stop the others."""
    for name, check in _checks().items():
        start = time.perf_counter()
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                check()
            problem = ""
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        yield Check(name, time.perf_counter() - start, problem)


def _checks() -> dict[str, Callable[[], None]]:
    checks: dict[str, Callable[[], None]] = {
        "every known schedule gives an LR": _schedules_give_lrs,
        "a training under the default learns": _training_learns,
        "a stopped training resumes bit for bit": _training_resumes,
        "a tensor LR gives the same LRs as a float LR": lambda: _tensor_lr_agrees(torch.device("cpu")),
        "the hypergradient equals finite differences": _hypergradient_agrees,
    }
    for number in range(torch.cuda.device_count()):
        device = torch.device("cuda", number)
        checks[f"{device} gives the same LRs as the CPU"] = lambda device=device: _tensor_lr_agrees(device)  # type: ignore[misc]
    return checks


def _schedules_give_lrs() -> None:
    for name in names.available():
        lrs = network(name).simulate([2.3, 1.5, 0.7], num_classes=10)
        if not all(0 < lr < float("inf") for lr in lrs):
            raise AssertionError(f"{name} gave the LRs {lrs}")


def _training_learns() -> None:
    losses, lrs = _train(STEPS)
    if not losses[-1] < 0.8 * losses[0]:
        raise AssertionError(f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}")
    if len(set(lrs)) < STEPS:
        raise AssertionError(f"the LR was not set in every step: {len(set(lrs))} LRs in {STEPS} steps")


def _training_resumes() -> None:
    whole, split = _train(STEPS), _train(STEPS, stop=STEPS // 2)
    if whole != split:
        raise AssertionError("losses or LRs after the stop differ from those of an uninterrupted training")


def _tensor_lr_agrees(device: torch.device) -> None:
    schedule = Schedule([LSTMNet(), LSTMNet()])
    losses = torch.linspace(2.3, 0.3, STEPS)
    lrs = []
    for lr in (0.1, torch.tensor(0.1, device=device)):
        optimizer = SGD([nn.Parameter(torch.zeros((), device=device))], lr=lr)
        learned = LearnedLR(optimizer, schedule, total_steps=STEPS, num_classes=10)
        found = []
        for loss in losses:
            learned.step(loss.to(device) if isinstance(lr, Tensor) else float(loss))
            optimizer.step()
            found.append(float(learned.get_last_lr()[0]))
        lrs.append(torch.tensor(found))
    torch.testing.assert_close(lrs[1], lrs[0], rtol=1e-4, atol=1e-7)


def _hypergradient_agrees() -> None:
    model, x, y = _task(torch.float64)
    val_x, val_y = x[::2], y[::2]
    optimizer = SGD(model.parameters(), lr=0.1)
    before = [weight.detach().clone() for weight in model.parameters()]
    meta = MetaTrainer(
        model,
        optimizer,
        total_steps=1,
        num_classes=3,
        val_loss=lambda: cross_entropy(model(val_x), val_y),
        learning=Learning(every=1),
    )
    loss = cross_entropy(model(x), y)
    loss.backward()
    gradients = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
    meta.step(loss)
    alpha, width = meta.last_provisional_lr, 1e-5
    assert alpha is not None
    assert meta.last_hypergradient is not None

    def val_loss_at(lr: float) -> float:
        with torch.no_grad():
            for weight, start, gradient in zip(model.parameters(), before, gradients, strict=True):
                weight.copy_(start - lr * gradient)
            return float(cross_entropy(model(val_x), val_y))

    expected = (val_loss_at(alpha + width) - val_loss_at(alpha - width)) / (2 * width)
    torch.testing.assert_close(float(meta.last_hypergradient), expected, rtol=1e-4, atol=1e-8)


def _train(steps: int, stop: int | None = None) -> tuple[list[float], list[float]]:
    """Losses and LRs of a small training; after `stop` steps it is saved and rebuilt."""
    torch.manual_seed(0)
    model, x, y = _task(torch.float32)
    optimizer, learned = _under_the_default(model, steps)
    losses, lrs = [], []
    for step in range(steps):
        if step == stop:
            saved = model.state_dict(), optimizer.state_dict(), learned.state_dict()
            model = _task(torch.float32)[0]
            optimizer, learned = _under_the_default(model, steps)
            for part, state in zip((model, optimizer, learned), saved, strict=True):
                part.load_state_dict(state)  # type: ignore[attr-defined]
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        learned.step(loss)
        optimizer.step()
        losses.append(loss.item())
        lrs.append(float(learned.get_last_lr()[0]))
    return losses, lrs


def _under_the_default(model: nn.Module, steps: int) -> tuple[SGD, LearnedLR]:
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    return optimizer, LearnedLR(optimizer, total_steps=steps)


def _task(dtype: torch.dtype) -> tuple[nn.Module, Tensor, Tensor]:
    """Three clusters of points and a network that can separate them; the same every time."""
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(96) % 3
    x = torch.randn(96, 4, generator=generator, dtype=dtype) + 2 * nn.functional.one_hot(y, 4)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)).to(dtype)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=generator, dtype=dtype))
    return model, x, y


def _devices() -> Iterator[tuple[str, str]]:
    yield (
        "cpu",
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
    )
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        memory = about.total_memory / 2**30
        yield f"cuda:{number}", f"{about.name}, {memory:.0f} GiB, capability {about.major}.{about.minor}"
    if not torch.cuda.device_count():
        yield (
            "cuda",
            f"none (torch is built {'for CUDA ' + torch.version.cuda if torch.version.cuda else 'without CUDA'})",
        )


def _extras() -> dict[str, list[str]]:
    """The packages of each extra; empty if mlrsnet is not installed."""
    try:
        lines = metadata.requires("mlrsnet") or []
    except metadata.PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {}
    for line in lines:
        match = re.match(r"""([\w.-]+).*;\s*extra\s*==\s*['"](\w+)['"]""", line)
        if match and match[1] != "mlrsnet" and match[2] != "dev":
            found.setdefault(match[2], []).append(match[1])
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"
