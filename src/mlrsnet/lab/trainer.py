"""The old place of `mlrsnet.lab.loop`."""

from mlrsnet._deprecated import renamed
from mlrsnet.lab import loop

__getattr__ = renamed(__name__, {"run": ("mlrsnet.lab.loop.run", loop.run)})
