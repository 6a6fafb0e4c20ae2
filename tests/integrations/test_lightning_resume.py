"""Lightning's checkpoints and horizons: where LearnedLR continues, and for how long."""

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler
from lightning_fits import (
    QUIET,
    Batches,
    Configured,
    Module,
    SaveAt,
    assert_same,
    by_hand,
    feed_callback,
    fit,
    own_callback,
    weights,
)

from mlrsnet.integrations.lightning import LearnedLRCallback


class Endless(Batches):
    """Batches without a length."""

    __len__ = None


@pytest.mark.parametrize("kind", [own_callback, feed_callback])
@pytest.mark.parametrize("batch", [6, 9])  # at the end of an epoch, and in the middle of one
def test_a_resumed_training_goes_on_bit_for_bit(paper, tmp_path, kind, batch):
    # Reading estimated_stepping_batches in configure_optimizers would start the data before Lightning restores its place.
    new = Module if kind is own_callback else lambda: Configured(paper, total_steps=21)
    whole, path = new(), tmp_path / "middle.ckpt"
    fit(whole, [kind(paper), SaveAt(path, batch)])
    resumed = new()
    fit(resumed, [kind(paper)], ckpt_path=path)
    assert resumed.used == whole.used[batch + 1 :]
    assert torch.equal(weights(resumed.net), weights(whole.net))


def test_a_checkpoint_in_the_middle_of_a_window_keeps_the_losses_seen(paper, tmp_path):
    whole, path = Module(), tmp_path / "middle.ckpt"
    fit(whole, [own_callback(paper), SaveAt(path, 8)], accumulate_grad_batches=4)
    resumed = Module()
    fit(resumed, [own_callback(paper)], ckpt_path=path, accumulate_grad_batches=4)
    assert resumed.used[0] == whole.used[2]  # Lightning does not save gradients, so later weights differ


def test_a_longer_training_moves_the_horizon_and_says_so(horizon, tmp_path):
    path = tmp_path / "end.ckpt"
    fit(Module(), [own_callback(horizon)]).save_checkpoint(path)
    resumed, callback = Module(), own_callback(horizon)
    with pytest.warns(UserWarning, match="longer, from 21 to 35 steps"):
        fit(resumed, [callback], ckpt_path=path, max_epochs=5)
    assert (callback.lr.total_steps, callback.lr.last_epoch, len(resumed.used)) == (35, 35, 14)
    assert resumed.used[0] > resumed.used[-1]  # with the old horizon, the annealed LR would stay at its end


def test_a_horizon_never_shrinks_in_silence(horizon, tmp_path):
    path = tmp_path / "middle.ckpt"
    fit(Module(), [own_callback(horizon), SaveAt(path, 6)])
    callback = own_callback(horizon)
    with pytest.warns(UserWarning, match="total_steps=21, which is kept instead of 14"):
        fit(Module(), [callback], ckpt_path=path, max_epochs=2)
    assert callback.lr.total_steps == 21


class AnnealAt(Callback):
    """Sets another end than planned after a batch."""

    def __init__(self, learned, batch):
        self.learned, self.batch = learned, batch

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.batch + 1:
            self.learned.lr.anneal(20)


def test_an_end_set_by_anneal_survives_a_checkpoint_in_silence(horizon, tmp_path):
    whole, path, callback = Module(), tmp_path / "middle.ckpt", own_callback(horizon)
    fit(whole, [callback, AnnealAt(callback, 6), SaveAt(path, 9)])
    resumed, callback = Module(), own_callback(horizon)
    fit(resumed, [callback], ckpt_path=path)  # a warning would be an error
    assert resumed.used == whole.used[10:]
    assert (callback.lr.total_steps, callback.lr.is_annealing) == (27, True)


def test_a_checkpoint_from_before_the_callback_starts_a_schedule_for_the_rest(horizon, tmp_path):
    path = tmp_path / "plain.ckpt"
    fit(Module(), [SaveAt(path, 6)])
    module, callback = Module(), own_callback(horizon)
    with pytest.warns(UserWarning, match="continues at step 7 from a checkpoint without a state of LearnedLRCallback"):
        fit(module, [callback], ckpt_path=path)
    assert callback.lr.total_steps == callback.lr.last_epoch == len(module.used) == 14


def test_fitting_again_goes_on_and_a_new_trainer_begins_anew(horizon):
    module, callback = Module(), own_callback(horizon)
    trainer = fit(module, [callback])
    trainer.fit_loop.max_epochs = 5
    with pytest.warns(UserWarning, match="longer, from 21 to 35 steps"):
        trainer.fit(module, Batches())
    assert (callback.lr.last_epoch, callback.lr.total_steps) == (35, 35)
    again = Module()
    fit(again, [callback])
    assert_same(again, *by_hand(horizon))


def test_a_checkpoint_loaded_for_a_test_does_not_reach_the_next_training(horizon, tmp_path):
    path, callback = tmp_path / "end.ckpt", own_callback(horizon)
    fit(Module(), [callback]).save_checkpoint(path)
    module, fresh = Module(), own_callback(horizon)
    trainer = Trainer(callbacks=[fresh], **{**QUIET, "max_epochs": 3})
    trainer.test(Module(seed=1), Batches(), ckpt_path=path, verbose=False)
    trainer.fit(module, Batches())
    assert_same(module, *by_hand(horizon))


@pytest.mark.parametrize(
    ("data", "options"),
    [(Batches(), {"max_epochs": -1}), (Endless(), {"max_epochs": 2}), (Batches(), {"changing": True})],
)
def test_a_training_without_a_known_end_asks_for_total_steps(paper, data, options):
    changing = options.pop("changing", False)
    more = [GradientAccumulationScheduler({0: 2, 1: 1})] if changing else []
    module = Module()
    with pytest.raises(ValueError, match="total_steps must be given to LearnedLRCallback"):
        fit(module, [own_callback(paper), *more], data, **options)
    callback = LearnedLRCallback(paper, total_steps=9, num_classes=5)
    fit(module, [callback, *more], data, **{**options, "max_steps": 9})
    assert (callback.lr.total_steps, callback.lr.last_epoch) == (9, 9)
