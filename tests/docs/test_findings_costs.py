"""Costs, and the small numbers that documents give, stand in records."""

import json
from statistics import mean, stdev

import pytest
from told import ROOT, read


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
    readme = read("README.md")
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
    text = read(document)
    assert sentence.format(record["result"]["last"]) in text
    assert f"results/{run}/record.json" in text


def test_the_cost_of_populations_is_the_recorded_one():
    record = json.loads((ROOT / "results" / "horizon" / "speed-h200.json").read_text())
    text = (ROOT / "docs" / "horizon.md").read_text()
    for line in record["populations"]:
        numbers = f"{line['steps_per_second']:.0f} | {line['over_one_by_one']:.0f} times | {line['peak_mib']:.0f}"
        assert line["precision"] == "bf16" or f"| {line['trainings']} | {numbers} |" in text
    fp32, bf16 = (line["steps_per_second"] for line in record["populations"] if line["trainings"] == 128)
    assert f"bf16 adds {100 * (bf16 / fp32 - 1):.0f} % at 128" in text
