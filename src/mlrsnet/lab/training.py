"""One training in progress: data, model, optimizer and decider, advanced a step at a time."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from mlrsnet._engine.capture import WARM_UP, captured
from mlrsnet.lab import deciders, models, optimizers, tasks
from mlrsnet.lab.averaging import averages, evaluation_weights
from mlrsnet.lab.deciders import Setting
from mlrsnet.lab.feeds import Score, open_data
from mlrsnet.lab.spec import RunSpec

T = TypeVar("T")
HELD_OUT = "gradients of a held-out batch"


class Training:
    """A RunSpec brought to life on a device. Everything random comes from the spec's seed.

    On a CPU a step is what it looks like. On a GPU it becomes one CUDA graph (data, forward, backward, schedule, optimizer);
    a step that has to be looked at on the host, such as a meta-update, uses a second graph for its gradients only.
    """

    def __init__(
        self, spec: RunSpec, device: torch.device, root: Path | None = None, folder: Path | None = None
    ) -> None:
        self.spec, self.device, self.folder = spec, device, folder
        self.task = tasks.load(spec.task, root=root, **spec.task_options)
        self.is_text = isinstance(self.task, tasks.TextTask)
        torch.manual_seed(spec.seed)
        self.model = self._model().to(device)
        self.data = open_data(self.task, spec.batch_size, spec.sequence_length, spec.seed, device)
        self.steps_per_epoch = self.data.train.steps
        self.total_steps = spec.epochs * self.steps_per_epoch
        options = spec.optimizer_options
        self.optimizer = optimizers.build(
            spec.optimizer, self.model.parameters(), spec.lr, spec.weight_decay, device, **options
        )
        self.decider = deciders.build(spec.schedule, self._setting(), spec.schedule_options)
        self.trace = Trace(self.steps_per_epoch, device)
        self.step_count = 0
        self.graphs: Graphs | None = None
        self._eager_steps = 0
        self._calibration = self.data.calibration() if averages(self.optimizer) else None
        if self._calibration is not None:
            self.optimizer.train()  # type: ignore[attr-defined]
        self.model.train()

    def step(self) -> None:
        """One batch."""
        self.data.train.prepare()
        if self.graphs is not None:
            self.graphs.step()
        else:
            self.whole_step()
            self._eager_steps += 1
            if self.device.type == "cuda" and self._eager_steps == WARM_UP:
                self.graphs = Graphs(self)
        self.step_count += 1

    def evaluate(self, *parts: str) -> dict[str, Score]:
        """The model on each of these parts: `train`, `val`, `test`."""
        with self._evaluation_weights():
            self.model.eval()
            with self._autocast():
                found = {part: self.data.evaluate(self.model, part) for part in parts}
        self.model.train()
        return found

    def close(self) -> None:
        """Let go of the device's memory: the parts refer to each other, and a collector may come late."""
        del self.graphs, self.decider, self.optimizer, self.model, self.data

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            "step": self.step_count,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "decider": self.decider.state_dict(),
            "train": self.data.train.state_dict(),
            "val": self.data.val.state_dict(),
            "calibration": self._calibration.state_dict() if self._calibration else {},
            "trace": self.trace.read(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; before the first step."""
        self.step_count = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:  # which takes the LRs from where the checkpoint was read
            group["lr"] = group["lr"].to(self.device) if isinstance(group["lr"], Tensor) else group["lr"]
        self.decider.load_state_dict(state["decider"])
        self.data.train.load_state_dict(state["train"])
        self.data.val.load_state_dict(state["val"])
        if self._calibration:
            self._calibration.load_state_dict(state["calibration"])
        self.trace.restore(*state["trace"])
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)

    def gradients(self) -> Tensor:
        """The next batch's loss, its gradients in place, clipped where asked for."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.train_loss()
        loss.backward()
        if self.spec.clip_norm is not None:
            clip_grad_norm_(self.model.parameters(), self.spec.clip_norm)
        return loss.detach()

    def train_loss(self) -> Tensor:
        """The loss of a training batch that is ready, with a gradient."""
        with self._autocast():
            return self.data.train.loss(self.model)

    def val_gradients(self) -> tuple[Tensor, Sequence[Tensor | None]]:
        """The loss of the next held-out batch and its gradients; leaves no trace in the model, but for the random state."""
        self.data.val.prepare()
        return self.prepared_val_gradients() if self.graphs is None else self.graphs.val_gradients()

    def prepared_val_gradients(self) -> tuple[Tensor, Sequence[Tensor | None]]:
        """The same, of a batch that is ready."""
        parameters, buffers = list(self.model.parameters()), list(self.model.buffers())
        before = [buffer.clone() for buffer in buffers]
        with self._autocast():
            loss = self.data.val.loss(self.model)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
        return loss.detach(), gradients

    def replayed(self, name: str, call: Callable[[], T], tensors: Sequence[Tensor]) -> T:
        """What a decider's own call makes of the batch that is ready, the model and these tensors."""
        return call() if self.graphs is None else self.graphs.call(name, call, tensors)

    def whole_step(self) -> None:
        """A step whose batch is ready."""
        if self.decider.own_gradients:
            self.trace.add(self.decider.own_step(), self.decider.lr())
        else:
            self.decide(self.gradients())

    def decide(self, loss: Tensor) -> None:
        """The second half of a step."""
        self.decider.step(loss)
        self.trace.add(loss, self.decider.lr())

    def _model(self) -> Any:
        spec = self.spec
        if isinstance(self.task, tasks.TextTask):
            return models.build_text(spec.model, self.task.num_classes, **spec.model_options)
        model = models.build_image(spec.model, self.task.shape, self.task.num_classes, **spec.model_options)
        return model.to(memory_format=torch.channels_last) if self.device.type == "cuda" else model

    def _setting(self) -> Setting:
        return Setting(
            model=self.model,
            optimizer=self.optimizer,
            lr=self.spec.lr,
            total_steps=self.total_steps,
            steps_per_epoch=self.steps_per_epoch,
            num_classes=self.task.num_classes,
            is_text=self.is_text,
            val_gradients=self.val_gradients,
            train_loss=self.train_loss,
            replayed=self.replayed,
            clip_norm=self.spec.clip_norm,
            learned_on=f"{self.spec.describe()}, seed {self.spec.seed}",
            folder=self.folder,
        )

    def _autocast(self) -> Any:
        bf16 = self.spec.precision == "bf16" or (self.spec.precision == "auto" and self.device.type == "cuda")
        # Without its cache of cast weights, which a captured step would find outdated.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False) if bf16 else nullcontext()

    def _evaluation_weights(self) -> Any:
        feed = self._calibration
        if feed is None:
            return nullcontext()

        def forward() -> None:
            feed.prepare()
            with self._autocast():
                feed.loss(self.model)

        return evaluation_weights(self.optimizer, self.model, forward)


class Graphs:
    """The captured steps of a training, each captured when it is first needed."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.parameters = list(training.model.parameters())
        self.whole: torch.cuda.CUDAGraph | None = None
        self.gradients: tuple[torch.cuda.CUDAGraph, Tensor, list[Tensor | None]] | None = None
        self.calls: dict[str, tuple[list[int], tuple[torch.cuda.CUDAGraph, Any] | None]] = {}
        has_tensor_lr = isinstance(training.optimizer.param_groups[0]["lr"], Tensor)
        self.capturable = training.decider.capturable and has_tensor_lr

    def step(self) -> None:
        """A step whose batch is ready."""
        if self.training.decider.own_gradients:
            self.training.whole_step()
        elif self.capturable and not self.training.decider.is_due():
            self._replay_whole()
        else:
            self.training.decide(self._replay_gradients())

    def val_gradients(self) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Of a held-out batch that is ready."""
        return self.call(HELD_OUT, self.training.prepared_val_gradients, ())

    def call(self, name: str, call: Callable[[], T], tensors: Sequence[Tensor]) -> T:
        """Captured at its second time with these tensors; the first time eagerly, as it may be new to this process."""
        places = [tensor.data_ptr() for tensor in tensors]
        known, kept = self.calls.get(name, (None, None))
        if known != places:
            self.calls[name] = places, None
            return call()
        graph, found = kept or captured(call)
        self.calls[name] = places, (graph, found)
        graph.replay()
        result: T = found
        return result

    def _replay_whole(self) -> None:
        if self.whole is None:
            self.whole, _ = captured(self.training.whole_step)  # the host counts this step now
        else:
            self.training.decider.replayed()
        self.whole.replay()

    def _replay_gradients(self) -> Tensor:
        if self.gradients is None:
            graph, loss = captured(self.training.gradients)
            self.gradients = graph, loss, [parameter.grad for parameter in self.parameters]
        graph, loss, gradients = self.gradients
        graph.replay()
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient  # the other graph has gradients of its own
        return loss


class Trace:
    """Loss and LR of every step of an epoch; on a GPU in buffers there, read back once an epoch."""

    def __init__(self, steps: int, device: torch.device) -> None:
        self.buffers = torch.zeros(2, steps, dtype=torch.float32, device=device) if device.type == "cuda" else None
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self.losses: list[float] = []
        self.lrs: list[float] = []

    def add(self, loss: Tensor, lr: float | Tensor) -> None:
        """One step."""
        if self.buffers is None:
            self.losses.append(float(loss))
            self.lrs.append(float(lr))
        else:
            lr = lr if isinstance(lr, Tensor) else torch.full((), lr, device=self.buffers.device)
            self.buffers.index_copy_(1, self.place, torch.stack((loss.float(), lr.float())).unsqueeze(1))
            self.place += 1

    def read(self) -> tuple[list[float], list[float]]:
        """The steps so far; waits for the device."""
        if self.buffers is None:
            return self.losses, self.lrs
        losses, lrs = self.buffers[:, : int(self.place)].tolist()
        return losses, lrs

    def restore(self, losses: list[float], lrs: list[float]) -> None:
        """Go on after these."""
        self.losses, self.lrs = list(losses), list(lrs)
        if self.buffers is not None:
            self.buffers[:, : len(losses)] = torch.tensor([losses, lrs])
            self.place.fill_(len(losses))


@contextmanager
def reproducible(device: torch.device, deterministic: bool) -> Iterator[None]:
    """Around a training: its random numbers are its own, and a GPU is fast, or the same bits every time."""
    on_gpu = device.type == "cuda"
    benchmark, is_deterministic = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        try:
            if on_gpu:
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                torch.backends.cudnn.benchmark = not deterministic
                torch.use_deterministic_algorithms(deterministic)
            with torch.cuda.stream(torch.cuda.Stream(device)) if on_gpu else nullcontext():
                yield
        finally:
            torch.backends.cudnn.benchmark = benchmark
            torch.use_deterministic_algorithms(is_deterministic, warn_only=warn_only)
