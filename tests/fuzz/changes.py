"""Bytes changed at random: as bytes, or as the JSON documents that they are."""

import json
import random

from tests.fuzz.readers import SPLIT

WORDS = (
    b"NaN", b"1e400", b"[" * 200, b'"../a"', b"null", b"\\ud800", b"\xff" * 8, b"\0" * 8, b"PK\x05\x06", b"-1", b"{}", b"9" * 400,
)  # fmt: skip
VALUES = (
    "x", "", "../a", "\x1b[2J", "\ud800", "9" * 50, None, True, {}, [], [[1.0]], [1, 2], {"a": {"b": 1}}, 0, -5, 1.5, 2**63, 10**30,
    10**300, -(10**300), 1e308, -1e308, 1e-320, float("nan"), float("inf"),
)  # fmt: skip
"""That readers trip over."""


def changed(content: bytes, chance: random.Random) -> bytes:
    """A few bytes flipped, removed, repeated or replaced; or a few values of the JSON in it, if there is some."""
    return changed_values(content, chance) if chance.random() < 0.5 else changed_bytes(content, chance)


def changed_bytes(content: bytes, chance: random.Random) -> bytes:
    content = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        place, length = chance.randrange(len(content) + 1), chance.choice((1, 1, 2, 8, 50))
        repeated = bytes(content[place : place + length]) * 2
        content[place : place + length] = chance.choice((chance.randbytes(1), b"", repeated, chance.choice(WORDS)))
    return bytes(content)


def changed_values(content: bytes, chance: random.Random) -> bytes:
    """The documents may stand on lines of their own, or between `SPLIT`."""
    between = SPLIT if SPLIT in content else b"\n"
    parts = content.split(between)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(parts))
        try:
            value = _with_another(json.loads(parts[place]), chance)
        except (ValueError, RecursionError):
            return changed_bytes(content, chance)
        parts[place] = json.dumps(value).encode()
    return between.join(parts)


def _with_another(value: object, chance: random.Random) -> object:
    if chance.random() < 0.85 and isinstance(value, dict) and value:
        key = chance.choice(list(value))
        return {**value, key: _with_another(value[key], chance)}
    if chance.random() < 0.85 and isinstance(value, list) and value:
        place = chance.randrange(len(value))
        return [*value[:place], _with_another(value[place], chance), *value[place + 1 :]]
    return chance.choice(VALUES)
