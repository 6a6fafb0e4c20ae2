"""Hugging Face Accelerate on the CPU: one LR for each optimizer step, however it wraps loops, optimizers and schedulers."""

import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from hand_loops import Batches, assert_ended, batch_loss, by_hand, grad_scaler, momentum, new_net, record, weights
from torch.utils.data import DataLoader

from mlrsnet import LearnedLR


@pytest.fixture(autouse=True)
def fresh_accelerate():
    """Reset Accelerate's state, which is global to the process."""
    forget()
    yield
    forget()


def forget():
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


class Training:
    """Written as in Accelerate's guide, stopped and resumed where a test wants. `lr` is the user's, `scheduler` Accelerate's."""

    def __init__(
        self, schedule="universal", *, accumulate=1, epochs=3, make=momentum, tells=False, scaler=None, **settings
    ):
        self.accelerator = Accelerator(**{"cpu": True, "gradient_accumulation_steps": accumulate, **settings})
        if scaler is not None:
            self.accelerator.scaler = scaler
        self.epochs, self.tells, self.used = epochs, tells, []
        loader = DataLoader(list(Batches()), batch_size=None)
        net = new_net()
        optimizer = make(net)
        self.lr = LearnedLR(optimizer, schedule, total_steps=epochs * -(-len(loader) // accumulate), num_classes=5)
        record(optimizer, self.used)
        prepared = self.accelerator.prepare(net, optimizer, loader, self.lr)
        self.net, self.optimizer, self.loader, self.scheduler = prepared

    def run(self, first=0, last=math.inf):
        for epoch in range(self.epochs):
            for number, batch in enumerate(self.loader, start=epoch * len(self.loader)):
                if first <= number < last:
                    with self.accelerator.accumulate(self.net):
                        loss = batch_loss(self.net, batch)
                        self.accelerator.backward(loss)
                        if self.tells:
                            self.lr.observe(loss)
                        self.optimizer.step()
                        self.scheduler.step()
                        self.optimizer.zero_grad()
        return self


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_prepared_scheduler_ends_with_the_training(accumulate):
    training = Training(accumulate=accumulate).run()
    net, used, _ = by_hand(accumulate=accumulate)
    assert_ended(training.lr, training.used)
    assert training.used == used
    assert torch.equal(weights(training.net), weights(net))
    assert training.scheduler.get_last_lr() == training.used[-1]


def test_a_network_reads_the_mean_loss_of_a_window(paper):
    training = Training(paper, accumulate=3, tells=True).run()
    assert training.used == by_hand(paper, accumulate=3, tells=True, num_classes=5)[1]


def test_it_may_be_made_on_the_prepared_optimizer():
    accelerator, net, used = Accelerator(cpu=True), new_net(), []
    net, optimizer, loader = accelerator.prepare(net, momentum(net), DataLoader(list(Batches()), batch_size=None))
    LearnedLR(optimizer, total_steps=21)
    record(optimizer.optimizer, used)
    for _ in range(3):
        for batch in loader:
            accelerator.backward(batch_loss(net, batch))
            optimizer.step()
            optimizer.zero_grad()
    assert used == by_hand()[1]


def test_bf16_trains_as_a_hand_written_loop_with_autocast():
    training = Training(mixed_precision="bf16").run()
    assert_ended(training.lr, training.used)
    torch.testing.assert_close(training.used, by_hand(autocast=True)[1], rtol=0.05, atol=0)
    assert training.used != by_hand()[1]  # bf16 was really on


def tensor_lr(net):
    return torch.optim.SGD(net.parameters(), lr=torch.tensor(0.1), momentum=0.9)


@pytest.mark.parametrize(("make", "accumulate"), [(momentum, 1), (momentum, 2), (tensor_lr, 1)])
def test_a_run_resumed_from_save_state_equals_one_that_never_stopped(tmp_path, make, accumulate):
    settings = {"make": make, "accumulate": accumulate, "tells": True}
    whole = Training(**settings).run()
    forget()
    first = Training(**settings).run(last=11)
    first.accelerator.save_state(tmp_path)
    forget()
    second = Training(**settings)
    second.accelerator.load_state(tmp_path)
    second.run(first=11)
    assert first.used + second.used == whole.used
    assert torch.equal(weights(second.net), weights(whole.net))


def test_a_step_that_the_scaler_skips_does_not_count():
    training = Training(scaler=grad_scaler())
    first = next(training.net.parameters())
    overflow = first.register_hook(lambda gradient: gradient * math.inf)
    training.run(last=2)
    assert training.accelerator.optimizer_step_was_skipped
    assert training.lr.status()["step"] == len(training.used) == 0
    overflow.remove()
    training.run(first=2)
    assert training.lr.status()["step"] == len(training.used) > 10


@pytest.mark.gpu
@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("make", [momentum, lambda net: torch.optim.AdamW(net.parameters(), fused=True)])
def test_fp16_counts_the_steps_that_were_taken(make, accumulate):
    training = Training(cpu=False, mixed_precision="fp16", make=make, accumulate=accumulate)
    skipped = []
    step = training.optimizer.step
    training.optimizer.step = lambda: (step(), skipped.append(training.optimizer.step_was_skipped))
    training.run()
    assert training.accelerator.scaler is not None
    assert training.lr.status()["step"] == 3 * -(-7 // accumulate) - sum(skipped) > 1
