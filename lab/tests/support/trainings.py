"""Trainings in plain PyTorch, one at a time, and the same trainings as a population, in double precision.

Float32 rounds differently on every CPU, and a training amplifies that. In float64 both agree to many digits everywhere.
"""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from mlrsnet_lab.horizon import SGD, Compute, Data, Task
from mlrsnet_lab.horizon.batches import Batches
from mlrsnet_lab.horizon.fitness import loss as mean_loss
from mlrsnet_lab.horizon.policies import Factors
from mlrsnet_lab.horizon.population import Population
from mlrsnet_lab.horizon.training import Training

STEPS, BATCH, CLASSES, LENGTH = 15, 8, 5, 6
PEAKS = (0.3, 0.05, 0.8)

OPTIMIZERS = {  # a task's optimizer, torch's own, and the factor of its LRs
    "sgd": ("sgd", lambda p, **settings: torch.optim.SGD(p, **settings), 1.0),
    "sgdm": ("sgdm", lambda p, **settings: torch.optim.SGD(p, momentum=0.9, **settings), 0.1),
    "nesterov": (
        SGD(0.9, nesterov=True),
        lambda p, **settings: torch.optim.SGD(p, momentum=0.9, nesterov=True, **settings),
        0.1,
    ),
    "adam": ("adam", lambda p, **settings: torch.optim.Adam(p, **settings), 0.01),
    "adamw": ("adamw", lambda p, **settings: torch.optim.AdamW(p, **settings), 0.01),
}


# Networks without a bias before batch norm: its gradient is rounding error only, which Adam would scale up.


class Recurrent(nn.Module):
    """h' = tanh(W x + V h), as plain matrix products."""

    def __init__(self, width=7):
        super().__init__()
        self.tokens, self.first = nn.Embedding(CLASSES, width), nn.Parameter(torch.zeros(width))
        self.W, self.V = (nn.Parameter(0.4 * torch.randn(width, width)) for _ in range(2))
        self.out = nn.Linear(width, CLASSES)

    def forward(self, tokens):
        x, h, seen = self.tokens(tokens), self.first, []
        for position in range(tokens.shape[1]):
            h = torch.tanh(x[:, position] @ self.W + h @ self.V)
            seen.append(h)
        return self.out(torch.stack(seen, dim=1))


class Attention(nn.Module):
    """A causal block with two heads; the output layer is the embedding."""

    def __init__(self, width=8):
        super().__init__()
        self.tokens, self.places = nn.Embedding(CLASSES, width), nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.norm, self.inputs, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False), nn.Linear(8, 8)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places
        q, k, v = self.inputs(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return functional.linear(x + self.out(heads.transpose(1, 2).flatten(2)), 0.5 * self.tokens.weight)


class Tied(nn.Module):
    """One matrix under two names."""

    def __init__(self, width=6):
        super().__init__()
        self.tokens, self.mix, self.out = (
            nn.Embedding(CLASSES, width),
            nn.Linear(width, width),
            nn.Linear(width, CLASSES),
        )
        self.out.weight = self.tokens.weight

    def forward(self, tokens):
        return self.out(self.mix(self.tokens(tokens)).tanh())


class Bag(nn.Module):
    """The mean of a sequence's embeddings."""

    def __init__(self, width=6):
        super().__init__()
        self.tokens, self.out = nn.Embedding(CLASSES, width), nn.Linear(width, CLASSES)

    def forward(self, tokens):
        return self.out(self.tokens(tokens).mean(-2).tanh())


def linear(data):
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, data.num_classes))


def norm_1d(data):
    return nn.Sequential(nn.Linear(6, 9, bias=False), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, data.num_classes))


def layer_norm(data):
    return nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, data.num_classes))


def convolution(data):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 4, 3, stride=2, groups=4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, data.num_classes),
    )


def norm_2d(data):
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4, momentum=0.3),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(4, 6, 2, bias=False),
        nn.BatchNorm2d(6, affine=False),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, data.num_classes),
    )


NETWORKS = {
    "linear": ("vectors", linear),
    "batch-norm-1d": ("vectors", norm_1d),
    "layer-norm": ("vectors", layer_norm),
    "convolution": ("pictures", convolution),
    "batch-norm-2d": ("pictures", norm_2d),
    "embedding": ("sequences", lambda data: Bag()),
    "recurrent": ("text", lambda data: Recurrent()),
    "tied": ("text", lambda data: Tied()),
    "attention": ("text", lambda data: Attention()),
}


def make_data(kind="vectors", count=60, **options):
    random = torch.Generator().manual_seed(3)
    targets = torch.randint(CLASSES, (count,), generator=random)
    if kind in ("sequences", "text"):
        tokens = (targets.unsqueeze(1) + 2 * torch.arange(LENGTH + 1)) % CLASSES
        tokens[torch.rand(tokens.shape, generator=random) < 0.3] = 0
        return Data(tokens[:, :-1], tokens[:, 1:] if kind == "text" else targets, CLASSES, **options)
    shape = {"vectors": (6,), "pictures": (2, 5, 5), "squares": (1, 8, 8)}[kind]
    inputs = torch.randn(count, *shape, generator=random, dtype=torch.float64)
    inputs.flatten(1)[torch.arange(count), targets] += 2.0
    return Data(inputs, targets, **{"dtype": torch.float64, **options})


def make_tasks(data, model, **options):
    """Two tasks with different seeds, weight decays and examples."""
    order = torch.randperm(60, generator=torch.Generator().manual_seed(4))
    options = {"total_steps": STEPS, "batch_size": BATCH, **options}
    return [
        Task(data, model, train=order[11:], val=order[:11], seed=5, weight_decay=0.02, **options),
        Task(data, model, train=order[:30], val=order[30:41], seed=6, **options),
    ]


def table(tasks, peaks=PEAKS, most_steps=100, dtype=torch.float64):
    policy = Factors(torch.tensor(peaks, dtype=dtype).repeat(len(tasks)), most_steps)
    policy.configure([1.0 - 0.5 * step / most_steps for step in range(most_steps)])
    return policy


def train_together(tasks, policy, precision="fp64"):
    """The population, and its losses, weights, buffers, outputs and targets, one training per row."""
    population = Population(tasks[0], len(tasks), len(PEAKS), policy, Compute(precision=precision))
    return population, results(population, tasks)


def results(population, tasks):
    seen = []

    def fitness(outputs, targets):
        seen.extend((outputs, targets))
        return mean_loss(outputs, targets)

    trained = Training(population, tasks, fitness).run()
    weights = {name: view.detach().clone() for name, view in population.models.rows.views.items()}
    buffers = {name: buffer.clone() for name, buffer in population.models.fixed.items()}
    outputs, targets = seen
    return {"losses": trained.losses, "lrs": trained.lrs, **weights, **buffers, "outputs": outputs, "targets": targets}


def train_alone(task, make_optimizer, set_lr, labels=None, mirrored=False):
    """One training in plain PyTorch. `set_lr(optimizer, step, loss)` is called before each step."""
    torch.manual_seed(task.seed)
    model, data = task.model(task.data).double(), task.data
    optimizer = make_optimizer(model.parameters(), lr=0.1, weight_decay=task.weight_decay)
    index, mirror = Batches(task).take(task.total_steps)
    labels, losses, lrs = data.targets if labels is None else labels, [], []
    for step, (chosen, flipped) in enumerate(zip(index, mirror, strict=True)):
        inputs = data.inputs[chosen]
        if mirrored:
            inputs = torch.stack([x.flip(-1) if f else x for x, f in zip(inputs, flipped, strict=True)])
        outputs = model(inputs)[..., : task.num_classes]
        loss = functional.cross_entropy(
            outputs.flatten(0, -2), labels[chosen].flatten(), label_smoothing=task.label_smoothing
        )
        optimizer.zero_grad()
        loss.backward()
        if task.clip_norm is not None:
            clip_grad_norm_(model.parameters(), task.clip_norm)
        set_lr(optimizer, step, loss.detach())
        optimizer.step()
        losses.append(loss.detach())
        lrs.append(float(optimizer.param_groups[0]["lr"]))
    model.eval()
    with torch.no_grad():
        outputs = model(data.inputs[task.val])
    outputs[..., task.num_classes :] = -math.inf
    named = {name: value.detach() for name, value in (*model.named_parameters(), *model.named_buffers())}
    targets = labels[task.val]
    return {
        "losses": torch.stack(losses),
        "lrs": torch.tensor(lrs, dtype=torch.float64),
        **named,
        "outputs": outputs,
        "targets": targets,
    }


def one_by_one(tasks, optimizer, peaks=PEAKS, **options):
    _, make, scale = OPTIMIZERS[optimizer]
    found = []
    for task in tasks:
        for peak in peaks:

            def set_lr(optimizer, step, loss, peak=peak):
                optimizer.param_groups[0]["lr"] = peak * scale * (1.0 - 0.5 * step / 100)

            found.append(train_alone(task, make, set_lr, **options))
    return found


def assert_same(together, alone, rtol=1e-9):
    """Rounding errors go with a tensor's largest number, not with its smallest."""
    for name, values in together.items():
        expected = torch.stack([one[name] for one in alone])
        largest = float(expected[expected.isfinite()].abs().max())
        torch.testing.assert_close(
            values,
            expected,
            rtol=rtol,
            atol=rtol * max(1.0, largest),
            msg=lambda message, name=name: f"{name}: {message}",
        )
