"""What can be asked of a task, checked before any data is read."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from mlrsnet import _check

DEFAULT_VAL_SIZE = 1000


@dataclass(frozen=True)
class NoOptions:
    """Of texts: there is nothing to choose."""


@dataclass(frozen=True)
class PictureOptions:
    """Of every set of pictures.

    Args:
        val_size: pictures held out of the training ones; None: 1,000 (of a user's own at most a tenth), or those that the
            data itself sets apart.
        fraction: of the training pictures, before any are held out; a smaller fraction lies inside a larger one.
        leaky: train on the validation pictures too, as the authors' code does.
        augment: random crops and flips, of the kind that suits the set.
        classes: only these, numbered from 0 in this order.
        size: side of the pictures, which are resized to it; None: as they are (a folder: 224).
    """

    val_size: int | None = None
    fraction: float = 1.0
    leaky: bool = False
    augment: bool = True
    classes: tuple[int, ...] | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        for name in ("val_size", "size"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _check.whole_number(name, getattr(self, name)))
        for name in ("leaky", "augment"):
            yes_or_no(name, getattr(self, name))
        if not 0 < _check.real("fraction", self.fraction) <= 1:
            raise ValueError(f"fraction must be in (0, 1], got {self.fraction!r}: 1 takes all training pictures")
        if self.classes is not None:
            object.__setattr__(self, "classes", _numbers(self.classes))

    def held_out(self, count: int) -> int:
        """How many pictures are held out of so many, all fractions alike."""
        return self.val_size or DEFAULT_VAL_SIZE


@dataclass(frozen=True)
class FolderOptions(PictureOptions):
    """Of a user's own folder, which may be small."""

    def held_out(self, count: int) -> int:
        """A tenth at most, unless asked for."""
        return self.val_size or min(DEFAULT_VAL_SIZE, max(1, count // 10))


@dataclass(frozen=True)
class OwnOptions(FolderOptions):
    """Of a user's own .npz, about which only the user knows how its pictures may be changed."""

    pad: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.whole_number("pad", self.pad, 0)
        yes_or_no("flip", self.flip)
        if not self.augment and (self.pad or self.flip):
            raise ValueError(f"augment must be True for pad={self.pad} and flip={self.flip}, got False: leave it out")


def build(kind: type[Any], task: str, given: dict[str, Any], fixed: dict[str, Any]) -> Any:
    """The options of a task from what the user gave; a name that the task does not have is refused."""
    allowed = [field.name for field in fields(kind) if field.name not in fixed]
    for name in given:
        if name not in allowed:
            has = f"its options are {', '.join(allowed)}" if allowed else "it has no options"
            raise ValueError(f"{task} has no option {name!r}, got {name}={given[name]!r}: {has}")
    return kind(**given, **fixed)


def yes_or_no(name: str, value: object) -> None:
    """Refuse what only looks like True or False, such as the word "false", which counts as true."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def _numbers(classes: Iterable[Any]) -> tuple[int, ...]:
    if isinstance(classes, str) or not isinstance(classes, Iterable):
        raise ValueError(f"classes must be whole numbers such as (0, 1, 2), got {classes!r}")
    return tuple(_check.whole_number("each of classes", number, 0) for number in classes)
