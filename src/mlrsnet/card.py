"""The card of a schedule: where it comes from, how its output becomes an LR, and its results."""

import platform
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy
import torch

from mlrsnet import _check, ranges
from mlrsnet.ranges import Fixed, Gamma, Range


def versions() -> dict[str, str]:
    """The versions a schedule was made with."""
    return {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": numpy.__version__}


@dataclass(frozen=True)
class Card:
    """What is known about a schedule. Code reads only `gamma` and `loss_range`; the rest is for people.

    Args:
        name: the schedule's name.
        description: one paragraph.
        learned_on: the tasks it was meta-trained on; empty if untrained.
        optimizer: the optimizer it was meta-trained with.
        total_steps: the horizon it was meta-trained for.
        gamma: how the range of the LR is found.
        loss_range: smallest and largest loss during meta-training, as the network saw it. `LearnedLR` warns far outside.
        results: measured results, by task.
        versions: versions of the software that made it.
    """

    name: str = "unnamed"
    description: str = ""
    learned_on: str = ""
    optimizer: str = ""
    total_steps: int | None = None
    gamma: Range = field(default_factory=Gamma)
    loss_range: tuple[float, float] | None = None
    results: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=versions)

    def __post_init__(self) -> None:
        kinds: dict[str, Any] = dict.fromkeys(("name", "description", "learned_on", "optimizer"), str)
        for name, kind in {**kinds, "gamma": Gamma | Fixed, "results": dict, "versions": dict}.items():
            if not isinstance(getattr(self, name), kind):
                known = getattr(kind, "__name__", None) or "Gamma or Fixed"
                raise TypeError(f"{name} of a card must be a {known}, got {getattr(self, name)!r}")
        if self.total_steps is not None:
            object.__setattr__(self, "total_steps", _check.whole_number("total_steps", self.total_steps))
        object.__setattr__(self, "results", _plain(self.results))
        if self.loss_range is not None:
            if len(self.loss_range) != 2 or not self.loss_range[0] < self.loss_range[1]:
                raise ValueError(f"loss_range must be (smallest, largest), got {self.loss_range!r}")
            object.__setattr__(
                self, "loss_range", tuple(_check.real("loss_range", x) + 0.0 for x in self.loss_range)
            )  # no -0

    @cached_property
    def warn_outside(self) -> tuple[float, float]:
        """Warn about losses outside this interval: `loss_range`, extended by its width at either end."""
        if self.loss_range is None:
            return (-float("inf"), float("inf"))
        low, high = self.loss_range
        return (2 * low - high, 2 * high - low)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self) | {"gamma": self.gamma.to_dict()}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Card":
        """The reverse of `to_dict`. Unknown fields raise an error that names them.

        >>> Card.from_dict(Card(name="mine").to_dict()) == Card(name="mine")
        True
        """
        unknown = set(plain) - {f.name for f in fields(cls)}
        if unknown:
            raise ValueError(f"unknown card fields {sorted(unknown)}; known: {[f.name for f in fields(cls)]}")
        known = dict(plain)
        if "gamma" in known:
            known["gamma"] = ranges.from_dict(known["gamma"])
        if known.get("loss_range") is not None:
            known["loss_range"] = tuple(known["loss_range"])
        return cls(**known)


def facts(card: Card, net: dict[str, Any], phases: int) -> dict[str, str]:
    """How a schedule was made, in words. `net` describes its networks. A field is empty if the card does not say."""
    gamma = card.gamma
    settings = ", ".join(f"{key}={value}" for key, value in net.items() if key != "kind")
    return {
        "learned on": card.learned_on or "nothing: untrained",
        "optimizer": card.optimizer,
        "horizon": f"{card.total_steps} steps" if card.total_steps else "",
        "networks": f"{phases} x {net['kind']}({settings})",
        "range": ", ".join(str(value) for value in gamma.to_dict().values() if value is not None),
        "made with": ", ".join(f"{name} {version}" for name, version in sorted(card.versions.items())),
    }


def described(card: Card, net: dict[str, Any], phases: int, digest: str) -> str:
    """A card in words, one field per line. Empty fields are left out."""
    width = 12
    fields = {
        "name": card.name,
        "description": card.description,
        **facts(card, net, phases),
        "loss range": f"{card.loss_range[0]:g} to {card.loss_range[1]:g}" if card.loss_range else "",
        "results": f"\n{'':{width + 1}}".join(result_lines(card.results)),
        "digest": digest[:16],
    }
    return "\n".join(f"{name:{width}} {value}" for name, value in fields.items() if value)


def result_lines(results: dict[str, Any], bullet: str = "") -> list[str]:
    """One line per result. Groups are indented under their name.

    >>> result_lines({"digits": {"test": 97.5, "validation": 98}, "patches": 0.72})
    ['digits:', '  test: 97.5', '  validation: 98', 'patches: 0.72']
    """
    lines = []
    for name, value in results.items():
        if isinstance(value, dict):
            lines += [f"{bullet}{one_line(name)}:", *(f"  {line}" for line in result_lines(value, bullet))]
        else:
            lines.append(f"{bullet}{one_line(name)}: {one_line(value)}")
    return lines


def one_line(value: object) -> str:
    """The text without line breaks, which would end a heading, a list item or a table row."""
    return " ".join(str(value).split())


def _plain(value: Any) -> Any:
    """Turn numpy and torch numbers into Python ones, which a file can hold. Refuse what it cannot."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, numpy.generic | torch.Tensor) and value.ndim == 0:
        return value.item()
    if value is not None and not isinstance(value, str | int | float):
        raise TypeError(f"results of a card must hold numbers and words, got {value!r}: pass float(...) or a list")
    return value
