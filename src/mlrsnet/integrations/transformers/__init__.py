"""Learned schedules in the Transformers `Trainer`, as a callback or by `lr_scheduler_type="learned"`.

A script whose code you do not want to touch can be started with

    python -m mlrsnet.integrations.transformers run_glue.py --lr_scheduler_type learned ...
"""

from mlrsnet.integrations.transformers.callback import LearnedLRCallback
from mlrsnet.integrations.transformers.scheduler_type import register

__all__ = ["LearnedLRCallback", "register"]
