"""Rows of the study: a trained network, a rule for its LR, a seed."""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from lab.studies.trained import crepe, tones
from mlrsnet import LearnedLR
from mlrsnet.default import Default
from mlrsnet.facts import read_facts

NETWORKS: dict[str, tuple[str, int, int]] = {"tiny": ("tiny", 1, 200), "full": ("full", 3, 100)}
"""Size, first trained layer, steps. The first two layers of the full one are frozen: a CPU has no time for them."""

BATCH, EXAMPLES, HELD_OUT = 16, 640, 200
USUAL = (1e-5, 1e-4, 1e-3)
Rule = Callable[[Optimizer, int], Any]


def learned(tells: bool = True, **options: Any) -> tuple[Rule, bool]:
    """The default, and whether it is told losses."""
    return lambda optimizer, steps: LearnedLR(optimizer, total_steps=steps, **options), tells


def cosine(lr: float) -> tuple[Rule, bool]:
    """A cosine with warm-up."""

    def rule(optimizer: Optimizer, steps: int) -> LambdaLR:
        return LambdaLR(optimizer, lambda step: lr * min(1.0, (step + 1) / (0.1 * steps)) * _half(step / steps))

    return rule, False


def _half(u: float) -> float:
    return (1 + math.cos(math.pi * u)) / 2


ROWS: dict[str, tuple[Rule, bool] | None] = {
    "doing nothing": None,
    "default": learned(),
    **{f"cosine from {lr:g}": cosine(lr) for lr in USUAL},
    "without losses": learned(tells=False),
    "trained=False": learned(trained=False),
    "scale=0.3": learned(scale=0.3),
    "scale=3": learned(scale=3.0),
    "without waiting": learned(schedule=Default(caution=1.0)),
}


class Known(NamedTuple):
    """What a network was given: inputs of its first trained layer, and pitches."""

    inputs: Tensor
    cents: Tensor


@cache
def data(folder: Path, name: str, seed: int) -> dict[str, Known]:
    """Training sounds of the new kind, drawn for a seed; the others are the same for all."""
    network = crepe.load(folder, *NETWORKS[name][:2])
    drawn = {
        "training": tones.draw("new", EXAMPLES, 100 + seed),
        "validation": tones.draw("new", HELD_OUT, 1),
        "new": tones.draw("new", HELD_OUT, 2),
        "old": tones.draw("old", HELD_OUT, 3),
    }
    return {part: Known(network.inputs(sounds.inputs), sounds.cents) for part, sounds in drawn.items()}


def run(folder: Path, name: str, row: str, seed: int) -> dict[str, Any]:
    """Fine-tune, and judge on both kinds of sounds. Weights decay as AdamW's do."""
    torch.manual_seed(seed)
    network, parts, steps = crepe.load(folder, *NETWORKS[name][:2]), data(folder, name, seed), NETWORKS[name][2]
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    facts = read_facts(weights)
    lrs = train(network, AdamW(weights, lr=1.0), parts["training"], ROWS[row], steps)
    found = {part: judged(network, parts[part]) for part in ("validation", "new", "old")}
    about = {"network": name, "row": row, "seed": seed, "steps": steps}
    return {
        **about,
        "numbers": facts.parameters,
        "is_trained": facts.is_trained,
        "peak": max(lrs, default=0.0),
        **found,
    }


def train(
    network: crepe.Crepe, optimizer: AdamW, known: Known, rule: tuple[Rule, bool] | None, steps: int
) -> list[float]:
    """The LR of each step."""
    if rule is None:
        return []
    make, tells = rule
    schedule, lrs = make(optimizer, steps), []
    for _ in range(steps):
        some = torch.randint(len(known.cents), (BATCH,))
        loss = binary_cross_entropy_with_logits(network(known.inputs[some]), tones.targets(known.cents[some]))
        optimizer.zero_grad()
        loss.backward()
        if tells:
            schedule.step(loss)
        optimizer.step()
        lrs.append(float(optimizer.param_groups[0]["lr"]))
        if isinstance(schedule, LambdaLR):
            schedule.step()
    return lrs


@torch.no_grad()
def judged(network: crepe.Crepe, known: Known) -> float:
    """The share of sounds whose pitch it tells."""
    parts = [network(some) for some in known.inputs.split(50)]
    return float(tones.correct(torch.cat(parts), known.cents).float().mean())
