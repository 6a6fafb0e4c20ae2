"""The old place of `mlrsnet.lab.methods`."""

from mlrsnet._deprecated import renamed
from mlrsnet.lab import methods

__getattr__ = renamed(
    __name__,
    {
        "Decider": ("mlrsnet.lab.methods.Method", methods.Method),
        "register": ("mlrsnet.lab.methods.register", methods.register),
    },
)
