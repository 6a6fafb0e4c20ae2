"""What the documents say about transfers and about computing time stands in records."""

from statistics import mean, stdev

import paper
import rtho
import timing
import transfers
from rtho import first_at_zero
from told import column, read, results

from mlrsnet.lab.recipes import table1
from mlrsnet.lab.recipes.rows import COSINE, HYPER_LRS, SHIPPED

NEW_DATA = ("CIFAR-100", "SVHN", "TinyImageNet")
PAPERS_ROWS = ("Fixed", "MultiStep", "Exponential", "SGDR", "Adam")
NEW_NETWORKS = ("CIFAR-10, ShuffleNetV2", "CIFAR-10, MobileNetV2")
TEXT = "Penn Treebank, 3-layer LSTM"


def gap(row, name, rivals=None):
    """By how much a row is worse than the best hand-designed one, or the best of some."""
    (found,) = [one for one in transfers.columns() if one.name.startswith(name)]
    return found.shortfall(row, rivals or transfers.by_hand(found))


def last_rise(run):
    return run.epochs[-1]["test_metric"] - run.epochs[-2]["test_metric"]


def seeds(row):
    """How many there are, by column."""
    return {found.name: len(found.runs[row]) for found in transfers.columns()}


def test_transfers_are_of_so_many_seeds_and_rivals_have_momentum_or_are_adam():
    new_data = {f"{name}, ResNet-18": 3 for name in NEW_DATA}
    assert seeds("Universal") == new_data | dict(zip(NEW_NETWORKS, (2, 1), strict=True)) | {TEXT: 1}
    assert seeds(COSINE) == seeds("Universal")
    for found in transfers.columns():
        others = {row: runs for row, runs in found.runs.items() if row not in ("Universal", COSINE)}
        assert all(len(runs) == (2 if "relative" in row else 1) for row, runs in others.items())
        if "perplexity" not in found.metric:
            rivals = {found.runs[row][0].spec["optimizer"] for row in transfers.by_hand(found)}
            assert rivals <= {"sgdm", "adam"}
            assert found.runs["Universal"][0].spec["optimizer"] == "sgd"
            assert found.runs["Universal"][0].spec["epochs"] == 30


def test_the_best_hand_designed_row_is_the_cosine_but_for_text():
    told = read("docs/results.md")
    best = {found.name: found.best(transfers.by_hand(found)) for found in transfers.columns()}
    assert {name for name, row in best.items() if row != COSINE} == {TEXT}
    assert f"where it is {gap(COSINE, 'Penn Treebank'):.2f} behind SGD's" in told


def test_what_is_said_about_transfers_of_the_default_is_recorded():
    better, worse = [-gap("Universal", name) for name in NEW_DATA], [gap("Universal", name) for name in NEW_NETWORKS]
    told, readme, default = map(read, ("docs/results.md", "README.md", "docs/why_full_horizon.md"))
    level, svhn, tiny = better
    pictures = column("epochs_short", "100-epochs")
    ours, cosine = (stdev(results(pictures[row])) for row in ("universal", "cosine-warm-up"))
    assert abs(level) < min(ours, cosine)
    assert (
        f"ends level on CIFAR-100, {level:.2f} points above it with deviations of {cosine:.1f} and {ours:.1f}" in told
    )
    words = f"above it on TinyImageNet by {tiny:.2f} points, and on SVHN by {svhn:.2f}, under each of three seeds"
    assert f"{words}, though there the worst run of the one is below the best of the other" in told
    overlap = set()
    for name in ("svhn", "tinyimagenet"):
        runs = column("transfer_short", name)
        one, other = (results(runs[row]) for row in ("universal", "cosine-warm-up"))
        assert all(ours > theirs for ours, theirs in zip(one, other, strict=True))
        overlap |= {name} if min(one) < max(other) else set()
    assert overlap == {"svhn"}
    assert "it ends below it, by {:.2f} (two seeds) and {:.2f} (one)".format(*worse) in told
    assert (
        f"by {tiny:.2f} points on TinyImageNet, slightly ({svhn:.2f}) on SVHN, and level with it on CIFAR-100" in told
    )
    assert "With ShuffleNetV2 and MobileNetV2 it is {:.1f} (two seeds) and {:.1f} (one) below it".format(*worse) in told
    assert f"on TinyImageNet by {tiny:.2f} points and slightly, by {svhn:.2f}, on SVHN (subsets, these two)" in readme
    assert "with ShuffleNetV2 by {:.1f} (two seeds) and with MobileNetV2 by {:.1f} (one)".format(*worse) in readme
    words = "{:.1f} points below a cosine with a warm-up and momentum on ShuffleNetV2, {:.1f} on MobileNetV2"
    assert words.format(*worse) in default
    assert "`universal` ended {:.1f} and {:.1f} points below a cosine".format(*worse) in read("docs/choosing.md")
    for name in ("shufflenetv2", "mobilenetv2"):
        assert all(
            1.8 < last_rise(run) < 2.5 for run in column("networks_short", name)["universal"]
        )  # about two points
    assert f"(CIFAR-100: {mean(map(last_rise, pictures['universal'])):.1f})" in told
    assert gap("Universal", "Penn Treebank") > 100  # fails


def test_what_is_said_about_the_relative_default_on_text_is_recorded():
    runs = column("transfer_short", "penn-treebank-3-layer-lstm")
    rows = ("universal-relative", "universal-relative-over-adam", "sgd-val-strategy", "adam-val-strategy")
    told, last = read("docs/results.md"), [f"{mean(results(runs[row])):.2f}" for row in rows]
    words = "{} over SGD and {} over Adam, two seeds each, where SGD with its val strategy has {} and Adam {}"
    assert words.format(*last) in told
    for sgd, adam in zip(*(runs[row] for row in rows[:2]), strict=True):
        assert f"one of {max(sgd.trace['lr']):.0f} for SGD, and one of {max(adam.trace['lr']):.4f} for Adam" in told
    assert f"{last[0]} over SGD, {last[1]} over Adam, two runs each" in read("docs/why_full_horizon.md")
    words = "a perplexity of {1} over Adam and {0} over SGD, two seeds, {2} for the best hand-designed row, one"
    assert words.format(*last) in read("README.md")
    above = gap("Universal, relative, over Adam", "Penn Treebank")
    assert f"it ended {above:.1f} above the best rival's perplexity, two runs" in read("docs/choosing.md")


def test_the_default_is_behind_six_epochs_before_the_end():
    for found in transfers.columns():
        sign = -1 if "perplexity" in found.metric else 1
        best, ours = (
            [sign * run.epochs[-7]["test_metric"] for run in found.runs[row]]
            for row in (found.best(transfers.by_hand(found)), "Universal")
        )
        assert max(ours) < min(best)


def test_what_is_said_about_transfers_of_algorithm_1_is_recorded():
    told = read("docs/results.md")
    ours = {name: gap(SHIPPED, name) for name in (*NEW_DATA, *NEW_NETWORKS)}
    assert (
        f"is {min(ours.values()):.1f} to {max(ours.values()):.1f} points worse than the best hand-designed row" in told
    )
    assert gap(SHIPPED, "Penn Treebank") > 0  # worse than the best on all six
    assert {name for name in ours if abs(gap(SHIPPED, name, PAPERS_ROWS)) < 0.25} == {"SVHN", "TinyImageNet"}
    text = column("transfer_short", "penn-treebank-3-layer-lstm")
    (shipped,), (sgd,) = text["mlr-snet-shipped"], text["sgd-val-strategy"]
    assert f"it is at {shipped.result['last']:.0f} instead of {sgd.result['last']:.0f}" in told
    checkpoints = {name: gap("Authors' checkpoints", name) for name in (*ours, "Penn Treebank")}
    behind = [name for name in checkpoints if gap(SHIPPED, name) > checkpoints[name]]
    assert len(behind) == 3
    assert "behind the authors' checkpoints on three of the six" in told
    near = "{:.1f} points behind on SVHN, {:.1f} and {:.1f} on ShuffleNetV2 and MobileNetV2, and"
    far = " {:.1f} and {:.1f} on CIFAR-100 and TinyImageNet"
    five = (checkpoints[name] for name in ("SVHN", *NEW_NETWORKS, "CIFAR-100", "TinyImageNet"))
    assert (near + far).format(*five) in told
    assert checkpoints["Penn Treebank"] < 1  # close


def test_what_is_said_about_rivals_on_svhn_is_recorded():
    runs = column("transfer_short", "svhn")
    for row in ("fixed", "multistep"):
        (run,) = runs[row]
        assert all(line["test_metric"] < 25 for line in run.epochs[:4])
        assert run.epochs[4]["test_metric"] > 25  # for four epochs
    (exponential,) = runs["exponential"]
    assert exponential.result["best"] < 25
    assert exponential.epochs[9]["lr"] < 0.01  # has decayed


def test_what_is_said_about_computing_time_is_recorded():
    told, ratios = read("docs/results.md"), timing.ratios(timing.methods())
    assert (
        "MLR-SNet costs hardly more than a hand-designed schedule, learned or transferred, and RTHO much more" in told
    )
    assert ratios["MLR-SNet, transferred"] < 1.01
    assert ratios["MLR-SNet, meta-trained"] < 1.05
    assert ratios["RTHO"] > 5
    assert f"Fixed came first, and is {100 * (1 - ratios['Fixed']):.0f} % below the others" in told
    (run,) = column("time_short", "cifar-10")["rtho"]
    assert rtho.hyper_lr(run) == min(HYPER_LRS)
    first, trace = first_at_zero(run), zip(run.trace["step"], run.trace["lr"], strict=True)
    assert f"is 0 in most steps from the {first:g}th on" in told
    assert mean(lr == 0 for step, lr in trace if step >= first) > 0.8


def test_what_is_said_about_rtho_on_resnet18_is_recorded():
    told, runs = read("docs/baselines.md"), rtho.trainings()
    high, low = ([run for run in runs if run.spec["lr"] == lr] for lr in (0.1, 0.01))
    assert {rtho.hyper_lr(run) for run in high} == set(HYPER_LRS)
    assert max(map(first_at_zero, high)) < 30  # within 30 steps
    rises = [max(run.trace["lr"]) / run.spec["lr"] - 1 for run in low]
    assert f"rises by at most {100 * max(rises):.0f} % in two epochs" in told
    assert all(first_at_zero(run) is None for run in low)
    times = timing.methods()["RTHO"].seconds, timing.ratios(timing.methods())["RTHO"]
    assert "At {:.1f} s an epoch, {:.0f} times a plain one".format(*times) in told
    assert "The paper's Table 1 has RTHO at {:.2f} ± {:.2f}".format(*table1.PAPER["CIFAR-10"]["RTHO"]) in told


def test_what_is_said_about_rtho_on_penn_treebank_is_recorded():
    told = read("docs/baselines.md")
    folder = paper.RESULTS / "table3_short" / "2-layer-lstm-hyper-lr-of-rtho-chosen-by-validation"
    runs = [run for trial in sorted(folder.iterdir()) for run in paper.runs(trial)]
    assert [(rtho.hyper_lr(run), run.status) for run in runs] == [(0.5, "finished"), (1.0, "diverged")]
    assert max(map(first_at_zero, runs)) <= 25  # every fifth step is kept
    assert f"ends at a perplexity of {runs[0].result['last']:,.0f}" in told


def test_what_is_said_about_the_default_on_penn_treebank_is_recorded():
    told, runs = read("docs/why_full_horizon.md"), column("transfer_short", "penn-treebank-3-layer-lstm")
    (sgd,), (adam,), (ours,), (over_adam,) = (
        runs[row] for row in ("sgd-val-strategy", "adam-val-strategy", "universal", "universal-over-adam")
    )
    assert f"a perplexity of {ours.result['last']:.0f}, SGD from 20 at {sgd.result['last']:.0f}" in told
    assert max(ours.trace["lr"]) < 2
    assert f"up to {max(over_adam.trace['lr']):.3f}" in told
    assert f"falls to {adam.epochs[-1]['lr']}, and ends at {over_adam.result['last']:.0f}" in told
