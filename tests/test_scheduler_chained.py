"""LearnedLR on its own: schedulers that would step it without a loss are refused."""

import pytest
from engines import sgd
from torch.optim.lr_scheduler import LinearLR, SequentialLR

from mlrsnet import LearnedLR


def test_sequential_lr_is_refused_with_what_to_do(paper):
    optimizer = sgd()
    warm_up, lr = LinearLR(optimizer), LearnedLR(optimizer, paper, total_steps=9, num_classes=5)
    with pytest.raises(TypeError, match=r"last_epoch must not be set: .* use LearnedLR on its own"):
        SequentialLR(optimizer, [warm_up, lr], milestones=[2])


def test_a_scheduler_says_which_schedule_and_how_far(paper):
    lr = LearnedLR(sgd(), paper, total_steps=9, num_classes=5)
    lr.step(1.6)
    assert repr(lr) == "LearnedLR('unnamed', step 1 of 9)"
