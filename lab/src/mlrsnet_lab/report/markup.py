"""HTML in which text from files cannot become markup: everything that is not `Html` is escaped."""

from collections.abc import Iterable
from html import escape

VOID = frozenset({"img", "meta"})
"""Elements that HTML does not close."""


class Html(str):
    """Text that is HTML already."""

    def __html__(self) -> str:
        return self


def safe(text: str) -> Html:
    """HTML as it is, anything else escaped.

    >>> safe("a < b"), safe(Html("<br>"))
    ('a &lt; b', '<br>')
    """
    return text if isinstance(text, Html) else Html(escape(text))


def join(parts: Iterable[str], between: str = "") -> Html:
    """Several pieces as one."""
    return Html(safe(between).join(map(safe, parts)))


def element(name: str, /, *inside: str, **attributes: str | float) -> Html:
    """One element; a trailing underscore of an attribute is dropped, and one inside becomes a dash.

    >>> element("td", "a & b", class_="number")
    '<td class="number">a &amp; b</td>'
    """
    words = "".join(f' {_attribute(key)}="{escape(str(value))}"' for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{words}>")
    return Html(f"<{name}{words}>{join(inside)}</{name}>")


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
