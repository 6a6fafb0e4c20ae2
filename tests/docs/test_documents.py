"""Everything a document shows runs, every link leads somewhere, and tables made from records are up to date."""

import os
import re
import shlex
import subprocess
import sys
from unittest import mock

import pytest
from torch.distributed.run import get_args_parser

from experiments import documents as made
from experiments.results import ROOT
from mlrsnet import cli
from mlrsnet.files import names
from mlrsnet_lab import methods

WITHOUT_CODE = {
    "changes.md",
    "choosing.md",
    "claims.md",
    "demo.md",
    "distributed.md",
    "faults.md",
    "paper_figures.md",
    "paper_tables.md",
    "results.md",
    "sweeps.md",
    "transfers.md",
    "two_cores.md",
}
DOCUMENTS = made.documents()
NEEDS = {"logging.md": ("mlflow", "wandb"), "loops.md": ("timm",), "timm_style.py": ("timm",)}
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if not path.name.startswith("log_")]
"""Those that log run in tests/integrations/test_loggers.py, which also reads what they log."""


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_python_block_runs(path, tmp_path, monkeypatch):
    for package in NEEDS.get(path.name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    for table in ("METHODS", "SCHEDULES"):  # documents register methods of their own
        monkeypatch.setattr(methods, table, dict(getattr(methods, table)))
    namespace = {}
    assert bool(blocks(path, "python")) == (path.name not in WITHOUT_CODE)
    with mock.patch.dict(os.environ):  # where MLflow keeps its experiment
        for code in blocks(path, "python"):
            exec(compile(code, path.name, "exec"), namespace)


def test_the_documents_show_the_examples_themselves():
    assert blocks(ROOT / "README.md", "python")[0] == (ROOT / "examples" / "plain_loop.py").read_text()
    pages = {"loops": ("timm_style", "soft_targets", "regression", "recipe_loop"), "logging": ("log_tensorboard",)}
    for page, examples in pages.items():
        shown = blocks(ROOT / "docs" / f"{page}.md", "python")
        for name in examples:
            assert (ROOT / "examples" / f"{name}.py").read_text() in shown


@pytest.mark.parametrize("name", ["log_wandb", "log_mlflow"])
def test_a_logger_needs_no_more_lines_than_its_page_shows(name):
    """Without them, the example is the one that the page shows in full."""
    shown = set((ROOT / "docs" / "logging.md").read_text().splitlines())
    lines = (ROOT / "examples" / f"{name}.py").read_text().split('"""')[2].splitlines()
    assert [line for line in lines if line.strip() not in {other.strip() for other in shown}] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_runs(example, tmp_path):
    for package in NEEDS.get(example.name, ()):
        pytest.importorskip(package)
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # several threads wait for each other where tests share the cores
    result = subprocess.run(
        [sys.executable, example], cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert "epoch 9" in result.stdout


def test_every_command_in_the_documents_is_one():
    lines = [line for path in DOCUMENTS for block in blocks(path, "sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    makefile = (ROOT / "Makefile").read_text()
    for words in commands:
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE), words
        elif words[0] == "torchrun":
            launched = get_args_parser().parse_args(words[1:])
            assert (launched.module, launched.training_script) == (True, "mlrsnet"), words
            cli.parser().parse_args(launched.training_script_args)
        elif words[:2] != ["ray", "start"]:
            assert words[0] == "mlrsnet"
            cli.parser().parse_args(words[1:])


def test_links_lead_somewhere():
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            assert target.startswith("http") or (path.parent / target).exists(), f"{path.name}: {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_tables_of_a_document_are_as_the_records_have_them_now(path):
    assert made.filled(path) == path.read_text(), f"{path.name} is out of date: run `python -m experiments tables`"


def test_the_report_on_all_records_and_the_words_of_recipes_are_up_to_date():
    for path, text in made.contents():
        assert path.read_text() == text, f"{path} is out of date: run `python -m experiments tables`"


def test_every_made_table_stands_in_a_document():
    shown = {name for path in DOCUMENTS for name in made.BLOCK.findall(path.read_text())}
    assert shown == set(made.MAKERS)


def test_the_readme_names_every_shipped_schedule():
    shipped = [file.stem for file in names.SHIPPED.glob(f"*{names.SUFFIX}")]
    assert shipped
    readme = (ROOT / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in shipped)


@pytest.mark.parametrize("package", ["src/mlrsnet", "lab/src/mlrsnet_lab"])
def test_the_tables_of_the_house_name_every_module(package):
    folder = ROOT / package
    told = (ROOT / "CONTRIBUTING.md").read_text()
    modules = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    names = {f"`{path.name}/`" if path.is_dir() else f"`{path.name}`" for path in modules} - {"`__init__.py`"}
    assert len(names) > 10
    assert [name for name in sorted(names) if f" {name}" not in told] == []
