"""New networks of many kinds, with the initialisations that are usual for them. None was trained."""

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import nn

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
LAYERS = ("BertModel", "RobertaModel", "DebertaV2Model", "ElectraModel", "ViTModel", "DeiTModel", "Dinov2Model", "LlamaModel",
          "MistralModel", "Qwen2Model", "GemmaModel", "GPTNeoXModel", "PhiModel", "Wav2Vec2Model", "HubertModel",
          "ViTMAEModel", "BeitModel", "OlmoModel", "CLIPVisionModel", "SiglipVisionModel", "MambaModel", "RwkvModel")  # fmt: skip
OTHERS = {
    "GPT2Model": {"n_embd": 64, "n_layer": 3, "n_head": 4},
    "T5Model": {"d_model": 64, "d_ff": 128, "num_layers": 3, "num_heads": 4, "d_kv": 16},
    "BartModel": {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128},
    "WhisperModel": {"d_model": 96, "encoder_layers": 2, "decoder_layers": 2},
    "OPTModel": {"hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "word_embed_proj_dim": 64},
    "BloomModel": {"hidden_size": 64, "n_layer": 3, "n_head": 4},
    "FalconModel": {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4},
    "Mamba2Model": {"hidden_size": 64, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 16},
    "SwinModel": {"embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4]},
    "ConvNextModel": {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]},
    "ConvNextV2Model": {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]},
    "ResNetModel": {"embedding_size": 32, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]},
    "RegNetModel": {"embedding_size": 32, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1], "groups_width": 16},
    "MobileNetV2Model": {"depth_multiplier": 0.35},
    "EfficientNetModel": {"width_coefficient": 0.5, "depth_coefficient": 0.5},
}  # fmt: skip
"""Of transformers, at a small size."""

PLAIN = ("xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal", "orthogonal", "eye", "zeros")
FILLS: dict[str, Callable[[torch.Tensor], object]] = {
    **{name: getattr(nn.init, f"{name}_") for name in PLAIN},
    "trunc_normal": partial(nn.init.trunc_normal_, std=0.02),
    "normal": partial(nn.init.normal_, std=0.02),
    "sparse, 0.5": partial(nn.init.sparse_, sparsity=0.5),
}
"""Initialisations of torch."""


def of_transformers(name: str) -> nn.Module:
    """A small network of this class, drawn by the library."""
    kind = getattr(import_module("transformers"), name)
    return kind(kind.config_class(**OTHERS.get(name, SMALL)))


TIMM = ("resnet18", "vit_tiny_patch16_224", "convnextv2_atto", "mobilenetv3_small_050", "mobilenetv4_conv_small_050",
        "efficientnet_b0", "tf_efficientnetv2_b0", "swin_s3_tiny_224", "mixer_s32_224", "resmlp_12_224", "gmlp_ti16_224",
        "cait_xxs24_224", "nfnet_l0", "nf_resnet26", "regnetx_002", "densenet121", "xcit_nano_12_p16_224", "poolformer_s12",
        "edgenext_xx_small", "mobilevit_xxs", "levit_128s", "repvgg_a0", "ghostnet_050", "coatnet_nano_rw_224", "davit_tiny",
        "tiny_vit_5m_224", "fastvit_t8", "hardcorenas_a", "crossvit_tiny_240", "eva02_tiny_patch14_224", "bat_resnext26ts",
        "skresnet18", "hrnet_w18_small")  # fmt: skip
TORCHVISION = (
    "alexnet",
    "vgg11",
    "squeezenet1_1",
    "googlenet",
    "shufflenet_v2_x0_5",
    "mnasnet0_5",
    "raft_small",
    "r3d_18",
)


def of_package(package: str, maker: str, name: str, **options: Any) -> nn.Module:
    """A network as this package draws it."""
    found: nn.Module = getattr(import_module(package), maker)(name, **options)
    return found


def filled(fill: Callable[[torch.Tensor], object]) -> nn.Module:
    """An MLP whose matrices were filled so."""
    network = mlp()
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            fill(layer.weight)
    return network


def mlp() -> nn.Sequential:
    """Four layers, no norms."""
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(96, 96), nn.ReLU())))


def dcgan() -> nn.Sequential:
    """As DCGAN and pix2pix draw: also the gains, around 1."""
    layers = [nn.Conv2d(3, 32, 4), nn.BatchNorm2d(32), nn.Conv2d(32, 64, 4), nn.BatchNorm2d(64), nn.Conv2d(64, 128, 4),
              nn.BatchNorm2d(128)]  # fmt: skip
    for layer in layers:
        nn.init.normal_(layer.weight, float(isinstance(layer, nn.BatchNorm2d)), 0.02)  # type: ignore[arg-type]
    return nn.Sequential(*layers)


def siren() -> nn.Sequential:
    """An implicit picture: its first layer is drawn wider than the others."""
    network = nn.Sequential(*(nn.Linear(columns, 96) for columns in (2, 96, 96, 96)))
    for layer in network[1:]:
        bound = math.sqrt(6 / 96) / 30
        nn.init.uniform_(layer.weight, -bound, bound)  # type: ignore[arg-type]
    return network


def pruned() -> nn.Module:
    """Half of the columns are zero, as where inputs are masked."""
    network = mlp()
    with torch.no_grad():
        for layer in network[::2]:
            layer.weight[:, ::2] = 0  # type: ignore[index, operator]
    return network


def words() -> nn.Module:
    """An embedding with a row of zeros for padding, and two layers."""
    return nn.Sequential(nn.Embedding(500, 64, padding_idx=0), nn.Linear(64, 64), nn.Linear(64, 10))


OWN: dict[str, Callable[[], nn.Module]] = {
    "MLP": mlp,
    **{f"MLP, {name}": partial(filled, fill) for name, fill in FILLS.items()},
    "convolutions": lambda: nn.Sequential(nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 3), nn.Conv2d(64, 64, 3)),
    "turned convolutions": lambda: nn.Sequential(nn.ConvTranspose2d(64, 32, 4), nn.ConvTranspose2d(32, 16, 4)),
    "convolutions, one a channel": lambda: nn.Sequential(*(nn.Conv2d(64, 64, 5, groups=64) for _ in range(3))),
    "LSTM": lambda: nn.LSTM(64, 64, 2),
    "GRU": lambda: nn.GRU(64, 64, 2),
    "Transformer": lambda: nn.Transformer(64, 4, 2, 2, 128),
    "MultiheadAttention": lambda: nn.MultiheadAttention(64, 4),
    "Embedding": words,
    "Bilinear": lambda: nn.Bilinear(32, 32, 32),
    "EmbeddingBag": lambda: nn.Sequential(nn.EmbeddingBag(500, 64), nn.Linear(64, 10)),
    "weight norm": lambda: nn.Sequential(*(nn.utils.parametrizations.weight_norm(nn.Linear(96, 96)) for _ in range(3))),
    "spectral norm": lambda: nn.Sequential(*(nn.utils.parametrizations.spectral_norm(nn.Linear(96, 96)) for _ in range(3))),
    "PReLU": lambda: nn.Sequential(nn.Linear(64, 64), nn.PReLU(64), nn.Linear(64, 64), nn.PReLU(64)),
    "DCGAN": dcgan,
    "SIREN": siren,
    "half of the columns zero": pruned,
}  # fmt: skip
"""Of torch."""

ALL: dict[str, dict[str, Callable[[], nn.Module]]] = {
    "torch": OWN,
    "transformers": {name: partial(of_transformers, name) for name in (*LAYERS, *OTHERS)},
    "timm": {name: partial(of_package, "timm", "create_model", name, num_classes=10) for name in TIMM},
    "torchvision": {name: partial(of_package, "torchvision.models", "get_model", name) for name in TORCHVISION},
}
"""By whose they are."""
