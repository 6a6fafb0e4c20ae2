"""Sensors: what a schedule sees of a network in training. They alone look at weights, gradients and steps.

Of a matrix with more than `ENTRIES` entries they look at so many, one in each of as many equal parts, at places that are drawn
once. So nothing that is kept grows with the network, and the mean length of a step is known to 1 or 2 percent.
"""

import math
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from mlrsnet import _optimizers, _shards
from mlrsnet.facts import LOW_PRECISION, is_readable
from mlrsnet.ops import DEVICE, HOST, Operations

ENTRIES = 4096
"""Of a matrix that are looked at."""

START_ENTRIES = 512
"""Of a matrix whose distance from the start is shown: they are part of every checkpoint."""

MOST_LAYOUTS = 4
"""As many sets of weights as are usually trained in turn. A capture needs that of its step."""

LONGEST = 3.0
"""|w| of a matrix begins as at most this many times its `shortest_length`, or torch's embeddings would outweigh all others."""


def shortest_length(shape: Sequence[int]) -> float:
    """|w| of a matrix counts at least this: the length of torch's own initialisation, std 1 / sqrt(3 fan_in).

    Without it, weights that begin at 0 would never leave it, and those that begin small would take too short steps.

    >>> shortest_length((12, 100)), shortest_length((12, 3, 5, 5)), shortest_length((12,))
    (2.0, 2.0, 2.0)
    """
    return math.sqrt((shape[0] if len(shape) else 1) / 3)


def count(shape: Sequence[int]) -> float:
    """sqrt(k), with k = min(m, n) / m for m rows of n numbers: a matrix counts as if it were square.

    An embedding of many rows has a length that has nothing to do with the size of steps that the network wants.

    >>> count((100, 25)), count((25, 100)), count((7,))
    (0.5, 1.0, 1.0)
    """
    columns = math.prod(shape[1:]) if len(shape) > 1 else shape[0] if len(shape) else 1
    return math.sqrt(min(1.0, columns / max(1, shape[0] if len(shape) else 1)))


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


@lru_cache(maxsize=1024)
def places(numel: int, entries: int) -> Tensor:
    """Where to look: one entry in each of `entries` equal parts, drawn once; the same in every process and after a resume.

    >>> found = places(1_000_000, 4)
    >>> [int(place) // 250_000 for place in found], torch.equal(found, places(1_000_000, 4))
    ([0, 1, 2, 3], True)
    """
    drawn = torch.rand(entries, generator=torch.Generator("cpu").manual_seed(numel), dtype=torch.float64, device="cpu")
    return ((torch.arange(entries, device="cpu") + drawn) * (numel / entries)).long().clamp(max=numel - 1)


class Weights(NamedTuple):
    """Weights that are looked at together, in the order of the optimizer.

    places: theirs among all of the optimizer's parameters. shares: the LR of each, divided by alpha. moves: how far each moves
    at most in a first step at an LR of 1 if the optimizer divides by the size of the gradient.
    """

    places: list[int]
    tensors: list[Tensor]
    shares: list[float]
    moves: list[float]


class Samples:
    """Entries of some tensors of one device and type, side by side: (rows, L, entries). Tensors with fewer are padded with 0."""

    def __init__(self, like: Sequence[Tensor], rows: int, entries: int = ENTRIES) -> None:
        parts = [_real(_shards.local(tensor)) for tensor in like]
        sizes = [part.numel() for part in parts]
        self.values = torch.zeros(
            rows, len(parts), min(entries, max(sizes)), dtype=parts[0].dtype, device=parts[0].device
        )
        self.whole = [place for place, size in enumerate(sizes) if size <= entries]
        self.is_low = parts[0].dtype in LOW_PRECISION
        self._rows = list(self.values.unbind())
        self._room = [
            [row[place, : sizes[place]].view(parts[place].shape) for place in self.whole] for row in self._rows
        ]
        self._parts = [
            (place, places(size, entries).to(self.values.device), [row[place] for row in self._rows])
            for place, size in enumerate(sizes)
            if size > entries
        ]
        self.stretch = [math.sqrt(size / entries) if size > entries else 1.0 for size in sizes]
        self._is_plain = not any(_shards.is_sharded(tensor) or tensor.is_complex() for tensor in like)

    def look(self, tensors: Sequence[Tensor], row: int) -> None:
        """Copy the entries as they are now: one call for all small tensors, and one for each large one."""
        if not self._is_plain:
            tensors = [_real(_shards.local(tensor)) for tensor in tensors]
        if self.whole:
            torch._foreach_copy_(self._room[row], [tensors[place] for place in self.whole])
        for place, where, room in self._parts:
            torch.take(tensors[place], where, out=room[row])

    def lengths(self) -> Tensor:
        """(rows, L) norms of the entries."""
        return vector_norm(self.values.float() if self.is_low else self.values, dim=2)

    def changes(self) -> Tensor:
        """(2, L) norms of the first row, and of what the second differs from it. The second row is used up."""
        if self.is_low:
            first, second = self.values.float()
            return vector_norm(torch.stack((first, second - first)), dim=2)
        self._rows[1].sub_(self._rows[0])
        return vector_norm(self.values, dim=2)


class Scales(NamedTuple):
    """What norms of samples are multiplied by, one number a matrix: arrays of numpy, or tensors.

    lengths, floors: |w| counts max(lengths * norm, floors). moved: for steps, pulled: for gradients, which do not know the share of
    their group yet. The same follows without the square shape, for a first step, whose length is at most `root_size`.
    """

    lengths: Any
    floors: Any
    moved: Any
    pulled: Any
    plain_lengths: Any
    plain_floors: Any
    plain_pulled: Any


def relative_square(moved: Any, lengths: Any) -> Any:
    """x = sum k_l |D_l|^2 / sum k_l |w_l|^2, from (..., L) lengths that have sqrt(k_l) in them."""
    return (moved * moved).sum(-1) / (lengths * lengths).sum(-1)


def first_square(pulled: Any, lengths: Any, n: Any, o: Operations) -> Any:
    """A guess at x of a first step: x_0 = max(sum |g_l|^2, n) / sum |w_l|^2, from (..., L) lengths.

    It is long enough where a step is the gradient, as in SGD, and where each of n weights moves by at most 1, as in Adam. A
    gradient that is not finite counts as 0: a step with it is skipped, or lost anyway.
    """
    size = (pulled * pulled).sum(-1)
    usable = o.isfinite(size) & (size > n)
    return o.where(usable, size, n) / (lengths * lengths).sum(-1)


class Layout:
    """Weights that move together in a step: samples of each, and what their norms count.

    Args:
        weights: those that have a gradient; where they are spread over processes all that could have one, so that every process
            adds up the same numbers.
        known: what lengths are multiplied by, by place in the optimizer; new ones are added.
        device: where numbers about them live; None for the host.
    """

    def __init__(self, weights: Weights, known: dict[int, float], device: torch.device | None) -> None:
        alike: dict[Any, list[int]] = {}
        for place, tensor in enumerate(weights.tensors):
            alike.setdefault((tensor.device, tensor.dtype), []).append(place)
        order = [place for places in alike.values() for place in places]
        self.weights = Weights(*([column[place] for place in order] for column in weights))  # type: ignore[arg-type]
        self.device = device
        self.is_low = any(tensor.dtype in LOW_PRECISION for tensor in self.weights.tensors)
        ends = np.cumsum([len(places) for places in alike.values()]).tolist()
        self._parts = [slice(end - len(places), end) for end, places in zip(ends, alike.values(), strict=True)]
        self.samples = [Samples(self.weights.tensors[part], 2) for part in self._parts]
        self._sharers = _shards.sharers(self.weights.tensors)
        self.is_sharded = bool(self._sharers)
        self._is_simple = (
            not self.is_sharded and len(self.samples) == 1 and device in (None, self.weights.tensors[0].device)
        )
        self.stretch = [one for samples in self.samples for one in samples.stretch]
        self.look(0)
        self.scales = self._scales(known)
        self.root_size = math.sqrt(
            sum(
                move**2 * math.prod(_shape(tensor))
                for move, tensor in zip(self.weights.moves, self.weights.tensors, strict=True)
            )
        )

    def look(self, row: int) -> None:
        """Remember the weights as they are now."""
        for samples, part in zip(self.samples, self._parts, strict=True):
            samples.look(self.weights.tensors[part], row)

    def changes(self) -> Tensor:
        """(2, L) lengths before the step, and of the step."""
        parts = [samples.changes() for samples in self.samples]
        return parts[0] if self._is_simple else self.whole(parts)

    def lengths(self) -> list[Tensor]:
        """(1, L) lengths before the step."""
        return [samples.lengths()[:1] for samples in self.samples]

    def gradients(self, scale: Tensor | None) -> list[Tensor]:
        """(1, L) lengths of the gradients, as samples of weights have them; 0 without one.

        They are there, so all of their entries count: in a word model a few rows are most of a gradient, and a limit must not miss
        them.
        """
        found = []
        for samples, part in zip(self.samples, self._parts, strict=True):
            tensors = self.weights.tensors[part]
            gradients = [_values(torch.zeros_like(one) if one.grad is None else one.grad) for one in tensors]
            norms = torch._foreach_norm(gradients, 2, torch.float32 if samples.is_low else None)  # type: ignore[arg-type]
            lengths = torch.stack(torch._foreach_div(norms, samples.stretch)).unsqueeze(0)  # type: ignore[arg-type]
            found.append(lengths if scale is None else lengths / scale.to(lengths.device))
        return found

    def whole(self, parts: Sequence[Tensor]) -> Tensor:
        """(rows, L) lengths of whole weights, from those of samples and of this process's parts."""
        meeting = self.device or parts[0].device
        rows = parts[0] if len(parts) == 1 else torch.cat([part.to(meeting) for part in parts], dim=1)
        rows = rows.to(meeting)
        if not self.is_sharded:
            return rows
        squares = (rows.double() * torch.tensor(self.stretch, device=meeting)).square()
        return _shards.whole_squares(squares, self._sharers).sqrt().to(meeting)

    def rescale(self, known: dict[int, float]) -> None:
        """Another `known`, where a graph reads it."""
        for scale, new in zip(self.scales, self._scales(known), strict=True):
            scale.copy_(new)

    def _scales(self, known: dict[int, float]) -> Scales:
        weights, shapes = self.weights, [_shape(one) for one in self.weights.tensors]
        floors = np.array([shortest_length(shape) for shape in shapes])
        stretch = np.array(self.stretch)
        if any(index not in known for index in weights.places):
            lengths = self.whole(self.lengths())[0].double().cpu().numpy() * (1.0 if self.is_sharded else stretch)
            with np.errstate(all="ignore"):
                shrink = np.nan_to_num(LONGEST * floors / lengths, nan=1.0).clip(max=1.0)
            for index, one in zip(weights.places, shrink.tolist(), strict=True):
                known.setdefault(index, one)
        shrink = np.array([known[index] for index in weights.places])
        stretch = np.ones_like(stretch) if self.is_sharded else stretch
        counts, shares = np.array([count(shape) for shape in shapes]), np.array(weights.shares)
        plain = (shrink * stretch, floors, shares * stretch)
        lengths, floors, pulled = (one * counts for one in plain)
        scales = Scales(lengths, floors, stretch * counts, pulled, *plain)
        return scales if self.device is None else Scales(*(_there(one, self.device) for one in scales))


@dataclass
class Pending:
    """A step that was taken, before its numbers were read. skipped: set by a GradScaler whose fused optimizer did nothing."""

    layout: Layout
    rows: Tensor
    lr: Any
    skipped: Tensor | None
    ready: Any = None

    @classmethod
    def sent(cls, layout: Layout, rows: Tensor, lr: Any, skipped: Tensor | None) -> "Pending":
        """From a GPU: the copy to the host begins now, and nobody waits for it yet."""
        room = _pinned(rows)
        flag = None if skipped is None else _pinned(skipped.reshape(()))
        ready = torch.cuda.Event()
        ready.record(torch.cuda.current_stream(rows.device))
        return cls(layout, room, lr, flag, ready)

    def read(self) -> tuple[float, bool]:
        """x, and whether the step was taken."""
        if self.ready is not None:
            self.ready.synchronize()
        if self.skipped is not None and float(self.skipped):
            return math.nan, False
        layout = self.layout
        with np.errstate(all="ignore"):  # what is not finite is not counted
            x = float(square(self.rows.cpu().numpy(), layout, layout.scales.moved, HOST))
        return (x / self.lr / self.lr if self.lr else math.nan), True


class Sensor(Protocol):
    """What a driver asks about a step. The first four are what `law.Seen` says.

    x: of the step before. now: of this step, where it is known before it is taken. guess: of a first step. is_low: whether weights
    are too coarse to show short steps.
    """

    @property
    def x(self) -> Any: ...  # noqa: D102
    @property
    def now(self) -> Any: ...  # noqa: D102
    @property
    def guess(self) -> Any: ...  # noqa: D102
    @property
    def is_low(self) -> bool: ...  # noqa: D102

    def follow(self, groups: Sequence[dict[str, Any]], shares: Sequence[float]) -> None:
        """Look at the weights of these groups, whose LRs are alpha times `shares`. One whose share is 0 does not move."""

    def before(self, optimizer: Optimizer) -> None:
        """A step begins."""

    def after(self, optimizer: Optimizer, lr: Any) -> None:
        """The step was taken, at this LR."""

    def settle(self) -> bool:
        """Read what the last step did, on the host; says whether it was taken."""

    def state(self) -> dict[str, Any]:
        """What the next step depends on, as plain numbers and tensors."""

    def load(self, saved: dict[str, Any]) -> None:
        """Continue from `state`; groups may have been added since."""


class Steps:
    """x, the squared length of each step at an LR of 1, relative to the weights.

    The weights are looked at right before and right after a step. So clipping, AMP, accumulation, weight decay and unknown
    optimizers need no thought: what counts is how far the weights moved.

    Args:
        device: where the numbers live: that of tensor LRs; None for the host.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.device, self.known = device, dict[int, float]()
        self.has_stepped = self.is_low = self.sees_gradients = False
        self.x: Any = math.nan
        self.now: Any = 0.0
        self.guess: Any = 1.0
        if device is not None:
            numbers = torch.tensor((math.nan, 0.0, 1.0), dtype=wide(device), device=device)
            self.x, self.now, self.guess = (number.clone() for number in numbers)
        self._groups: list[tuple[dict[str, Any], float]] = []
        self._signature: list[Any] = []
        self._layouts: dict[Any, Layout | None] = {}
        self._captured: list[Layout] = []  # graphs go on writing into them
        self._layout: Layout | None = None
        self._pending: Pending | None = None

    def follow(self, groups: Sequence[dict[str, Any]], shares: Sequence[float]) -> None:
        """Look at the weights of these groups, whose LRs are alpha times `shares`. One whose share is 0 does not move."""
        before, now = _ids(group for group, _ in self._groups), _ids(groups)
        if before and before != now:  # weights were added or removed, which moves the others
            known = dict(zip(before, map(self.known.get, range(len(before))), strict=True))
            self.known = {index: one for index, key in enumerate(now) if (one := known.get(key)) is not None}
        self._groups = list(zip(groups, shares, strict=True))
        self._signature, self._layouts = [], {}

    def before(self, optimizer: Optimizer) -> None:
        """A step begins."""
        signature = [
            (id(w), w.grad is None, w.requires_grad, w.dtype, w.device, None if is_lazy(w) else w.shape)
            for group, _ in self._groups
            for w in group["params"]
        ]
        if signature != self._signature:
            self._signature, self._layout = signature, self._find(tuple(signature), optimizer)
            self.is_low = self._layout is not None and self._layout.is_low
        layout = self._layout
        if layout is None:
            return
        if self.device is not None and is_capturing() and layout not in self._captured:
            self._captured.append(layout)
        layout.look(0)
        is_gradient = _optimizers.is_plain_sgd(optimizer) and not layout.is_low
        if is_gradient or not self.has_stepped:
            self._look_at_gradients(layout, optimizer, is_gradient)
        elif self.sees_gradients:
            self._set("now", 0.0)
        self.sees_gradients = is_gradient

    def after(self, optimizer: Optimizer, lr: Any) -> None:
        """The step was taken, at this LR."""
        layout = self._layout
        if layout is None:
            self._set("x", math.nan)
            return
        layout.look(1)
        rows, skipped = layout.changes(), getattr(optimizer, "found_inf", None)
        if self.device is None:
            self._pending = (Pending.sent if rows.is_cuda else Pending)(layout, rows, lr, skipped)
            return
        self.has_stepped = skipped is None  # else all steps so far may have been skipped
        x = square(rows, layout, layout.scales.moved, DEVICE) / (lr * lr)
        self.x.copy_(x if skipped is None else x.where(skipped.reshape(()) == 0, self.x))

    def settle(self) -> bool:
        """Read what the last step did, on the host; says whether it was taken."""
        if self._pending is None:
            return True
        pending, self._pending = self._pending, None
        x, taken = pending.read()
        if taken:
            self.x, self.has_stepped = x, self.has_stepped or 0 < x < math.inf
        return taken

    def __getstate__(self) -> dict[str, Any]:
        """Without samples of the weights, and without the weights themselves."""
        self.settle()
        forgotten: dict[str, Any] = {"_groups": [], "_signature": [], "_layouts": {}, "_captured": [], "_layout": None}
        return self.__dict__ | forgotten

    def state(self) -> dict[str, Any]:
        """What the next step depends on, as plain numbers and tensors."""
        known = np.full(max(self.known, default=-1) + 1, math.nan)
        known[list(self.known)] = list(self.known.values())
        return {
            "x": float(self.x),
            "guess": float(self.guess),
            "has_stepped": int(self.has_stepped),
            "shrink": torch.from_numpy(known),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Continue from `state`; groups may have been added since."""
        self.known = {index: one for index, one in enumerate(saved["shrink"].tolist()) if not math.isnan(one)}
        self._pending, self._signature, self._layouts = None, [], {}
        for layout in self._captured:
            layout.rescale(self.known)
        self.has_stepped = bool(saved["has_stepped"])
        self._set("x", saved["x"])
        self._set("guess", saved["guess"])

    def _find(self, signature: tuple[Any, ...], optimizer: Optimizer) -> Layout | None:
        """The weights that move in this step. Those that someone has put others in the place of are let go."""
        if signature not in self._layouts:
            if is_capturing():
                raise RuntimeError(
                    "a captured step must move the same weights as one of the last steps before it, got others: take a step "
                    "outside of the capture first, as torch asks for"
                )
            ids = [one[0] for one in signature]
            self._layouts = {key: one for key, one in self._layouts.items() if [old[0] for old in key] == ids}
            if len(self._layouts) == MOST_LAYOUTS:
                self._layouts.pop(next(iter(self._layouts)))
            rows = [
                (weight, share, share * _optimizers.first_move(_optimizers.settings(optimizer, group)))
                for group, share in self._groups
                for weight in group["params"]
            ]
            readable = [index for index, (weight, share, _) in enumerate(rows) if share and is_readable(weight)]
            if not any(_shards.is_sharded(rows[index][0]) for index in readable):
                # without any gradient yet, the optimizer may compute them in its step
                readable = [index for index in readable if rows[index][0].grad is not None] or readable
            chosen = [index for index in readable if rows[index][0].ndim >= 2] or readable
            columns = [list(column) for column in zip(*(rows[index] for index in chosen), strict=True)]
            self._layouts[signature] = Layout(Weights(chosen, *columns), self.known, self.device) if chosen else None  # type: ignore[arg-type]
        return self._layouts[signature]

    def _look_at_gradients(self, layout: Layout, optimizer: Optimizer, is_gradient: bool) -> None:
        """x of this step if it is the gradient itself, and a guess for a first one: |g|^2, or n where every weight moves by 1."""
        o = HOST if self.device is None else DEVICE
        rows = layout.whole(
            [
                torch.cat(two)
                for two in zip(layout.lengths(), layout.gradients(getattr(optimizer, "grad_scale", None)), strict=True)
            ]
        )
        found = rows.cpu().numpy() if self.device is None else rows
        with np.errstate(all="ignore"):  # as in `Pending.read`
            if is_gradient:
                self._set("now", square(found, layout, layout.scales.pulled, o))
            if not self.has_stepped:
                self._set("guess", _guess(found, layout, o))

    def _set(self, name: str, value: Any) -> None:
        if self.device is None:
            setattr(self, name, float(value))
        elif isinstance(value, Tensor):
            getattr(self, name).copy_(value)
        else:
            getattr(self, name).fill_(value)


class Still:
    """Sees nothing: for laws that read the loss only."""

    x, now, guess, is_low = math.nan, 0.0, 1.0, False

    def __init__(self) -> None:
        self._skipped: Tensor | None = None

    def follow(self, groups: Sequence[dict[str, Any]], shares: Sequence[float]) -> None:
        """See `Sensor`."""

    def before(self, optimizer: Optimizer) -> None:
        """See `Sensor`."""

    def after(self, optimizer: Optimizer, lr: Any) -> None:
        """See `Sensor`: only whether a GradScaler skipped the step inside of a fused optimizer."""
        self._skipped = getattr(optimizer, "found_inf", None)

    def settle(self) -> bool:
        """See `Sensor`."""
        return self._skipped is None or not float(self._skipped)

    def state(self) -> dict[str, Any]:
        """See `Sensor`."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """See `Sensor`."""


class Distance:
    """How far the weights are from where they started, as a share of how long they were then. For people: no law reads it.

    It looks at fewer entries, and only when it is asked.
    """

    def __init__(self) -> None:
        self.start: dict[int, Tensor] = {}
        self._weights: list[weakref.ref[Tensor]] = []

    def begin(self, weights: Sequence[Tensor]) -> None:
        """Remember where those are that were not there before. After `load`, places tell which is which."""
        known = [one() for one in self._weights] or weights
        before = {id(weight): self.start.get(index) for index, weight in enumerate(known)}
        self.load({}, weights)
        for index, weight in enumerate(weights):
            start = before.get(id(weight))
            if start is not None:
                self.start[index] = start
            elif weight.ndim >= 2 and is_readable(weight):
                self.start[index] = self._now(weight)

    def value(self) -> float:
        """|now - start| / |start|; NaN before the start. Waits for the device."""
        moved = length = 0.0
        for index, one in enumerate(self._weights):
            start, weight = self.start.get(index), one()
            if start is not None and weight is not None and start.shape == (now := self._now(weight)).shape:
                stretch = weight.numel() / max(1, start.numel())
                moved += float((now - start).square().sum()) * stretch
                length += float(start.square().sum()) * stretch
        return math.sqrt(moved / length) if length else math.nan

    def state(self) -> dict[int, Tensor]:
        """The entries at the start."""
        return {index: start.clone() for index, start in self.start.items()}

    def load(self, saved: dict[int, Tensor], weights: Sequence[Tensor]) -> None:
        """Continue from `state`, with the weights in the same order. They are let go where nobody else has them."""
        self.start = {index: start.clone() for index, start in saved.items()}
        self._weights = [weakref.ref(weight) for weight in weights]

    def __getstate__(self) -> tuple[dict[int, Tensor], list[Tensor]]:
        live = [(index, weight) for index, one in enumerate(self._weights) if (weight := one()) is not None]
        start = {place: self.start[index] for place, (index, _) in enumerate(live) if index in self.start}
        return start, [weight for _, weight in live]

    def __setstate__(self, state: tuple[dict[int, Tensor], list[Tensor]]) -> None:
        self.load(*state)

    @torch.no_grad()
    def _now(self, weight: Tensor) -> Tensor:
        samples = Samples([weight], 1, START_ENTRIES)
        samples.look([weight], 0)
        return _wide(samples.values[0, 0]).cpu().clone()


def wide(device: torch.device) -> torch.dtype:
    """The type of numbers that are squared and averaged."""
    return torch.float32 if device.type == "mps" else torch.float64


def square(rows: Any, layout: Layout, scale: Any, o: Operations) -> Any:
    """x, from (2, L) lengths of weights and of steps, and what the latter count. Where weights are spread over processes, those
    that did not move may have no gradient anywhere, and do not count.
    """
    moved, lengths = rows[1] * scale, o.larger(rows[0] * layout.scales.lengths, layout.scales.floors)
    return relative_square(moved, lengths * (moved > 0) if layout.is_sharded else lengths)


def _guess(rows: Any, layout: Layout, o: Operations) -> Any:
    """x_0, from (2, L) lengths of weights and of gradients."""
    scales = layout.scales
    lengths = o.larger(rows[0] * scales.plain_lengths, scales.plain_floors)
    return first_square(rows[1] * scales.plain_pulled, lengths, layout.root_size**2, o)


def _ids(groups: Iterable[dict[str, Any]]) -> list[int]:
    """Which weights are in some groups, in order."""
    return [id(weight) for group in groups for weight in group["params"]]


def _pinned(tensor: Tensor) -> Tensor:
    """A copy on the host that nobody waits for yet."""
    room = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    return room.copy_(tensor, non_blocking=True)


def _there(numbers: Any, device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=wide(device), device=device)


def _real(tensor: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """That of the whole tensor, of real numbers."""
    return (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)


def _values(tensor: Tensor) -> Tensor:
    """This process's numbers; of a sparse gradient, those that are there."""
    part = _shards.local(tensor)
    return _real(part.coalesce().values() if part.is_sparse else part)


def _wide(tensor: Tensor) -> Tensor:
    """In float32 at least."""
    return tensor.float() if tensor.dtype in LOW_PRECISION else tensor
