"""Options of datasets, checked before any data is read."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from mlrsnet_lab import checks

DEFAULT_VAL_SIZE = 1000


@dataclass(frozen=True)
class NoOptions:
    """No options."""


@dataclass(frozen=True)
class FractionOptions:
    """Options of texts, and of rows and pieces of text.

    Args:
        fraction: to use: of each part of a text, from its beginning, with the vocabulary of the whole; or of the training examples,
            where a smaller fraction is part of a larger one.
    """

    fraction: float = 1.0

    def __post_init__(self) -> None:
        check_fraction(self.fraction)


@dataclass(frozen=True)
class PictureOptions:
    """Options of every dataset of pictures.

    Args:
        val_size: number of training pictures held out for validation. None: 1,000, or at most a tenth of a user's own pictures,
            or the dataset's own validation pictures.
        fraction: of the training pictures to use, before any are held out. A smaller fraction is part of a larger one.
        begin: leave out this fraction of them from the beginning, so that `begin=0.5` is what `fraction=0.5` does not train on. The
            validation pictures stay the same.
        leaky: also train on the validation pictures.
        overlap: draw the validation pictures from all training pictures, whatever was held out, as the authors' code does: 98 %
            of CIFAR's are trained on too. As many pictures are trained on as without it.
        augment: random crops and flips, as they suit the dataset.
        augment_val: augment batches that a method learns from in validation, too, as the authors' code does. Scores do not change.
        classes: use only these, numbered from 0 in this order.
        std: what pixels are divided by: the deviation of the `set`, or the mean deviation of a `picture`, as the authors' constants
            for CIFAR-10 are.
        size: resize pictures to this side. None: as they are (224 for a folder).
    """

    val_size: int | None = None
    fraction: float = 1.0
    leaky: bool = False
    augment: bool = True
    classes: tuple[int, ...] | None = None
    size: int | None = None
    begin: float = 0.0
    overlap: bool = False
    augment_val: bool = False
    std: str = "set"

    def __post_init__(self) -> None:
        for name in ("val_size", "size"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.whole_number(name, getattr(self, name)))
        for name in ("leaky", "augment", "overlap", "augment_val"):
            yes_or_no(name, getattr(self, name))
        checks.one_of("std", self.std, ("set", "picture"))
        if self.leaky and self.overlap:
            raise ValueError("leaky must be False with overlap, got True for both: choose one")
        if self.augment_val and not self.augment:
            raise ValueError("augment must be True with augment_val, got False: leave one of them out")
        check_fraction(self.fraction)
        if not 0 <= checks.real("begin", self.begin) < self.fraction:
            raise ValueError(f"begin must be at least 0 and below fraction={self.fraction}, got {self.begin!r}")
        if self.classes is not None:
            object.__setattr__(self, "classes", _numbers(self.classes))

    @property
    def about_val(self) -> str | None:
        """An option that was given and says which training pictures validate, if any."""
        given = {"leaky": self.leaky, "overlap": self.overlap, "val_size": self.val_size is not None}
        return next((name for name, is_given in given.items() if is_given), None)

    def held_out(self, count: int) -> int:
        """How many of `count` training pictures to hold out; the same for every fraction."""
        return self.val_size or DEFAULT_VAL_SIZE


@dataclass(frozen=True)
class FolderOptions(PictureOptions):
    """Options of a user's own folder, which may be small."""

    def held_out(self, count: int) -> int:
        """At most a tenth, unless `val_size` says otherwise."""
        return self.val_size or min(DEFAULT_VAL_SIZE, max(1, count // 10))


@dataclass(frozen=True)
class OwnOptions(FolderOptions):
    """Options of a user's own .npz. Only the user knows how its pictures may be augmented."""

    pad: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole_number("pad", self.pad, 0)
        yes_or_no("flip", self.flip)
        if not self.augment and (self.pad or self.flip):
            raise ValueError(f"augment must be True for pad={self.pad} and flip={self.flip}, got False: leave it out")


def build(kind: type[Any], task: str, given: dict[str, Any], fixed: dict[str, Any]) -> Any:
    """A dataset's options from what the user gave. Raises on a name that it does not have."""
    allowed = [field.name for field in fields(kind) if field.name not in fixed]
    for name in given:
        if name not in allowed:
            has = f"its options are {', '.join(allowed)}" if allowed else "it has no options"
            raise ValueError(f"{task} has no option {name!r}, got {name}={given[name]!r}: {has}")
    return kind(**given, **fixed)


def check_fraction(fraction: object) -> None:
    """Raise unless it is a share of the data."""
    if not 0 < checks.real("fraction", fraction) <= 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction!r}: 1 takes everything")


def yes_or_no(name: str, value: object) -> None:
    """Raise unless `value` is a bool: the word "false" would count as true."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def _numbers(classes: Iterable[Any]) -> tuple[int, ...]:
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise ValueError(f"classes must be whole numbers such as (0, 1, 2), got {classes!r}")
    return tuple(checks.whole_number("each of classes", number, 0) for number in classes)
