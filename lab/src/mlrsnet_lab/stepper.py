"""One training in progress: data, model, optimizer and method, advanced one step at a time."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from mlrsnet_lab import datasets, methods, models, optimizers, starts
from mlrsnet_lab.averaging import averages, evaluation_weights
from mlrsnet_lab.capture import WARM_UP
from mlrsnet_lab.feeds import Score, open_data
from mlrsnet_lab.graphs import Graphs
from mlrsnet_lab.methods import Setting
from mlrsnet_lab.processes import ALONE, Processes, in_parallel
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.starts import Start
from mlrsnet_lab.trace import Trace

T = TypeVar("T")


class Stepper:
    """Trains what a RunSpec describes, on one device. All random numbers come from the spec's seed.

    On a GPU a step is one CUDA graph (data, forward, backward, schedule, optimizer). A step that the host has to look at, such as
    a meta-update, uses a second graph for its gradients only.

    With several processes, each has a stepper: DDP averages their gradients, and every step is eager.
    """

    def __init__(
        self,
        spec: RunSpec,
        device: torch.device,
        root: Path | None = None,
        folder: Path | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.spec, self.device, self.folder, self.processes = spec, device, folder, processes
        self.dataset = processes.first_alone(lambda: datasets.load(spec.task, root=root, **spec.task_options))
        self.is_text = isinstance(self.dataset, datasets.TextDataset)
        start = self._start(root)  # before the seed: a kept start and a new one are followed by the same random numbers
        torch.manual_seed(spec.seed)
        self.model = self._model().to(device)
        if start is not None:
            start.put_into(self.model)
        self.data = open_data(self.dataset, spec.batch_size, spec.sequence_length, spec.seed, device, processes)
        self.steps_per_epoch = self.data.train.steps
        self.total_steps = spec.epochs * self.steps_per_epoch
        options = spec.optimizer_options
        self.optimizer = optimizers.build(spec.optimizer, self.model, spec.lr, spec.weight_decay, device, **options)
        self.method = methods.build(spec.schedule, self._setting(), spec.schedule_options)
        self.trace = Trace(self.steps_per_epoch, device)
        self.step_count = 0
        self.graphs: Graphs | None = None
        self._eager_steps = 0
        self._calibration = self.data.calibration() if averages(self.optimizer) else None
        if self._calibration is not None:
            self.optimizer.train()  # type: ignore[attr-defined]
        self.before = None if start is None else self._before(start)
        self.model.train()
        self.parallel = self.model if processes.count == 1 else self._in_parallel()

    def step(self) -> None:
        """Train on the next batch."""
        self.method.before_step()
        self.data.train.prepare()
        if self.graphs is not None:
            self.graphs.step()
        else:
            self.whole_step()
            self._eager_steps += 1
            if self.device.type == "cuda" and self._eager_steps == WARM_UP and self.processes.count == 1:
                self.graphs = Graphs(self)
        self.step_count += 1

    def evaluate(self, *parts: str) -> dict[str, Score]:
        """Score the model on each part: `train`, `val`, `test`."""
        with self._evaluation_weights():
            self.processes.copy_first(self.model.buffers())
            self.model.eval()
            with self._autocast():
                found = {part: self.data.evaluate(self.model, part) for part in parts}
        self.model.train()
        return found

    def close(self) -> None:
        """Free the device's memory now: the parts refer to each other, and the garbage collector may run late."""
        del self.graphs, self.method, self.optimizer, self.parallel, self.model, self.data

    def state_dict(self) -> dict[str, Any]:
        """Everything the next step depends on. All processes have to call it; the first one's is complete."""
        own = {
            "train": self.data.train.state_dict(),
            "val": self.data.val.state_dict(),
            "calibration": self._calibration.state_dict() if self._calibration else {},
            **self._random(),
        }
        return {
            "step": self.step_count,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": self.method.state_dict(),
            "trace": self.trace.read(),
            **(own if self.processes.count == 1 else {"processes": self.processes.gather(own)}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state. Call it before the first step."""
        self.step_count = state["step"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:  # load_state_dict leaves LRs on the checkpoint's device
            group["lr"] = group["lr"].to(self.device) if isinstance(group["lr"], Tensor) else group["lr"]
        self.method.load_state_dict(state["method"])
        own = state if self.processes.count == 1 else state["processes"][self.processes.rank]
        self.data.train.load_state_dict(own["train"])
        self.data.val.load_state_dict(own["val"])
        if self._calibration:
            self._calibration.load_state_dict(own["calibration"])
        self.trace.restore(*state["trace"])
        self._set_random(own)

    def moment(self) -> dict[str, Any]:
        """Copies of what the next step starts from, beside the optimizer; see `Setting`."""
        model = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return {"model": model, "train": self.data.train.state_dict(), **self._random()}

    def go_to(self, moment: dict[str, Any]) -> None:
        """Continue from a moment, in place."""
        self.model.load_state_dict(moment["model"])
        self.data.train.load_state_dict(moment["train"])
        self._set_random(moment)

    def gradients(self) -> Tensor:
        """The next batch's loss in all processes; leaves its gradients in place, clipped if the spec says so."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.train_loss()
        loss.backward()
        if self.spec.clip_norm is not None:
            clip_grad_norm_(self.model.parameters(), self.spec.clip_norm)
        return self.processes.mean(loss.detach())

    def train_loss(self) -> Tensor:
        """The differentiable loss of the training batch that is ready."""
        with self._autocast():
            return self.data.train.loss(self.parallel)

    @torch.no_grad()
    def mean_train_loss(self) -> float:
        """The mean loss over one epoch of training batches, in evaluation mode. Changes nothing."""
        feed, total = self.data.calibration(), torch.zeros((), dtype=torch.float64, device=self.device)
        self.processes.copy_first(self.model.buffers())
        self.model.eval()
        with self._autocast():
            for _ in range(feed.steps):
                feed.prepare()
                total += feed.loss(self.model)
        self.model.train()
        return float(self.processes.mean(total)) / feed.steps

    def val_gradients(self) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Loss and gradients of the next held-out batch. Changes nothing in the model except the random state."""
        self.data.val.prepare()
        return self.prepared_val_gradients() if self.graphs is None else self.graphs.val_gradients()

    def prepared_val_gradients(self) -> tuple[Tensor, Sequence[Tensor | None]]:
        """Loss and gradients of a held-out batch that is ready."""
        parameters, buffers = list(self.model.parameters()), list(self.model.buffers())
        before = [buffer.clone() for buffer in buffers]
        with self._autocast():
            loss = self.data.val.loss(self.model)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
        return loss.detach(), gradients

    def replayed(self, name: str, call: Callable[[], T], tensors: Sequence[Tensor]) -> T:
        """Run a method's own `call`, from a CUDA graph once there is one; see `Setting`."""
        return call() if self.graphs is None else self.graphs.call(name, call, tensors)

    def whole_step(self) -> None:
        """Take one step on the batch that is ready."""
        if self.method.own_gradients:
            self.trace.add(self.method.own_step(), self.method.lr())
        else:
            self.decide(self.gradients())

    def decide(self, loss: Tensor) -> None:
        """The second half of a step: LR and weights."""
        self.method.step(loss)
        self.trace.add(loss, self.method.lr())

    def _random(self) -> dict[str, Any]:
        on_gpu = self.device.type == "cuda"
        return {
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if on_gpu else None,
        }

    def _set_random(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["random"])
        if self.device.type == "cuda" and state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)

    def _model(self) -> Any:
        name, options, data = self.spec.model, self.spec.model_options, self.dataset
        if isinstance(data, datasets.TextDataset):
            return models.build_text(name, data.num_classes, **options)
        if isinstance(data, datasets.ExampleDataset):
            if data.vocabulary is None:
                return models.build_rows(name, data.width, data.outputs, **options)
            return models.build_pieces(name, data.vocabulary, data.width, data.outputs, **options)
        model: Any = models.build_image(
            name, data.shape, data.num_classes, **options
        )  # torch 2.13 types no memory_format
        return model.to(memory_format=torch.channels_last) if self.device.type == "cuda" else model

    def _start(self, root: Path | None) -> Start | None:
        """The weights to fine-tune, trained now if they are not kept yet."""
        if not self.spec.start:
            return None
        spec = RunSpec.from_dict(self.spec.start)

        def train() -> dict[str, Tensor]:
            first = Stepper(spec, self.device, root)
            while first.step_count < first.total_steps:
                first.step()
            with first._evaluation_weights():
                return {name: tensor.detach().cpu().clone() for name, tensor in first.model.state_dict().items()}

        return self.processes.first_alone(lambda: starts.find(spec, self.device, root, train))

    def _in_parallel(self) -> Any:
        """The model under DDP, for methods that need one backward pass."""
        if self.method.own_gradients:
            raise ValueError(
                f"schedule {self.spec.schedule!r} must train in one process, got {self.processes.count}: it differentiates twice, "
                "which DDP cannot; start it without torchrun"
            )
        if self.processes.rank:  # until here all draw the same numbers; from here on, each its own dropout
            torch.manual_seed((self.spec.seed + self.processes.rank * 2_654_435_761) % 2**32)
        feed = self.data.calibration()

        def some_loss(model: nn.Module) -> Tensor:
            feed.prepare()
            with self._autocast():
                return feed.loss(model)

        return in_parallel(self.model, self.device, some_loss)

    def _before(self, start: Start) -> dict[str, Any]:
        """What a record says of the weights that the training starts from: doing nothing would leave this."""
        self.model.eval()
        with self._autocast():
            found = {part: self.data.evaluate(self.model, part) for part in ("val", "test")}
        return {
            "weights": start.digest,
            "new": start.new(self.model),
            **{part: found[part]._asdict() for part in found},
        }

    def _setting(self) -> Setting:
        return Setting(
            model=self.model,
            optimizer=self.optimizer,
            lr=self.spec.lr,
            total_steps=self.total_steps,
            steps_per_epoch=self.steps_per_epoch,
            num_classes=self.dataset.num_classes,
            is_text=self.is_text,
            val_gradients=self.val_gradients,
            train_loss=self.train_loss,
            replayed=self.replayed,
            next_batch=self.data.train.prepare,
            moment=self.moment,
            go_to=self.go_to,
            val_steps=self.data.val.steps,
            mean_train_loss=self.mean_train_loss,
            clip_norm=self.spec.clip_norm,
            learned_on=f"{self.spec.describe()}, seed {self.spec.seed}",
            folder=self.folder,
            process_group=self.processes.group,
        )

    def _autocast(self) -> Any:
        bf16 = self.spec.precision == "bf16" or (self.spec.precision == "auto" and self.device.type == "cuda")
        # No cache of cast weights: a captured step would read stale ones.
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
