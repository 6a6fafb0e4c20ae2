"""The first steps on a network like BERT with used gains: the LR, and how far the weights move beside what is wanted."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from mlrsnet import LearnedLR
from mlrsnet._optimizers import noise_scale
from mlrsnet.default import Default, course, kept
from mlrsnet.facts import read_facts
from mlrsnet.sensors import count

PLANNED, STEPS, WORDS = 1000, 60, 8000
SIZES = {"BERT of 512 x 8": (512, 8)}


def network(width: int, layers: int) -> nn.Module:
    """Drawn as new; its gains are spread around 1, as if used."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(vocab_size=WORDS, hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64,
                        intermediate_size=4 * width)  # fmt: skip
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    for layer in model.modules():
        if isinstance(layer, nn.LayerNorm):
            nn.init.normal_(layer.weight, 1.0, 0.2)
    return model


def steps(name: str, tells: bool) -> dict[str, Any]:
    """lrs: of each step. longest: |step| / |weights| divided by what is wanted, at its largest."""
    model = network(*SIZES[name])
    weights = list(model.parameters())
    optimizer, facts = AdamW(weights, lr=1.0), read_facts(weights)
    lr = LearnedLR(optimizer, total_steps=PLANNED)
    lrs, ratios, losses = [], [], []
    for step in range(STEPS):
        loss = _loss(model)
        optimizer.zero_grad()
        loss.backward()
        before = [weight.detach().clone() for weight in weights if weight.ndim >= 2]
        if tells:
            lr.step(loss)
        optimizer.step()
        lrs.append(float(optimizer.param_groups[0]["lr"]))
        ratios.append(
            _moved(before, [weight for weight in weights if weight.ndim >= 2]) / _wanted(step, facts, optimizer)
        )
        losses.append(float(loss.detach()))
    return {"name": name, "tells": tells, "numbers": facts.parameters, "is_trained": facts.is_trained, "peak": max(lrs),
            "longest": max(ratios), "losses": [losses[0], losses[-1]], "lrs": lrs, "ratios": ratios}  # fmt: skip


def _loss(model: nn.Module) -> Tensor:
    """Of words that are frequent or rare, as in a text."""
    words = (WORDS * torch.rand(4, 32) ** 4).long()
    found: Tensor = model(input_ids=words.where(torch.rand(4, 32) > 0.15, 0), labels=words).loss
    return found


def _moved(before: list[Tensor], after: list[nn.Parameter]) -> float:
    """As the law counts: a matrix as if it were square."""
    moved, lengths = (
        sum(count(one.shape) ** 2 * float(one.square().sum()) for one in some)
        for some in ([new.detach() - old for old, new in zip(before, after, strict=True)], before)
    )
    return math.sqrt(moved / lengths)


def _wanted(step: int, facts: Any, optimizer: AdamW) -> float:
    """Without what the loss adds."""
    law = Default()
    return (
        law.size(facts, PLANNED)
        * kept(facts)
        * law.begin(facts).caution
        * float(course(step / PLANNED))
        * noise_scale(optimizer.param_groups[0])
    )
