"""What the documents say about Algorithm 1, Table 1 and Penn Treebank stands in records."""

import json
import math
import re
from statistics import mean, median

import paper
from told import column, read, results

from mlrsnet import LSTMNet, MLPNet
from mlrsnet.lab import records
from mlrsnet.lab.recipes import table1, table2, table3

HAND_DESIGNED = ("fixed", "multistep", "exponential", "sgdr", "adam")


def told_about_algorithm_1():
    return read("docs/algorithm_1.md")


def named(runs, name):
    return [run for run in runs if run.name == name]


def test_what_is_said_about_60_epochs_of_table1_is_recorded():
    told, runs = told_about_algorithm_1(), column("table1_short", "cifar-10")
    ours, rivals = results(runs["mlr-snet"]), {name: results(runs[name]) for name in (*HAND_DESIGNED, "hd")}
    assert {len(found) for found in runs.values()} == {3}
    assert max(results(runs["l4"])) < min(ours)
    assert max(ours) < min(map(min, rivals.values()))  # below every run of every row but L4's
    assert min(map(mean, rivals.values())) - mean(ours) > 5  # 5 points below the next
    assert f"with 60 epochs at {min(ours):.1f} to {max(ours):.1f} %" in told
    assert mean(rivals["multistep"]) > mean(rivals["hd"]) > mean(rivals["fixed"]) > mean(rivals["exponential"])
    assert max(HAND_DESIGNED, key=lambda name: mean(results(runs[name], "best"))) == "sgdr"
    assert max(HAND_DESIGNED, key=lambda name: mean(rivals[name])) != "sgdr"
    rates = [lr for run in runs["l4"] for lr in run.trace["lr"]]
    assert (
        f"every {runs['l4'][0].trace['step'][1]}rd step, the LR is never above {math.ceil(max(rates) * 1e4) / 1e4}"
        in told
    )


def test_the_hyper_lr_of_hd_is_the_best_on_validation_pictures():
    trials = column("table1_short", "cifar-10-hyper-lr-of-hd-chosen-by-validation")
    best = max(trials.values(), key=lambda runs: runs[0].result["val_metric"])[0]
    for run in column("table1_short", "cifar-10")["hd"]:
        assert run.spec["schedule_options"] == best.spec["schedule_options"]


def test_what_is_said_about_200_epochs_of_table1_is_recorded():
    told, runs = told_about_algorithm_1(), column("table1_paper", "cifar-10")
    last, best = ({name: mean(results(found, which)) for name, found in runs.items()} for which in ("last", "best"))
    below = {name: last["multistep"] - value for name, value in last.items()}
    assert f"it ends {below['mlr-snet']:.1f} points below MultiStep, with T_val 300" in told
    assert f"the default of the authors' code, {below['mlr-snet-t-val-300']:.1f}." in told
    assert (
        f"T_val 300 has {best['mlr-snet-t-val-300']:.2f} %, as SGDR does, and MultiStep {best['multistep']:.2f} %"
        in told
    )
    assert best["mlr-snet-t-val-300"] == best["sgdr"] > best["multistep"]
    assert last["sgdr"] < last["multistep"]
    assert f"the training {last['mlr-snet-t-val-300'] - last['mlr-snet']:.1f} points better" in told
    assert f"end {below['authors-checkpoints']:.1f} points below MultiStep" in told
    assert (
        f"reaches {last['universal']:.2f} % with nothing tuned: {-below['universal']:.1f} points above MultiStep"
        in told
    )
    assert f"{last['universal']:.2f} % at 200" in told
    assert sorted(last, key=last.get)[-2:] == ["universal", "cosine-from-1-warm-up"]
    assert len(last) == 9
    assert "the default is second of nine schedules" in read("docs/results.md")
    assert f"{-below['universal']:.1f} points above MultiStep" in read("docs/results.md")
    over, under = last["universal"] - last["cosine-warm-up"], last["cosine-from-1-warm-up"] - last["universal"]
    for document, words in {
        "docs/algorithm_1.md": "{:.2f} above a cosine with a warm-up from the usual 0.1. A cosine from 1 is {:.2f} above it",
        "docs/results.md": "{:.2f} above a cosine with a warm-up from the usual LR, {:.2f} below one from ten times that LR",
    }.items():
        assert words.format(over, under) in read(document)
    readme = read("README.md")
    assert f"{under:.2f} points below a cosine with a warm-up from an LR of 1" in readme
    assert f"{over:.2f} above one from the usual 0.1" in readme
    assert f"From the usual LR it ends {-below['cosine-warm-up']:.1f} points above MultiStep" in told
    for near in (last["mlr-snet-the-authors-program"], table1.PAPER["CIFAR-10"]["MLR-SNet"][0]):
        assert round(abs(last["cosine-warm-up"] - near), 2) <= 0.2
    (steps,) = runs["authors-checkpoints"]
    assert len({f"{lr:.1g}" for lr in steps.trace["lr"]}) == 3  # two steps down


def test_what_is_said_about_the_authors_program_is_recorded():
    told, (run,) = (
        told_about_algorithm_1(),
        paper.runs(paper.RESULTS / "table1_paper/cifar-10/mlr-snet-the-authors-program"),
    )
    assert f"It ends at {run.result['last']:.2f} %, with {run.result['best']:.2f} % at best" in told
    low, spread = table1.PAPER["CIFAR-10"]["MLR-SNet"]
    assert abs(run.result["last"] - low) <= spread  # ends where the paper is
    assert f"is {paper.AUTHORS['last']:.2f} % at the end and {paper.AUTHORS['best']:.2f} % at best" in told
    assert "the paper has {:.2f} ± {:.2f}".format(*table1.PAPER["CIFAR-10"]["MLR-SNet"]) in told
    assert f"on all {run.data['task']['train']:,} pictures" in told
    updates = run.data["total_steps"] // run.data["steps_per_epoch"]  # one an epoch
    assert f"which makes {updates}." in told


def test_the_default_is_below_all_other_rows_for_most_of_200_epochs():
    told, folder = told_about_algorithm_1(), paper.RESULTS / "table1_paper" / "cifar-10"
    default = records.read(folder / "universal" / "seed0")
    others = [run for row in folder.iterdir() if row.name != "universal" for run in paper.runs(row)]
    high = [line["epoch"] for line in default.epochs if line["lr"] > 0.5]
    assert f"is above 0.5 until epoch {high[-1]}." in told
    first, last = map(int, re.search(r"From epoch (\d+) to epoch (\d+) it is below every other row", told).groups())
    below = {
        line["epoch"]
        for line in default.epochs
        if all(line["test_metric"] < run.epochs[line["epoch"] - 1]["test_metric"] for run in others)
    }
    assert set(range(first, last + 1)) <= below
    assert not {first - 1, last + 1} & below
    assert default.result["epoch"] == last + 12  # in the last twelve epochs it passes all but one
    assert sum(run.result["last"] > default.result["last"] for run in others) == 1


def test_what_is_said_about_updates_is_recorded():
    told, runs = told_about_algorithm_1(), paper.meta_trainings("table1_paper")
    often = [run for run in runs if run.name == "MLR-SNet"]
    rarely = [run for run in runs if run.name == "MLR-SNet, T_val 300"]
    assert f"have {often[0].updates} updates." in told
    assert f"With T_val 300 the 200 epochs have {rarely[0].updates} updates: the LR ends higher" in told
    assert min(run.last_lr for run in rarely) > max(run.last_lr for run in often)
    shorter = [*paper.meta_trainings("table1_short"), *paper.meta_trainings("sensitivity_short")]
    as_many = [run for run in shorter if run.updates == often[0].updates]
    times = [long.last_lr / run.last_lr for run in as_many for long in often]
    assert {run.epochs for run in as_many} == {30, 60}
    assert f"their LR ends {min(times):.0f} to {max(times):.0f} times below" in told


def test_what_is_said_about_penn_treebank_is_recorded():
    told, runs = told_about_algorithm_1(), column("table3_paper", "2-layer-lstm")
    last = {name: mean(results(found)) for name, found in runs.items()}
    (sgd,), (ours,) = runs["sgd-val-strategy"], runs["mlr-snet"]
    printed = {row: two[0] for row, (two, _) in table3.PAPER.items()}
    assert abs(last["sgd-val-strategy"] - printed["SGD, val strategy"]) < 0.3
    assert abs(last["adam-val-strategy"] - printed["Adam, val strategy"]) > 4
    assert max(last, key=last.get) == "mlr-snet"
    assert len(last) == 3
    (short,) = paper.finished(paper.RESULTS / "table3_short/2-layer-lstm/mlr-snet")
    assert f"the LR begins at {short.trace['lr'][0]:.0f}" in told
    assert all(line["lr"] < 2 for line in short.epochs[4:])  # below 2 from the end of the fifth epoch on
    assert short.epochs[3]["lr"] >= 2
    assert ours.epochs[8]["lr"] >= 2 > ours.epochs[9]["lr"]  # below 2 after the tenth
    assert all(line["lr"] < 4 for line in ours.epochs[9:])
    assert f"stays at 20 for {sum(line['lr'] == 20 for line in sgd.epochs)} epochs" in told
    assert f"lowest at epoch {ours.result['best_epoch']}, without having caught up" in told
    assert ours.result["best"] > last["sgd-val-strategy"]


def test_what_is_said_about_rivals_on_penn_treebank_at_20_epochs_is_recorded():
    told, runs = told_about_algorithm_1(), column("table3_short", "2-layer-lstm")
    last = {name: mean(results(found)) for name, found in runs.items()}
    assert len(last) == 5
    assert (min(last, key=last.get), max(last, key=last.get)) == ("hd", "l4")
    assert last["mlr-snet"] > max(last[row] for row in last.keys() - {"mlr-snet", "l4"})  # behind all but L4
    for row, option, chosen in (
        ("hd", "hyper_lr", min(table3.HYPER_LRS)),
        ("l4", "fraction", max(table3.GRIDS["L4"][1])),
    ):
        trials = column("table3_short", f"2-layer-lstm-{option.replace('_', '-')}-of-{row}-chosen-by-validation")
        best = min(trials.values(), key=lambda found: found[0].result["val_metric"])[0]
        assert runs[row][0].spec["schedule_options"][option] == best.spec["schedule_options"][option] == chosen
    assert f"keeps an LR near {runs['hd'][0].epochs[-1]['lr']:.0f} and is first of five" in told
    assert f"has a median LR of {median(runs['l4'][0].trace['lr']):.1f} and is last" in told


def test_what_is_said_about_an_mlp_on_penn_treebank_is_recorded():
    runs, table = column("lstm_or_mlp_short", "meta-training-penn-treebank"), column("table3_short", "2-layer-lstm")
    told, ends = read("docs/results.md"), [run.epochs[-1]["lr"] for run in runs["mlp"]]
    assert len(runs["mlp"]) == len(runs["lstm"]) == 3
    assert (
        f"it ends at LRs of {min(ends):.1f} to {max(ends):.1f} while the LSTM's are below 2 after five epochs" in told
    )
    assert all(line["lr"] < 2 for run in runs["lstm"] for line in run.epochs[4:])
    mlp, lstm = (mean(results(runs[row])) for row in ("mlp", "lstm"))
    assert f"at a perplexity of {mlp:.2f} instead of {lstm:.2f}" in told
    assert max(results(runs["mlp"])) < min(
        mean(results(found)) for found in table.values()
    )  # below every row of Table 3
    assert f"would be first, at {mlp:.2f}, the mean of three seeds" in told_about_algorithm_1()


def test_what_is_said_about_an_mlp_on_pictures_is_recorded():
    runs, told = column("lstm_or_mlp_short", "meta-training-cifar-10"), told_about_algorithm_1()
    (mlp,), (lstm,) = runs["mlp"], runs["lstm"]
    assert mlp.spec["schedule_options"] == lstm.spec["schedule_options"] | {"net": "mlp"}
    assert f"{mlp.spec['epochs']} epochs, T_val {mlp.spec['schedule_options']['every']}, one seed" in told
    assert f"the LR falls from {mlp.trace['lr'][0]:.2f} to {mlp.epochs[-1]['lr']:.3f}" in told
    multistep = mean(results(column("table1_short", "cifar-10")["multistep"]))
    ends = [run.result["last"] for run in (mlp, lstm)]
    words = "ends at {:.2f} %, where the LSTM beside it ends at {:.2f} % and MultiStep has {:.2f} %"
    assert words.format(*ends, multistep) in told
    words = "it ends at {:.2f} % instead of {:.2f} %, level with MultiStep's {:.2f} %"
    assert words.format(*ends, multistep) in read("docs/results.md")
    assert f"ours has one hidden layer of {MLPNet().hidden_size}" in read("docs/results.md")
    once_more, (first, *_) = lstm.spec, column("table1_short", "cifar-10")["mlr-snet"]
    assert (once_more["seed"], once_more["epochs"]) == (first.spec["seed"], first.spec["epochs"])
    assert first.spec["schedule_options"] | {"net": "lstm"} == once_more["schedule_options"]
    assert f"seed 0 once more ended at {lstm.result['last']:.2f} %" in told
    sizes = [sum(weight.numel() for weight in net.parameters()) for net in (MLPNet(), LSTMNet())]
    assert "The MLP has {:,} weights and no memory, the LSTM {:,}".format(*sizes) in told


def test_what_is_said_about_momentum_is_recorded():
    told, plain, with_momentum = (
        read("docs/results.md"),
        *(column(f"{name}_short", "cifar-10") for name in ("table1", "table2")),
    )
    (hd,), (l4,) = with_momentum["hd"], with_momentum["l4"]
    gains = {row: mean(results(found)) - mean(results(plain[row])) for row, found in with_momentum.items()}
    assert f"{gains['multistep']:.1f}" == f"{gains['exponential']:.1f}"
    assert f"momentum adds {gains['multistep']:.1f} points to MultiStep and to Exponential" in told
    assert f"it takes {-gains['fixed']:.1f} from Fixed and {-gains['sgdr']:.1f} from SGDR" in told
    for runs in (plain, with_momentum):
        best = {row: mean(results(runs[row], "best")) for row in with_momentum}
        assert max(best, key=best.get) == "sgdr"
    over = l4.result["last"] - table2.PAPER["CIFAR-10"]["L4"][0]
    words = "ends at {:.2f} %, {:.1f} points above the paper's number at 200 epochs and {:.0f} above L4 on the gradient itself"
    assert words.format(l4.result["last"], over, gains["l4"]) in told
    assert f"and with these one run ends at {l4.result['last']:.2f} %" in told_about_algorithm_1()
    trials = column("table2_short", "cifar-10-hyper-lr-of-hd-chosen-by-validation")
    best, second, *_ = sorted((run for (run,) in trials.values()), key=lambda run: -run.result["val_metric"])
    chosen, other = (run.spec["schedule_options"]["hyper_lr"] for run in (best, second))
    assert hd.spec["schedule_options"]["hyper_lr"] == chosen
    assert f"HD, at {chosen}, the hyper-LR" in told
    words = "falls to an LR of {:.4f} and ends at {:.2f} %, where HD without momentum has {:.2f} to {:.2f} %"
    without = results(plain["hd"])
    assert words.format(hd.epochs[-1]["lr"], hd.result["last"], min(without), max(without)) in told
    behind = best.result["val_metric"] - second.result["val_metric"]
    assert (
        f"{other:.0e} was {behind:.1f} points behind in that choice, on {best.data['task']['val']:,} pictures" in told
    )


def test_what_is_said_about_corruptions_is_recorded():
    below = []
    for corruption in ("gaussian-noise", "contrast", "jpeg-compression"):
        runs = column("table5_short", f"cifar-10-c-{corruption}")
        last, best = ({row: results(found, which)[0] for row, found in runs.items()} for which in ("last", "best"))
        assert len(last) == 4
        assert (min(last, key=last.get), max(last, key=last.get)) == ("mlr-snet", "multistep")
        assert max(best, key=best.get) == "sgdr"
        below.append(last["multistep"] - last["mlr-snet"])
    words = "the last of four rows on each of three corruptions, {:.1f}, {:.1f} and {:.1f} points below MultiStep"
    assert words.format(*below) in read("docs/results.md")


def test_what_is_said_about_the_width_of_minima_is_recorded():
    told, runs = read("docs/results.md"), column("width_short", "cifar-100")
    rays = {row: found[0].data["rays"] for row, found in runs.items()}
    assert {(one["distance"][-1], len(one["train"])) for one in rays.values()} == {(20, 5)}
    grows = {row: mean(ray[-1] - ray[0] for ray in one["train"]) for row, one in rays.items()}
    assert f"{grows['sgdr']:.1f}" == f"{grows['fixed']:.1f}"
    assert f"grows by {grows['sgdr']:.1f} for SGDR and Fixed, which end at high LRs" in told
    assert min(runs[row][0].epochs[-1]["lr"] for row in ("sgdr", "fixed")) > 0.05
    (multistep,) = runs["multistep"]
    words = "by {:.2f} for MultiStep, which ends at {:g} and has the best test accuracy at the last epoch"
    assert words.format(grows["multistep"], round(multistep.epochs[-1]["lr"], 6)) in told
    assert max(runs, key=lambda row: runs[row][0].result["last"]) == "multistep"
    at_0 = rays["mlr-snet"]["train"][0][0]
    times = {row: 1 + grows[row] / one["train"][0][0] for row, one in rays.items()}
    ours = times.pop("mlr-snet")
    words = "it grows by {:.1f}, but from a loss of {:.1f}: {:.1f} times, where the others' grow {:.1f} to {:.1f} times"
    assert words.format(grows["mlr-snet"], at_0, ours, min(times.values()), max(times.values())) in told


def test_what_is_said_about_networks_that_cannot_begin_is_recorded():
    told = told_about_algorithm_1()
    (learned,), runs = (
        paper.finished(paper.RESULTS / "table3_paper/2-layer-lstm/mlr-snet"),
        column("transfer_short", "penn-treebank-3-layer-lstm"),
    )
    third = learned.epochs[len(learned.epochs) // 3 - 1]["lr"]
    assert f"After a third of this one the LR has fallen from {learned.trace['lr'][0]:.0f} to {third:.2f}" in told
    (from_text,), (official,), (sgd,) = (
        runs[row] for row in ("mlr-snet-shipped-from-text", "authors-checkpoints", "sgd-val-strategy")
    )
    (soon,) = [lr for step, lr in zip(from_text.trace["step"], from_text.trace["lr"], strict=True) if 0 < step <= 20]
    assert f"for {from_text.spec['epochs']} epochs, one run, is at {soon:.2f} within twenty steps" in told
    assert f"ends at a perplexity of {from_text.result['last']:.0f}" in told
    assert (
        f"they are at {official.epochs[0]['lr']:.0f} in the first epoch and end at {official.result['last']:.2f}"
        in told
    )
    assert f"near SGD's {sgd.result['last']:.2f}" in told


def test_what_is_said_about_the_pace_of_algorithm_1_is_recorded():
    told, runs = told_about_algorithm_1(), paper.meta_trainings("sensitivity_short")
    early, whole = sum(sum(run.falls[:5]) for run in runs), [sum(run.falls) for run in runs]
    assert len(runs) == 12
    assert f"of the twelve trainings {early} of {5 * len(runs)} say" in told
    assert f"in all of their epochs {min(whole)} to {max(whole)} of 30" in told
    own_cell = [run for run in runs if run.name not in paper.OTHER_THAN_PACE]
    ends = [run.last_lr for run in sorted(own_cell, key=lambda run: (run.travel, -run.last_lr))]
    assert len({run.travel for run in own_cell}) == 6
    assert ends == sorted(ends, reverse=True)
    assert f"from {ends[0]:.2f}, where it hardly moved, to {ends[-1]:.6f}" in told
    often, usual = (named(runs, name) for name in ("T_val 15", "T_val 100"))
    longer = paper.meta_trainings("table1_short")
    assert {run.updates for run in longer} == {run.updates for run in often}
    low, high = ([f"{of(run.last_lr for run in those):.4f}" for of in (min, max)] for those in (often, longer))
    words = "60 epochs end, at {} to {}, near the three of 30 epochs with as many updates, at {} to {}."
    assert words.format(*high, *low) in told
    assert f"With {often[0].updates / usual[0].updates:.1f} times the updates" in told


def test_what_is_said_about_the_pace_on_other_data_is_recorded():
    told = told_about_algorithm_1()
    (hundred,) = map(paper.meta_training, column("width_short", "cifar-100")["mlr-snet"])
    assert hundred.updates == paper.meta_trainings("table1_short")[0].updates
    assert f"in {hundred.epochs} epochs ends at {hundred.last_lr:.4f}" in told
    corrupted = [
        paper.meta_training(run)
        for folder in sorted((paper.RESULTS / "table5_short").glob("cifar-10-c-*"))
        for run in paper.finished(folder / "mlr-snet")
    ]
    assert len(corrupted) == 3
    (updates,) = {run.updates for run in corrupted}
    (end,) = {round(run.last_lr, 4) for run in corrupted}
    assert f"with {updates} updates in {corrupted[0].epochs} epochs all end near {end}" in told


def test_what_is_said_about_the_outcomes_of_algorithm_1_is_recorded():
    told, runs = told_about_algorithm_1(), paper.meta_trainings("sensitivity_short")
    near = [run for run in runs if 0.03 < run.travel < 0.2]
    (cosine,) = paper.finished(paper.RESULTS / "horizon_short/cifar-10/cosine-0-1")
    below = [cosine.result["last"] - run.accuracy for run in near]
    falls = [run.first_lr / run.last_lr for run in near]
    assert f"falls by a factor of {min(falls):.1f} to {max(falls):.0f}, and" in told
    products = [run.travel for run in near]
    assert f"At products of {min(products):.2f} to {max(products):.2f} the LR" in told
    others = [run.accuracy for run in runs if run not in near]
    assert max(others) < min(run.accuracy for run in near)  # best in between
    assert f"end {min(below):.1f} to {max(below):.1f} points below a cosine from 0.1" in told
    often, (fast,) = named(runs, "T_val 15"), named(runs, "meta LR 0.01")
    words = "end at {:.0f} %, the mean of three seeds, and at {:.0f} %"
    assert words.format(mean(run.accuracy for run in often), fast.accuracy) in told
    settings = column("sensitivity_short", "cifar-10")
    sixth = [run.epochs[5]["lr"] for name in ("t-val-15", "meta-lr-0-01") for run in settings[name]]
    assert f"the LR is below {math.ceil(max(sixth) * 1000) / 1000} after six epochs" in told


def test_what_is_said_about_the_authors_cell_and_their_validation_is_recorded():
    told, runs = told_about_algorithm_1(), paper.meta_trainings("sensitivity_short")
    (theirs,), (leaky,), own = (named(runs, name) for name in (*paper.OTHER_THAN_PACE, "T_val 100"))
    assert len(own) == 3
    first, last = [run.first_lr for run in own], [theirs.last_lr / run.last_lr for run in own]
    words = "begins at {:.2f} instead of {:.2f} to {:.2f} and ends {:.0f} to {:.0f} times above"
    assert words.format(theirs.first_lr, min(first), max(first), min(last), max(last)) in told
    best, lowest = (of(run.accuracy for run in own) for of in (max, min))
    assert f"ends {theirs.accuracy - best:.1f} points above the best of three with the paper's cell" in told
    assert f"is {lowest - leaky.accuracy:.1f} points below the lowest of those three" in told


def test_what_is_said_about_seeds_and_about_the_probe_is_recorded():
    told, runs = told_about_algorithm_1(), paper.meta_trainings("sensitivity_short")
    usual, often, (fastest,) = (named(runs, name) for name in ("T_val 100", "T_val 15", "T_val 3"))
    at_17 = [run.epochs[16]["lr"] for run in column("sensitivity_short", "cifar-10")["t-val-100"]]
    first = [run.first_lr for run in usual]
    words = "the LR begins at {:.2f} to {:.2f} and is at {:.3f} to {:.3f} after 17 epochs"
    assert words.format(min(first), max(first), min(at_17), max(at_17)) in told
    spans = [
        f"{min(ends):.1f} to {max(ends):.1f} %"
        for ends in ([run.accuracy for run in those] for those in (usual, often))
    ]
    assert "trainings end at {}. With T_val 15 they end at {}".format(*spans) in told
    probe = json.loads((paper.RESULTS / "probe" / "probe.json").read_text())
    theirs = [line["last"] for line in probe["algorithm_1"]]
    (whole,) = column("table1_paper", "cifar-10")["mlr-snet"]
    words = "ended at {:.2f} % with T_val 100, {:.2f} % with T_val 15 and {:.2f} % with T_val 3, and {:.2f} % at 200 epochs,"
    assert f"{words.format(*theirs)} where we have {whole.result['last']:.2f} %" in told
    ours = [min(run.accuracy for run in those) for those in (usual, often, [fastest])]
    lower = [own - other for own, other in zip([*ours, whole.result["last"]], theirs, strict=True)]
    assert f"by {min(lower):.1f} to {max(lower):.1f} points" in told
    (cosine,) = paper.finished(paper.RESULTS / "horizon_short/cifar-10/cosine-0-1")
    assert f"ends alike in both, at {probe['cosine_from_0_1']['last']:.2f} and {cosine.result['last']:.2f} %" in told
    lrs = probe["algorithm_1"][-1]["lr"]
    assert f"began at {lrs['1']} and was at {lrs['17']} after 17 epochs and at {lrs['33']} after 33" in told
    assert "ours is at {:.3f} and {:.3f}".format(*(whole.epochs[epoch - 1]["lr"] for epoch in (17, 33))) in told
    assert min(at_17) < lrs["17"] < max(at_17)  # seeds explain that
    reached = probe["learned_from_whole_trainings"]["last"]
    assert "A probe before this library reached {:.2f} and {:.2f}".format(*reached) in read("docs/horizon.md")
