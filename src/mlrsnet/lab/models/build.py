"""The table of networks and the functions that build from it.

Weights come from torch's global random state alone: `torch.manual_seed` before building repeats them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from mlrsnet import _check
from mlrsnet.lab import options as named
from mlrsnet.lab.models.language import LanguageModel
from mlrsnet.lab.models.lstm import LSTMLanguageModel
from mlrsnet.lab.models.mlp import mlp
from mlrsnet.lab.models.mobilenetv2 import mobilenetv2
from mlrsnet.lab.models.nasnet import NASNet
from mlrsnet.lab.models.options import Shape, picture_shape
from mlrsnet.lab.models.patch_net import PatchNet
from mlrsnet.lab.models.resnet import resnet
from mlrsnet.lab.models.shufflenetv2 import shufflenetv2
from mlrsnet.lab.models.small_cnn import small_cnn
from mlrsnet.lab.models.transformer import TransformerLanguageModel
from mlrsnet.lab.models.wideresnet import WideResNet


def _small_cnn(shape: Shape, num_classes: int, *, width: int = 16, norm: str = "batch") -> nn.Module:
    return small_cnn(shape[0], num_classes, _check.whole_number("width", width), norm)


IMAGE: dict[str, Callable[..., nn.Module]] = {
    "resnet18": partial(resnet, "resnet18"),
    "resnet34": partial(resnet, "resnet34"),
    "resnet50": partial(resnet, "resnet50"),
    "wrn-28-10": WideResNet,
    "shufflenetv2": shufflenetv2,
    "mobilenetv2": mobilenetv2,
    "nasnet": NASNet,
    "small_cnn": _small_cnn,
    "mlp": mlp,
    "patch_net": PatchNet,
}
"""(shape, num_classes, *, options) -> a network from pictures (B, C, H, W) to logits (B, num_classes)."""

TEXT: dict[str, Callable[..., LanguageModel]] = {"lstm": LSTMLanguageModel, "transformer": TransformerLanguageModel}
"""(vocabulary, *, options) -> a `LanguageModel`."""


def check(name: str, options: Mapping[str, Any]) -> None:
    """Raise on unknown names and options."""
    both: dict[str, Callable[..., nn.Module]] = {**IMAGE, **TEXT}
    named.check("model_options", name, both[_check.one_of("model", name, both)], options)


def build_image(name: str, shape: Shape, num_classes: int, **options: Any) -> nn.Module:
    """A network from pictures (B, C, H, W) to logits (B, num_classes); `shape` is (C, H, W).

    >>> num_parameters(build_image("small_cnn", (1, 8, 8), 10, width=4))
    438
    """
    if name in TEXT:
        raise ValueError(f"model must be one for pictures, {', '.join(IMAGE)}; got {name!r}, which reads text")
    builder = IMAGE[_check.one_of("model", name, IMAGE)]
    named.check("model", name, builder, options)
    hint = "a classifier needs two or more"
    return builder(picture_shape(shape), _check.whole_number("num_classes", num_classes, 2, hint), **options)


def build_text(name: str, vocabulary: int, **options: Any) -> LanguageModel:
    """A language model over tokens 0 .. vocabulary - 1.

    >>> num_parameters(build_text("lstm", 10, hidden=4))
    370
    """
    if name in IMAGE:
        raise ValueError(f"model must be one for text, {', '.join(TEXT)}; got {name!r}, which reads pictures")
    builder = TEXT[_check.one_of("model", name, TEXT)]
    named.check("model", name, builder, options)
    return builder(_check.whole_number("vocabulary", vocabulary, 2, "the number of tokens"), **options)


def num_parameters(model: nn.Module) -> int:
    """The number of trainable parameters; tied weights count once."""
    return sum(parameter.numel() for parameter in model.parameters())
