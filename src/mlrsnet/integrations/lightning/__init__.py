"""Learned schedules inside a Lightning Trainer.

When Lightning calls the hooks, and what happens in them:

    every micro-batch     training_step, on_before_zero_grad, on_before_backward (the loss is observed), backward
    last of a window      unscale, on_before_optimizer_step (the LR is set), clip, optimizer.step
"""

from mlrsnet.integrations.lightning.learned_lr import LearnedLRCallback
from mlrsnet.integrations.lightning.loss_feed import LossFeed
from mlrsnet.integrations.lightning.meta_train import MetaTrainCallback

__all__ = ["LearnedLRCallback", "LossFeed", "MetaTrainCallback"]
