"""`RunSpec`: a complete description of one training, readable and writable as JSON."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from mlrsnet.files.untrusted import parse_json, read_json, reason
from mlrsnet_lab import checks, datasets, methods, models
from mlrsnet_lab import options as named
from mlrsnet_lab.optimizers import OPTIMIZERS

PRECISIONS = ("auto", "fp32", "bf16")


@dataclass(frozen=True)
class RunSpec:
    """One training.

    Args:
        task: the dataset, by its name or path; see `datasets.load`.
        model, optimizer, schedule: names. They and the task have options of their own under `<field>_options`.
        epochs, batch_size: how long, and in what batches.
        sequence_length: tokens per window; for text only.
        lr: initial LR of hand-designed schedules, hd, rtho and direct. Learned schedules and l4 find their own range.
        weight_decay: of the optimizer.
        clip_norm: largest norm of the gradient; no limit if None.
        precision: `fp32`, `bf16` (autocast), or `auto`: bf16 on a GPU, fp32 on a CPU.
        seed: of initialisation, order of the data and dropout.
        deterministic: the same bits every time on a GPU too, at some cost. A CPU always repeats them.
        eval_every: epochs between evaluations. The last epoch is always evaluated.
        start: fine-tuning: the fields of another RunSpec, whose training gives the first weights. It is made once and kept in the
            data folder; see `starts.py`.
        rays: number of random rays from the solution along which the loss is measured at the end; see `width.py`.

    >>> spec = RunSpec(task="digits", model="mlp", schedule="cosine", schedule_options={"warmup": 0.05})
    >>> RunSpec.from_json(spec.to_json()) == spec
    True
    """

    task: str = "digits"
    model: str = "small_cnn"
    optimizer: str = "sgd"
    schedule: str = "cosine"
    epochs: int = 40
    batch_size: int = 64
    lr: float = 0.1
    weight_decay: float = 5e-4
    clip_norm: float | None = None
    precision: str = "auto"
    seed: int = 0
    deterministic: bool = False
    eval_every: int = 1
    sequence_length: int = 35
    rays: int = 0
    task_options: dict[str, Any] = field(default_factory=dict)
    model_options: dict[str, Any] = field(default_factory=dict)
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    schedule_options: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "eval_every", "sequence_length"):
            self._set(name, checks.whole_number(name, getattr(self, name)))
        for name in ("seed", "rays"):
            self._set(name, checks.whole_number(name, getattr(self, name), 0))
        if self.seed >= 2**32:
            raise ValueError(f"seed must be below 2^32, got {self.seed}: torch accepts no larger ones")
        self._set("lr", checks.positive("lr", self.lr))
        self._set("weight_decay", checks.not_negative("weight_decay", self.weight_decay))
        if self.clip_norm is not None:
            self._set("clip_norm", checks.positive("clip_norm", self.clip_norm, "or null for none"))
        checks.one_of("precision", self.precision, PRECISIONS)
        if not isinstance(self.deterministic, bool):
            raise ValueError(f"deterministic must be true or false, got {self.deterministic!r}")
        self._check_names()

    def _check_names(self) -> None:
        for field_name in (f"{name}_options" for name in _NAMED):
            self._set(field_name, _plain(field_name, getattr(self, field_name)))
        if not isinstance(self.task, str | os.PathLike):
            raise ValueError(f"task must be a name or a path, got {self.task!r}")
        self._set("task", os.fspath(self.task))
        datasets.check(self.task, self.task_options)
        models.check(self.model, self.model_options)
        checks.one_of("optimizer", self.optimizer, OPTIMIZERS)
        named.check("optimizer_options", self.optimizer, OPTIMIZERS[self.optimizer], self.optimizer_options)
        methods.check(self.schedule, self.schedule_options)
        given = _plain("start", self.start)
        self._set(
            "start", RunSpec.from_dict(given).to_dict() if given else {}
        )  # complete, whatever the defaults become

    def _set(self, name: str, value: Any) -> None:
        """Store a field as JSON would return it, so that equivalent specs are equal."""
        object.__setattr__(self, name, value)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RunSpec":
        """From plain JSON types. Raises on an unknown field."""
        known = [item.name for item in fields(cls)]
        if not isinstance(values, Mapping):
            raise ValueError(f"a run's spec must be an object with fields such as task and model, got {values!r}")
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(f"a run's spec has no field {unknown[0]!r}: its fields are {', '.join(known)}")
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> "RunSpec":
        """From JSON, as `to_json` writes it."""
        try:
            values = parse_json(text)
        except ValueError as error:
            raise ValueError(
                f'a run\'s spec must be JSON ({reason(error)}): write an object such as {{"task": "digits"}}'
            ) from None
        return cls.from_dict(values)

    @classmethod
    def from_file(cls, path: Path) -> "RunSpec":
        """From a .json file with a spec, or from a run's record.json."""
        try:
            values = read_json(path)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{path} cannot be read as a run's spec ({reason(error)}): pass a .json file with one"
            ) from None
        if isinstance(values, dict) and "spec" in values:
            values = values["spec"]
        try:
            return cls.from_dict(values)
        except FileNotFoundError:
            raise
        except (ValueError, TypeError, OSError) as error:
            raise ValueError(f"{path} is not a valid spec: {reason(error)}") from None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if not self.start:
            del values["start"]  # as specs were before it was added
        return values

    @property
    def tasks(self) -> list[tuple[str, dict[str, Any]]]:
        """The datasets that it reads, with their options: its own, and those of its start."""
        before = RunSpec.from_dict(self.start).tasks if self.start else []
        return [(self.task, self.task_options), *before]

    def to_json(self) -> str:
        """As indented JSON."""
        return json.dumps(self.to_dict(), indent=1)

    def describe(self) -> str:
        """One line without the seed: task, model, optimizer and schedule with their options, batch size, epochs."""
        words = [f"{getattr(self, name)}{_in_brackets(getattr(self, f'{name}_options'))}" for name in _NAMED]
        start = f", starting from ({RunSpec.from_dict(self.start).describe()})" if self.start else ""
        return f"{', '.join(words)}, batch {self.batch_size}, {self.epochs} epochs{start}"


_NAMED = ("task", "model", "optimizer", "schedule")


def _plain(name: str, options: Any) -> Any:
    """A copy in plain JSON types."""
    if not isinstance(options, dict):
        raise ValueError(f"{name} must be an object of names and values, got {options!r}")
    try:
        return json.loads(json.dumps(options, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold what JSON can hold, got {options!r} ({error})") from None


def _in_brackets(options: Mapping[str, Any]) -> str:
    return f" ({', '.join(f'{name} {value}' for name, value in options.items())})" if options else ""
