"""Packed runs: nothing is lost, every reader finds them, and a damaged line is named."""

import json

import pytest
from runs import tiny

from mlrsnet import cli
from mlrsnet_lab import records
from mlrsnet_lab.loop import run
from mlrsnet_lab.records import Record
from mlrsnet_lab.report import read_report
from mlrsnet_lab.settings import Settings

LABELS = {"recipe": "table1", "scale": "short", "column": "CIFAR-10"}


def leave(folder, row="Fixed", seed=0, status="finished", *, labels=True, trace=True):
    """A run of a recipe, or one of its own."""
    data = {
        "format": 1,
        "status": status,
        "spec": {"task": "cifar10", "model": "resnet18", "schedule": "fixed", "epochs": 2, "seed": seed},
        "result": {"last": 90.0 + seed, "best": 91.5, "val_metric": None},
        "labels": LABELS | {"row": row} if labels else {},
    }
    record = Record(
        data, [{"epoch": 1, "lr": 0.1}, {"epoch": 2, "lr": 1e-07}], {"step": [0, 1], "lr": [0.1, 0.3]}, folder
    )
    records.write(record)
    (folder / records.COPY).unlink()  # tests change the files by hand
    if not trace:
        (folder / records.TRACE).unlink()
    return folder


def contents(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def table(tmp_path):
    """Two columns of a recipe, and a run beside them."""
    for seed in (0, 1):
        leave(tmp_path / "cifar-10" / "fixed" / f"seed{seed}", seed=seed)
    leave(tmp_path / "svhn" / "sgdr" / "seed0", trace=False)
    leave(tmp_path / "others" / "alone", labels=False)
    return tmp_path


def test_unpacking_gives_back_the_same_files(table):
    before = contents(table)
    packs = records.pack(table, records.runs(table))
    assert [path.relative_to(table).as_posix() for path in packs] == ["runs.jsonl", "others/runs.jsonl"]
    assert set(contents(table)) == {path.relative_to(table).as_posix() for path in packs}
    for path in packs:
        records.unpack(path)
    assert contents(table) == before


def test_a_real_run_survives_packing_bit_for_bit_and_is_not_trained_again(tmp_path):
    run(tiny(), tmp_path / "a", Settings(device="cpu"))
    before = contents(tmp_path)
    assert before.pop(f"a/{records.COPY}")  # the pack has a digest instead
    assert cli.main(["runs", "pack", str(tmp_path)]) == 0
    packed = contents(tmp_path)
    again = run(tiny(), tmp_path / "a", Settings(device="cpu"))
    assert again.status == "finished"
    assert contents(tmp_path) == packed
    assert cli.main(["runs", "unpack", str(tmp_path)]) == 0
    assert contents(tmp_path) == before


def test_every_reader_finds_packed_runs_where_their_folders_were(table, capsys):
    places, report = list(records.find(table)), read_report(table)
    first = records.read(places[0])
    records.pack(table, records.runs(table))
    assert list(records.find(table)) == places
    assert records.read(places[0]) == first
    assert list(records.find(table / "cifar-10" / "fixed")) == places[:2]  # a folder that is gone now
    assert read_report(table) == report
    assert cli.main(["runs", "list", str(table)]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {place}\n" in listed for place in places)
    assert cli.main(["runs", "show", str(places[1])]) == 0
    assert f"everything: {table / 'runs.jsonl'}" in capsys.readouterr().out


def test_unfinished_runs_and_schedules_stay_as_files(tmp_path):
    kept = leave(tmp_path / "cifar-10" / "fixed" / "seed1", seed=1, status="interrupted")
    packed = leave(tmp_path / "cifar-10" / "fixed" / "seed0")
    (packed / records.SCHEDULE).write_bytes(b"weights")
    records.pack(tmp_path, records.runs(tmp_path))
    assert [path.name for path in packed.iterdir()] == [records.SCHEDULE]
    assert (kept / records.RECORD).is_file()
    assert list(records.find(tmp_path)) == [packed, kept]


def test_packing_again_adds_new_runs_and_replaces_old_ones(table):
    records.pack(table, records.runs(table))
    leave(table / "cifar-10" / "fixed" / "seed1", seed=8)
    leave(table / "cifar-10" / "fixed" / "seed2", seed=2)
    records.pack(table, records.runs(table))
    pack = table / records.PACK
    assert [json.loads(line)["folder"] for line in pack.read_text().splitlines()] == [
        *(f"cifar-10/fixed/seed{seed}" for seed in range(3)),
        "svhn/sgdr/seed0",
    ]
    assert records.read(table / "cifar-10" / "fixed" / "seed1").spec["seed"] == 8


@pytest.mark.parametrize("damage", ["{", '{"folder": "../elsewhere", "record": {}}', "[]", '{"folder": "/etc"}'])
def test_a_damaged_line_is_named_and_the_others_are_read(table, damage, capsys):
    records.pack(table, records.runs(table))
    pack = table / records.PACK
    first, _, last = pack.read_text().splitlines()
    pack.write_text(f"{first}\n{damage}\n{last}\n")
    report = read_report(table)
    assert report.unreadable[0][0] == "runs.jsonl:2"
    assert "line 2 of runs.jsonl is damaged" in report.unreadable[0][1]
    assert len(report.runs) == 3
    assert cli.main(["runs", "list", str(table)]) == 0
    assert f"unreadable: line 2 of {pack}" in capsys.readouterr().out
    with pytest.raises(ValueError, match="line 2"):
        records.unpack(pack)
    assert pack.is_file()
    assert cli.main(["runs", "pack", str(table)]) != 0


def test_a_run_that_stands_twice_in_a_pack_is_named(table):
    records.pack(table, records.runs(table))
    pack = table / records.PACK
    pack.write_text(pack.read_text() + pack.read_text().splitlines()[0] + "\n")
    with pytest.raises(ValueError, match=r"line 4 of .* repeats a run"):
        [records.read(place) for place in records.find(table)]


def test_an_interrupted_packing_loses_nothing(table, monkeypatch):
    before = list(records.find(table))

    def stop(run, root):
        raise KeyboardInterrupt

    monkeypatch.setattr(records.packs, "_remove", stop)
    with pytest.raises(KeyboardInterrupt):
        records.pack(table, records.runs(table))
    assert list(records.find(table)) == before


def test_a_changed_pack_is_read_anew(table):
    records.pack(table, records.runs(table))
    place, pack = table / "svhn" / "sgdr" / "seed0", table / records.PACK
    assert records.read(place).result["last"] == 90.0
    *others, line = map(json.loads, pack.read_text().splitlines())
    line["record"]["result"]["last"] = 91.25
    del line["sha256"]  # as in packs of earlier versions
    pack.write_text("".join(f"{json.dumps(one)}\n" for one in (*others, line)))
    assert records.read(place).result["last"] == 91.25


def test_a_changed_digit_of_a_packed_run_is_noticed_and_named(table):
    records.pack(table, records.runs(table))
    place, pack = table / "svhn" / "sgdr" / "seed0", table / records.PACK
    pack.write_text(pack.read_text().replace("90.0", "90.5"))
    with pytest.raises(
        ValueError, match=r"the run svhn/sgdr/seed0 in .*runs.jsonl is damaged \(its digest does not match\)"
    ):
        records.read(place)


def test_where_there_is_nothing_to_pack_that_is_said(tmp_path, capsys):
    assert cli.main(["runs", "pack", str(tmp_path)]) == 0
    assert "nothing to pack" in capsys.readouterr().out
    assert cli.main(["runs", "unpack", str(tmp_path)]) != 0
