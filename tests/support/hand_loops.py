"""A tiny training, and the loop that every framework is compared with: written by hand."""

import torch
from torch import nn
from torch.optim import SGD

from mlrsnet import LearnedLR


class Batches:
    """The same few batches in every epoch. A checkpoint in the middle of an epoch saves the position."""

    def __init__(self, number=7, seed=0, nan_at=None):
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(number, 16, 6, generator=generator)
        self.labels = torch.randint(5, (number, 16), generator=generator)
        if nan_at is not None:
            self.inputs[nan_at] = float("nan")
        self.place = self.start = 0

    def __len__(self):
        return len(self.inputs)

    def __iter__(self):
        start, self.start = self.start, 0
        for i in range(start, len(self.inputs)):
            self.place = i + 1
            yield self.inputs[i], self.labels[i]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.start = state["place"] % len(self.inputs)


def new_net(seed=0):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
    for parameter in net.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
    return net


def two_groups(net, make=SGD):
    return make([{"params": net[0].parameters(), "lr": 0.1}, {"params": net[2].parameters(), "lr": 0.02}])


def momentum(net):
    return SGD(net.parameters(), lr=0.1, momentum=0.9)


def batch_loss(net, batch):
    return nn.functional.cross_entropy(net(batch[0]), batch[1])


def record(optimizer, used):
    """Record the LRs of every step that the optimizer really takes."""
    optimizer.register_step_post_hook(lambda o, *_: used.append([float(g["lr"]) for g in o.param_groups]))
    return optimizer


def weights(net):
    return torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])


def by_hand(
    schedule="universal",
    make=momentum,
    data=None,
    epochs=3,
    accumulate=1,
    clip=None,
    autocast=False,
    tells=False,
    **options,
):
    """A network, the LRs that trained it, and its LearnedLR. Like Lightning and Accelerate, it divides by `accumulate` always."""
    net, data, used = new_net(), data or Batches(), []
    optimizer = make(net)
    lr = LearnedLR(optimizer, schedule, total_steps=epochs * -(-len(data) // accumulate), **options)
    record(optimizer, used)
    for _ in range(epochs):
        for i, batch in enumerate(data):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast, cache_enabled=False):
                loss = batch_loss(net, batch)
            (loss / accumulate).backward()
            if tells:
                lr.observe(loss)
            if (i + 1) % accumulate == 0 or i + 1 == len(data):
                if clip:
                    nn.utils.clip_grad_norm_(net.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return net, used, lr


def assert_ended(lr, used):
    """Every step that the optimizer took counted, none twice, and the last one had the LR of the end."""
    status = lr.status()
    assert status["step"] == len(used) == status["total_steps"] == lr.last_epoch
    assert status["progress"] == (len(used) - 1) / len(used)
    assert used[-1] == lr.get_last_lr()
    assert 0 < used[-1][0] < 0.5 * max(used)[0]


def grad_scaler():
    """A scaler that starts too high, so that it skips the first steps."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=5)
