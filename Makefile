# `make demo` and `make test` do all set-up themselves: Python 3.11+, git and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY_LAB := $(VENV)/.ready-lab
READY_DEV := $(VENV)/.ready-dev
export PYTHONDONTWRITEBYTECODE := # the set-up leaves compiling to the first import, which must keep what it compiled

LOWEST_TORCH := 2.6.0

.PHONY: demo check test nightly docs tables test-lowest setup lint format bench build clean lock audit sbom supply

demo: $(READY_LAB)  ## learn schedules on digits, use them on others, compare; tables and a picture in mlrsnet-demo/
	$(BIN)/mlrsnet demo

check: setup lint  ## linter, types, import rules, and the library's own tests: a minute or two
	$(BIN)/python -m pytest -n auto --dist worksteal tests src $(addprefix --ignore=tests/,integrations docs fuzz walks)

test: setup lint  ## linter, types, import rules, then everything that a change can break
	$(BIN)/python -m pytest -n auto --dist worksteal

nightly: setup test-lowest  ## what takes long: all recipes and scripts, kills, Ray, torchrun, the lowest torch, an hour of fuzzing
	$(BIN)/python -m pytest -n auto --dist worksteal -m nightly
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	$(BIN)/python -m tools.fuzz

docs: setup  ## build the documentation site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo 'open site/index.html'

tables: setup  ## make the documents' tables and pictures from results/
	$(BIN)/python -m experiments all

test-lowest:  ## the tests on the lowest supported torch, in a separate environment; leaves a record
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --editable '.[dev]' --editable './lab[all]' torch==$(LOWEST_TORCH)
	@mkdir -p results/suite
	.venv-lowest/bin/python -m pytest -n auto --dist worksteal -p no:cacheprovider > .suite.log || (tail -n 60 .suite.log; exit 1)
	(.venv-lowest/bin/python -c 'import json; from mlrsnet.card import versions; print(json.dumps(versions()))'; \
	  git rev-parse --short HEAD; tail -n 5 .suite.log) > results/suite/torch-$(LOWEST_TORCH).txt

setup: $(READY_DEV)  ## everything that tests, documents and every framework need

$(READY_LAB): pyproject.toml lab/pyproject.toml  # what the demo needs: no framework, no tools
	@$(MAKE) --no-print-directory $(BIN)/python
	@$(BIN)/python tools/set_up.py demo
	@touch $(READY_LAB)

$(READY_DEV): pyproject.toml lab/pyproject.toml  # make setup LOCKED=1: exactly the packages of the lock (Python 3.11, Linux)
	@$(MAKE) --no-print-directory $(BIN)/python
	@$(BIN)/python tools/set_up.py tests $(if $(LOCKED),--locked)
	@touch $(READY_LAB) $(READY_DEV)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mlrsnet needs Python 3.11 or newer, this is " + sys.version)'
	@echo 'Setting up $(VENV); the first time this downloads PyTorch, which takes a few minutes.'
	@$(PYTHON) -m venv $(VENV)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## measure the cost of a step against torch's schedulers; on a GPU too if there is one
	$(BIN)/python benchmarks/step_overhead.py
	$(BIN)/python benchmarks/metatrain_overhead.py
	$(BIN)/python benchmarks/loop.py
	$(BIN)/python benchmarks/horizon.py

build: setup
	$(BIN)/python -m build
	$(BIN)/python -m build --outdir dist lab

supply: setup
	@$(BIN)/python -m pip install --quiet --editable '.[supply]'

lock: supply  ## pin every package that the tests need, with digests, for `make setup LOCKED=1`
	$(BIN)/python -m tools.lock

audit: supply  ## known vulnerabilities of the packages in the lock; leaves a record
	$(BIN)/python -m tools.audit

sbom: supply  ## what the wheel needs, as a CycloneDX bill of materials in dist/
	@mkdir -p dist
	$(BIN)/uv pip compile pyproject.toml --constraint requirements/dev.lock --constraint requirements/torch-cuda.lock --python-version 3.11 --python-platform x86_64-manylinux_2_28 --quiet \
	  | $(BIN)/cyclonedx-py requirements - --pyproject pyproject.toml --mc-type library --output-reproducible -o dist/mlrsnet.cdx.json

clean:
	rm -rf $(VENV) dist build site .mypy_cache .ruff_cache .pytest_cache .hypothesis mlrsnet-demo
