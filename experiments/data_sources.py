"""Where the data of the records come from."""

from experiments import markdown
from mlrsnet_lab.datasets.sources import SOURCES, Source


def table() -> list[str]:
    """A line for each well-known data set."""
    heads = ["data set", "where to get it", "SHA-256 of the data in use here", "can they be fetched?"]
    return markdown.table(heads, [[f"`{one.name}`", one.source, f"`{one.sha256}`", _answer(one)] for one in SOURCES])


def _answer(one: Source) -> str:
    return "yes" if one.fetchable else f"cannot be fetched: these are {one.differs}"
