"""Networks to train, by name: for pictures, running text, rows of numbers and pieces of text.

Weights come from torch's global random state alone: `torch.manual_seed` before building repeats them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from mlrsnet_lab import checks
from mlrsnet_lab import options as named
from mlrsnet_lab.models.from_torchvision import mobilenetv2, resnet, shufflenetv2
from mlrsnet_lab.models.lstm import LSTMLanguageModel
from mlrsnet_lab.models.mlp import mlp
from mlrsnet_lab.models.nasnet import NASNet
from mlrsnet_lab.models.parts import LanguageModel, Shape, State, picture_shape
from mlrsnet_lab.models.patch_net import PatchNet
from mlrsnet_lab.models.small_cnn import small_cnn
from mlrsnet_lab.models.text_classifier import TextClassifier
from mlrsnet_lab.models.transformer import TransformerLanguageModel
from mlrsnet_lab.models.vit import VisionTransformer
from mlrsnet_lab.models.wideresnet import WideResNet

__all__ = [
    "IMAGE",
    "PIECES",
    "ROWS",
    "TEXT",
    "LanguageModel",
    "State",
    "build_image",
    "build_pieces",
    "build_rows",
    "build_text",
    "check",
    "num_parameters",
]

MORE = "a classifier needs two or more"


IMAGE: dict[str, Callable[..., nn.Module]] = {
    "resnet18": partial(resnet, "resnet18"),
    "resnet34": partial(resnet, "resnet34"),
    "resnet50": partial(resnet, "resnet50"),
    "wrn-28-10": WideResNet,
    "wrn-10-1": partial(WideResNet, depth=10, width=1),
    "shufflenetv2": shufflenetv2,
    "mobilenetv2": mobilenetv2,
    "nasnet": NASNet,
    "small_cnn": small_cnn,
    "mlp": mlp,
    "patch_net": PatchNet,
    "vit": VisionTransformer,
}
"""(shape, num_classes, *, options) -> a network from pictures (B, C, H, W) to logits (B, num_classes)."""

TEXT: dict[str, Callable[..., LanguageModel]] = {"lstm": LSTMLanguageModel, "transformer": TransformerLanguageModel}
"""(vocabulary, *, options) -> a `LanguageModel`."""


ROWS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp}
"""((features,), outputs, *, options) -> a network from rows of numbers (B, features) to (B, outputs)."""

PIECES: dict[str, Callable[..., nn.Module]] = {"text_classifier": TextClassifier}
"""(vocabulary, length, num_classes, *, options) -> a network from tokens (B, length) to logits (B, num_classes)."""

_READS: dict[str, Mapping[str, Any]] = {
    "pictures": IMAGE,
    "text": TEXT,
    "rows of numbers": ROWS,
    "pieces of text": PIECES,
}


def check(name: str, options: Mapping[str, Any]) -> None:
    """Raise on unknown names and options."""
    every: dict[str, Callable[..., nn.Module]] = {**IMAGE, **TEXT, **PIECES}
    named.check("model_options", name, every[checks.one_of("model", name, every)], options)


def _builder(name: str, kind: str, options: Mapping[str, Any]) -> Any:
    """The builder of a network that reads `kind`."""
    known = _READS[kind]
    others = [other for other, those in _READS.items() if name in those]
    if name not in known and others:
        raise ValueError(f"model must be one for {kind}, {', '.join(known)}; got {name!r}, which reads {others[0]}")
    builder = known[checks.one_of("model", name, known)]
    named.check("model", name, builder, options)
    return builder


def build_image(name: str, shape: Shape, num_classes: int, **options: Any) -> nn.Module:
    """A network from pictures (B, C, H, W) to logits (B, num_classes); `shape` is (C, H, W).

    >>> num_parameters(build_image("small_cnn", (1, 8, 8), 10, width=4))
    438
    """
    builder = _builder(name, "pictures", options)
    made: nn.Module = builder(picture_shape(shape), checks.whole_number("num_classes", num_classes, 2, MORE), **options)
    return made


def build_text(name: str, vocabulary: int, **options: Any) -> LanguageModel:
    """A language model over tokens 0 .. vocabulary - 1.

    >>> num_parameters(build_text("lstm", 10, hidden=4))
    370
    """
    builder = _builder(name, "text", options)
    made: LanguageModel = builder(checks.whole_number("vocabulary", vocabulary, 2, "the number of tokens"), **options)
    return made


def build_rows(name: str, features: int, outputs: int, **options: Any) -> nn.Module:
    """A network from rows of numbers (B, features) to classes or numbers (B, outputs).

    >>> num_parameters(build_rows("mlp", 3, 1, width=4, depth=1))
    21
    """
    builder = _builder(name, "rows of numbers", options)
    shape = (checks.whole_number("features", features),)
    made: nn.Module = builder(shape, checks.whole_number("outputs", outputs), **options)
    return made


def build_pieces(name: str, vocabulary: int, length: int, num_classes: int, **options: Any) -> nn.Module:
    """A classifier of pieces of text, tokens (B, length) of which 0 is padding.

    >>> num_parameters(build_pieces("text_classifier", 10, 4, 2, width=8, heads=2, layers=1))
    1018
    """
    builder = _builder(name, "pieces of text", options)
    made: nn.Module = builder(vocabulary, length, checks.whole_number("num_classes", num_classes, 2, MORE), **options)
    return made


def num_parameters(model: nn.Module) -> int:
    """The number of trainable parameters; tied weights count once."""
    return sum(parameter.numel() for parameter in model.parameters())
