"""Accelerate: a `LearnedLR` that is called for every micro-batch and steps once per optimizer step.

Accelerate's own scheduler wrapper would step once per process and drop the losses of micro-batches.
"""

import os
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from mlrsnet.schedule import DEFAULT, Schedule
from mlrsnet.scheduler import LearnedLR

try:
    from accelerate import Accelerator, DistributedType
except ImportError as error:
    raise ImportError(
        f"mlrsnet.integrations.accelerate needs accelerate, which cannot be imported ({error}): "
        "pip install 'mlrsnet[accelerate]'"
    ) from None

__all__ = ["AcceleratedLR"]

STEPS_IN_BACKWARD = (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)


class AcceleratedLR(LearnedLR):
    """`LearnedLR` under an `Accelerator`: call `step(loss)` for every batch, after `backward`, before `optimizer.step()`.

    It registers itself for checkpointing, so `save_state` and `load_state` include it. Passing it to `prepare` is allowed
    and changes nothing.

    Args:
        accelerator: the training's `Accelerator`.
        optimizer: the training's optimizer, prepared or not.
        schedule: a name, the path of a `.safetensors` file, `hf://owner/name`, or a `Schedule`.
        total_steps: optimizer steps of the whole training. A step of all processes together counts once: with a prepared
            loader, pass `epochs * ceil(len(loader) / accelerator.gradient_accumulation_steps)`.
        options: other arguments of `LearnedLR`.

    >>> import torch, mlrsnet
    >>> from accelerate import Accelerator
    >>> accelerator = Accelerator(cpu=True)
    >>> model = torch.nn.Linear(4, 3)
    >>> model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> lr = AcceleratedLR(accelerator, optimizer, "cifar10-patches", total_steps=5, num_classes=3)
    >>> for _ in range(5):
    ...     with accelerator.accumulate(model):
    ...         loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))
    ...         accelerator.backward(loss)
    ...         lr.step(loss)
    ...         optimizer.step()
    ...         optimizer.zero_grad()
    >>> lr.last_epoch
    5
    """

    def __init__(
        self,
        accelerator: Accelerator,
        optimizer: Optimizer,
        schedule: str | os.PathLike[str] | Schedule = DEFAULT,
        *,
        total_steps: int | None,
        **options: Any,
    ) -> None:
        if not isinstance(accelerator, Accelerator):
            raise TypeError(
                f"accelerator must be an accelerate.Accelerator, got {type(accelerator).__name__}: pass the training's "
                "accelerator first, then the optimizer"
            )
        if accelerator.distributed_type in STEPS_IN_BACKWARD:
            raise ValueError(
                f"accelerator must leave the step to optimizer.step(), got {accelerator.distributed_type.value}, which "
                "steps inside accelerator.backward(loss), before the LR is known: train with DDP or FSDP"
            )
        super().__init__(optimizer, schedule, total_steps=total_steps, **options)
        self._gradients = accelerator.gradient_state
        accelerator.register_for_checkpointing(self)

    def step(self, loss: float | Tensor | None = None) -> None:  # type: ignore[override]
        """Observe the loss of a micro-batch. If the optimizer steps next, set the LR from the mean of the losses observed.

        Pass the loss that you gave to `accelerator.backward`, undivided.
        """
        if self._gradients.sync_gradients:
            super().step(loss)
        elif loss is not None:
            self.observe(loss)
