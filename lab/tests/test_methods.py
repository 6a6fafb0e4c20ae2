"""Every schedule with every optimizer, and one of one's own: each learns, and ends alike if it is stopped."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from runs import LRS, PER_EPOCH, SMALL_CNN, assert_same, of_text, stop_and_resume, tiny

from mlrsnet import Schedule
from mlrsnet.card import Card
from mlrsnet.nets import LSTMNet
from mlrsnet.ops import HOST
from mlrsnet.ranges import Gamma, PerplexityGamma, PhaseGamma
from mlrsnet_lab import methods, records
from mlrsnet_lab.loop import run
from mlrsnet_lab.methods import Method
from mlrsnet_lab.optimizers import EAGER, OPTIMIZERS
from mlrsnet_lab.settings import Settings
from mlrsnet_lab.spec import RunSpec
from mlrsnet_lab.stepper import Stepper

ALONE = {
    "l4": ("sgd", "sgdm", "adam"),
    "hd": ("sgd", "sgdm", "adam"),
    "rtho": ("sgd", "sgdm"),
    "direct": ("sgd",),
}  # and no others

OWN_LR = (
    *("schedule-free-sgd", "schedule-free-adamw", "schedule-free-plus", "prodigy", "d-adapt-sgd", "d-adapt-adam"),
    *("mechanic-sgd", "mechanic-adam", "l-dog"),
)


@pytest.mark.filterwarnings("ignore:the range of the schedule .* was not made for this optimizer")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", methods.SCHEDULES)
def test_every_schedule_and_optimizer_learns_and_ends_alike_if_it_is_stopped(
    schedule, optimizer, schedule_file, tmp_path
):
    options = {
        "learned": {"schedule": schedule_file},
        "relative-rule": {"size": 0.02},
        "mlr-snet": {"every": 10, "hidden": 8, "scale": 0.1},
        "rtho": {"hyper_lr": 1e-5},
        "direct": {"passes": 2},
    }.get(schedule, {})
    spec = tiny(schedule=schedule, schedule_options=options, optimizer=optimizer, lr=LRS.get(optimizer, 0.02))
    if optimizer not in ALONE.get(schedule, OPTIMIZERS):
        with pytest.raises(TypeError, match=f"optimizer must be one that schedule '{schedule}' has a form for, got"):
            run(spec, settings=Settings(device="cpu"))
        return
    if schedule == "mlr-snet" and optimizer in EAGER:
        with pytest.raises(TypeError, match="optimizer must take steps that are linear in its LR"):
            run(spec, settings=Settings(device="cpu"))
        return
    if schedule in ("learned", "relative-rule") and optimizer in OWN_LR:
        with pytest.raises(ValueError, match="optimizer must leave its LR to the schedule, got"):
            run(spec, settings=Settings(device="cpu"))
        return
    whole = run(spec, settings=Settings(device="cpu"))
    assert whole.status == "finished"
    assert [line["epoch"] for line in whole.epochs] == [1, 2]
    assert whole.trace["step"] == list(range(2 * PER_EPOCH))
    assert all(math.isfinite(number) for numbers in whole.trace.values() for number in numbers)
    assert whole.epochs[1]["train_loss"] < whole.epochs[0]["train_loss"]
    assert ("gamma" in whole.epochs[0]) == (schedule in ("learned", "mlr-snet"))
    assert_same(stop_and_resume(spec, tmp_path / "run", settings=Settings(device="cpu")), whole)
    assert_same(records.read(tmp_path / "run"), whole)


@pytest.mark.parametrize("model", ["lstm", "transformer"])
@pytest.mark.parametrize(
    ("schedule", "optimizer"),
    [
        ("cosine", "adam"),
        ("val-strategy", "sgdm"),
        ("learned", "sgd"),
        ("mlr-snet", "sgdm"),
        ("fixed", "schedule-free-adamw"),
        ("cosine", "d-adapt-adam"),
        ("fixed", "l-dog"),
        ("fixed", "schedule-free-plus"),
        ("cosine", "mechanic-adam"),
        ("cosine", "adam-h"),
        ("cosine", "lamb"),
        ("l4", "adam"),
        ("hd", "adam"),
        ("rtho", "sgd"),
    ],
)
def test_text_is_learned_and_ends_alike_if_it_is_stopped(model, schedule, optimizer, schedule_file, texts, tmp_path):
    learned = {"schedule": schedule_file, "scale": 0.02}
    careful = {"hyper_lr": 1e-5}  # at 1e-3 a transformer diverges with some versions of torch
    short = {"fraction": 0.02}  # at L4's own 0.15 it depends on the CPU's rounding whether a transformer learns
    mlr_snet = {"every": 10, "hidden": 8, "scale": 0.1}
    options = {"learned": learned, "mlr-snet": mlr_snet, "rtho": careful, "l4": short}.get(schedule, {})
    spec = of_text(model, schedule=schedule, schedule_options=options, optimizer=optimizer, lr=LRS.get(optimizer, 0.1))
    whole = run(spec, settings=Settings(device="cpu", root=texts))
    assert whole.data["metric"] == {"name": "perplexity", "unit": "", "better": "lower"}
    assert whole.epochs[-1]["train_loss"] < whole.trace["loss"][0]
    for part in ("val", "test"):
        # a record keeps 6 digits of each: the loss is within 5e-6, the metric within 5e-6 of itself
        assert whole.epochs[-1][f"{part}_metric"] == pytest.approx(math.exp(whole.epochs[-1][f"{part}_loss"]), rel=2e-5)
    assert_same(stop_and_resume(spec, tmp_path / "run", settings=Settings(device="cpu", root=texts)), whole)


@pytest.mark.parametrize(
    ("schedule", "optimizer"),
    [
        ("cosine", "sgdm"),
        ("cosine", "schedule-free-sgd"),
        ("fixed", "l-dog"),
        ("cosine", "adam-h"),
        ("l4", "sgdm"),
        ("rtho", "sgd"),
    ],
)
def test_batch_norms_end_alike_if_the_run_is_stopped(schedule, optimizer, tmp_path):
    spec = tiny(**SMALL_CNN, schedule=schedule, optimizer=optimizer)
    assert_same(
        stop_and_resume(spec, tmp_path, settings=Settings(device="cpu")), run(spec, settings=Settings(device="cpu"))
    )


def test_the_same_spec_gives_the_same_bits_and_another_seed_does_not():
    first, again, other = (run(tiny(**SMALL_CNN, seed=seed), settings=Settings(device="cpu")) for seed in (3, 3, 4))
    assert_same(first, again)
    assert first.trace["loss"][0] != other.trace["loss"][0]


@pytest.mark.parametrize("schedule", ["learned", "mlr-snet"])
def test_learned_lrs_have_the_range_that_suits_pictures_or_text(schedule, schedule_file, texts):
    """From the first loss, or the first perplexity where LRs have to be larger."""
    options = {"schedule": schedule_file} if schedule == "learned" else {}
    given = {"schedule": schedule, "schedule_options": {**options, "scale": 0.01}}
    picture, text = (
        run(tiny(**given), settings=Settings(device="cpu")),
        run(of_text(**given), settings=Settings(device="cpu", root=texts)),
    )
    vocabulary = text.data["task"]["num_classes"]
    assert picture.epochs[0]["gamma"] == pytest.approx(Gamma()(picture.trace["loss"][0], 2), rel=1e-4)
    by_loss, by_perplexity = (gamma(text.trace["loss"][0], vocabulary) for gamma in (Gamma(), PerplexityGamma()))
    assert text.epochs[0]["gamma"] == pytest.approx(by_perplexity, rel=1e-4)
    assert by_perplexity > 1.5 * by_loss


def test_a_meta_training_on_text_has_the_printed_gamma_where_asked(texts):
    def gamma_of(**options):
        record = run(
            of_text(epochs=1, schedule="mlr-snet", schedule_options={"every": 50, **options}),
            settings=Settings(device="cpu", root=texts),
        )
        return record.epochs[0]["gamma"], record.trace["loss"][0], record.data["task"]["num_classes"]

    printed, loss, vocabulary = gamma_of(gamma_from="loss")
    assert printed == pytest.approx(Gamma()(loss, vocabulary), rel=1e-4)
    usual, same, _ = gamma_of()
    assert same == loss
    assert usual == gamma_of(gamma_from="perplexity")[0] == pytest.approx(PerplexityGamma()(loss, vocabulary), rel=1e-4)
    assert usual > 1.5 * printed


def test_what_gamma_comes_from_is_kept_with_the_schedule_and_a_mistake_is_named(tmp_path):
    def learned(gamma_from, folder):
        spec = tiny(epochs=1, schedule="mlr-snet", schedule_options={"every": 50, "gamma_from": gamma_from})
        run(spec, tmp_path / folder, Settings(device="cpu"))
        return Schedule.read(tmp_path / folder / records.SCHEDULE).card.gamma

    assert (learned("loss", "a"), learned("perplexity", "b"), learned(None, "c")) == (
        Gamma(),
        PerplexityGamma(),
        Gamma(),
    )
    with pytest.raises(ValueError, match="gamma_from must be one of loss, perplexity; got 'f_0'"):
        learned("f_0", "d")


def phased(tmp_path, gamma, **more):
    """A training on digits under a schedule of three phases, with batch norms."""
    torch.manual_seed(0)
    file = tmp_path / "phases.safetensors"
    Schedule([LSTMNet(6) for _ in range(3)], Card(gamma=PhaseGamma())).save(file)
    options = {"schedule": str(file), "scale": 0.2, "gamma": gamma, **more}
    return tiny(**SMALL_CNN, epochs=3, schedule="learned", schedule_options=options)


def gammas_of(spec):
    """gamma of every step, and the mean loss over the training data before it."""
    stepper, found = Stepper(spec, torch.device("cpu")), []
    while stepper.step_count < stepper.total_steps:
        mean = stepper.mean_train_loss()
        stepper.step()
        found.append((stepper.method.scalars()["gamma"], mean))
    return zip(*found, strict=True)


def test_gamma_is_computed_as_the_paper_or_as_the_authors_program_has_it(tmp_path):
    first = run(phased(tmp_path, "card"), settings=Settings(device="cpu")).trace["loss"][0]
    gammas, _ = gammas_of(phased(tmp_path, "paper"))
    assert len(set(gammas)) == 1
    assert gammas[0] == pytest.approx(Gamma()(first, 2), rel=1e-4)
    gammas, means = gammas_of(phased(tmp_path, "authors"))
    starts = [means[begin] for begin in (0, PER_EPOCH, 2 * PER_EPOCH)]
    expected = [abs(Gamma().formula(mean, 2, HOST)) for mean in starts for _ in range(PER_EPOCH)]
    assert list(gammas) == pytest.approx(expected, rel=1e-9)
    assert len(set(gammas)) == 3


def test_a_meta_training_has_the_authors_gamma_where_asked(tmp_path):
    def gamma_of(**options):
        stepper = Stepper(tiny(**SMALL_CNN, schedule="mlr-snet", schedule_options=options), torch.device("cpu"))
        mean = stepper.mean_train_loss()
        stepper.step()
        return stepper.method.scalars()["gamma"], mean, stepper.trace.read()[0][0]

    theirs, mean, _ = gamma_of(compat=["initial-loss"])
    assert theirs == pytest.approx(Gamma()(mean, 2), rel=1e-9)
    own, _, first = gamma_of()
    assert own == pytest.approx(Gamma()(first, 2), rel=1e-4)
    assert theirs != pytest.approx(own, rel=1e-3)


def test_a_run_with_the_authors_gamma_ends_alike_if_it_is_stopped(tmp_path):
    spec = phased(tmp_path, "authors")
    assert_same(
        stop_and_resume(spec, tmp_path / "run", settings=Settings(device="cpu")),
        run(spec, settings=Settings(device="cpu")),
    )


def test_a_learned_schedule_reads_the_validation_loss_of_every_epoch_where_asked(tmp_path, monkeypatch):
    """It gets worse in every epoch here."""
    evaluate = Stepper.evaluate

    def worse(stepper, *parts):
        found = evaluate(stepper, *parts)
        return {part: score._replace(loss=1.0 + stepper.step_count) for part, score in found.items()}

    monkeypatch.setattr(Stepper, "evaluate", worse)
    spec = tiny(schedule="learned", schedule_options={"validate": True}, epochs=6, eval_every=6)
    with pytest.warns(UserWarning, match="got nothing below its first loss"):
        whole = run(spec, settings=Settings(device="cpu"))
        assert_same(stop_and_resume(spec, tmp_path / "run", settings=Settings(device="cpu")), whole)
    plain = run(replace(spec, schedule_options={}), settings=Settings(device="cpu"))
    cut = 4 * PER_EPOCH
    assert whole.trace["lr"][:cut] == plain.trace["lr"][:cut]
    assert whole.trace["lr"][cut] == pytest.approx(0.1 * plain.trace["lr"][cut], rel=1e-4)


def test_the_default_trains_without_being_told_a_loss(tmp_path):
    options = {"tells_loss": False}
    spec = tiny(schedule="learned", schedule_options=options)
    whole = run(spec, settings=Settings(device="cpu"))
    assert whole.epochs[1]["train_loss"] < whole.epochs[0]["train_loss"]
    assert_same(stop_and_resume(spec, tmp_path / "run", settings=Settings(device="cpu")), whole)
    stepper = Stepper(spec, torch.device("cpu"))
    stepper.step()
    assert math.isnan(stepper.method.learned.status()["lowest_level"])
    with pytest.raises(
        ValueError, match="tells_loss must be true for the schedule 'universal-lstm', a network that reads"
    ):
        run(
            tiny(schedule="learned", schedule_options={**options, "schedule": "universal-lstm"}),
            settings=Settings(device="cpu"),
        )


@pytest.mark.parametrize("schedule", ["universal", "universal-lstm"])
def test_a_trace_has_the_lr_that_each_step_used(schedule):
    stepper, used = Stepper(tiny(schedule="learned", schedule_options={"schedule": schedule}), torch.device("cpu")), []
    stepper.optimizer.register_step_post_hook(lambda optimizer, *_: used.append(optimizer.param_groups[0]["lr"]))
    for _ in range(3):
        stepper.step()
    assert stepper.trace.read()[1] == used == list(stepper.method.learned.history)
    assert len(set(used)) == 3


def test_the_mean_training_loss_is_of_a_model_in_evaluation_mode_and_changes_nothing():
    spec = tiny(**SMALL_CNN, batch_size=1)  # so that batches cover all of the data, which are not augmented
    stepper, undisturbed = (Stepper(spec, torch.device("cpu")) for _ in range(2))
    for _ in range(5):
        stepper.step()
        assert stepper.mean_train_loss() == pytest.approx(stepper.evaluate("train")["train"].loss, rel=1e-5)
    for _ in range(5):
        undisturbed.step()
    for name, tensor in stepper.model.state_dict().items():
        assert torch.equal(tensor, undisturbed.model.state_dict()[name]), name


def test_a_range_that_comes_from_no_loss_has_no_gamma_to_choose():
    for schedule, why in (
        ("universal", "which is no network"),
        ("universal-lstm", "whose range does not come from a loss"),
    ):
        spec = tiny(schedule="learned", schedule_options={"schedule": schedule, "gamma": "paper"})
        with pytest.raises(ValueError, match=f"gamma must be 'card' for the schedule '{schedule}', {why}"):
            run(spec, settings=Settings(device="cpu"))
    with pytest.raises(ValueError, match="gamma must be one of card, paper, authors; got 'twice'"):
        run(tiny(schedule="learned", schedule_options={"gamma": "twice"}), settings=Settings(device="cpu"))


def test_mlr_snet_over_adam_learns_a_language_model_at_adams_lrs(texts):
    """Section 5.5 of the paper, whose Adam has an LR of 0.01."""
    given = {"schedule": "mlr-snet", "schedule_options": {"every": 2}, "optimizer_options": {"beta1": 0.0}}
    text = run(of_text(optimizer="adam", **given), settings=Settings(device="cpu", root=texts))
    share = PerplexityGamma().carry_over({"betas": (0.0, 0.999)}, text.data["task"]["num_classes"])
    most = share * text.epochs[0]["gamma"]
    assert share < 0.01
    assert all(0 < lr < most for lr in text.trace["lr"])


@pytest.mark.parametrize("net", ["lstm", "mlp"])
@pytest.mark.parametrize("extra", [{}, {"bptt": 3}, {"compat": "authors"}])
def test_every_network_that_can_be_meta_learned_leaves_its_schedule(net, extra, tmp_path):
    options = {"every": 10, "hidden": 8, "net": net, "name": "mine", **extra}
    spec = tiny(schedule="mlr-snet", schedule_options=options)
    record = stop_and_resume(spec, tmp_path, settings=Settings(device="cpu"))
    assert "hypergradient" in record.epochs[0]
    schedule = Schedule.load(tmp_path / records.SCHEDULE)
    assert schedule.num_phases == 3
    assert schedule.card.name == "mine"
    assert "digits (classes [0, 1])" in schedule.card.learned_on


# A decider of one's own


class BoldDriver(Method):
    """Up a little where the loss fell, down where it rose."""

    def __init__(self, setting, *, up=1.02, down=0.7):
        super().__init__(setting)
        self.up, self.down, self.last = up, down, math.inf

    def step(self, loss):
        value = float(loss)
        self.set_lr(float(self.lr()) * (self.up if value < self.last else self.down))
        self.last = value
        self.optimizer.step()

    def scalars(self):
        return {"last": self.last}

    def state_dict(self):
        return {"last": self.last}

    def load_state_dict(self, state):
        self.last = state["last"]


def test_a_method_of_ones_own_is_one_small_class(tmp_path, monkeypatch):
    for table in (methods.METHODS, methods.SCHEDULES):
        monkeypatch.setitem(table, "bold-driver", BoldDriver)
    spec = tiny(schedule="bold-driver", schedule_options={"down": 0.5}, lr=0.01)
    whole = run(spec, settings=Settings(device="cpu"))
    losses, lr, expected = [math.inf, *whole.trace["loss"]], 0.01, []
    for before, loss in pairwise(losses):
        lr *= 1.02 if loss < before else 0.5
        expected.append(lr)
    assert whole.trace["lr"] == pytest.approx(expected, rel=1e-4)
    assert whole.epochs[-1]["last"] == whole.trace["loss"][-1]
    assert_same(stop_and_resume(spec, tmp_path, settings=Settings(device="cpu")), whole)
    assert RunSpec.from_json(spec.to_json()) == spec
    with pytest.raises(ValueError, match="no option 'sideways' for 'bold-driver': its options are up, down"):
        tiny(schedule="bold-driver", schedule_options={"sideways": 1})


def test_what_is_told_of_a_skipped_step_names_nothing_of_the_loops_own():
    with pytest.warns(UserWarning, match="gradient was not finite: the optimizer skipped this step"):
        run(tiny(schedule="rtho", lr=1e30, epochs=1), settings=Settings(device="cpu"))
