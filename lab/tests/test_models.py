import copy
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load, save
from torch import nn
from torch.nn.functional import cross_entropy, linear

from mlrsnet_lab import models
from mlrsnet_lab.models import IMAGE, TEXT, LanguageModel, build_rows, build_text, num_parameters
from mlrsnet_lab.models.nasnet import FactorizedReduction, NormalCell, ReductionCell
from mlrsnet_lab.models.patch_net import PatchNet
from mlrsnet_lab.models.small_cnn import small_cnn
from mlrsnet_lab.models.transformer import Block
from mlrsnet_lab.models.wideresnet import WideBlock

SMALL = {"wrn-28-10": {"depth": 10, "width": 1}, "nasnet": {"cells": 1, "filters": 4}, "mlp": {"width": 16}}
"""Options that keep the tests quick; the full networks are counted, and run once each."""
TINY = {"lstm": {"hidden": 6, "layers": 3}, "transformer": {"width": 8, "heads": 2, "layers": 2, "length": 12}}
VOCABULARY = 11
RUN = [name for name in IMAGE if name != "resnet34"]
"""resnet34 differs from resnet18 in its number of blocks, which is counted."""
OF_TORCHVISION = ("resnet18", "resnet34", "resnet50", "shufflenetv2", "mobilenetv2")


def build_image(name, shape, num_classes, **options):
    """As the lab's; a test that asks for a network of torchvision is skipped where that is not installed."""
    if name in OF_TORCHVISION:
        pytest.importorskip("torchvision")
    return models.build_image(name, shape, num_classes, **options)


def image_model(name, channels=3, side=32, seed=0, **options):
    torch.manual_seed(seed)
    return build_image(name, (channels, side, side), 10, **SMALL.get(name, {}) | options)


def text_model(name, seed=0, **options):
    torch.manual_seed(seed)
    return build_text(name, VOCABULARY, **TINY[name] | options)


def pictures(channels=3, side=32, batch=2):
    return torch.randn(batch, channels, side, side, generator=torch.Generator().manual_seed(1))


def tokens(length=7, batch=3):
    return torch.randint(VOCABULARY, (length, batch), generator=torch.Generator().manual_seed(1))


def logits(model, text):
    return model(text, model.initial_state(text.shape[1], "cpu"))[0]


def any_model(name, seed=0):
    return image_model(name, seed=seed) if name in IMAGE else text_model(name, seed=seed)


def answer(model):
    return logits(model, tokens()) if isinstance(model, LanguageModel) else model(pictures())


def linear_size(inputs, outputs):
    return inputs * outputs + outputs


def lstm_size(vocabulary, hidden, layers):
    """Embedding (= output matrix), output bias; a layer has four gates, two matrices and two biases (torch's LSTM)."""
    return vocabulary * hidden + vocabulary + layers * 4 * (2 * hidden * hidden + 2 * hidden)


def transformer_size(vocabulary, width, layers, length):
    """Two embeddings, 12 d^2 + 13 d a block (q, k, v, output, two linear layers, their biases, two norms), a norm."""
    return (vocabulary + length) * width + layers * (12 * width**2 + 13 * width) + 2 * width


def wrn_size(blocks, classes):
    """A convolution, groups of 16, 32 and 64 channels with `blocks` blocks each, a norm, a classifier."""
    found, before = 3 * 16 * 9, 16
    for channels in (16, 32, 64):
        for _ in range(blocks):
            found += 2 * before + 9 * before * channels + 2 * channels + 9 * channels**2  # norm, conv, norm, conv
            found += before * channels if before != channels else 0  # the shortcut
            before = channels
    return found + 2 * 64 + linear_size(64, classes)


PUBLISHED_IMAGE = [
    # github.com/kuangliu/pytorch-cifar, models/resnet.py
    ("resnet18", 32, 10, 11_173_962),
    ("resnet34", 32, 10, 21_282_122),
    ("resnet50", 32, 10, 23_520_842),
    # torchvision's ResNet50_Weights.meta["num_params"]
    ("resnet50", 224, 1000, 25_557_032),
    # "36.5M" in Table 4 of Zagoruyko & Komodakis; in full in github.com/xternalz/WideResNet-pytorch
    ("wrn-28-10", 32, 10, 36_479_194),
    ("wrn-28-10", 32, 100, 36_536_884),
    ("wrn-10-1", 32, 10, wrn_size(1, 10)),
    ("wrn-10-1", 16, 100, wrn_size(1, 100)),
    # torchvision's ShuffleNet_V2_X1_0_Weights and MobileNet_V2_Weights, meta["num_params"]; the small stem changes only
    # strides, and the classifier reads 1,024 and 1,280 features
    ("shufflenetv2", 224, 1000, 2_278_604),
    ("shufflenetv2", 32, 10, 2_278_604 - linear_size(1024, 1000) + linear_size(1024, 10)),
    ("mobilenetv2", 224, 1000, 3_504_872),
    ("mobilenetv2", 32, 10, 3_504_872 - linear_size(1280, 1000) + linear_size(1280, 10)),
]

COUNTED_TEXT = [
    ("lstm", 10_000, {"layers": 2}, lstm_size(10_000, 512, 2), 9_332_496),
    ("lstm", 10_000, {"layers": 3}, lstm_size(10_000, 512, 3), 11_433_744),
    ("transformer", 65, {}, transformer_size(65, 128, 4, 256), 834_432),
]


@pytest.mark.parametrize(("name", "side", "classes", "expected"), PUBLISHED_IMAGE)
def test_image_networks_have_the_published_number_of_parameters(name, side, classes, expected):
    with torch.device("meta"):
        assert num_parameters(build_image(name, (3, side, side), classes)) == expected


@pytest.mark.parametrize(("name", "vocabulary", "options", "formula", "expected"), COUNTED_TEXT)
def test_language_models_have_the_size_their_equations_give(name, vocabulary, options, formula, expected):
    with torch.device("meta"):
        assert num_parameters(build_text(name, vocabulary, **options)) == formula == expected


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 32), (3, 32), (3, 33), (1, 128)])
@pytest.mark.parametrize("name", IMAGE)
def test_every_image_network_takes_grey_and_colour_pictures_of_any_size(name, channels, side):
    with torch.device("meta"):  # shapes without the arithmetic
        model = build_image(name, (channels, side, side), 7)
        assert model(torch.empty(2, channels, side, side)).shape == (2, 7)


@pytest.mark.parametrize(("name", "side"), [("small_cnn", 8), ("mlp", 8), *((name, 32) for name in RUN)])
def test_untrained_image_networks_give_finite_answers_to_grey_pictures(name, side):
    assert image_model(name, 1, side)(pictures(1, side)).isfinite().all()


LAST_SIDE = {
    ("resnet18", 32): 4,
    ("resnet50", 32): 4,
    ("wrn-28-10", 32): 8,
    ("nasnet", 32): 8,
    ("shufflenetv2", 32): 4,
    ("mobilenetv2", 32): 4,
    ("resnet18", 224): 7,
    ("resnet50", 224): 7,
    ("shufflenetv2", 224): 7,
    ("mobilenetv2", 224): 7,
}


@pytest.mark.parametrize(("name", "side"), LAST_SIDE)
def test_the_stem_leaves_the_last_layer_enough_of_the_picture(name, side):
    sides = []
    with torch.device("meta"):
        model = image_model(name, 3, side)
        last = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)][-1]
        last.register_forward_hook(lambda layer, args, output: sides.append(output.shape[-1]))
        model(torch.empty(1, 3, side, side))
    assert sides == [LAST_SIDE[name, side]]


def test_mobilenet_halves_small_pictures_where_pytorch_cifar_does():
    with torch.device("meta"):
        layers = [layer for layer in image_model("mobilenetv2").modules() if isinstance(layer, nn.Conv2d)]
    # a halving block is expansion, depthwise, projection: the channels that leave it
    assert [layers[i + 1].out_channels for i, layer in enumerate(layers) if layer.stride == (2, 2)] == [32, 64, 160]


@pytest.mark.parametrize(
    ("name", "original"),
    [("resnet18", "resnet18"), ("shufflenetv2", "shufflenet_v2_x1_0"), ("mobilenetv2", "mobilenet_v2")],
)
def test_large_pictures_get_torchvisions_own_network(name, original):
    ours = image_model(name, 3, 128).eval()
    torch.manual_seed(0)
    theirs = getattr(pytest.importorskip("torchvision.models"), original)(num_classes=10).eval()
    x = pictures(side=128, batch=1)
    assert torch.equal(ours(x), theirs(x))


@pytest.mark.parametrize("name", ["resnet18", "shufflenetv2", "mobilenetv2"])
def test_the_stem_can_be_chosen_against_the_side(name):
    small, large = pictures(), pictures(side=128, batch=1)
    chosen = image_model(name, 3, 32, stem="original").eval()
    assert torch.equal(chosen(small), image_model(name, 3, 128).eval()(small))
    chosen = image_model(name, 3, 128, stem="small").eval()
    assert torch.equal(chosen(large), image_model(name, 3, 32).eval()(large))


@pytest.mark.parametrize(("name", "options"), [("resnet18", {"init": "he"}), ("mobilenetv2", {})])
def test_a_replaced_first_convolution_is_initialised_like_the_others(name, options):
    first = next(layer for layer in image_model(name, **options).modules() if isinstance(layer, nn.Conv2d))
    expected = (2 / (first.out_channels * 9)) ** 0.5  # He et al. (2015), fan out
    assert first.weight.std().item() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("side", "init", "he"), [(32, "auto", False), (128, "auto", True), (32, "he", True), (128, "torch", False)]
)
def test_small_resnets_start_from_torchs_own_weights_and_large_ones_from_torchvisions(side, init, he):
    layer = image_model("resnet18", 3, side, init=init).layer2[0].conv2
    fan = layer.in_channels * 9  # in and out alike
    assert layer.weight.std().item() == pytest.approx((2 / fan) ** 0.5 if he else (1 / (3 * fan)) ** 0.5, rel=0.05)


@pytest.mark.parametrize(("name", "usual"), [("resnet18", "torch"), ("small_cnn", "torch"), ("wrn-10-1", "he")])
def test_the_authors_initial_weights_are_in_every_convolution_and_nowhere_else(name, usual):
    theirs, own = (image_model(name, init=init) for init in ("xavier", usual))
    for layer in (layer for layer in theirs.modules() if isinstance(layer, nn.Conv2d)):
        places = layer.kernel_size[0] * layer.kernel_size[1]
        bound = (
            2 * 6 / ((layer.in_channels + layer.out_channels) * places)
        ) ** 0.5  # Glorot, Bengio (2010), times sqrt(2)
        assert 0.9 * bound < layer.weight.abs().max().item() <= bound * (1 + 1e-6)
    others = {key: tensor for key, tensor in own.state_dict().items() if tensor.ndim < 4}
    assert others
    assert all(torch.equal(theirs.state_dict()[key], tensor) for key, tensor in others.items())
    with pytest.raises(ValueError, match=r"init must be one of .*xavier.*'glorot'"):
        image_model(name, init="glorot")


@pytest.mark.parametrize("name", [*RUN, *TEXT])
def test_every_parameter_learns(name):
    model = any_model(name)
    output = answer(model).flatten(0, -2)
    cross_entropy(output, torch.arange(len(output)) % 5).backward()
    assert [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("name", [*RUN, *TEXT])
def test_the_seed_alone_decides_the_weights(name):
    first, again, other = (any_model(name, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", [*RUN, *TEXT])
def test_saved_weights_give_the_same_answers(name):
    model = any_model(name)
    answer(model)  # moves the running means, which are saved too
    other = any_model(name, seed=1)
    other.load_state_dict(load(save(model.state_dict())))  # safetensors refuses two names for one tensor
    assert torch.equal(answer(model.eval()), answer(other.eval()))


@pytest.mark.parametrize("name", [*RUN, *TEXT])
def test_evaluation_is_deterministic(name):
    model = any_model(name).eval()
    assert torch.equal(answer(model), answer(model))


@pytest.mark.parametrize("name", RUN)
def test_channels_last_gives_the_same_answers(name):
    model, x = image_model(name).eval(), pictures()
    expected = model(x)
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected, rtol=1e-4, atol=1e-5)


def test_small_cnn_by_name_is_the_function_the_demo_uses():
    torch.manual_seed(0)
    expected = small_cnn((1, 8, 8), 10, width=4)
    x = pictures(1, 8)
    assert torch.equal(image_model("small_cnn", 1, 8, width=4)(x), expected(x))


def test_mlp_has_the_hidden_layers_asked_for():
    sizes = [
        (m.in_features, m.out_features)
        for m in image_model("mlp", 1, 8, width=5, depth=3).modules()
        if isinstance(m, nn.Linear)
    ]
    assert sizes == [(64, 5), (5, 5), (5, 5), (5, 10)]


@pytest.mark.parametrize(("norm", "kind"), [("batch", nn.BatchNorm1d), ("layer", nn.LayerNorm), ("none", None)])
@pytest.mark.parametrize("name", ["mlp", "patch_net"])
def test_hidden_layers_are_normalised_where_asked_for(name, norm, kind):
    found = [
        type(m) for m in image_model(name, 3, 8, norm=norm).modules() if isinstance(m, nn.BatchNorm1d | nn.LayerNorm)
    ]
    assert found == ([] if kind is None else [kind, kind])
    with pytest.raises(ValueError, match="norm must be one of none, batch, layer; got 'group'"):
        image_model(name, 3, 8, norm="group")


def test_a_patch_network_uses_the_same_layer_for_every_patch():
    torch.manual_seed(0)
    model = PatchNet((2, 4, 4), 3, patch=2, width=5, hidden=6, norm="none")
    x = pictures(2, 4)
    corners = [x[:, :, i : i + 2, j : j + 2] for i in (0, 2) for j in (0, 2)]
    each = [torch.relu(model.embed(corner.flatten(1))) for corner in corners]
    expected = model.out(torch.relu(model.mix(torch.cat(each, dim=1))))
    torch.testing.assert_close(model(x), expected)
    with pytest.raises(ValueError, match="patch must be at most the picture's sides 3 and 6, got 4"):
        PatchNet((2, 3, 6), 3)


def test_a_wide_block_keeps_its_input_beside_the_residual():
    torch.manual_seed(0)
    same, wider = WideBlock(4, 4, 1, 0.0), WideBlock(4, 6, 2, 0.0)
    nn.init.zeros_(same.conv2.weight)
    nn.init.zeros_(wider.conv2.weight)
    x = torch.randn(3, 4, 6, 6)
    assert torch.equal(same(x), x)
    active = nn.functional.batch_norm(x, None, None, training=True).relu()
    expected = nn.functional.conv2d(active, wider.shortcut.weight, stride=2)
    torch.testing.assert_close(wider(x), expected)


def test_nasnet_has_the_published_size():
    with torch.device("meta"):  # "NASNet-A (6 @ 768) 3.3M", Table 1 of Zoph et al. (2018)
        assert round(num_parameters(build_image("nasnet", (3, 32, 32), 10)) / 1e6, 1) == 3.3


def test_nasnets_cells_make_up_the_published_network_for_imagenet():
    """5,289,978 in Keras's NASNetMobile and in osmr/imgclsmob's table: NASNet-A (4 @ 1056) of 1,000 classes."""
    with torch.device("meta"):
        # There the first cell reads the first convolution's 32 channels twice, once without fitting them to its 11.
        first = ReductionCell(32, 32, 11, halved=False)
        unfitted = sum((32 - 11) * (size**2 + 11) for size in (7, 7, 5)) - num_parameters(first.fit_before)
        cells = [first, ReductionCell(4 * 11, 32, 22, halved=True)]
        before, last, channels = 4 * 11, 4 * 22, 44
        for kind in [NormalCell] * 4 + 2 * ([ReductionCell] + [NormalCell] * 4):
            channels *= 2 if kind is ReductionCell else 1
            halved = isinstance(cells[-1], ReductionCell)
            cells.append(kind(last, before, channels, halved))
            before, last = last, kind.parts * channels
        stem = 3 * 32 * 9 + 2 * 32
        total = stem + unfitted + sum(map(num_parameters, cells)) + linear_size(last, 1000)
    assert total == 5_289_978


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def combined(cell, factors, h, p):
    for name, factor in factors.items():
        setattr(cell, name, Times(factor))
    return [part.mean().item() for part in cell.combine(torch.full((1, 2, 4, 4), h), torch.full((1, 2, 4, 4), p))]


def test_nasnets_normal_cell_adds_what_figure_4_adds():
    factors = {"h5": 10, "p3": 100, "p5": 1000, "p3_again": 10_000, "h3": 100_000}
    h, p = 2.0, 3.0
    expected = [p, 10 * h + 100 * p, 11_000 * p, h + p, 2 * p, 100_001 * h]
    assert combined(NormalCell(2, 2, 2, halved=False), factors, h, p) == expected


def test_nasnets_reduction_cell_adds_what_figure_4_adds():
    factors = {"h5": 10, "p7": 100, "p7_again": 1000, "p5": 10_000, "first3": 7}
    factors |= {"maximum": 0.5, "average": 0.25, "average_same": 0.125}
    h, p = 2.0, 3.0
    first, second = 10 * h + 100 * p, 0.5 * h + 1000 * p
    expected = [second, 0.25 * h + 10_000 * p, 0.125 * first + second, 7 * first + 0.5 * h]
    assert combined(ReductionCell(2, 2, 2, halved=False), factors, h, p) == expected


def test_nasnets_factorized_reduction_sees_even_and_odd_places():
    layer = FactorizedReduction(1, 2)
    for conv in (layer.even, layer.odd):
        nn.init.ones_(conv.weight)
    layer.norm = nn.Identity()
    x = torch.arange(25.0).reshape(1, 1, 5, 5)
    assert layer(x)[0, 0].tolist() == [[0, 2, 4], [10, 12, 14], [20, 22, 24]]
    assert layer(x)[0, 1].tolist() == [[6, 8, 0], [16, 18, 0], [0, 0, 0]]


@pytest.mark.parametrize("name", ["wrn-28-10", "mobilenetv2"])
def test_image_dropout_acts_in_training_only(name):
    plain, dropped = image_model(name, dropout=0.0), image_model(name, dropout=0.5)
    x = pictures()
    assert torch.equal(copy.deepcopy(plain).eval()(x), copy.deepcopy(dropped).eval()(x))
    assert torch.equal(plain(x), plain(x))
    assert not torch.equal(dropped(x), dropped(x))


@pytest.mark.parametrize("name", TEXT)
def test_no_language_model_sees_the_future(name):
    model, text = text_model(name).eval(), tokens()
    changed = text.clone()
    changed[4] = (changed[4] + 1) % VOCABULARY
    before, after = logits(model, text), logits(model, changed)
    torch.testing.assert_close(after[:4], before[:4])
    assert ((after - before)[4:].abs().amax(dim=(1, 2)) > 1e-5).all()  # and each later one remembers


def test_lstm_in_two_pieces_equals_the_whole_text():
    model, text = text_model("lstm").eval(), tokens()
    whole, end = model(text, model.initial_state(3, "cpu"))
    first, state = model(text[:4], model.initial_state(3, "cpu"))
    second, last = model(text[4:], state)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    torch.testing.assert_close(last, end)


def test_lstm_state_can_be_copied_into_the_loops_buffers_and_carries_gradient():
    model = text_model("lstm")
    start = model.initial_state(3, "cpu")
    end = model(tokens(), start)[1]
    assert [x.shape for x in start] == [x.shape for x in end] == [(1, 3, 6)] * 6
    assert all(a.dtype == b.dtype for a, b in zip(start, end, strict=True))
    assert all(x.requires_grad for x in end)
    assert not any(x.any() for x in start)


def test_lstm_state_follows_the_models_precision():
    assert {x.dtype for x in text_model("lstm").double().initial_state(2, "cpu")} == {torch.float64}


def test_lstm_equals_torchs_stacked_lstm():
    model, text = text_model("lstm").eval(), tokens()
    stacked = nn.LSTM(6, 6, 3)
    for i, layer in enumerate(model.layers):
        for key, weight in layer.named_parameters():
            getattr(stacked, key.replace("l0", f"l{i}")).data.copy_(weight)
    nn.init.normal_(model.bias)
    expected = linear(stacked(model.embedding(text))[0], model.embedding.weight, model.bias)
    torch.testing.assert_close(logits(model, text), expected)


def test_lstm_starts_as_pytorchs_word_language_model_does():
    model = text_model("lstm", hidden=64)
    assert 0.09 < model.embedding.weight.abs().max() <= 0.1
    assert not model.bias.any()


@pytest.mark.parametrize("drop_all", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_lstm_dropout_lies_where_section_4_1_2_puts_it_or_after_every_layer(layers, drop_all):
    model = text_model("lstm", layers=layers, dropout=0.3, drop_all=drop_all)
    outputs, dropped = [], []
    model.embedding.register_forward_hook(lambda module, args, output: outputs.append(output))
    for layer in model.layers:
        layer.register_forward_hook(lambda module, args, output: outputs.append(output[0]))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            assert module.p == 0.3
            module.register_forward_pre_hook(lambda module, args: dropped.append(args[0]))
    logits(model, tokens())
    expected = outputs if drop_all else outputs[:3]  # embedding, first and second layer
    assert [id(x) for x in dropped] == [id(x) for x in expected]
    assert not any(layer.dropout for layer in model.layers)


@pytest.mark.parametrize("name", TEXT)
def test_text_dropout_acts_in_training_only(name):
    plain, dropped = text_model(name, dropout=0.0), text_model(name, dropout=0.5)
    assert torch.equal(logits(plain, tokens()), logits(plain, tokens()))
    assert not torch.equal(logits(dropped, tokens()), logits(dropped, tokens()))
    assert torch.equal(logits(plain.eval(), tokens()), logits(dropped.eval(), tokens()))


@pytest.mark.parametrize(("name", "matrix"), [("lstm", "embedding"), ("transformer", "tokens")])
def test_one_matrix_reads_and_writes_tokens(name, matrix):
    model = text_model(name).eval()
    weight = getattr(model, matrix).weight
    text = torch.zeros(5, 2, dtype=torch.int64)
    before = logits(model, text)
    before[..., 3].sum().backward()
    assert weight.grad[3].any()  # never read: its gradient comes from the output
    assert weight.grad[0].any()  # never asked for: its gradient comes from the input
    assert sum(p.shape == weight.shape for p in model.parameters()) == 1


def test_transformer_equals_torchs_pre_norm_layer():
    torch.manual_seed(0)
    ours = Block(8, 2, 0.0)
    theirs = nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", norm_first=True)
    pairs = {
        theirs.self_attn.in_proj_weight: ours.attention.inputs.weight,
        theirs.self_attn.in_proj_bias: ours.attention.inputs.bias,
        theirs.self_attn.out_proj.weight: ours.attention.output.weight,
        theirs.self_attn.out_proj.bias: ours.attention.output.bias,
    }
    for a, b in ((theirs.linear1, ours.wide), (theirs.linear2, ours.narrow)):
        pairs |= {a.weight: b.weight, a.bias: b.bias}
    for parameter, value in pairs.items():
        parameter.data.copy_(value)
    x = torch.randn(6, 3, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    torch.testing.assert_close(ours(x), theirs(x, src_mask=mask, is_causal=True))


def test_transformer_knows_the_order_of_what_it_has_read():
    model, text = text_model("transformer").eval(), tokens(4, 1)
    text[:, 0] = torch.tensor([1, 2, 3, 4])
    swapped = text[[1, 0, 2, 3]]
    assert not torch.allclose(logits(model, text)[-1], logits(model, swapped)[-1], rtol=0, atol=1e-6)


def test_transformer_has_no_memory():
    model = text_model("transformer")
    assert model.initial_state(3, "cpu") == ()
    assert model(tokens(12), ())[1] == ()


def test_an_untrained_language_model_is_as_good_as_guessing():
    for name in TEXT:
        output = logits(build_text(name, 65).eval(), torch.randint(65, (20, 4)))
        loss = cross_entropy(output.flatten(0, 1), torch.randint(65, (80,)))
        assert loss.item() == pytest.approx(4.174, abs=0.3)  # log 65


WRONG = {
    "unknown picture network": (
        lambda: build_image("resnet19", (3, 32, 32), 10),
        "model must be one of resnet18, .*mlp",
    ),
    "unknown text network": (lambda: build_text("gru", 10), "model must be one of lstm, transformer; got 'gru'"),
    "text as picture": (
        lambda: build_image("lstm", (3, 32, 32), 10),
        "model must be one for pictures, resnet18.*; got 'lstm', which reads text",
    ),
    "picture as text": (
        lambda: build_text("mlp", 10),
        "model must be one for text, lstm, transformer; got 'mlp', which reads pictures",
    ),
    "unknown option": (
        lambda: build_image("wrn-28-10", (3, 32, 32), 10, widen=2),
        "model has no option 'widen' for 'wrn-28-10': its options are depth, width, dropout",
    ),
    "option of another": (
        lambda: build_text("lstm", 10, heads=2),
        "'heads' for 'lstm': its options are layers, hidden, dropout",
    ),
    "shape with batch": (lambda: build_image("mlp", (8, 3, 32, 32), 10), r"shape must be three .* \(8, 3, 32, 32\)"),
    "empty shape": (lambda: build_image("mlp", (3, 0, 32), 10), r"shape must be three .* \(3, 0, 32\)"),
    "no shape": (lambda: build_image("mlp", 32, 10), "shape must be three .* got 32"),
    "one class": (lambda: build_image("mlp", (1, 8, 8), 1), "num_classes must be a whole number >= 2, got 1"),
    "one token": (lambda: build_text("lstm", 1), "vocabulary must be a whole number >= 2, got 1"),
    "stem": (
        lambda: build_image("resnet18", (3, 32, 32), 10, stem="tiny"),
        "stem must be one of auto, small, original",
    ),
    "width": (lambda: build_image("small_cnn", (1, 8, 8), 10, width=0), "width must be a whole number >= 1, got 0"),
    "mlp width": (lambda: build_image("mlp", (1, 8, 8), 10, width=0), "width must be a whole number >= 1, got 0"),
    "mlp depth": (lambda: build_image("mlp", (1, 8, 8), 10, depth=-1), "depth must be a whole number >= 0, got -1"),
    "wrn depth": (lambda: build_image("wrn-28-10", (3, 32, 32), 10, depth=27), r"depth must be 6n \+ 4 .* got 27"),
    "wrn shallow": (lambda: build_image("wrn-28-10", (3, 32, 32), 10, depth=4), r"depth must be 6n \+ 4 .* got 4"),
    "wrn width": (lambda: build_image("wrn-28-10", (3, 32, 32), 10, width=0), "width must be a whole number >= 1"),
    "wrn init": (
        lambda: build_image("wrn-10-1", (3, 16, 16), 10, init="torch"),
        "init must be one of he, xavier; got 'torch'",
    ),
    "shufflenet width": (
        lambda: models.build_image("shufflenetv2", (3, 16, 16), 10, width=0.25),
        "width must be 0.5 or 1, got 0.25: torchvision has other sizes, this lab has not",
    ),
    "wrn dropout": (
        lambda: build_image("wrn-28-10", (3, 32, 32), 10, dropout=1),
        r"dropout must be in \[0, 1\), got 1",
    ),
    "nasnet cells": (
        lambda: build_image("nasnet", (3, 32, 32), 10, cells=0),
        "cells must be a whole number >= 1, got 0",
    ),
    "nasnet filters": (
        lambda: build_image("nasnet", (3, 32, 32), 10, filters=0),
        "filters must be a whole number >= 1",
    ),
    "mobilenet dropout": (lambda: build_image("mobilenetv2", (3, 32, 32), 10, dropout=-0.1), "dropout must be in"),
    "lstm dropout": (lambda: build_text("lstm", 10, dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
    "lstm layers": (lambda: build_text("lstm", 10, layers=0), "layers must be a whole number >= 1, got 0"),
    "lstm hidden": (lambda: build_text("lstm", 10, hidden=0), "hidden must be a whole number >= 1, got 0"),
    "transformer dropout": (lambda: build_text("transformer", 10, dropout="a"), "dropout must be a finite number"),
    "heads": (
        lambda: build_text("transformer", 10, width=10, heads=4),
        "width must be a multiple of heads, got 10 and 4",
    ),
    "long text": (lambda: text_model("transformer")(tokens(13), ()), "at most 12 long, got 13: .* larger length"),
    "no state": (
        lambda: text_model("lstm")(tokens(), ()),
        "h and c of 3 layers, got 0 tensors: start with initial_state",
    ),
    "batch": (lambda: text_model("lstm").initial_state(0, "cpu"), "batch must be a whole number >= 1, got 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_named_in_one_line(case):
    build, message = WRONG[case]
    with pytest.raises(ValueError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", OF_TORCHVISION)
def test_missing_torchvision_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ImportError, match=r"needs torchvision.*pip install 'mlrsnet-lab\[vision\]'"):
        models.build_image(name, (3, 32, 32), 10)


def test_a_torchvision_of_another_build_says_where_to_take_it_from(tmp_path, monkeypatch):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("torchvision", "torchvision.models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(
        ImportError, match=r"same build as torch .*nms does not exist.*: install .* that torch came from"
    ):
        models.build_image("resnet18", (3, 32, 32), 10)


def test_the_other_networks_do_not_need_torchvision():
    code = (
        "import sys; sys.modules['torchvision'] = None\n"
        "from mlrsnet_lab.models import build_image, build_text\n"
        "for name in ('small_cnn', 'mlp', 'wrn-28-10'): build_image(name, (1, 8, 8), 10, width=1)\n"
        "for name in ('lstm', 'transformer'): build_text(name, 10)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_he_keeps_the_size_of_signals_through_twelve_layers_and_torchs_own_does_not():
    torch.manual_seed(0)
    rows = torch.randn(200, 64)
    sizes = {}
    for init in ("he", "torch"):
        network = build_rows("mlp", 64, 4, width=256, depth=11, init=init)
        sizes[init] = network[:-1](rows).square().mean().item()
    assert 0.2 < sizes["he"] < 5
    assert sizes["torch"] < 1e-2
    with pytest.raises(ValueError, match="init must be one of torch, he"):
        build_rows("mlp", 4, 2, init="xavier")


def test_a_vision_transformer_looks_at_every_patch_and_refuses_one_larger_than_the_picture():
    model = image_model("vit", side=8, width=8, heads=2, layers=1).eval()
    one = pictures(side=8, batch=1)
    for row in (0, 4):
        for column in (0, 4):
            other = one.clone()
            other[:, :, row : row + 4, column : column + 4] += 1
            assert not torch.equal(model(one), model(other))
    with pytest.raises(ValueError, match="patch must be at most the picture's sides 8 and 8, got 9"):
        image_model("vit", side=8, patch=9)


@pytest.mark.parametrize(("depth", "blocks"), [(10, 1), (16, 2), (22, 3)])
def test_a_deeper_wrn_of_scale_cpu_has_more_blocks_and_is_no_other_network(depth, blocks):
    small = image_model("wrn-10-1", side=16, depth=depth)
    assert num_parameters(small) == wrn_size(blocks, 10)
    same = image_model("wrn-28-10", side=16, depth=depth, width=1)
    assert small.state_dict().keys() == same.state_dict().keys()
    assert all(torch.equal(tensor, same.state_dict()[key]) for key, tensor in small.state_dict().items())


def test_a_wrn_starts_from_hes_weights_unless_told_otherwise():
    first, other = (image_model("wrn-10-1", **options).group3[0].conv2 for options in ({}, {"init": "xavier"}))
    assert first.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)
    assert other.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)  # as large, from another law
    assert first.weight.abs().max() > 1.5 * other.weight.abs().max()


def test_a_narrower_shufflenet_is_torchvisions_own():
    whole, half = (num_parameters(image_model("shufflenetv2", width=width)) for width in (1.0, 0.5))
    # torchvision's ShuffleNet_V2_X0_5_Weights, meta["num_params"], with ten classes
    assert half == 1_366_792 - linear_size(1024, 1000) + linear_size(1024, 10)
    assert half < whole / 3


def test_a_narrower_mobilenet_has_fewer_channels():
    whole, narrow = (num_parameters(image_model("mobilenetv2", width=width)) for width in (1.0, 0.25))
    assert narrow < whole / 8
