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


def test_it_shows_one_picture_of_the_lr_and_the_loss(executed):
    pictures = [output.data["image/png"] for output in outputs(executed) if "image/png" in output.get("data", {})]
    assert len(pictures) == 1
    assert base64.b64decode(pictures[0]).startswith(b"\x89PNG")


def test_the_notebook_is_kept_without_what_a_run_leaves():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert outputs(notebook) == []
    assert all(cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
