"""Everything a document shows runs, and every number it gives stands in a record."""

import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

import pytest

from mlrsnet import cli, pretrained
from mlrsnet.lab import deciders, recipes
from mlrsnet.lab.report import read_report
from mlrsnet.lab.report.numbers import metric_stat

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "tools"))
import blocks as made  # noqa: E402  tables of documents, made from records
import universal  # noqa: E402  what the documents say about the default

WITHOUT_CODE = {"algorithm_1.md", "changes.md", "choosing.md", "method.md", "results.md"}
DOCUMENTS = made.DOCUMENTS


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_python_block_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for table in ("METHODS", "SCHEDULES"):  # documents register methods of their own
        monkeypatch.setattr(deciders, table, dict(getattr(deciders, table)))
    namespace = {}
    assert bool(blocks(path, "python")) == (path.name not in WITHOUT_CODE)
    for code in blocks(path, "python"):
        exec(compile(code, path.name, "exec"), namespace)


def test_the_documents_show_the_examples_themselves():
    assert blocks(ROOT / "README.md", "python")[0] == (ROOT / "examples" / "plain_loop.py").read_text()
    shown = blocks(ROOT / "docs" / "loops.md", "python")
    for name in ("timm_style", "soft_targets", "regression"):
        assert (ROOT / "examples" / f"{name}.py").read_text() in shown


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs(example, tmp_path):
    result = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "epoch 9" in result.stdout


def test_every_command_in_the_documents_is_one():
    lines = [line for path in DOCUMENTS for block in blocks(path, "sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    makefile = (ROOT / "Makefile").read_text()
    for words in commands:
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE), words
        else:
            assert words[0] == "mlrsnet"
            cli.parser().parse_args(words[1:])


def test_links_lead_somewhere():
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert target.startswith("http") or (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_costs_in_the_documents_are_the_recorded_ones():
    folder = ROOT / "results" / "step_overhead"
    cpu, gpu = (
        json.loads((folder / "cpu.json").read_text())["cpu"],
        json.loads((folder / "h200.json").read_text())["gpu"],
    )
    numbers = [
        f"{cpu['learned_us']:.0f} us",
        f"{100 * cpu['learned_over_training_step']:.1f} %",
        f"{gpu['added_to_training_step_us']:.1f} us added ({gpu['learned_alone_us']:.1f} us alone)",
        f"{100 * gpu['added_over_training_step']:.2f} %",
    ]
    for path in (ROOT / "README.md", ROOT / "docs" / "learned_lr.md"):
        for number in numbers:
            assert number in path.read_text(), f"{path.name} does not say {number}"


def test_the_time_for_everything_is_the_recorded_one():
    record = json.loads((ROOT / "results" / "reproduce_all" / "smoke.json").read_text())
    assert f"is {record['runs']} trainings and takes {record['seconds']:.0f} s" in (ROOT / "README.md").read_text()


def test_the_costs_of_meta_training_are_the_recorded_ones():
    folder = ROOT / "results" / "metatrain_overhead"
    cpu, gpu = (
        json.loads((folder / "cpu.json").read_text())["cpu"],
        json.loads((folder / "h200.json").read_text())["gpu"],
    )
    text = (ROOT / "docs" / "metatrain.md").read_text()
    cells = [
        f"| {cpu['every_100_over_plain']:.3f} | {cpu['meta_update_step_over_plain']:.2f} |",
        f"| {gpu['every_100_over_plain']:.3f} | {gpu['meta_update_step_over_plain']:.2f} "
        f"({gpu['meta_update_step_device_time_over_plain']:.2f} of the GPU's busy time) | "
        f"{gpu['meta_extra_in_copies_of_the_weights']:.1f} |",
        f"takes {gpu['textbook_step_over_plain']:.2f} plain steps",
        f"{gpu['textbook_extra_in_copies_of_the_weights']:.1f} copies",
    ]
    for cell in cells:
        assert cell in text, cell


def test_the_demo_table_is_the_recorded_one():
    record = json.loads((ROOT / "results" / "demo" / "demo.json").read_text())
    text = (ROOT / "README.md").read_text()
    for row in record["rows"]:
        lr = "-" if row["initial_lr"] is None else f"{row['initial_lr']:g}"
        name = ", ".join(filter(None, (row["schedule"], row["note"])))
        line = f"| {name} | {lr} | {row['test_accuracy']:.2f} ± {row['test_accuracy_std']:.2f} |"
        assert line in text, line


def test_the_demos_small_trainings_are_the_recorded_ones():
    record = json.loads((ROOT / "results" / "demo" / "horizon.json").read_text())
    text = (ROOT / "README.md").read_text()
    first, last, rivals = record["comparisons"][0], record["comparisons"][-1], record["rivals"]
    assert last["number"] == record["spec"]["generations"] == 200

    def difference(rival):
        each = [mine - other for mine, other in zip(last["learned"], rival, strict=True)]
        return f"{mean(each):+.4f} ± {stdev(each) / len(each) ** 0.5:.4f}"

    lines = [
        f"| Full horizon, nothing to choose | {mean(last['learned']):.4f} |",
        f"| the same before learning | {mean(first['learned']):.4f} | {difference(first['learned'])} |",
    ]
    for name, kind in (("cosine, 5 % warm-up", "cosine"), ("linear, 5 % warm-up", "linear"), ("fixed", "fixed")):
        place = rivals["grid"].index(rivals["tuned_lr"][kind])
        tuned, oracle = [row[place] for row in rivals["fitness"][kind]], list(map(min, rivals["fitness"][kind]))
        lines.append(f"| {name} | {mean(tuned):.4f} | {difference(tuned)} | {mean(oracle):.4f} |")
    for line in lines:
        assert line in text, line
    assert f"In {record['seconds']:.0f} seconds" in text


def test_the_objectives_in_the_documents_are_the_recorded_ones():
    rows = json.loads((ROOT / "results" / "horizon" / "greedy_against_horizon.json").read_text())["rows"]
    text = (ROOT / "docs" / "horizon.md").read_text()
    names = ["before learning", "the end of whole trainings", "the first quarter of trainings, four times as many"]
    for name, row in zip([*names, "one step ahead (Algorithm 1)"], rows, strict=True):
        lrs, gap = row["lrs"], 100 * row["gap to cosine, one LR chosen on these tasks"]
        curve = f"{lrs[0]:.2f}, {lrs[len(lrs) // 2]:.2f}, {lrs[-1]:.3f}"
        line = f"| {name} | {row['mean fitness']:.4f} | {gap:+.1f} % | {curve} |"
        assert line in text, line
    assert {row["gradients"] for row in rows[1:]} == {rows[1]["gradients"]}
    assert f"{rows[1]['gradients'] / 1e6:.1f} million gradients" in " ".join(text.split())


def test_the_costs_of_the_loop_are_the_recorded_ones():
    folder = ROOT / "results" / "loop"
    cpu, gpu = (json.loads((folder / f"{name}.json").read_text()) for name in ("cpu", "h200"))
    gpu, cpu = gpu["gpu"], cpu["cpu"]
    text = (ROOT / "docs" / "lab.md").read_text()
    rows = [
        f"| cosine, captured | {gpu['cosine_s']:.2f} | 1 |",
        f"| a learned schedule, captured | {gpu['learned_s']:.2f} | {gpu['learned_over_cosine']:.3f} |",
        f"T_val = 100 | {gpu['meta_training_s']:.2f} | {gpu['meta_training_over_cosine']:.3f} |",
        f"DataLoader, fp32 | {gpu['eager_fp32_s']:.2f} | {gpu['eager_fp32_over_cosine']:.2f} |",
        f"DataLoader, bf16 | {gpu['eager_bf16_s']:.2f} | {gpu['eager_bf16_over_cosine']:.2f} |",
        f"takes {gpu['meta_step_over_plain_step']:.2f} plain ones",
        f"takes {cpu['lab_over_bare']:.2f} times as long",
    ]
    for row in rows:
        assert row in text, row
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"takes {gpu['cosine_s']:.2f} s an epoch on an H200" in readme
    assert f"{gpu['fastest_eager_over_cosine']:.2f} times faster than a plain loop" in readme
    assert f"a learned schedule adds {100 * (gpu['learned_over_cosine'] - 1):.1f} %" in readme


@pytest.mark.parametrize(
    ("document", "run", "sentence"),
    [
        ("docs/lab.md", "cifar10_resnet18/cosine30-torch", "{:.2f} % with torch's"),
        ("docs/lab.md", "cifar10_resnet18/cosine30-he", "{:.2f} % with He's"),
    ],
)
def test_accuracies_in_the_documents_are_the_recorded_last_epochs(document, run, sentence):
    record = json.loads((ROOT / "results" / run / "record.json").read_text())
    assert record["status"] == "finished"
    text = " ".join((ROOT / document).read_text().split())
    assert sentence.format(record["result"]["last"]) in text
    assert f"results/{run}/record.json" in text


def test_tables_made_from_records_are_as_the_records_have_them_now():
    texts = {path: path.read_text() for path in DOCUMENTS}
    assert {name for text in texts.values() for name in made.BLOCK.findall(text)} == set(made.MAKERS)
    for path, text in texts.items():
        assert made.filled(text) == text, f"{path.name} is out of date: run docs/tools/blocks.py"
    assert made.everything() == made.REPORT.read_text(), "results/report.md is out of date: run docs/tools/blocks.py"


def test_the_readme_names_every_shipped_schedule():
    names = [file.name.removesuffix(pretrained.SUFFIX) for file in pretrained.SHIPPED.glob(f"*{pretrained.SUFFIX}")]
    (sentence,) = re.findall(
        r"Five schedules \[come with it\].*?\.\s", " ".join((ROOT / "README.md").read_text().split()) + " "
    )
    assert len(names) == 5
    assert all(f"`{name}`" in sentence for name in names)


def test_what_the_learned_schedule_reaches_on_resnet18_is_recorded():
    (table,) = read_report(ROOT / "results" / "horizon_short").sections[0].tables
    told = {row.name: metric_stat(row.stat("last")) for row in table.rows}
    lines = [
        f"| {kind.lower()} | {' | '.join(told[f'{kind} {lr:g}'] for lr in recipes.horizon.GRID)} |"
        for kind in ("Cosine", "Linear")
    ]
    for line in (*lines, f"| {told['Full horizon']}, no LR to choose |"):
        assert line in (ROOT / "docs" / "horizon.md").read_text(), line
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"to {told['Full horizon']} % in 30 epochs" in readme
    assert f"its {told['Cosine 1']} %, and has {told['Cosine 0.1']} % at the usual 0.1" in readme


def test_what_the_shipped_schedule_was_learned_from_is_recorded():
    record = json.loads((ROOT / "results" / "horizon" / "cifar10-patches.json").read_text())
    text = " ".join((ROOT / "docs" / "horizon.md").read_text().split())
    first, last = (mean(found["learned"]) for found in (record["comparisons"][0], record["comparisons"][-1]))
    assert f"{first:.4f} before learning and {last:.4f} after" in text
    assert f"in {record['seconds']:.0f} seconds" in text
    assert (
        f"{record['spec']['generations']} generations of {record['spec']['tasks'] * record['spec']['members']}" in text
    )
    shipped = pretrained.load("cifar10-patches")
    assert shipped.card.results["trainings it was not learned from"] == record["comparisons"][-1]["summary"]


def test_the_shipped_schedule_reads_the_loss_as_the_documents_say():
    shipped, text = pretrained.load("cifar10-patches"), " ".join((ROOT / "docs" / "horizon.md").read_text().split())
    curves = [shipped.simulate([part * math.log(10)] * 100, num_classes=10) for part in (2, 1, 0.1)]
    early, halfway = ([f"{curve[step]:.2f}" for curve in curves] for step in (5, 50))
    assert (
        "it gives {} where the loss is twice that of guessing, {} where it is that of guessing and {}".format(*early)
        in text
    )
    assert "halfway {}, {} and {}".format(*halfway) in text


@pytest.mark.parametrize("part", ["table", "more", "variants", "progress", "shortfalls", "validation", "ablations"])
def test_what_is_said_about_the_default_is_recorded(part):
    text = " ".join((ROOT / "docs" / "why_full_horizon.md").read_text().split())
    for line in universal.table(universal.MORE) if part == "more" else getattr(universal, part)():
        assert " ".join(line.split()) in text, line


def test_the_readmes_table_and_claims_about_the_default_are_recorded():
    columns = ("universal", "cosine, usual LR", "best decay of ten", "universal-relative")
    readme = (ROOT / "README.md").read_text()
    for line in universal.table(columns):
        assert line in readme, line
    rows = universal.outcomes().values()
    assert len(rows) == 8
    assert all(row["universal"].error < row["cosine, usual LR"].error for row in rows)  # better on all eight
    assert len(universal.shortfalls()) == 4  # at least as good as the best of ten on four
    worst = max(row["universal"].error / row["best decay of ten"].error for row in rows)
    assert f"{100 * (worst - 1):.0f} % worse on one" in readme
    for name in ("README.md", "docs/why_full_horizon.md"):
        assert "all eight" in (ROOT / name).read_text()


def test_what_the_default_was_learned_from_is_recorded():
    text = " ".join((ROOT / "docs" / "why_full_horizon.md").read_text().split())
    done, seconds = [], []
    for name in ("universal", "universal-relative"):
        record = json.loads((ROOT / "results" / "universal" / f"{name}.json").read_text())
        spec, shipped = record["spec"], pretrained.load(name)
        done.append(len(record["generations"]))
        seconds.append(f"{record['seconds']:.0f}")
        assert f"{done[-1]} generations of {spec['tasks']} tasks" in shipped.card.description
        assert shipped.card.results["trainings it was not learned from"] == record["comparisons"][-1]["summary"]
        assert shipped.card.gamma.value == spec["gamma"]
        assert spec["tasks"] * spec["members"] == 256
    assert "after {} and {} seconds, at {} and {} of".format(*seconds, *done) in text
    assert f"of {spec['generations']} generations" in text


def test_the_default_reads_the_loss_as_the_documents_say():
    shipped, text = pretrained.load("universal"), " ".join((ROOT / "docs" / "why_full_horizon.md").read_text().split())
    halfway = [
        shipped.simulate([part * math.log(10)] * 100, shipped.card.gamma.value, num_classes=10)[50]
        for part in (2, 1, 0.6, 0.1)
    ]
    told = "{:.2f} where the loss is twice that of guessing, {:.2f} where it is that of guessing, {:.2f} at 0.6 of it and {:.2f}"
    assert told.format(*halfway) in text


def test_the_default_on_resnet18_is_recorded():
    text = " ".join((ROOT / "docs" / "why_full_horizon.md").read_text().split())
    runs = universal.RESNET / "cifar-10-resnet-18-sgd"
    large = [universal.outcome(runs / name) for name in ("cosine-30x", "linear-30x")]
    assert "at an LR of 3 they end at {} % and {} %".format(*large) in text
    row = universal.outcomes()[universal.RESNET_TASK]
    margin = mean(row["best decay of ten"].values) - mean(row["universal"].values)
    assert f"below the best decay by {margin:.2f} points" in text
    trace = json.loads((runs / "universal" / "seed0" / "trace.json").read_text())
    late = next(
        lr for step, lr in zip(trace["step"], trace["lr"], strict=True) if step >= 0.9 * (trace["step"][-1] + 1)
    )
    assert f"still at {late:.2f} after 90 %" in text


def test_the_cost_of_populations_is_the_recorded_one():
    record = json.loads((ROOT / "results" / "horizon" / "speed-h200.json").read_text())
    text = (ROOT / "docs" / "horizon.md").read_text()
    for line in record["populations"]:
        numbers = f"{line['steps_per_second']:.0f} | {line['over_one_by_one']:.0f} times | {line['peak_mib']:.0f}"
        assert line["precision"] == "bf16" or f"| {line['trainings']} | {numbers} |" in text
    fp32, bf16 = (line["steps_per_second"] for line in record["populations"] if line["trainings"] == 128)
    assert f"bf16 adds {100 * (bf16 / fp32 - 1):.0f} % at 128" in text
