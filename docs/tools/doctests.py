"""For the API reference: doctests inside docstrings become blocks of code, which Markdown would take for quotations."""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)+", flags=re.MULTILINE)


class Doctests(Extension):
    """Fences every doctest."""

    def on_object(self, *, obj: Object, **more: Any) -> None:
        """Called for everything that has a docstring."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring whose doctests, up to the next empty line, are code."""
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
