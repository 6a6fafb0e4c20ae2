"""The quickstart notebook, executed as a reader would."""

import base64
import os
import re
import subprocess
import sys

import pytest

from experiments.results import ROOT

pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def outputs(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    copy = folder / NOTEBOOK.name
    copy.write_text(NOTEBOOK.read_text())
    words = [sys.executable, "-m", "jupyter", "execute", "--inplace", "--timeout=120", copy]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return nbformat.read(copy, as_version=4)


def test_the_notebook_runs_and_says_nothing_on_stderr(executed):
    assert [output.text for output in outputs(executed) if output.get("name") == "stderr"] == []
    assert {cell.cell_type for cell in executed.cells} == {"code", "markdown"}


def test_the_learned_schedule_in_it_needs_no_lr_and_trains_the_network(executed):
    text = "".join(output.text for output in outputs(executed) if output.get("name") == "stdout")
    accuracies = {
        name.strip(): float(value) for name, value in re.findall(r"^(.*): ([\d.]+)%", text, flags=re.MULTILINE)
    }
    cosines = [value for name, value in accuracies.items() if name.startswith("cosine")]
    assert len(cosines) == 4
    assert accuracies["learned"] > min(cosines)  # of an LR that nobody looked for


def test_it_shows_the_lrs_and_losses_a_preview_and_what_came_of_it(executed):
    data = [output.get("data", {}) for output in outputs(executed)]
    pictures = [one["image/png"] for one in data if "image/png" in one]
    assert len(pictures) == 2
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    (preview,) = [one["text/html"] for one in data if "text/html" in one]
    assert "universal for AdamW" in preview
    assert "data:image/png;base64," in preview


def test_the_notebook_is_kept_without_what_a_run_leaves():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert outputs(notebook) == []
    assert all(cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
