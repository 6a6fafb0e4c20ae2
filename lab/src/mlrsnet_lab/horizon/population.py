"""Many trainings at once, each with its own LR.

Members do not interact, so the gradient of the summed losses holds every member's own gradient.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from mlrsnet.facts import read_facts
from mlrsnet.law import Facts
from mlrsnet.ranges import is_adaptive
from mlrsnet_lab.capture import WARM_UP, captured
from mlrsnet_lab.horizon.batches import Batches
from mlrsnet_lab.horizon.compute import Compute
from mlrsnet_lab.horizon.data import Data
from mlrsnet_lab.horizon.policies import Policy
from mlrsnet_lab.horizon.side_stream import SideStream
from mlrsnet_lab.horizon.stacked_models import StackedModels
from mlrsnet_lab.horizon.task import Task
from mlrsnet_lab.horizon.updates import find

CHUNK = 64
"""Steps whose batches go to the device together."""


class Population:
    """Trainings of tasks of one kind, `members` per task, all advanced by one call per step. `Training` drives it.

    Members of a task start from the same weights and see the same batches: only their LRs differ, and dropout. On a GPU
    the whole step (batch, forward, backward, schedule, optimizer) is captured in one CUDA graph, which later tasks reuse.

    Args:
        task: one of the tasks, for what they share.
        num_tasks: how many tasks train at once.
        members: trainings per task.
        policy: sets the LRs of all trainings.
        run: where and how.
        data: the task's data, if it is on that device already.
    """

    def __init__(
        self,
        task: Task,
        num_tasks: int,
        members: int,
        policy: Policy,
        run: Compute | None = None,
        data: Data | None = None,
    ) -> None:
        self.run, self.members, self.policy = (run := run or Compute()), members, policy
        trainings = num_tasks * members
        self.data = data = (data or task.data).to(run.device, run.dtype)
        self.device, self.dtype = data.inputs.device, run.dtype
        self.label_smoothing, self.clip_norm = task.label_smoothing, task.clip_norm
        self.models = StackedModels(task.fresh_model().to(self.device), trainings, run)
        self.update = find(task.optimizer)
        self.state = self.update.begin(self.models.rows.weights)
        self.policy.follow(self.models.rows, self.update)
        self.weight_decay = torch.zeros(trainings, 1, dtype=self.dtype, device=self.device)
        has_labels = not (data.is_sequence or data.is_regression)
        self.labels = torch.zeros(num_tasks, len(data.targets), device=self.device).long() if has_labels else None
        self.masked = torch.zeros(trainings, data.num_classes, dtype=torch.bool, device=self.device)
        self.indices = torch.zeros(num_tasks, CHUNK, task.batch_size, dtype=torch.long, device=self.device)
        self.mirrored = torch.zeros(num_tasks, CHUNK, task.batch_size, dtype=torch.bool, device=self.device)
        self.step_in_chunk = torch.zeros(1, dtype=torch.long, device=self.device)
        self.losses_and_lrs = torch.zeros(2, trainings, CHUNK, dtype=self.dtype, device=self.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.eager_steps = 0
        self.side_stream = SideStream(self.device)

    def conflicts_with(self, other: "Population") -> bool:
        """Whether the two cannot train at the same time: they are one and the same, or both have dropout.

        In older versions of torch all captured graphs of a device share one random seed and offset.
        """
        return self is other or (self.models.has_dropout and other.models.has_dropout)

    def begin(self, tasks: Sequence[Task]) -> None:
        """Fresh weights and empty optimizer state for these tasks."""
        facts = list[Facts]()
        for number, task in enumerate(tasks):
            rows = slice(number * self.members, (number + 1) * self.members)
            model = task.fresh_model()
            self.models.fill(rows, model)
            told = Facts(num_classes=None if task.data.is_regression else task.num_classes)
            known = read_facts(weight for weight in model.parameters() if weight.requires_grad)
            facts.append(told.seen(known, is_adaptive(self.update.group)))
            self.weight_decay[rows] = task.weight_decay
            self.masked[rows] = torch.arange(self.data.num_classes, device=self.device) >= task.num_classes
            if self.labels is not None:
                self.labels[number] = task.labels().to(self.device)
        for name, value in self.update.begin(self.models.rows.weights).items():
            self.state[name].copy_(value)
        self.policy.begin(tasks[0].total_steps, facts)
        self.models.model.train()

    def advance(self, batches: Sequence[Batches], count: int) -> Tensor:
        """Take up to `CHUNK` steps on the tasks' next batches. Losses and LRs (2, trainings, count)."""
        taken = [one.take(count) for one in batches]
        self._send(torch.stack([indices for indices, _ in taken]), self.indices)
        if self.data.mirrored:
            self._send(torch.stack([mirrored for _, mirrored in taken]), self.mirrored)
        self.step_in_chunk.zero_()
        for _ in range(count):
            self._step_or_replay()
        return self.losses_and_lrs[:, :, :count].clone()

    def step(self) -> None:
        """One step of all trainings, on the device alone."""
        inputs, targets = self._batch()
        losses = self._losses(self._outputs(inputs), targets)
        rows = self.models.rows
        gradients = torch.autograd.grad(losses.sum(), list(rows.views.values()), materialize_grads=True)
        with torch.no_grad():
            flat = rows.gather(gradients)
            if self.clip_norm is not None:
                flat *= (self.clip_norm / (flat.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
            lrs = self.policy.lrs(losses.detach(), flat).to(self.dtype)
            self.update.apply(rows.weights, flat, self.state, lrs.unsqueeze(1), self.weight_decay)
            self.policy.after(lrs)
            now = torch.stack((losses.detach(), lrs)).unsqueeze(2)
            self.losses_and_lrs.index_copy_(2, self.step_in_chunk, now)
            self.step_in_chunk += 1

    @torch.no_grad()
    def evaluate(self, tasks: Sequence[Task]) -> tuple[Tensor, Tensor]:
        """Outputs (trainings, examples, ..., classes) and targets (trainings, examples, ...) of the held-out examples."""
        self.models.model.eval()
        held_out = torch.stack([task.val for task in tasks if task.val is not None]).to(self.device)
        outputs, targets = [], []
        for indices in held_out.split(self.indices.shape[2], dim=1):
            x, y = self._examples(indices)
            outputs.append(self._mask(self._outputs(x).to(self.dtype)))
            targets.append(y)
        self.models.model.train()
        return torch.cat(outputs, dim=1), torch.cat(targets, dim=1)

    def _send(self, values: Tensor, buffer: Tensor) -> None:
        """Copy a chunk to the device. The host does not wait for it."""
        ready = values.pin_memory() if self.device.type == "cuda" else values
        buffer[:, : values.shape[1]].copy_(ready, non_blocking=True)

    def _step_or_replay(self) -> None:
        """A step: eager at first, then captured once where possible, then replayed."""
        if self.graph is None and (self.device.type != "cuda" or not self.run.capture or self.eager_steps < WARM_UP):
            self.step()
            self.eager_steps += 1
            return
        if self.graph is None:
            self.graph = self._capture_step()
        self.graph.replay()

    def _capture_step(self) -> torch.cuda.CUDAGraph:
        try:
            return captured(self.step)[0]
        except RuntimeError as error:
            raise RuntimeError(
                f"the step of {type(self.models.model).__name__} cannot be captured in a CUDA graph ({error}): pass "
                "Compute(capture=False), in a fresh process"
            ) from error

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets (trainings, batch, ...) of this step, the same for all members of a task."""
        indices = self.indices.index_select(1, self.step_in_chunk).squeeze(1)
        if not self.data.mirrored:
            return self._examples(indices)
        return self._examples(indices, self.mirrored.index_select(1, self.step_in_chunk).squeeze(1))

    def _examples(self, indices: Tensor, mirrored: Tensor | None = None) -> tuple[Tensor, Tensor]:
        inputs = self.data.inputs[indices]
        if mirrored is not None:
            inputs = torch.where(mirrored.view(*mirrored.shape, *[1] * (inputs.ndim - 2)), inputs.flip(-1), inputs)
        targets = self.data.targets[indices] if self.labels is None else self.labels.gather(1, indices)
        return self._repeat(inputs), self._repeat(targets)

    def _repeat(self, values: Tensor) -> Tensor:
        """(tasks, ...) -> (trainings, ...)."""
        return values.unsqueeze(1).expand(-1, self.members, *values.shape[1:]).flatten(0, 1)

    def _outputs(self, inputs: Tensor) -> Tensor:
        outputs = self.models.outputs(inputs)
        if outputs.shape[-1] != self.data.num_classes:
            raise ValueError(
                f"model must return {self.data.num_classes} outputs for {self.data.name}, one for each class or number, got "
                f"{outputs.shape[-1]}"
            )
        return outputs

    def _mask(self, outputs: Tensor) -> Tensor:
        """-inf for the classes that a task does not have."""
        if self.labels is None:
            return outputs
        return outputs.masked_fill(self.masked.unsqueeze(1), -torch.inf)

    def _losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(trainings,) mean cross-entropy, with label smoothing over the task's own classes; or mean squared error."""
        if self.data.is_regression:
            return (outputs.to(self.dtype) - targets).square().flatten(1).mean(1)
        log_p = log_softmax(self._mask(outputs.to(self.dtype)), dim=-1)
        losses = -log_p.gather(-1, targets.unsqueeze(-1)).flatten(1).mean(1)
        if self.label_smoothing:
            spread = -log_p.masked_fill(log_p.isneginf(), 0.0).sum(-1).flatten(1).mean(1)
            losses = (1 - self.label_smoothing) * losses + self.label_smoothing * spread / (~self.masked).sum(1)
        return losses
