"""What the tables share: hand-designed rows, meta-training, transfer, and what each scale trains.

Section 4.1.1: 200 epochs of batch 128, LR 0.1, weight decay 5e-4. MultiStep divides by 10 every 60 epochs, Exponential
multiplies by 0.95 per epoch, SGDR's cycles are 10, 20, 40, ... epochs; Adam is at its defaults. T_val is 100. Shorter scales
shrink all of it together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlrsnet.files import names
from mlrsnet_lab.sheets import UNSCALED, Cell, Choice
from mlrsnet_lab.spec import RunSpec

PAPER_EPOCHS, PAPER_EVERY, PAPER_CYCLE = 200, 100, 10
Paper = dict[str, tuple[float, float]]
META_ROW = "MLR-SNet, meta-trained"
TRANSFERRED = "MLR-SNet, transferred"


@dataclass(frozen=True)
class Scale:
    """How much of the paper's training of pictures a scale does.

    epochs: for the paper's 200.
    t_val: T_val, if it is not scaled with the epochs.
    stand_in: task and network that replace all of the paper's.
    """

    epochs: int
    batch_size: int = 128
    lr: float = 0.1
    adam_lr: float = 1e-3
    stand_in: tuple[str, str] | None = None
    t_val: int | None = None

    def spec(self, task: str, model: str, *, epochs: int = PAPER_EPOCHS, **fields: Any) -> RunSpec:
        """Plain SGD on a task of the paper; `epochs` is in the paper's epochs."""
        task, model = self.stand_in or (task, model)
        scaled = max(2, round(epochs * self.epochs / PAPER_EPOCHS))
        given: dict[str, Any] = {"batch_size": self.batch_size, "lr": self.lr, **fields}
        return RunSpec(task=task, model=model, epochs=scaled, **given)

    @property
    def every(self) -> int:
        """T_val, scaled with the epochs."""
        return self.t_val or max(1, PAPER_EVERY * self.epochs // PAPER_EPOCHS)

    @property
    def for_meta_training(self) -> dict[str, "Scale"]:
        """By the end of a row's name: this scale, and one with the paper's T_val if it differs."""
        same = self.stand_in is not None or self.every == PAPER_EVERY
        return {"": self} if same else {"": self, UNSCALED: replace(self, t_val=PAPER_EVERY)}


SCALES = {
    "smoke": Scale(epochs=10, batch_size=64, lr=1.0, adam_lr=1e-2, stand_in=("digits", "small_cnn")),
    "short": Scale(epochs=60),
    "paper": Scale(epochs=PAPER_EPOCHS),
}
TRANSFERS = SCALES | {"short": Scale(epochs=30)}
"""Pictures in `transfer` and `networks`: at scale short, half as long as where the schedule was learned."""

SMOKE = (
    "The embedded digits and a small CNN stand in for the paper's data and networks: this shows that everything works."
)
SHORT = "60 of 200 epochs: milestones, cycles, Exponential's decay and T_val are scaled with them."
SHORT_TRANSFER = (
    "60 of 200 epochs for the meta-training, 30 for pictures that it is transferred to; all else is scaled with them."
)


def hand_designed(base: RunSpec, scale: Scale, *, momentum: bool = False) -> dict[str, RunSpec]:
    """Fixed, MultiStep, Exponential, SGDR and Adam; the first four with momentum if asked.

    Exponential's factor and SGDR's first cycle are per epoch, so they are the same at other horizons.
    """
    decay = 0.95 ** (PAPER_EPOCHS / scale.epochs)
    first_cycle = min(1.0, PAPER_CYCLE * scale.epochs / PAPER_EPOCHS / base.epochs)
    sgd = with_momentum(base, scale) if momentum else base
    return {
        "Fixed": replace(sgd, schedule="fixed"),
        "MultiStep": replace(sgd, schedule="multistep"),
        "Exponential": replace(sgd, schedule="exponential", schedule_options={"factor": decay}),
        "SGDR": replace(sgd, schedule="sgdr", schedule_options={"first_cycle": first_cycle}),
        "Adam": replace(base, schedule="fixed", optimizer="adam", lr=scale.adam_lr, weight_decay=0.0),
    }


def with_momentum(base: RunSpec, scale: Scale) -> RunSpec:
    """Momentum 0.9 at the paper's LR. The smoke LR suits plain SGD, so a tenth of it."""
    return replace(base, optimizer="sgdm", lr=base.lr if scale.stand_in is None else base.lr / 10)


HYPER_LRS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
"""The paper's grid for HD and RTHO (Section 4.1.1); it reports the best."""

TRIAL_EPOCHS = 10


def adapted(base: RunSpec, column: str, *, small: bool, paper: Paper | None = None) -> list[Cell]:
    """L4 at its authors' setting; HD and RTHO at the hyper-LR of the grid that is best on validation data."""
    values = HYPER_LRS[:2] if small else HYPER_LRS
    choice = Choice("hyper_lr", values, 2 if small else TRIAL_EPOCHS)
    numbers = paper or {}
    return [
        Cell("L4", column, replace(base, schedule="l4", schedule_options={"fraction": 0.15}), numbers.get("L4")),
        *(
            Cell(row, column, replace(base, schedule=row.lower()), numbers.get(row), choice=choice)
            for row in ("HD", "RTHO")
        ),
    ]


def meta_trained(base: RunSpec, scale: Scale, **options: Any) -> RunSpec:
    """MLR-SNet, learned while this network trains."""
    name = f"{base.task}-{base.model}"
    return replace(base, schedule="mlr-snet", schedule_options={"every": scale.every, "name": name, **options})


def meta_rows(row: str, base: RunSpec, scale: Scale, **options: Any) -> dict[str, RunSpec]:
    """The same with T_val scaled, and with the paper's where it differs, by their rows' names."""
    return {f"{row}{end}": meta_trained(base, one, **options) for end, one in scale.for_meta_training.items()}


def transferred(base: RunSpec, **options: Any) -> RunSpec:
    """A schedule that another run learned, over plain SGD."""
    return replace(base, optimizer="sgd", schedule="learned", schedule_options=options)


COSINE, WARMUP = "Cosine, warm-up", {"warmup": 0.05}


def cosine(base: RunSpec, column: str, row: str = COSINE) -> Cell:
    """A row that the paper does not have: warm-up to the LR, then half a cosine down to 0."""
    return Cell(row, column, replace(base, schedule="cosine", schedule_options=WARMUP))


KINDS = ("cosine", "linear")


def decays(base: RunSpec, lrs: Mapping[str, float]) -> dict[str, RunSpec]:
    """Cosine and linear after a warm-up, from each of these LRs, by its name."""
    return {
        f"{kind.capitalize()} {name}": replace(base, schedule=kind, schedule_options=WARMUP, lr=lr)
        for kind in KINDS
        for name, lr in lrs.items()
    }


READY_MADE = {"Authors' checkpoints": "official", "Universal LSTM": "universal-lstm"}
SHIPPED = "MLR-SNet, shipped"
SHIPPED_NOTE = (
    "Beside the paper's rows: a cosine after a warm-up of 5 %, with momentum for pictures; and, over plain SGD and learned before, "
    "the shipped `cifar10-resnet18`, which Algorithm 1 left on CIFAR-10 with ResNet-18 at T_val 300 and which is the same at every "
    "scale, the authors' checkpoints, and the shipped `universal-lstm`, version 1 of the default."
)


def named(row: str, column: str, base: RunSpec, schedule: str, **more: Any) -> Cell:
    """A schedule that already exists, with more options; a missing one leaves its cell empty."""
    if schedule in names.list_schedules():
        options = {"schedule": schedule, **more}
        return Cell(row, column, replace(base, schedule="learned", schedule_options=options))
    how = ": `mlrsnet schedules import` adds the authors' checkpoints" if schedule == "official" else ""
    return Cell(row, column, None, missing=f"there is no schedule named {schedule!r} here{how}")


def ready_made(base: RunSpec, column: str) -> list[Cell]:
    """More rows than the paper's: the authors' published networks and version 1 of the default, over plain SGD."""
    return [named(row, column, base, schedule) for row, schedule in READY_MADE.items()]


def shipped(base: RunSpec, column: str) -> list[Cell]:
    """The same, and the shipped schedule that Algorithm 1 learned on CIFAR-10."""
    return [named(SHIPPED, column, base, "cifar10-resnet18"), *ready_made(base, column)]


SOURCE = "Meta-training on CIFAR-10 with ResNet-18"


def source(scale: Scale, **options: Any) -> Cell:
    """The run that the paper transfers from."""
    return Cell(META_ROW, SOURCE, meta_trained(scale.spec("cifar10", "resnet18"), scale, **options))


def sources(scale: Scale) -> list[Cell]:
    """The same, and one with the paper's T_val where it was scaled."""
    rows = meta_rows(META_ROW, scale.spec("cifar10", "resnet18"), scale)
    return [Cell(row, SOURCE, spec) for row, spec in rows.items()]


def from_sources(base: RunSpec, column: str, learned: Sequence[Cell]) -> list[Cell]:
    """Trainings under what these meta-trainings leave."""
    ends = [cell.row.removeprefix(META_ROW) for cell in learned]
    return [
        Cell(f"{TRANSFERRED}{end}", column, transferred(base), learned_in=(cell.row, cell.column))
        for end, cell in zip(ends, learned, strict=True)
    ]


def transfer_cells(base: RunSpec, scale: Scale, column: str, learned: Sequence[Cell]) -> list[Cell]:
    """Section 4.2: SGDM with hand-designed schedules, Adam, and SGD under transferred schedules; more rows beyond smoke."""
    rows = hand_designed(base, scale, momentum=True)
    cells = [Cell(row, column, spec) for row, spec in rows.items()]
    cells += from_sources(base, column, learned)
    if scale.stand_in:
        return cells
    return [*cells, cosine(with_momentum(base, scale), column), *shipped(base, column)]
