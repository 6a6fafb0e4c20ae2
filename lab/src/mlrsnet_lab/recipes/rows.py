"""What the tables share: hand-designed rows, meta-training, transfer, and what each scale trains.

Section 4.1.1: 200 epochs of batch 128, LR 0.1, weight decay 5e-4. MultiStep divides by 10 every 60 epochs, Exponential
multiplies by 0.95 per epoch, SGDR's cycles are 10, 20, 40, ... epochs; Adam is at its defaults. T_val is 100. Shorter scales
shrink all of it together.

T_val decides how many meta-updates Algorithm 1 makes. A shorter scale with the paper's T_val makes few of them, one with a scaled
T_val makes as many as the paper; so there are rows with both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlrsnet.files import names
from mlrsnet_lab.sheets import Cell, Choice
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
    more: T_val of further rows of Algorithm 1; the last one is transferred, too.
    stand_in: task and network that replace all of the paper's.
    small: what it trains on instead of a task of the paper.
    networks: instead of a network of the paper, with options.
    fields: of every training.
    """

    epochs: int
    batch_size: int = 128
    lr: float = 0.1
    adam_lr: float = 1e-3
    stand_in: tuple[str, str] | None = None
    t_val: int | None = None
    more: tuple[int, ...] = ()
    small: Mapping[str, "Small"] = field(default_factory=dict)
    networks: Mapping[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    def spec(self, task: str, model: str, *, epochs: float = PAPER_EPOCHS, **fields: Any) -> RunSpec:
        """Plain SGD on a task of the paper; `epochs` is in the paper's epochs."""
        task, model = self.stand_in or (task, model)
        scaled = max(2, round(epochs / self.paper_epochs(task)))
        model, options = self.networks.get(model, (model, {}))
        given: dict[str, Any] = {"batch_size": self.batch_size, "lr": self.lr, **self.fields, **fields}
        for name, own in {"task_options": self._cut(task), "model_options": options}.items():
            given[name] = own | given.get(name, {})
        return RunSpec(task=task, model=model, epochs=scaled, **given)

    def paper_epochs(self, task: str) -> float:
        """How many of the paper's epochs are one of ours."""
        return PAPER_EPOCHS / (self.small[task].epochs if task in self.small else self.epochs)

    def _cut(self, task: str) -> dict[str, Any]:
        return self.small[task].options if task in self.small else {}

    @property
    def every(self) -> int:
        """T_val, scaled with the epochs."""
        return self.t_val or max(1, PAPER_EVERY * self.epochs // PAPER_EPOCHS)

    @property
    def for_meta_training(self) -> dict[str, "Scale"]:
        """By the end of a row's name: this scale, and it with each further T_val."""
        return {"": self} | {f", T_val {every}": replace(self, t_val=every) for every in self.more}

    @property
    def for_transfer(self) -> dict[str, "Scale"]:
        """The same, without those between the first and the last."""
        return {
            end: scale for end, scale in self.for_meta_training.items() if scale.every in (self.every, *self.more[-1:])
        }


@dataclass(frozen=True)
class Small:
    """What a scale trains on instead of a data set of the paper: its options, and the epochs for the paper's 200."""

    options: dict[str, Any]
    epochs: int


CPU_CUTS = {
    "cifar10": Small({"size": 16, "fraction": 0.2}, 30),
    "cifar100": Small({"size": 16, "fraction": 0.4}, 14),
    "svhn": Small({"size": 16, "fraction": 0.5}, 30),
    "tinyimagenet": Small({"size": 16}, 20),
    "mnist": Small({"size": 16, "fraction": 1 / 6}, 30),
    "cifar10-c": Small({"size": 16, "fraction": 0.2}, 30),
    "cifar100-c": Small({"size": 16, "fraction": 0.2}, 30),
}
"""About 4,200 steps each, of pictures of 16x16."""

CPU_NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet18": ("wrn-10-1", {}),
    "wrn-28-10": ("wrn-10-1", {}),
    "resnet34": ("wrn-10-1", {"depth": 16}),
    "resnet50": ("wrn-10-1", {"depth": 22}),
    "shufflenetv2": ("shufflenetv2", {"width": 0.5}),
    "mobilenetv2": ("mobilenetv2", {"width": 0.25}),
}
"""WideResNet-10-1 has 78,000 weights. Recipe `grid` says which LRs suit it."""

SCALES = {
    "smoke": Scale(epochs=10, batch_size=64, lr=1.0, adam_lr=1e-2, stand_in=("digits", "small_cnn")),
    "cpu": Scale(
        epochs=30,
        batch_size=64,
        t_val=PAPER_EVERY,
        more=(30, 6),
        small=CPU_CUTS,
        networks=CPU_NETWORKS,
        fields={"precision": "fp32"},
    ),
    "short": Scale(epochs=60, more=(PAPER_EVERY,)),
    "paper": Scale(epochs=PAPER_EPOCHS),
}
TRANSFERS = SCALES | {"short": Scale(epochs=30)}
"""Pictures in `transfer` and `networks`: at scale short, half as long as where the schedule was learned."""

SMOKE = (
    "The embedded digits and a small CNN stand in for the paper's data and networks: this shows that everything works."
)
SHORT = "60 of 200 epochs: milestones, cycles, Exponential's decay and T_val are scaled with them."
CPU = (
    "Real data on two cores: pictures of 16x16, about 10,000 of them (20,000 of CIFAR-100), batch 64 in fp32, WideResNet-10-1; "
    "4,200 steps for the paper's 200 epochs. Milestones, cycles and Exponential's decay are scaled. The LR is the paper's 0.1, "
    "which suits this training with momentum; without, the best is higher (recipe `grid`).",
    "T_val is the paper's 100 where a row does not say: 42 meta-updates in 4,200 steps. T_val 6 makes 700, near the paper's 764.",
)
SHORT_TRANSFER = (
    "60 of 200 epochs for the meta-training, 30 for pictures that it is transferred to; all else is scaled with them."
)


def hand_designed(base: RunSpec, scale: Scale, *, momentum: bool = False) -> dict[str, RunSpec]:
    """Fixed, MultiStep, Exponential, SGDR and Adam; the first four with momentum if asked.

    Exponential's factor and SGDR's first cycle are per epoch, so they are the same at other horizons.
    """
    ours = scale.paper_epochs(base.task)
    first_cycle = min(1.0, PAPER_CYCLE / ours / base.epochs)
    sgd = with_momentum(base, scale) if momentum else base
    return {
        "Fixed": replace(sgd, schedule="fixed"),
        "MultiStep": replace(sgd, schedule="multistep"),
        "Exponential": replace(sgd, schedule="exponential", schedule_options={"factor": 0.95**ours}),
        "SGDR": replace(sgd, schedule="sgdr", schedule_options={"first_cycle": first_cycle}),
        "Adam": replace(base, schedule="fixed", optimizer="adam", lr=scale.adam_lr, weight_decay=0.0),
    }


def with_momentum(base: RunSpec, scale: Scale) -> RunSpec:
    """Momentum 0.9 at the paper's LR. The smoke LR suits plain SGD, so a tenth of it."""
    return replace(base, optimizer="sgdm", lr=base.lr if scale.stand_in is None else base.lr / 10)


HYPER_LRS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
"""The paper's grid for HD and RTHO (Section 4.1.1); it reports the best."""

TRIAL_EPOCHS = 10


def adapted(base: RunSpec, column: str, scale: Scale, paper: Paper | None = None) -> list[Cell]:
    """L4 at its authors' setting; HD and RTHO at the hyper-LR of the grid that is best on validation data."""
    trial = base.epochs // 3 if scale.small else TRIAL_EPOCHS
    choice = Choice("hyper_lr", HYPER_LRS[:2], 2) if scale.stand_in else Choice("hyper_lr", HYPER_LRS, trial)
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


DEFAULT = "The default"
READY_MADE = {DEFAULT: "universal", "Authors' checkpoints": "official", "Universal LSTM": "universal-lstm"}
CHECKPOINTS = {"Authors' checkpoints, gamma once": "paper", "Authors' checkpoints, their gamma": "authors"}
SHIPPED = "MLR-SNet, shipped"
CPU_BESIDE = (
    "Beside the paper's rows: a cosine after a warm-up of 5 %, the default of this library, a law that is no network, told "
    "losses, and the authors' checkpoints over plain SGD, with gamma computed once, as the paper says, and as their program does. "
    "Cosine and default have momentum where the hand-designed rows have it."
)
SHIPPED_NOTE = (
    "Beside the paper's rows: a cosine after a warm-up of 5 %, with momentum for pictures; the default of this library, a law "
    "that is no network; and, over plain SGD and learned before, the shipped `cifar10-resnet18`, which Algorithm 1 left on "
    "CIFAR-10 with ResNet-18 at T_val 300 and which is the same at every scale, the authors' checkpoints, and the shipped "
    "`universal-lstm`, version 1 of the default."
)


def named(row: str, column: str, base: RunSpec, schedule: str, **more: Any) -> Cell:
    """A schedule that already exists, with more options; a missing one leaves its cell empty."""
    if schedule in names.list_schedules():
        options = {"schedule": schedule, **more}
        return Cell(row, column, replace(base, schedule="learned", schedule_options=options))
    how = ": `mlrsnet schedules import` adds the authors' checkpoints" if schedule == "official" else ""
    return Cell(row, column, None, missing=f"there is no schedule named {schedule!r} here{how}")


def default(base: RunSpec, column: str) -> Cell:
    """The default of this library, with this optimizer."""
    return named(DEFAULT, column, base, READY_MADE[DEFAULT])


def ready_made(base: RunSpec, column: str) -> list[Cell]:
    """More rows than the paper's: the default, the authors' published networks and version 1 of the default, over plain SGD."""
    return [named(row, column, base, schedule) for row, schedule in READY_MADE.items()]


def checkpoints(base: RunSpec, column: str) -> list[Cell]:
    """The authors' published networks, with gamma computed as the paper says, and as their program does."""
    return [named(row, column, base, "official", gamma=gamma) for row, gamma in CHECKPOINTS.items()]


def shipped(base: RunSpec, column: str) -> list[Cell]:
    """The same, and the shipped schedule that Algorithm 1 learned on CIFAR-10."""
    return [named(SHIPPED, column, base, "cifar10-resnet18"), *ready_made(base, column)]


SOURCE = "Meta-training on CIFAR-10 with ResNet-18"


def sources(scale: Scale, **options: Any) -> list[Cell]:
    """The runs that the paper transfers from: with T_val scaled, and as the paper has it."""
    base = scale.spec("cifar10", "resnet18")
    return [
        Cell(f"{META_ROW}{end}", SOURCE, meta_trained(base, one, **options)) for end, one in scale.for_transfer.items()
    ]


def from_sources(
    base: RunSpec, column: str, learned: Sequence[Cell], row: str = TRANSFERRED, **options: Any
) -> list[Cell]:
    """Trainings under what these meta-trainings leave."""
    return [
        Cell(
            f"{row}{cell.row.removeprefix(META_ROW)}",
            column,
            transferred(base, **options),
            learned_in=(cell.row, cell.column),
        )
        for cell in learned
    ]


def transfer_cells(base: RunSpec, scale: Scale, column: str, learned: Sequence[Cell]) -> list[Cell]:
    """Section 4.2: SGDM with hand-designed schedules, Adam, and SGD under transferred schedules; more rows beyond smoke."""
    rows = hand_designed(base, scale, momentum=True)
    cells = [Cell(row, column, spec) for row, spec in rows.items()]
    cells += from_sources(base, column, learned)
    if scale.stand_in:
        return cells
    moving = with_momentum(base, scale)
    cells.append(cosine(moving, column))
    if scale.small:
        return [*cells, default(moving, column), *checkpoints(base, column)]
    return [*cells, *shipped(base, column)]
