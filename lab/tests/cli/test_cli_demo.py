"""`mlrsnet demo`, and what all commands of the lab share."""

from dataclasses import replace

import pytest
from commands import complaint, run
from lab_commands import record

from mlrsnet import Schedule
from mlrsnet_lab.recipes import RECIPES, Choice, demo

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train", "--epochs", "many"], 2, "argument --epochs: invalid int value: 'many': see `mlrsnet train --help`"),
        (["runs"], 2, "required: ACTION"),
        (["demo", "--device", "gpu"], 2, "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["demo", "--out", "/dev/null/x"], 1, "Not a directory"),
        (["metatrain", "--epochs", "1", "--out", "/dev/null/x/y"], 1, "Not a directory"),
    ],
)
def test_a_users_mistake_is_one_line_without_a_traceback(capsys, words, code, message):
    assert message in complaint(capsys, *words, code=code)


def test_demo_learns_transfers_and_reports_beside_schedules_whose_lr_it_chose(capsys, tmp_path, monkeypatch):
    def cells(scale):
        return [
            replace(
                cell,
                spec=replace(cell.spec, epochs=2),
                choice=cell.choice and Choice("lr", (0.001, 0.3), 1),
            )
            for cell in demo.cells(scale)
            if cell.row not in ("MultiStep", "Exponential", "Linear")
        ]

    monkeypatch.setitem(RECIPES, "demo", replace(demo.RECIPE, make=cells, seeds=(0, 1)))
    code, out, err = run(capsys, "demo", "--device", "cpu", "--out", "first")
    assert code == 0, err
    rows = ["Fixed", "SGDR, three cycles", "Cosine", "MLR-SNet, transferred", "The default"]
    assert all(row in out for row in rows)
    tables = [line for line in out.splitlines() if " seed 0: finished" not in line]
    assert not any("lr 0.001" in line for line in tables)  # trials are in the report only
    assert "lr 0.001" in (tmp_path / "first" / "report.md").read_text()
    assert {record(f"first/digits-5-to-9/cosine/seed{seed}").spec["lr"] for seed in (0, 1)} == {0.3}
    learned = Schedule.read(
        tmp_path / "first/learning-on-the-digits-0-to-4/mlr-snet-meta-trained/seed1/schedule.safetensors"
    )
    assert "classes [0, 1, 2, 3, 4]" in learned.card.learned_on
    options = record("first/digits-5-to-9/mlr-snet-transferred/seed1").spec["schedule_options"]
    assert options["schedule"].endswith("seed1/schedule.safetensors")
    assert record("first/digits-5-to-9/the-default/seed0").spec["schedule_options"] == {"schedule": "universal"}
