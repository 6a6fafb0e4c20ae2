"""The steps of a pickle of `torch.save`, looked at one by one and never taken.

torch writes a tensor's numbers beside the pickle. In it stands where they are, as a tuple that ends with a step called BINPERSID:

    ("storage", torch.FloatStorage, key, device, number of elements)
"""

import pickletools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import torch

BUILDS = {
    "collections OrderedDict",
    "torch Size",
    "torch device",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor_v2",
}
"""What a pickle may call. torch allows more, such as `bytearray`; some of that takes memory without end."""

BYTES = {
    **dict.fromkeys(("BoolStorage", "ByteStorage", "CharStorage"), 1),
    **dict.fromkeys(("BFloat16Storage", "HalfStorage", "ShortStorage"), 2),
    **dict.fromkeys(("FloatStorage", "IntStorage"), 4),
    **dict.fromkeys(("ComplexFloatStorage", "DoubleStorage", "LongStorage"), 8),
    "ComplexDoubleStorage": 16,
}
"""Of an element, by the name of its storage in torch."""

Step = tuple[str, Any]
PUTS, GETS = ("BINPUT", "LONG_BINPUT"), ("BINGET", "LONG_BINGET")
CALLS, HIDDEN_CALLS = ("GLOBAL", "INST"), ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4")
LONGEST_PLACE = 16
"""Steps of a place at most: its five parts, each with a PUT, and four more."""


def steps(content: bytes | BinaryIO) -> Iterator[Step]:
    """Names and arguments of the steps; an error at one that calls anything but what builds tensors."""
    for step, value, _ in pickletools.genops(content):
        if step.name in HIDDEN_CALLS or (step.name in CALLS and not _builds(str(value))):
            raise ValueError(f"it must hold tensors and plain values only, got a call of {value or step.name}")
        yield step.name, value


def check_places(found: Iterable[Step], sizes: Mapping[str, int]) -> None:
    """Compare the number of elements of every tensor with the bytes that are there for it, by its key."""
    last: deque[Step] = deque(maxlen=LONGEST_PLACE)
    memo: dict[int, Any] = {}
    for name, value in found:
        if name in PUTS:
            memo[value] = last[-1][1] if last and last[-1][0] in ("BINUNICODE", "GLOBAL") else None
        elif name in GETS:
            last.append(("KNOWN", memo.get(value)))
        elif name in ("BINPERSID", "PERSID"):
            _check_place([part for step, part in _parts(last)], sizes)
            last.clear()
        else:
            last.append((name, value))


def _parts(last: Iterable[Step]) -> list[Step]:
    """The steps of a tuple without its begin and end, as torch writes it."""
    found = list(last)
    marks = [place for place, (name, _) in enumerate(found) if name == "MARK"]
    return found[marks[-1] + 1 : -1] if marks and found[-1][0] == "TUPLE" else []


def _check_place(place: list[Any], sizes: Mapping[str, int]) -> None:
    if len(place) != 5 or not all(isinstance(part, str) for part in place[:4]) or type(place[4]) is not int:
        raise ValueError("it must name the places of its tensors as torch.save does, got another form")
    _, kind, key, _, count = place
    expected, there = BYTES.get(kind.removeprefix("torch "), 0) * count, sizes.get(key)
    if expected != there:
        raise ValueError(f"tensor {key!r} of {count:,} elements must have {expected:,} bytes, got {there}")


def _builds(name: str) -> bool:
    """Whether it is in `BUILDS`, or names a type of numbers."""
    module, _, word = name.partition(" ")
    return name in BUILDS or (
        module == "torch" and (word in BYTES or isinstance(getattr(torch, word, None), torch.dtype))
    )
