"""`MetaTrainer`'s arguments: what each must be, and the defaults that take more than a line."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, Optimizer

from mlrsnet._meta.compat import initialise
from mlrsnet.gamma import Gamma
from mlrsnet.nets import LSTMNet, ScheduleNet

MetaOptimizer = Optimizer | Callable[[Iterable[nn.Parameter]], Optimizer]


def check_kinds(
    model: Any, optimizer: Any, val_loss: Any, val_gradients: Any, net: Any, scaler: Any, gamma: Any
) -> None:
    """Raise for an argument of the wrong kind."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {model!r}: pass the model in training")
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {optimizer!r}: pass the model's optimizer")
    if net is not None and not isinstance(net, ScheduleNet):
        raise TypeError(f"net must be a schedule network or None, got {net!r}: pass LSTMNet(), TrendNet() or MLPNet()")
    if (val_loss is None) == (val_gradients is None):
        raise TypeError(f"pass either val_loss or val_gradients, got {val_loss!r} and {val_gradients!r}")
    if val_loss is not None and not callable(val_loss):
        raise TypeError(f"val_loss must be a function without arguments that returns a loss, got {val_loss!r}")
    if val_gradients is not None and not callable(val_gradients):
        raise TypeError(f"val_gradients must be a function that returns a loss and gradients, got {val_gradients!r}")
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(f"scaler must be a torch.amp.GradScaler or None, got {scaler!r}")
    if gamma is not None and not isinstance(gamma, Gamma):
        raise TypeError(f"gamma must be a mlrsnet.Gamma or None, got {gamma!r}: pass Gamma() for the paper's")
    if gamma is not None and gamma.is_relative:
        raise ValueError("gamma must not be relative for Algorithm 1, got 'relative': use HorizonTrainer, or Gamma()")
    if gamma is not None and gamma.is_measured:  # a meta-update steps at an LR of 4096, which would be measured
        raise ValueError("gamma must not be measured for Algorithm 1, got 'measured': use Gamma()")


def default_net(
    compat: frozenset[str], hidden_size: int = 50, num_layers: int = 1, loss_scale: str = "none"
) -> LSTMNet:
    """The paper's network, or the authors'."""
    layout = "official-train" if "layout" in compat else "paper"
    net = LSTMNet(hidden_size, num_layers, layout=layout, loss_scale=loss_scale)
    if "net-init" in compat:
        initialise(net)
    return net


def make_net(given: ScheduleNet | None, compat: frozenset[str]) -> ScheduleNet:
    """The network to train: the given one, or the paper's (the authors' with compat's "layout" and "net-init")."""
    net = default_net(compat) if given is None else given
    dtype = next(net.parameters()).dtype
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"net must be float32 or float64, got {dtype}: call net.float()")
    return net


def make_meta_optimizer(given: MetaOptimizer | None, net: ScheduleNet) -> Optimizer:
    """The optimizer of the network's weights: the given one, or the paper's Adam."""
    if given is None:
        return Adam(net.parameters(), lr=1e-3, weight_decay=1e-4, foreach=True)
    if not isinstance(given, Optimizer) and not callable(given):
        raise TypeError(f"meta_optimizer must be an optimizer or a function that makes one, got {given!r}")
    made = given if isinstance(given, Optimizer) else given(net.parameters())
    held = {id(parameter) for group in made.param_groups for parameter in group["params"]}
    if not held & {id(parameter) for parameter in net.parameters()}:
        raise ValueError(
            "meta_optimizer must hold the parameters of net, got one with others: make it from net.parameters()"
        )
    return made
