"""The report, on folders made by hand: `leave_run` writes what a run would."""

import base64
import json
import math
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from mlrsnet import Schedule
from mlrsnet.nets import LSTMNet
from mlrsnet_lab import records
from mlrsnet_lab.report import read_report, write_report
from mlrsnet_lab.report.gather import gather
from mlrsnet_lab.report.layout import describe
from mlrsnet_lab.report.pictures import Line, Panel, limits, meta_training, training
from mlrsnet_lab.report.runs import over_seeds
from mlrsnet_lab.report.styles import COLOURS, Style, styles
from mlrsnet_lab.report.tables import Report, Table, build
from mlrsnet_lab.settings import Settings

ACCURACY = {"name": "accuracy", "unit": "%", "better": "higher"}
PERPLEXITY = {"name": "perplexity", "unit": "", "better": "lower"}
STEPS = 50


def leave_run(
    folder: Path,
    *,
    row: str | None = None,
    column: str = "CIFAR-10",
    scale: str = "short",
    status: str = "finished",
    epochs: int = 6,
    until: int | None = None,
    last: float | None = 90.0,
    best: float | None = None,
    learned: bool = False,
    metric: dict = ACCURACY,
    spec: dict | None = None,
    **more: object,
) -> Path:
    until = epochs if until is None else until
    shape = 1 - np.exp(-3 * np.arange(1, until + 1) / epochs)
    lines = [
        {
            "epoch": epoch,
            "step": epoch * STEPS,
            "train_loss": 2 * math.exp(-epoch / 2),
            "lr": 0.1,
            "test_loss": 1.0,
            "test_metric": 80 * float(shape[epoch - 1]),
            "seconds": 1.5,
            **({"gamma": 0.5, "hypergradient": -0.01 * epoch} if learned else {}),
        }
        for epoch in range(1, until + 1)
    ]
    steps = np.linspace(0, until * STEPS - 1, 40).astype(int)
    result = {
        "epoch": until,
        "last": last,
        "best": last if best is None else best,
        "best_epoch": 1,
        "train_loss": 0.0123,
    }
    data = {
        "format": 1,
        "status": status,
        "spec": {
            "task": "cifar10",
            "model": "resnet18",
            "optimizer": "sgd",
            "schedule": "learned" if learned else "multistep",
            "epochs": epochs,
            "batch_size": 128,
            "lr": 0.1,
            "seed": 0,
            "schedule_options": {},
            **(spec or {}),
        },
        "labels": {} if row is None else {"recipe": "table1", "scale": scale, "row": row, "column": column},
        "versions": {"mlrsnet": "0.1.0", "torch": "2.15.0"},
        "device": "NVIDIA H200",
        "commit": "0123456789ab",
        "metric": metric,
        "task": {"note": ""},
        "steps_per_epoch": STEPS,
        "result": result if until else {},
        "timing": {"started": "2026-11-15T12:00:00+00:00", "seconds_per_epoch": 1.5},
        **more,
    }
    trace = (
        {"step": steps.tolist(), "loss": [1.0] * 40, "lr": (0.1 * (1 - steps / steps.max())).tolist()} if until else {}
    )
    records.write(records.Record(data, lines, trace, folder))
    (folder / records.COPY).unlink()  # tests change the files by hand
    return folder


def leave_recipe(folder: Path, rows: list[str], scale: str = "short", **more: object) -> None:
    cells = [{"row": row, "column": "CIFAR-10", "paper": [92.26, 0.12], "missing": None} for row in rows]
    data = {
        "format": 1,
        "name": "table1",
        "title": "Table 1",
        "scale": scale,
        "claim": "It is best.",
        "notes": ["A note."],
    }
    data |= {"seeds": [0, 1, 2], "cells": cells, **more}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.json").write_text(json.dumps(data))


def leave_seeds(folder: Path, row: str, lasts: list[float], **more: object) -> None:
    for seed, last in enumerate(lasts):
        leave_run(folder / f"{row}-{seed}", row=row, last=last, spec={"seed": seed}, **more)


def read(folder: Path) -> Report:
    return build(gather(folder))


def only_table(folder: Path) -> Table:
    (section,) = read(folder).sections
    (table,) = section.tables
    return table


def texts(folder: Path) -> tuple[str, str]:
    html, markdown = write_report(folder)
    return html.read_text(), markdown.read_text()


def line_of(markdown: str, row: str) -> list[str]:
    (line,) = [line for line in markdown.splitlines() if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


@dataclass
class Balance(HTMLParser):
    """Refuses what is not closed in order; collects elements and text."""

    open: list[str] = field(default_factory=list)
    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: str = ""

    def __post_init__(self):
        super().__init__()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def parse(html: str) -> Balance:
    page = Balance()
    page.feed(html)
    page.close()
    assert page.open == []
    return page


def test_means_and_spread_are_those_of_the_seeds(tmp_path):
    leave_recipe(tmp_path, ["Fixed", "MLR-SNet"])
    leave_seeds(tmp_path, "Fixed", [90.0, 91.0, 93.5], best=94.0)
    leave_seeds(tmp_path, "MLR-SNet", [95.0, 95.1, 95.2])
    html, markdown = texts(tmp_path)
    # mean 91.5; squares of the deviations 2.25 + 0.25 + 4 = 6.5; 6.5 / 2 = 3.25; its root 1.803
    assert line_of(markdown, "Fixed") == [
        "Fixed", "91.50 ± 1.80", "94.00 ± 0.00", "92.26 ± 0.12", "3", "0.0123", "1.50"
    ]  # fmt: skip
    assert line_of(markdown, "MLR-SNet")[1] == "**95.10 ± 0.10**"
    assert "91.50 ± 1.80" in html
    assert "<b>95.10 ± 0.10</b>" in html


def test_one_seed_claims_no_spread_and_one_row_no_victory(tmp_path):
    leave_recipe(tmp_path, ["Fixed", "MultiStep"])
    leave_run(tmp_path / "a", row="Fixed", last=90.0)
    _, markdown = texts(tmp_path)
    assert line_of(markdown, "Fixed")[1:5] == ["90.00", "90.00", "92.26 ± 0.12", "1 of 3"]
    assert "- MultiStep: not run" in markdown


def test_a_row_that_was_planned_with_fewer_seeds_is_not_called_incomplete(tmp_path):
    cells = [
        {"row": row, "column": "CIFAR-10", "seeds": seeds} for row, seeds in (("Slow", 1), ("Half", 2), ("Old", None))
    ]
    leave_recipe(tmp_path, [], cells=[*cells, {"row": "Older", "column": "CIFAR-10"}])
    for row in ("Slow", "Half", "Old", "Older"):
        leave_run(tmp_path / row, row=row)
    assert [row.seeds for row in only_table(tmp_path).rows] == ["1", "1 of 2", "1 of 3", "1 of 3"]
    leave_run(tmp_path / "more", row="Slow", spec={"seed": 1})  # asked for by hand
    leave_run(tmp_path / "open", row="Half", spec={"seed": 1}, status="running")
    assert [row.seeds for row in only_table(tmp_path).rows][:2] == ["2", "1 of 2"]
    leave_recipe(tmp_path, [], cells=cells, seeds=[0])
    assert [row.seeds for row in only_table(tmp_path).rows][1:] == ["1 of 2", "1", "1"]


@pytest.mark.parametrize("seeds", ["2", 0, -1, 1.5, True, [1]])
def test_an_odd_number_of_seeds_does_not_cost_the_report(tmp_path, seeds):
    leave_recipe(tmp_path, [], cells=[{"row": "Fixed", "column": "CIFAR-10", "seeds": seeds}])
    leave_run(tmp_path / "a", row="Fixed")
    assert line_of(texts(tmp_path)[1], "Fixed")[-3] == "1 of 3"


def test_a_column_without_runs_does_not_say_what_it_measures(tmp_path):
    leave_recipe(
        tmp_path, ["MultiStep"], cells=[{"row": "MultiStep", "column": column} for column in ("CIFAR-10", "Text")]
    )
    leave_run(tmp_path / "a", row="MultiStep")
    tables = read(tmp_path).sections[0].tables
    assert [describe(table).split(",")[0] for table in tables] == ["Test accuracy (%)", "Not run."]


def test_records_of_before_a_setting_was_there_count_with_those_of_after(tmp_path):
    leave_recipe(tmp_path, ["MultiStep"])
    leave_run(tmp_path / "old", row="MultiStep", last=92.0)
    leave_run(tmp_path / "new", row="MultiStep", last=93.0, spec={"seed": 1, "rays": 0})
    leave_run(tmp_path / "other", row="MultiStep", last=94.0, spec={"seed": 2, "rays": 5})
    assert [(row.name, len(row.runs)) for row in only_table(tmp_path).rows] == [
        ("MultiStep (rays 0)", 2),
        ("MultiStep (rays 5)", 1),
    ]


@pytest.mark.parametrize("scale", ["paper", "short"])
def test_a_difference_to_the_paper_is_shown_only_at_its_scale(tmp_path, scale):
    leave_recipe(tmp_path, ["Fixed"], scale=scale)
    leave_seeds(tmp_path, "Fixed", [92.0, 92.0, 92.0], scale=scale)
    html, markdown = texts(tmp_path)
    comparable = scale == "paper"
    assert ("-0.26" in markdown) is comparable
    assert ("-0.26" in html) is comparable
    for text in (html, markdown):
        assert ("paper (at another scale)" in text) is not comparable
        assert ("not at the paper" in text) is not comparable


def test_runs_of_another_scale_in_the_same_folder_are_not_averaged_with_it(tmp_path):
    leave_recipe(tmp_path, ["Fixed"], scale="paper")
    leave_run(tmp_path / "a", row="Fixed", scale="paper", last=92.0)
    leave_run(tmp_path / "b", row="Fixed", scale="smoke", last=10.0)
    by_scale = {section.scale: section.tables[0].rows[0].stat("last").mean for section in read(tmp_path).sections}
    assert by_scale == {"paper": 92.0, "smoke": 10.0}


def test_runs_of_other_settings_under_one_label_are_kept_apart(tmp_path):
    leave_run(tmp_path / "a", row="Fixed", spec={"schedule_options": {"schedule": "a", "scale": 1.0}})
    leave_run(tmp_path / "b", row="Fixed", spec={"schedule_options": {"schedule": "b", "scale": 1.0}, "seed": 1})
    leave_run(tmp_path / "c", row="Fixed", spec={"schedule_options": {"schedule": "a", "scale": 2.0}})
    rows = {row.name: len(row.runs) for row in only_table(tmp_path).rows}
    assert rows == {"Fixed (scale 1)": 2, "Fixed (scale 2)": 1}  # a schedule a seed is no other setting


def test_unfinished_runs_are_listed_and_not_averaged(tmp_path):
    leave_recipe(tmp_path, ["Fixed"])
    leave_run(tmp_path / "0", row="Fixed", last=90.0)
    leave_run(tmp_path / "1", row="Fixed", last=50.0, until=2, status="running", spec={"seed": 1})
    leave_run(tmp_path / "2", row="Fixed", last=50.0, until=3, status="interrupted", spec={"seed": 2})
    leave_run(tmp_path / "3", row="Fixed", until=0, status="running", spec={"seed": 3}, result=None, metric=None)
    html, markdown = texts(tmp_path)
    assert line_of(markdown, "Fixed")[1] == "90.00"
    assert line_of(markdown, "Fixed")[4] == "1 of 4"
    for text in (parse(html).text, markdown):
        assert "seed 1: epoch 2 of 6, running" in text
        assert "seed 2: epoch 3 of 6, interrupted" in text
        assert "seed 3: epoch 0 of 6, running" in text


def test_failed_runs_say_why_once_for_all_their_seeds(tmp_path):
    error = "Traceback\n  File x\nRuntimeError: out of memory"
    for seed in range(2):
        leave_run(tmp_path / str(seed), row="Fixed", status="failed", until=1, spec={"seed": seed}, error=error)
    html, markdown = texts(tmp_path)
    assert "- Fixed: seeds 0, 1: failed: RuntimeError: out of memory (epoch 1 of 6)" in markdown
    assert error in parse(html).text


def test_a_diverged_run_is_marked_and_never_makes_its_row_the_best(tmp_path):
    leave_run(tmp_path / "0", row="Fixed", last=99.0)
    leave_run(tmp_path / "1", row="Fixed", last=None, best=None, status="diverged", until=2, spec={"seed": 1})
    leave_run(tmp_path / "2", row="MultiStep", last=91.0)
    leave_run(tmp_path / "5", row="SGDR", last=85.0)
    leave_run(tmp_path / "3", row="Exponential", last=80.0)
    leave_run(tmp_path / "4", row="Exponential", last=10.0, status="diverged", until=3, spec={"seed": 1})
    _, markdown = texts(tmp_path)
    assert line_of(markdown, "Fixed")[1] == "99.00"
    assert line_of(markdown, "MultiStep")[1] == "**91.00**"
    assert line_of(markdown, "Exponential")[1].startswith("45.00 ±")
    assert "- Fixed: seed 1: diverged at epoch 2 of 6, no number, so not in the mean" in markdown
    assert "- Exponential: seed 1: diverged at epoch 3 of 6, in the mean" in markdown


def test_rows_we_cannot_run_say_why(tmp_path):
    cells = [{"row": "L4", "column": "CIFAR-10", "paper": [89.15, 0.14], "missing": "not implemented"}]
    leave_recipe(tmp_path, ["L4", "Fixed"], cells=cells)
    leave_run(tmp_path / "a", row="Fixed")
    html, markdown = texts(tmp_path)
    assert "- L4: not run: not implemented" in markdown
    assert "not run: not implemented" in html
    assert line_of(markdown, "L4")[3] == "89.15 ± 0.14"


def test_loose_runs_are_grouped_by_all_but_the_seed_and_named_by_what_differs(tmp_path):
    for seed in range(2):
        leave_run(tmp_path / f"a{seed}", spec={"schedule": "cosine", "seed": seed})
        leave_run(tmp_path / f"b{seed}", spec={"schedule": "cosine", "lr": 0.5, "seed": seed})
        leave_run(tmp_path / f"c{seed}", spec={"schedule": "step", "schedule_options": {"every": 30}, "seed": seed})
    table = only_table(tmp_path)
    assert table.title == "cifar10, resnet18"
    assert {row.name: len(row.runs) for row in table.rows} == {
        "cosine, lr 0.1": 2,
        "cosine, lr 0.5": 2,
        "step, lr 0.1, every 30": 2,
    }


def test_a_single_loose_run_has_a_telling_name(tmp_path):
    leave_run(tmp_path / "a", spec={"schedule": "cosine"})
    assert [row.name for row in only_table(tmp_path).rows] == ["cosine, sgd, lr 0.1"]
    assert "<nav" not in texts(tmp_path)[0]


def test_loose_runs_are_named_by_settings_of_their_own_only(tmp_path):
    leave_run(tmp_path / "a", spec={"schedule": "cosine", "lr": 0.5})
    leave_run(tmp_path / "b", spec={"schedule": "learned", "schedule_options": {"schedule": "mine.safetensors"}})
    leave_run(tmp_path / "c", spec={"schedule": "learned", "seed": 1})
    leave_run(tmp_path / "d", spec={"schedule": "learned", "lr": 0.3, "schedule_options": {"schedule": "universal"}})
    leave_run(tmp_path / "e", spec={"schedule": "l4"})
    leave_run(tmp_path / "f", spec={"schedule": "rtho"})
    leave_run(tmp_path / "g", spec={"schedule": "hd", "schedule_options": {"hyper_lr": 1e-5}})
    assert {row.name: len(row.runs) for row in only_table(tmp_path).rows} == {
        "cosine, lr 0.5": 1,
        "learned, schedule mine.safetensors": 1,
        "learned, schedule universal": 2,
        "l4": 1,
        "rtho, lr 0.1, hyper_lr 0.001": 1,
        "hd, lr 0.1, hyper_lr 1e-05": 1,
    }


def test_trials_show_the_validation_result_that_made_the_choice(tmp_path):
    leave_recipe(tmp_path, ["HD"])
    column = f"CIFAR-10: hyper_lr of HD, {records.CHOSEN}"
    for value, val, test in ((0.001, 85.0, 80.0), (0.0001, 84.0, 90.0)):
        folder = leave_run(tmp_path / f"{value}", row=f"HD, hyper_lr {value:g}", column=column, last=test)
        data = records.read(folder).data
        data["result"]["val_metric"] = val
        (folder / records.RECORD).write_text(json.dumps(data))
    html, markdown = texts(tmp_path)
    assert "| schedule | validation | test, last epoch | test, best epoch | seeds |" in markdown
    assert line_of(markdown, "HD, hyper\\_lr 0.001")[1:5] == ["**85.00**", "80.00", "80.00", "1"]
    assert line_of(markdown, "HD, hyper\\_lr 0.0001")[1:5] == ["84.00", "90.00", "90.00", "1"]
    assert "<b>85.00</b>" in html
    assert "<b>90.00</b>" not in html


def test_lower_perplexity_wins(tmp_path):
    leave_run(tmp_path / "a", row="Fixed", last=120.5, metric=PERPLEXITY)
    leave_run(tmp_path / "b", row="SGDR", last=80.25, metric=PERPLEXITY)
    html, markdown = texts(tmp_path)
    assert line_of(markdown, "SGDR")[1] == "**80.25**"
    assert "Test perplexity, lower is better" in markdown
    assert "test perplexity" in parse(html).text


def test_tasks_with_made_up_data_say_so(tmp_path):
    leave_run(tmp_path / "a", task={"note": "made-up pictures"})
    assert all("made-up pictures" in text for text in texts(tmp_path))


def test_one_bad_folder_does_not_cost_the_report(tmp_path):
    leave_run(tmp_path / "good", row="Fixed", last=90.0)
    bad = {
        "empty": "",
        "cut": '{"format": 1, "sta',
        "list": "[1, 2]",
        "future": '{"format": 9, "status": "finished", "spec": {}}',
        "spec": '{"format": 1, "status": "finished", "spec": 3}',
        "deep": "[" * 100_000,
    }
    for name, text in bad.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(text)
    (tmp_path / "recipe.json").write_text("{")
    html, markdown = texts(tmp_path)
    assert [place for place, _ in read(tmp_path).unreadable] == sorted([*bad, "recipe.json"])
    assert line_of(markdown, "Fixed")[1] == "90.00"
    assert all("Could not be read" in text for text in (html, markdown))
    assert str(tmp_path) not in html + markdown


def test_odd_values_in_a_record_do_not_cost_the_report(tmp_path):
    odd = {
        "labels": 3,
        "metric": "x",
        "task": [],
        "timing": "?",
        "versions": None,
        "device": None,
        "commit": 7,
        "error": 1,
    }
    folder = leave_run(tmp_path / "a", steps_per_epoch=0, result={"last": 1e308, "best": "x"}, **odd)
    (folder / "trace.json").write_text('{"step": "x", "lr": {}}')
    (folder / "epochs.jsonl").write_text('7\n{"epoch": "x"}\n{"epoch": 1, "train_loss": 1e308, "test_metric": NaN}\n')
    leave_run(tmp_path / "b", result={"last": -1e308}, spec={"seed": 1}, labels=3, metric="x")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "record.json").write_text('{"format": 1, "status": "running", "spec": {}}')
    html, _ = texts(tmp_path)
    assert parse(html).text.count("seed 1") == 1
    assert read(tmp_path).unreadable == []


def test_the_networks_of_a_meta_training_are_drawn_alone(tmp_path):
    folder = leave_run(tmp_path / "a", row="MLR-SNet", learned=True)
    Schedule([LSTMNet(8) for _ in range(4)]).save(folder / "schedule.safetensors")
    (table,) = read(tmp_path).sections[0].tables
    (row,) = table.rows
    lines = row.runs[0].alone()
    assert len(lines) == 4
    for steps, factors in lines:
        assert abs(factors[-1] - factors[-2]) < 1e-3 * factors[-1] < abs(factors[1] - factors[0]) * 1e3  # it settles
        assert len(steps) > 100
    assert "each network of MLR-SNet alone" in texts(tmp_path)[0]


def test_odd_values_in_a_study_do_not_cost_the_report(tmp_path):
    odd = {
        "title": "Odd <b>",
        "notes": 3,
        "grids": [3, {"title": "t"}, {"title": "One", "columns": ["a", 2], "rows": [[1], 5, [None, "x|y"]]}],
        "figures": [
            "x",
            {"lines": {"none": 3, "cut": [[1, 2], [0.5]], "below": [[1], [-1]], "infinite": [[1], [None]]}},
        ],
    }
    (tmp_path / "study.json").write_text(json.dumps(odd))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "study.json").write_text("{}")
    html, markdown = texts(tmp_path)
    assert "Odd &lt;b&gt;" in html
    assert "| - | x\\|y |" in markdown
    assert html.count("<img") == 1
    (place, reason), *_ = read(tmp_path).unreadable
    assert place == "bad/study.json"
    assert "has no name" in reason


def test_a_run_can_be_reported_while_its_epochs_are_being_written(tmp_path):
    folder = leave_run(tmp_path / "a", row="Fixed", until=3, status="running")
    whole = (folder / "epochs.jsonl").read_text()
    (folder / "epochs.jsonl").write_text(whole[:-20])
    (run,) = only_table(tmp_path).runs
    assert list(run.lines) == [1, 2]
    (folder / "epochs.jsonl").write_text(whole.rstrip("\n"))
    assert len(records.read(folder).epochs) == 3


def test_a_damaged_line_before_the_last_is_not_passed_over(tmp_path):
    folder = leave_run(tmp_path / "a")
    lines = (folder / "epochs.jsonl").read_text().splitlines(keepends=True)
    (folder / "epochs.jsonl").write_text("".join([lines[0], lines[1][:9] + "\n", *lines[2:]]))
    with pytest.raises(ValueError, match=r"cannot be read .*: restore it"):
        records.read(folder)


def test_names_from_files_cannot_become_markup(tmp_path):
    evil = '<script>alert("1")</script> & | *x*'
    cells = [{"row": evil, "column": evil, "paper": [1, 2], "missing": evil}]
    leave_recipe(tmp_path / "r", [evil], cells=cells, title=evil, claim=evil, notes=[evil])
    more = {"device": evil, "commit": evil, "versions": {evil: evil}, "error": evil, "task": {"note": evil}}
    leave_run(tmp_path / "r" / "a", row=evil, column=evil, spec={"seed": evil, "model": evil}, status="failed", **more)
    leave_run(tmp_path / "loose", spec={"schedule": evil}, metric={"name": evil, "unit": evil, "better": "lower"})
    html, markdown = texts(tmp_path)
    page = parse(html)
    assert "script" not in {tag for tag, _ in page.elements}
    assert page.text.count(evil) > 10
    assert "<script>" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|") and "script" in line]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {
        5,
        7,
    }  # the failed run has no numbers to fill columns with


def test_the_page_needs_nothing_but_itself(tmp_path):
    leave_run(tmp_path / "a", row="MLR-SNet", learned=True)
    html, _ = texts(tmp_path)
    page = parse(html)
    targets = [str(value) for _, attrs in page.elements for key, value in attrs.items() if key in ("src", "href")]
    assert len(targets) == 5  # loss, accuracy, LR; gamma and hypergradient
    assert all(target.startswith(("data:image/", "#")) for target in targets)
    assert not re.search(r"@import|url\(|<link|<script|https?://", html)
    images = [attrs for tag, attrs in page.elements if tag == "img"]
    assert all("MLR-SNet" in str(attrs["alt"]) for attrs in images)
    pictures = [base64.b64decode(target.partition(",")[2]) for target in targets]
    assert all(picture.startswith((b"<?xml", b"\x89PNG")) for picture in pictures)


def test_every_link_of_the_contents_leads_somewhere(tmp_path):
    for name in ("table1", "table10", "table2"):
        leave_recipe(tmp_path / name, ["Fixed"], name=name, title=f"The {name}")
        labels = {"recipe": name, "scale": "short", "row": "Fixed", "column": "CIFAR-10"}
        leave_run(tmp_path / name / "run", labels=labels)
    leave_run(tmp_path / "loose")
    html, _ = texts(tmp_path)
    page = parse(html)
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    links = [str(attrs["href"])[1:] for tag, attrs in page.elements if tag == "a"]
    assert links == ids
    assert len(set(ids)) == len(ids) == 8
    assert [section.title for section in read(tmp_path).sections] == [
        "The table1", "The table2", "The table10", "Other runs"
    ]  # fmt: skip


def test_the_header_says_what_the_numbers_come_from(tmp_path):
    leave_run(tmp_path / "a")
    leave_run(
        tmp_path / "b", status="running", device="CPU, 2 threads", timing={"started": "2026-11-16T01:30:00+02:00"}
    )
    assert read(tmp_path).facts == {
        "runs": "2: 1 finished, 1 running",
        "newest": "2026-11-15 23:30 UTC",
        "device": "NVIDIA H200; CPU, 2 threads",
        "versions": "mlrsnet 0.1.0, torch 2.15.0",
        "commit": "0123456789ab",
    }
    text = parse(texts(tmp_path)[0]).text
    assert all(fact in text for fact in read(tmp_path).facts.values())
    assert "Nothing was selected on test data" in text


def test_the_same_runs_give_the_same_bytes_wherever_they_lie(tmp_path):
    for place in ("one", "two"):
        root = tmp_path / place / "runs"
        leave_recipe(root, ["Fixed", "MLR-SNet"])
        leave_seeds(root, "Fixed", [90.0, 91.0])
        leave_seeds(root, "MLR-SNet", [92.0, 93.0], learned=True)
        (root / "bad").mkdir()
        (root / "bad" / "record.json").write_text("{")
    first, second = (texts(tmp_path / place / "runs") for place in ("one", "two"))
    assert first == second
    assert texts(tmp_path / "one" / "runs") == first


def test_a_large_table_stays_a_page_that_can_be_mailed(tmp_path):
    rng = np.random.default_rng(0)
    for row in range(10):
        for seed in range(3):
            folder = leave_run(tmp_path / f"{row}-{seed}", row=f"row {row}", epochs=200, spec={"seed": seed})
            steps = np.linspace(0, 200 * STEPS, 1000)
            trace = {"step": steps.tolist(), "lr": (0.1 * rng.random(1000)).tolist()}
            (folder / "trace.json").write_text(json.dumps(trace))
    html, _ = write_report(tmp_path)
    assert html.stat().st_size < 1_500_000
    assert "image/png" in html.read_text()  # noise is smaller so


def test_an_empty_folder_says_what_to_pass_instead(tmp_path):
    with pytest.raises(ValueError, match=r"there is no run below .*: pass a folder that"):
        write_report(tmp_path)
    with pytest.raises(ValueError, match="there is no folder"):
        write_report(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_the_report_can_be_written_elsewhere(tmp_path):
    leave_run(tmp_path / "runs" / "a")
    out = tmp_path / "new" / "place"
    assert write_report(tmp_path / "runs", out) == (out / "report.html", out / "report.md")
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "report.md"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


def test_curves_are_means_over_the_seeds_that_came_that_far():
    epochs = np.array([1.0, 2.0, 3.0])
    curve = over_seeds([(epochs, np.array([1.0, 2.0, 3.0])), (epochs[:2], np.array([3.0, 6.0])), (epochs[:0],) * 2])
    assert curve is not None
    np.testing.assert_array_equal(curve.x, epochs)
    np.testing.assert_array_equal(curve.mean, [2, 4, 3])
    np.testing.assert_array_equal(curve.low, [1, 2, 3])
    np.testing.assert_array_equal(curve.high, [3, 6, 3])
    assert over_seeds([(epochs[:0], epochs[:0])]) is None


def test_lr_is_drawn_over_epochs_from_the_steps(tmp_path):
    leave_run(tmp_path / "a", epochs=6)
    (run,) = only_table(tmp_path).runs
    x, y = run.lr()
    assert x[-1] == pytest.approx((6 * STEPS - 1) / STEPS)
    assert (y[0], y[-1]) == (0.1, 0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.0, 0.0, 0.0], (0.1, 1.0)), ([0.0, 0.1, 0.1], (0.0909, 0.11)), ([1e-9, 1.0, 1.0], (7.08e-4, 1.41))],
)
def test_zeros_and_vanishing_rates_leave_a_readable_log_axis(values, expected):
    curve = over_seeds([(np.arange(3.0), np.array(values))])
    assert curve is not None
    assert limits(Panel("LR", [Line("a", Style("#000"), curve)])) == pytest.approx(expected, rel=0.01)


def test_a_colour_means_the_same_row_in_every_picture(tmp_path):
    for row in ("Fixed", "MultiStep", "MLR-SNet", "MLR-SNet (MLP)"):
        for column in ("CIFAR-10", "CIFAR-100"):
            if (row, column) != ("Fixed", "CIFAR-100"):
                leave_run(tmp_path / row / column, row=row, column=column)
    (section,) = read(tmp_path).sections
    looks = styles(table.rows for table in section.tables)
    assert (looks["Fixed"].colour, looks["MultiStep"].colour) == COLOURS[:2]
    black = [looks["MLR-SNet"], looks["MLR-SNet (MLP)"]]
    assert {look.colour for look in black} == {"#000000"}
    assert black[0].dashes != black[1].dashes
    assert black[0].width > looks["Fixed"].width
    orange = COLOURS[1].lower().encode()
    assert all(orange in picture.data.lower() for picture in training(section.tables[1], looks))


def test_more_rows_than_colours_are_told_apart_by_dashes(tmp_path):
    for row in range(2 * len(COLOURS)):
        leave_run(tmp_path / str(row), row=f"row {row}")
    looks = styles([only_table(tmp_path).rows])
    assert len(set(looks.values())) == 2 * len(COLOURS)


def test_many_learned_rows_are_told_apart(tmp_path):
    names = [f"MLR-SNet {number}" for number in range(8)]
    for name in (*names, "Fixed"):
        leave_run(tmp_path / name, row=name)
    looks = styles([only_table(tmp_path).rows])
    assert len(set(looks.values())) == 9
    assert all(looks[name].width > looks["Fixed"].width for name in names)
    assert all(
        looks[name].dashes for name in names if looks[name].colour != "#000000"
    )  # a thin full line is another row


def test_a_note_on_the_data_of_some_rows_names_them(tmp_path):
    for row, note in {"Fixed": "", "MLR-SNet": "leaky", "Theirs": "leaky"}.items():
        leave_run(tmp_path / row, row=row, task={"note": note})
    assert only_table(tmp_path).notes == ["MLR-SNet, Theirs: leaky"]


def test_names_that_never_meet_do_not_use_up_colours(tmp_path):
    for row in range(len(COLOURS)):
        leave_run(tmp_path / str(row), row=f"row {row}")
    leave_run(tmp_path / "loose", spec={"schedule": "cosine"})
    looks = styles(table.rows for section in read(tmp_path).sections for table in section.tables)
    assert looks["cosine, sgd, lr 0.1"] == looks["row 0"]
    assert all(not look.dashes for look in looks.values())


def test_the_report_does_not_load_what_trains():
    code = "import sys, mlrsnet_lab.report; print([name for name in sys.modules if name.startswith('mlrsnet_lab.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    named = {"methods", "optimizers", "baselines", "options"}  # which options a schedule has, and what they are
    assert set(re.findall(r"mlrsnet_lab\.(\w+)", loaded)) == {"checks", "records", "report", "sheets", *named}


def test_what_each_learned_network_says_alone_is_drawn(tmp_path):
    from mlrsnet_lab.loop import run
    from mlrsnet_lab.spec import RunSpec

    options = {"every": 5, "num_phases": 4}
    spec = RunSpec(task="digits", model="mlp", epochs=2, schedule="mlr-snet", schedule_options=options)
    run(spec, tmp_path / "a", Settings(device="cpu"))
    (found,) = read_report(tmp_path).runs
    curves = found.alone()
    assert len(curves) == 4
    assert all(len(x) == 200 and 0 < y.min() <= y.max() < 1 for x, y in curves)
    page, _ = write_report(tmp_path)
    assert "alone, LR / gamma at a loss of 5" in page.read_text()
    (tmp_path / "a" / "schedule.safetensors").write_bytes(b"damaged")
    (tmp_path / "a" / "schedule.copy.safetensors").unlink()
    assert read_report(tmp_path).runs[0].alone() == []
    write_report(tmp_path)


def test_only_rows_that_learn_a_network_are_drawn_as_learned(tmp_path):
    leave_run(tmp_path / "hd", row="HD")
    lines = [
        json.loads(line) | {"hypergradient": 0.1}
        for line in (tmp_path / "hd" / "epochs.jsonl").read_text().splitlines()
    ]
    (tmp_path / "hd" / "epochs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    leave_run(tmp_path / "ours", row="MLR-SNet", learned=True)
    table = only_table(tmp_path)
    alts = [picture.alt for picture in meta_training(table, styles([table.rows]))]
    assert alts
    assert all("MLR-SNet" in alt and "HD" not in alt for alt in alts)


def test_rows_without_anything_to_show_take_one_line_of_the_page(tmp_path):
    cells = [{"row": row, "column": "CIFAR-10", "paper": None} for row in ("Cosine 1x", "Cosine 3x", "Fixed")]
    leave_recipe(tmp_path, ["Cosine 1x", "Cosine 3x", "Fixed"], cells=cells)
    leave_run(tmp_path / "a", row="Fixed")
    html, _ = texts(tmp_path)
    assert "<b>Cosine 1x, Cosine 3x</b>: not run" in html
    assert html.count('scope="row"') == 1


@pytest.mark.parametrize(("notes", "whose"), [(["Not in the paper. More."], "The claim"), (["More."], "The paper")])
def test_a_claim_of_ours_is_not_put_into_the_papers_mouth(tmp_path, notes, whose):
    leave_recipe(tmp_path, ["Fixed"], notes=notes)
    leave_run(tmp_path / "a", row="Fixed")
    html, _ = texts(tmp_path)
    assert f"<b>{whose}: </b>" in html
