"""A whole training step in `torch.compile`: what LearnedLR does is left out of it, and nothing is compiled again and again."""

import pytest
import torch
from loops import INPUTS, LABELS, lrs_of, network, train
from torch._dynamo.utils import counters
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW

from mlrsnet import LearnedLR

STEPS = 16
TELLS = {
    "nothing": lambda lr, loss: None,
    "step(loss)": lambda lr, loss: lr.step(loss),
    "observe(loss) and step()": lambda lr, loss: (lr.observe(loss), lr.step()),
}


pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch looks at what it passes on


def compiled(make, lr_of, tells=None):
    """The LRs of a training whose steps are compiled, and how many frames were compiled until then. `tells` None: no LearnedLR."""
    torch._dynamo.reset()
    counters.clear()
    model = network()
    optimizer = make(model.parameters(), lr=lr_of())
    lr = LearnedLR(optimizer, total_steps=STEPS) if tells else None

    @torch.compile(backend="eager")
    def step(x, y):
        loss = cross_entropy(model(x), y)
        loss.backward()
        if tells:
            tells(lr, loss)
        optimizer.step()
        optimizer.zero_grad()

    used, frames = [], []
    for number in range(STEPS):
        step(INPUTS[number], LABELS[number])
        used.append(lrs_of(optimizer)[0])
        frames.append(counters["frames"]["total"])
    assert lr is None or lr.last_epoch == STEPS
    return used, frames


@pytest.fixture(scope="module", autouse=True)
def what_torch_compiles_of_itself():
    """Once in a process."""
    compiled(SGD, lambda: torch.tensor(0.1), TELLS["nothing"])


@pytest.mark.parametrize("make", [SGD, AdamW])
@pytest.mark.parametrize("told", TELLS)
def test_a_compiled_step_is_compiled_once_and_trains_as_the_plain_one(told, make):
    """What LearnedLR remembers changes in every step: it took 13 seconds, and walls of warnings."""
    used, frames = compiled(make, lambda: torch.tensor(0.1), TELLS[told])
    _, alone = compiled(make, lambda: torch.tensor(0.1))
    assert frames[2] == frames[-1] <= alone[-1] + 5
    model = network()
    optimizer = make(model.parameters(), lr=torch.tensor(0.1))
    lr = LearnedLR(optimizer, total_steps=STEPS)
    expected = train(model, optimizer, STEPS, lr=None if told == "nothing" else lr)
    assert used == pytest.approx([one for (one,) in expected], rel=1e-3)


def test_a_float_lr_is_compiled_a_few_times_more():
    """torch takes a float for a constant at first. The guide recommends tensors."""
    used, frames = compiled(AdamW, lambda: 0.1, TELLS["step(loss)"])
    assert all(0 < one < 1 for one in used)
    assert frames[3] == frames[-1] <= compiled(AdamW, lambda: 0.1)[1][-1] + 10
