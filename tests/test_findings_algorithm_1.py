"""What the documents say about Algorithm 1, Table 1 and Penn Treebank stands in records."""

import math
import re
from statistics import mean, median

import paper
from told import column, read, results

from mlrsnet.lab import records
from mlrsnet.lab.recipes import table1, table3

HAND_DESIGNED = ("fixed", "multistep", "exponential", "sgdr", "adam")


def told_about_algorithm_1():
    return read("docs/algorithm_1.md")


def test_what_is_said_about_60_epochs_of_table1_is_recorded():
    told, runs = told_about_algorithm_1(), column("table1_short", "cifar-10")
    ours, rivals = results(runs["mlr-snet"]), {name: results(runs[name]) for name in (*HAND_DESIGNED, "hd")}
    assert len(ours) == 3
    assert max(results(runs["l4"])) < min(ours)
    assert max(ours) < min(map(min, rivals.values()))  # below every run of every row but L4's
    assert min(map(mean, rivals.values())) - mean(ours) > 5  # 5 points below the next
    assert f"differ by up to {max(ours) - min(ours):.1f} points" in told
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
    assert (round(min(times)), round(max(times))) == (8, 11)  # eight to eleven times below


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
    (mlp,), (lstm,) = runs["mlp"], runs["lstm"]
    lrs = mlp.epochs[0]["lr"], mlp.epochs[-1]["lr"]
    told = read("docs/results.md")
    assert "its LR falls from {:.0f} to {:.1f} while the LSTM's is below 2 after five epochs".format(*lrs) in told
    assert all(line["lr"] < 2 for line in lstm.epochs[4:])
    assert f"it ends at {mlp.result['last']:.2f} instead of {lstm.result['last']:.2f}" in told
    assert mlp.result["last"] < min(mean(results(found)) for found in table.values())  # below every row of Table 3
    assert f"would be first, at {mlp.result['last']:.2f}" in told_about_algorithm_1()


def test_what_is_said_about_momentum_and_corruptions_is_recorded():
    told, plain, with_momentum = (
        read("docs/results.md"),
        *(column(f"{name}_short", "cifar-10") for name in ("table1", "table2")),
    )
    gains = {row: mean(results(found)) - mean(results(plain[row])) for row, found in with_momentum.items()}
    assert f"{gains['multistep']:.1f}" == f"{gains['exponential']:.1f}"
    assert f"momentum adds {gains['multistep']:.1f} points to MultiStep and to Exponential" in told
    assert f"it takes {-gains['fixed']:.1f} from Fixed and {-gains['sgdr']:.1f} from SGDR" in told
    for runs in (plain, with_momentum):
        best = {row: mean(results(runs[row], "best")) for row in with_momentum}
        assert max(best, key=best.get) == "sgdr"
    noise = column("table5_short", "cifar-10-c-gaussian-noise")
    below = noise["multistep"][0].result["last"] - noise["mlr-snet"][0].result["last"]
    assert f"we find it {below:.1f} points below MultiStep" in told


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
    told, runs = told_about_algorithm_1(), {run.name: run for run in paper.meta_trainings("sensitivity_short")}
    early, whole = sum(sum(run.falls[:5]) for run in runs.values()), [sum(run.falls) for run in runs.values()]
    assert f"of the eight trainings {early} of {5 * len(runs)} say" in told
    assert f"in all of their epochs {min(whole)} to {max(whole)} of 30" in told
    own_cell = [
        run for run in sorted(runs.values(), key=lambda run: run.travel) if run.name not in paper.OTHER_THAN_PACE
    ]
    ends = [run.last_lr for run in own_cell]
    assert len(ends) == 6
    assert ends == sorted(ends, reverse=True)
    assert f"from {ends[0]:.2f}, where it hardly moved, to {ends[-1]:.6f}" in told
    longer = paper.meta_trainings("table1_short")
    assert {run.updates for run in longer} == {runs["T_val 15"].updates}
    assert all(0.8 < run.last_lr / runs["T_val 15"].last_lr < 1.3 for run in longer)  # the three of 60 epochs
    assert f"With {runs['T_val 15'].updates / runs['T_val 100'].updates:.1f} times the updates" in told


def test_what_is_said_about_the_outcomes_of_algorithm_1_is_recorded():
    told, runs = told_about_algorithm_1(), {run.name: run for run in paper.meta_trainings("sensitivity_short")}
    near = [run for run in runs.values() if 0.1 < run.travel < 0.2]
    (cosine,) = paper.finished(paper.RESULTS / "horizon_short/cifar-10/cosine-0-1")
    below = [cosine.result["last"] - run.accuracy for run in near]
    falls = [run.first_lr / run.last_lr for run in near]
    assert f"falls by a factor of {min(falls):.0f} to {max(falls):.0f}, and" in told
    assert f"end {min(below):.1f} to {max(below):.1f} points below a cosine from 0.1" in told
    assert f"end at {runs['T_val 15'].accuracy:.0f} % and {runs['meta LR 0.01'].accuracy:.0f} %" in told
    for name in ("t-val-15", "meta-lr-0-01"):
        (run,) = paper.finished(paper.RESULTS / "sensitivity_short/cifar-10" / name)
        assert run.epochs[5]["lr"] < 0.004  # after six epochs
    theirs, own = runs["the authors' cell"], runs["T_val 100"]
    seeds = results(column("table1_short", "cifar-10")["mlr-snet"])
    for other in (theirs, runs["leaky"]):  # neither makes more than seeds do
        assert abs(other.accuracy - own.accuracy) < max(seeds) - min(seeds)
    assert f"begins at {theirs.first_lr:.2f} instead of {own.first_lr:.2f} and ends ten times above" in told
    assert 9.5 < theirs.last_lr / own.last_lr < 10.5
