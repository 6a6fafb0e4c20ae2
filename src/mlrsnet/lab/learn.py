"""`mlrsnet metatrain`: Algorithm 1 on digits, resumable after any epoch."""

import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from mlrsnet import _check
from mlrsnet.lab.models.small_cnn import small_cnn
from mlrsnet.lab.tasks import digits
from mlrsnet.lab.trainer import Curves, batch_loss, by_meta, train_epoch
from mlrsnet.metatrain import MetaTrainer
from mlrsnet.nets import LSTMNet, MLPNet, ScheduleNet
from mlrsnet.schedule import Schedule
from mlrsnet.storage import write_atomically

OPTIMIZERS: dict[str, Callable[[nn.Module, float], Optimizer]] = {
    "sgd": lambda model, decay: SGD(model.parameters(), lr=1.0, weight_decay=decay),
    "momentum": lambda model, decay: SGD(model.parameters(), lr=1.0, weight_decay=decay, momentum=0.9),
    "adam": lambda model, decay: Adam(model.parameters(), lr=1.0, weight_decay=decay),
    "adamw": lambda model, decay: AdamW(model.parameters(), lr=1.0, weight_decay=decay),
}
NETS: dict[str, Callable[[], ScheduleNet]] = {"lstm": LSTMNet, "mlp": MLPNet}


@dataclass(frozen=True)
class Settings:
    """One meta-training on digits; `every` is T_val."""

    classes: tuple[int, ...] = digits.ALL
    epochs: int = 60
    every: int = 5
    batch_size: int = 64
    weight_decay: float = 5e-4
    meta_lr: float = 1e-3
    optimizer: str = "sgd"
    net: str = "lstm"
    seed: int = 0
    name: str = "digits"

    def __post_init__(self) -> None:
        for name in ("epochs", "every", "batch_size"):
            _check.whole_number(name, getattr(self, name))
        _check.positive("meta_lr", self.meta_lr)
        if _check.real("weight_decay", self.weight_decay) < 0:
            raise ValueError(f"weight_decay must be >= 0, got {self.weight_decay!r}")
        _check.one_of("optimizer", self.optimizer, OPTIMIZERS)
        _check.one_of("net", self.net, NETS)


class Learner:
    """A meta-training in progress. `epoch()` by `epoch()`; `save` and `resume` between them."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.data = settings, digits.load(settings.classes)
        batches = len(self.data.train.labels) // settings.batch_size
        if not batches:
            size = len(self.data.train.labels)
            raise ValueError(
                f"batch_size must be at most {size}, the pictures of these classes, got {settings.batch_size}"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.model = small_cnn(num_classes=len(settings.classes))
            net = NETS[settings.net]()
        self.order = torch.Generator().manual_seed(settings.seed)
        self.val_order = torch.Generator().manual_seed(settings.seed + 1)
        self.optimizer = OPTIMIZERS[settings.optimizer](self.model, settings.weight_decay)
        self.meta = MetaTrainer(
            self.model,
            self.optimizer,
            total_steps=settings.epochs * batches,
            val_loss=self.val_loss,
            net=net,
            num_classes=len(settings.classes),
            every=settings.every,
            meta_optimizer=Adam(net.parameters(), lr=settings.meta_lr, weight_decay=1e-4),
            name=settings.name,
            learned_on=f"scikit-learn digits, classes {', '.join(map(str, settings.classes))}, small CNN, "
            f"batch {settings.batch_size}, {settings.epochs} epochs, seed {settings.seed}",
        )
        self.curves, self.epochs_done = Curves(), 0

    def val_loss(self) -> Tensor:
        """Of a batch of validation pictures, drawn anew each time."""
        count = len(self.data.val.labels)
        size = min(self.settings.batch_size, count)
        return batch_loss(self.model, self.data.val, torch.randperm(count, generator=self.val_order)[:size])

    def epoch(self) -> None:
        """Train the model, and with it the schedule, for one epoch."""
        train_epoch(self.model, self.data.train, by_meta(self.meta), self.settings.batch_size, self.order, self.curves)
        self.epochs_done += 1

    def run(self, checkpoint: Path | None = None) -> Iterator[int]:
        """Train to the end, from a checkpoint where there is one, which is renewed after every epoch."""
        if checkpoint is not None and checkpoint.is_file():
            self.resume(checkpoint)
        yield self.epochs_done
        while self.epochs_done < self.settings.epochs:
            self.epoch()
            if checkpoint is not None:
                self.save(checkpoint)
            yield self.epochs_done

    def schedule(self) -> Schedule:
        """What was learned."""
        return self.meta.schedule()

    def save(self, path: Path) -> None:
        """Everything, atomically."""
        file = io.BytesIO()
        state = {
            "settings": repr(asdict(self.settings)),
            "epochs_done": self.epochs_done,
            "parts": [part.state_dict() for part in self._parts()],
            "orders": [self.order.get_state(), self.val_order.get_state()],
            "curves": asdict(self.curves),
        }
        torch.save(state, file)
        write_atomically(path, file.getvalue())

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint of the same settings; anything else is refused."""
        try:
            state = torch.load(path, weights_only=True)
            same = state["settings"] == repr(asdict(self.settings))
            parts, orders, curves, done = (
                state["parts"],
                state["orders"],
                Curves(**state["curves"]),
                state["epochs_done"],
            )
        except Exception as error:  # bytes that are no checkpoint can fail in any way
            raise ValueError(
                f"{path} is not a checkpoint of a meta-training ({type(error).__name__}): delete it"
            ) from None
        if not same:
            raise ValueError(
                f"{path} was made with other settings, {state['settings']}: use those, another --out, or delete it"
            )
        for part, saved in zip(self._parts(), parts, strict=True):
            part.load_state_dict(saved)
        self.order.set_state(orders[0])
        self.val_order.set_state(orders[1])
        self.curves, self.epochs_done = curves, done

    def _parts(self) -> tuple[Any, ...]:
        return self.model, self.optimizer, self.meta
