"""Many trainings at once: models batched with `torch.func` over stacked weights and buffers, one LR a training.

All weights of a member are one row of a matrix, of which the model's parameters are views: an optimizer's update is a few
elementwise operations, whatever the network. Members do not touch each other, so the gradient of the summed losses is
every member's own.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import log_softmax
from torch.nn.modules.dropout import _DropoutNd

from mlrsnet import _check
from mlrsnet._engine.capture import WARM_UP, captured
from mlrsnet.horizon.aside import Aside
from mlrsnet.horizon.batches import Batches
from mlrsnet.horizon.fitness import Fitness
from mlrsnet.horizon.policies import Policy
from mlrsnet.horizon.tasks import Data, Task
from mlrsnet.horizon.updates import Relative, Update, find

CHUNK = 64
"""Steps whose batches go to the device together."""

ALIGNMENT = 32
"""Every parameter begins at a multiple of so many numbers in its row: matrix units want aligned addresses."""


@dataclass(frozen=True)
class Trained:
    """What a population came to: fitness (members,), losses and LRs (members, steps), member by member of each task."""

    fitness: Tensor
    losses: Tensor
    lrs: Tensor


Training: TypeAlias = Generator[None, None, Trained]
"""A training in parts: between two of them, others can be started or go on."""


class Population:
    """Trainings of tasks that share a shape, `members` of each task, advanced by one call a step.

    Members of a task begin with the same weights and see the same batches: only their LRs differ. On a GPU the step (batch,
    forward, backward, schedule, optimizer) is captured in one CUDA graph, which later tasks of this shape use again.

    Args:
        task: one of the tasks, for what they share.
        num_tasks: how many there will be.
        members: trainings of each.
        policy: sets the LRs of all of them.
        data: the task's, on the device to train on.
        precision: `fp32`, or `bf16` for autocast.
        capture: on a GPU, whether to capture the step; for models that decide something on the host in every forward, or
            copy from it, it has to be False.

    Dropout differs from member to member; everything else that is random is a task's, not a member's.
    """

    def __init__(
        self,
        task: Task,
        num_tasks: int,
        members: int,
        policy: Policy,
        data: Data,
        precision: str = "fp32",
        *,
        capture: bool = True,
    ) -> None:
        self.data, self.policy, self.members = data, policy, members
        self.device = data.inputs.device
        self.bf16 = _check.one_of("precision", precision, ("fp32", "bf16")) == "bf16"
        self.smoothing, self.clip_norm = task.label_smoothing, task.clip_norm
        update = find(task.optimizer)
        self.update: Update = Relative(update) if policy.is_relative else update
        self.model = _fresh(task).to(self.device)
        self.drops = any(isinstance(module, _DropoutNd) and module.p for module in self.model.modules())
        self.rows = Rows(self.model, num_tasks * members)
        self.fixed = {name: _stack(value, num_tasks * members) for name, value in _fixed(self.model)}
        self.state = self.update.begin(self.rows.weights)
        self.weight_decay = torch.zeros(num_tasks * members, 1, device=self.device)
        self.labels = None if self._is_text else torch.zeros(num_tasks, len(data.targets), device=self.device).long()
        self.shut = torch.zeros(num_tasks * members, data.num_classes, dtype=torch.bool, device=self.device)
        self.order = torch.zeros(num_tasks, CHUNK, task.batch_size, dtype=torch.long, device=self.device)
        self.mirror = torch.zeros(num_tasks, CHUNK, task.batch_size, dtype=torch.bool, device=self.device)
        self.place = torch.zeros(1, dtype=torch.long, device=self.device)
        self.trace = torch.zeros(2, num_tasks * members, CHUNK, device=self.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.eager_steps, self.capture = 0, capture
        self.aside = Aside(self.device)

    def train(self, tasks: Sequence[Task], fitness: Fitness) -> Trained:
        """Whole trainings, from fresh weights to the fitness on held-out data."""
        training = self.training(tasks, fitness)
        while True:
            try:
                next(training)
            except StopIteration as end:
                return cast(Trained, end.value)

    def training(self, tasks: Sequence[Task], fitness: Fitness) -> Training:
        """`train` in parts, each of which a GPU may still be busy with when it is handed over."""
        total, traces = tasks[0].steps, []
        batches = [Batches(task) for task in tasks]
        self.aside.begin(tasks[0].seed)
        with self.aside.part():
            self.begin(tasks)
        for first in range(0, total, CHUNK):
            yield
            with self.aside.part():
                count = min(CHUNK, total - first)
                self._fill(batches, count)
                for _ in range(count):
                    self._advance()
                traces.append(self.trace[:, :, :count].clone())
        yield
        with self.aside.part():
            losses, lrs = torch.cat(traces, dim=2)
            found = fitness(*self.evaluate(tasks))
            if not isinstance(found, Tensor) or found.shape != losses.shape[:1]:
                raise ValueError(
                    f"fitness must return one number a training, a tensor of shape ({len(losses)},), got {found!r}"
                )
        self.aside.end()
        return Trained(found, losses, lrs)

    def disturbs(self, other: "Population") -> bool:
        """Whether they cannot train at the same time: one population for two horizons, or two with dropout.

        In older versions of torch all captured graphs of a device read one seed and offset.
        """
        return self is other or (self.drops and other.drops)

    def begin(self, tasks: Sequence[Task]) -> None:
        """Fresh weights and an empty optimizer, for these tasks."""
        for index, task in enumerate(tasks):
            rows = slice(index * self.members, (index + 1) * self.members)
            fresh = _fresh(task)
            self.rows.set(rows, fresh)
            for name, value in _fixed(fresh):
                self.fixed[name][rows] = value.to(self.device)
            self.weight_decay[rows] = task.weight_decay
            self.shut[rows] = torch.arange(self.data.num_classes, device=self.device) >= task.num_classes
            if self.labels is not None:
                self.labels[index] = task.labels().to(self.device)
        for name, value in self.update.begin(self.rows.weights).items():
            self.state[name].copy_(value)
        scale = torch.full((len(self.weight_decay),), self.update.scale, device=self.device)
        classes = [float(task.num_classes) for task in tasks for _ in range(self.members)]
        self.policy.begin(tasks[0].total_steps, scale, torch.tensor(classes, device=self.device))
        self.model.train()

    def step(self) -> None:
        """One step of all trainings; nothing is read back."""
        inputs, targets = self._batch()
        losses = self._losses(self._outputs(inputs), targets)
        gradients = torch.autograd.grad(losses.sum(), list(self.rows.views.values()), materialize_grads=True)
        with torch.no_grad():
            flat = self.rows.gather(gradients)
            if self.clip_norm is not None:
                flat *= (self.clip_norm / (flat.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
            lrs = self.policy.lrs(losses.detach())
            self.update.apply(self.rows.weights, flat, self.state, lrs.unsqueeze(1), self.weight_decay)
            self.trace.index_copy_(2, self.place, torch.stack((losses.detach(), lrs)).unsqueeze(2))
            self.place += 1

    @torch.no_grad()
    def evaluate(self, tasks: Sequence[Task]) -> tuple[Tensor, Tensor]:
        """Outputs (members, examples, ..., classes) and targets (members, examples, ...) of the held-out examples."""
        self.model.eval()
        held_out = torch.stack([task.val for task in tasks if task.val is not None]).to(self.device)
        outputs, targets = [], []
        for index in held_out.split(self.order.shape[2], dim=1):
            x, y = self._examples(index)
            outputs.append(self._open(self._outputs(x).float()))
            targets.append(y)
        self.model.train()
        return torch.cat(outputs, dim=1), torch.cat(targets, dim=1)

    @property
    def _is_text(self) -> bool:
        return self.data.targets.ndim > 1

    def _fill(self, batches: Sequence[Batches], count: int) -> None:
        taken = [feed.take(count) for feed in batches]
        self._send(torch.stack([index for index, _ in taken]), self.order)
        if self.data.mirrored:
            self._send(torch.stack([mirror for _, mirror in taken]), self.mirror)
        self.place.zero_()

    def _send(self, values: Tensor, to: Tensor) -> None:
        """A chunk to the device; the host does not wait for it."""
        ready = values.pin_memory() if self.device.type == "cuda" else values
        to[:, : values.shape[1]].copy_(ready, non_blocking=True)

    def _advance(self) -> None:
        """A step, captured where that is possible and its first steps were taken."""
        if self.graph is not None:
            self.graph.replay()
        elif self.device.type != "cuda" or not self.capture or self.eager_steps < WARM_UP:
            self.step()
            self.eager_steps += 1
        else:
            self.graph = self._captured()
            self.graph.replay()

    def _captured(self) -> torch.cuda.CUDAGraph:
        try:
            return captured(self.step)[0]
        except RuntimeError as error:
            raise RuntimeError(
                f"the step of {type(self.model).__name__} cannot be captured in a CUDA graph ({error}): pass capture=False, "
                "in a fresh process"
            ) from error

    def _batch(self) -> tuple[Tensor, Tensor]:
        """(members, batch, ...): the same for the members of a task."""
        index = self.order.index_select(1, self.place).squeeze(1)
        mirror = self.mirror.index_select(1, self.place).squeeze(1) if self.data.mirrored else None
        return self._examples(index, mirror)

    def _examples(self, index: Tensor, mirror: Tensor | None = None) -> tuple[Tensor, Tensor]:
        inputs = self.data.inputs[index]
        if mirror is not None:
            inputs = torch.where(mirror.view(*mirror.shape, *[1] * (inputs.ndim - 2)), inputs.flip(-1), inputs)
        targets = self.data.targets[index] if self.labels is None else self.labels.gather(1, index)
        return self._repeat(inputs), self._repeat(targets)

    def _repeat(self, values: Tensor) -> Tensor:
        return values.unsqueeze(1).expand(-1, self.members, *values.shape[1:]).flatten(0, 1)

    def _outputs(self, inputs: Tensor) -> Tensor:
        def one(weights: dict[str, Tensor], fixed: dict[str, Tensor], x: Tensor) -> Any:
            return functional_call(self.model, (weights, fixed), (x,))

        # Without autocast's cache of cast weights, which a captured step would find outdated.
        cast = torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False) if self.bf16 else nullcontext()
        with cast, sdpa_kernel(SDPBackend.MATH):  # the others cannot be batched
            outputs = self._batched(torch.vmap(one, randomness="different"), inputs)
        if outputs.shape[-1] != self.data.num_classes:
            raise ValueError(
                f"model must return one output for each of the {self.data.num_classes} classes of {self.data.name}, got "
                f"{outputs.shape[-1]}"
            )
        return outputs

    def _batched(self, one: Callable[..., Any], inputs: Tensor) -> Any:
        try:
            return one(self.rows.views, self.fixed, inputs)
        except RuntimeError as error:
            if "Batching rule not implemented" not in str(error):
                raise
            raise RuntimeError(
                f"model must be one that torch.func can batch, got {type(self.model).__name__} ({str(error).splitlines()[0]}): "
                "write recurrent cells as plain matrix products, not nn.LSTM, whose fused kernel cannot be batched"
            ) from error

    def _open(self, outputs: Tensor) -> Tensor:
        """Without the classes that a task does not have."""
        if self._is_text:
            return outputs
        return outputs.masked_fill(self.shut.unsqueeze(1), -torch.inf)

    def _losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(members,) mean cross-entropy, with label smoothing over the task's own classes."""
        log_p = log_softmax(self._open(outputs.float()), dim=-1)
        losses = -log_p.gather(-1, targets.unsqueeze(-1)).flatten(1).mean(1)
        if self.smoothing:
            spread = -log_p.masked_fill(log_p.isneginf(), 0.0).sum(-1).flatten(1).mean(1)
            losses = (1 - self.smoothing) * losses + self.smoothing * spread / (~self.shut).sum(1)
        return losses


class Rows:
    """The parameters of many copies of a model: `weights` (members, size), a member a row, and views of it by name."""

    def __init__(self, model: nn.Module, members: int) -> None:
        places: dict[str, tuple[int, int]] = {}
        parameters, end = {name: p for name, p in model.named_parameters() if p.requires_grad}, 0
        if not parameters:
            raise ValueError("model must have parameters to train, got none that requires a gradient")
        for name, parameter in parameters.items():
            if parameter.dtype != torch.float32:
                raise TypeError(f"model must have float32 parameters, got {parameter.dtype} in {name}: call .float()")
            places[name] = (end, parameter.numel())
            end += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        device = next(iter(parameters.values())).device
        self.weights = torch.zeros(members, end, device=device)
        self.views = {
            name: self.weights[:, place : place + size].view(members, *parameters[name].shape).requires_grad_()
            for name, (place, size) in places.items()
        }

    def set(self, rows: slice, model: nn.Module) -> None:
        """These members begin with the model's weights."""
        with torch.no_grad():
            parameters = dict(model.named_parameters())
            for name, view in self.views.items():
                view[rows] = parameters[name].to(self.weights.device)

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        """(members, size) from one gradient a view."""
        parts = []
        for gradient in gradients:
            flat = gradient.flatten(1)
            parts.append(flat)
            if rest := -flat.shape[1] % ALIGNMENT:
                parts.append(flat.new_zeros(1, 1).expand(len(flat), rest))
        return torch.cat(parts, dim=1)


def _fresh(task: Task) -> nn.Module:
    """The task's network, initialised from its seed; random numbers of the user's are left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(task.seed)
        return task.model(task.data)


def _fixed(model: nn.Module) -> list[tuple[str, Tensor]]:
    """What no gradient changes: buffers and frozen parameters."""
    frozen = [(name, p.detach()) for name, p in model.named_parameters() if not p.requires_grad]
    return [*model.named_buffers(), *frozen]


def _stack(value: Tensor, members: int) -> Tensor:
    return value.detach().expand(members, *value.shape).clone()
