"""The network that full-horizon meta-training starts from."""

import math

import torch

from mlrsnet.nets import LSTMNet, predict
from mlrsnet_lab import checks

SHARPNESS = 4.0
"""k in p = sigmoid(k z): with a larger k, a smaller change of the weights opens the whole range of the LR."""


def first_net(
    hidden_size: int = 50,
    *,
    anneal: str = "linear",
    start: float | None = None,
    seed: int = 0,
    kind: type[LSTMNet] = LSTMNet,
) -> LSTMNet:
    """The paper's LSTM, reading loss / log(classes) and progress u: p = sigmoid(4 z) (1 - u).

    Args:
        hidden_size: of the LSTM.
        anneal: `none` for p = sigmoid(4 z), which starts as a fixed LR and has to learn to anneal.
        start: the first p for a classifier that guesses; near 1/2 if None.
        seed: of the weights.
        kind: `TrendNet` also reads the trend of the loss.

    >>> first_net(8, start=0.2).inputs
    ('loss', 'progress')
    """
    if start is not None and not 0 < checks.real("start", start) < 1:
        raise ValueError(f"start must be in (0, 1), a share of the LR's range, got {start!r}")
    reads = {"inputs": ("loss", "progress"), "loss_scale": "log_classes"}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)
        net = kind(hidden_size, **reads, sharpness=SHARPNESS, anneal=anneal)  # type: ignore[arg-type]
        if start is not None:
            first, _ = predict(net, torch.ones(()), 0.0, net.initial_state())
            net.out.bias.add_((math.log(start / (1 - start)) - torch.logit(first)) / SHARPNESS)
    return net
