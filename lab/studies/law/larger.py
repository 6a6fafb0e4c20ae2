"""Networks ten times wider than those of the table, trained longer, on a GPU: kept out of every fit, to judge laws by."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lab.studies.law import data, nets
from lab.studies.law.families import ADAM, ANY, Draw, Task, classified, measured, written
from lab.studies.law.fill import Plan, filled

FIRST = 10_000
"""The number of the first of these rows: the table's are below."""

STEPS = (400, 2500)
Kind = Callable[[Draw, Path, torch.device], Task]


def _on(device: torch.device, build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Drawn on the host, so that it begins the same everywhere."""
    return lambda: build().to(device)


def _shown(draw: Draw, folder: Path, device: torch.device) -> Any:
    x, y = data.pictures(folder, draw.pick(("large cifar", "large cifar", "fashion")))
    return x.to(device), y.to(device)


def _mlp(depths: tuple[int, ...], norms: tuple[str, ...]) -> Kind:
    def make(draw: Draw, folder: Path, device: torch.device) -> Task:
        x, y = _shown(draw, folder, device)
        width, depth, norm = draw.pick((1024, 2048)), draw.pick(depths), draw.pick(norms)
        build = _on(device, lambda: nets.mlp(x[0].numel(), 10, width, depth, norm))
        return classified(build, x, y, batches=(32, 128, 512), steps=STEPS)

    return make


def _convolution(residual: bool) -> Kind:
    def make(draw: Draw, folder: Path, device: torch.device) -> Task:
        x, y = _shown(draw, folder, device)
        width, depth = draw.pick((128, 256)), draw.pick((3, 6))

        def build() -> nn.Module:
            return (
                nets.resnet(x.shape[1], 10, width, depth) if residual else nets.cnn(x.shape[1], 10, width, depth, True)
            )

        return classified(_on(device, build), x, y, batches=(32, 128, 256), steps=STEPS)

    return make


def _vit(draw: Draw, folder: Path, device: torch.device) -> Task:
    x, y = data.pictures(folder, "large cifar")
    x, y, width, depth = x.to(device), y.to(device), draw.pick((256, 384)), draw.pick((4, 6))
    build = _on(device, lambda: nets.vit(x.shape[1], x.shape[2], 10, width, depth))
    return classified(build, x, y, optimizers=ADAM, batches=(32, 128, 256), steps=STEPS)


def _text(folder: Path, device: torch.device) -> torch.Tensor:
    return data.text(folder, "large wikipedia")[0].to(device)


def _gpt(draw: Draw, folder: Path, device: torch.device) -> Task:
    width, depth, init = draw.pick((256, 384, 512)), draw.pick((4, 6)), draw.pick(("gpt2", "torch"))
    build = _on(device, lambda: nets.gpt(data.SYMBOLS, 128, width, depth, init))
    return written(build, _text(folder, device), 128, optimizers=ADAM, batches=(16, 64, 128), steps=STEPS)


def _recurrent(draw: Draw, folder: Path, device: torch.device) -> Task:
    width = draw.pick((512, 1024))
    build = _on(device, lambda: nets.Recurrent(data.SYMBOLS, width, nn.LSTM))
    return written(build, _text(folder, device), 64, optimizers=ANY, batches=(32, 128), steps=STEPS)


def _rebuilt(noise: bool) -> Kind:
    def make(draw: Draw, folder: Path, device: torch.device) -> Task:
        x = _shown(draw, folder, device)[0].flatten(1)
        width, depth, code = draw.pick((1024, 2048)), draw.pick((2, 4)), draw.pick((16, 32))

        def cost(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
            if not noise:
                again, price = model(x)
                return ((again - x).square().sum(1) + price).mean()
            time, drawn = torch.rand(len(x), device=x.device), torch.randn_like(x)
            mixed = (1 - time)[:, None].sqrt() * x + time[:, None].sqrt() * drawn
            return functional.mse_loss(model(mixed, time), drawn)

        def build() -> nn.Module:
            side = x.shape[1]
            return nets.Denoiser(side, width, depth) if noise else nets.VAE(side, width, code, True)

        kinds, batches = ("adam", "adamw"), (32, 128, 512)
        return measured(_on(device, build), cost, x, optimizers=kinds, batches=batches, steps=STEPS)

    return make


KINDS: dict[str, Kind] = {
    "gpt": _gpt,
    "resnet": _convolution(True),
    "vit": _vit,
    "mlp, norms": _mlp((2, 4), ("batch", "layer")),
    "noise": _rebuilt(True),
    "recurrent": _recurrent,
    "cnn, norms": _convolution(False),
    "mlp": _mlp((2, 3), ("none",)),
    "vae": _rebuilt(False),
}


def fill_row(number: int, folder: Path) -> dict[str, Any]:
    """One row, on the GPU if there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    name, draw = tuple(KINDS)[(number - FIRST) % len(KINDS)], Draw(number)
    task = KINDS[name](draw, folder, device)
    steps, batch, optimizer = round(draw.between(*task.steps)), draw.pick(task.batches), draw.pick(task.optimizers)
    wanted = round(steps * batch / draw.between(0.5, 20))
    examples = int(np.clip(wanted, min(2000, task.examples), task.examples))
    decay = 0.1 if optimizer == "adamw" else 0.0
    return {**filled(number, name, task, Plan(optimizer, steps, batch, examples, decay, 1.0, number)), "larger": True}
