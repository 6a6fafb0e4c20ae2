"""Files that version 0.1 saved still load, and training continues with the LRs that it would have had.

`version_0_1/` was written by version 0.1.0: a schedule, and the states of a `LearnedLR` and a `MetaTrainer` after four steps. In
float64, so that every CPU gives these LRs.
"""

import json
from pathlib import Path

import pytest
import torch
from engines import LOSSES, lrs_for, sgd
from torch import nn
from torch.optim import SGD

from mlrsnet import LearnedLR, LSTMNet, MetaTrainer, Schedule

SAVED = Path(__file__).parent / "version_0_1"
LRS = json.loads((SAVED / "lrs.json").read_text())
AFTER = 4


def read(name):
    return torch.load(SAVED / name, weights_only=True)


def test_a_schedule_of_version_0_1_gives_its_lrs():
    schedule = Schedule.load(SAVED / "schedule.safetensors")
    assert schedule.card.name == "saved by 0.1"
    lr = LearnedLR(sgd(), schedule, total_steps=9, num_classes=5)
    assert lrs_for(lr, LOSSES) == pytest.approx(LRS["learned_lr"], rel=1e-9)


def test_a_training_stopped_under_version_0_1_continues():
    lr = LearnedLR(sgd(), SAVED / "schedule.safetensors", total_steps=9, num_classes=5)
    lr.load_state_dict(read("learned_lr.pt"))
    assert lr.last_epoch == AFTER
    assert lrs_for(lr, LOSSES[AFTER:]) == pytest.approx(LRS["learned_lr"][AFTER:], rel=1e-9)


def test_a_meta_training_stopped_under_version_0_1_continues():
    generator, saved = torch.Generator().manual_seed(3), read("meta_trainer.pt")
    x = torch.randn(12, 4, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (12, 4), generator=generator)
    model = nn.Linear(3, 2).double()
    optimizer = SGD(model.parameters(), lr=0.1)

    def loss(batch):
        return nn.functional.cross_entropy(model(x[batch]), y[batch])

    net = LSTMNet(6).double()
    meta = MetaTrainer(model, optimizer, total_steps=8, val_loss=lambda: loss(11), net=net, num_classes=2, every=3)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    meta.load_state_dict(saved["meta"])
    used = []
    for batch in range(AFTER, 8):
        value = loss(batch)
        optimizer.zero_grad()
        value.backward()
        meta.step(value)
        used.append(optimizer.param_groups[0]["lr"])
    assert used == pytest.approx(LRS["meta_trainer"][AFTER:], rel=1e-9)
    assert meta.num_updates == 3
