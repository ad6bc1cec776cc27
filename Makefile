# `make demo` and `make test` work on a machine that has only Python (3.11 or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto

.PHONY: demo bench test test-all docs figures dist lint types format clean

demo: $(VENV)/.cli  ## the paper's experiment: 100 data sets, seven methods; prints tables, writes balson_paper/
	$(BIN)/balson paper

bench: $(VENV)/.bench  ## speed and accuracy as ratios measured in one run, 7 minutes; QUICK=1 for one
	$(BIN)/balson bench $(if $(QUICK),--quick)

test: $(VENV)/.test  ## the test suite without the long statistical tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: $(VENV)/.test  ## every test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

docs: $(VENV)/.docs  ## these pages, in build/docs/html: warnings are errors, links are checked, nothing is fetched
	$(BIN)/python -m sphinx -W --keep-going --jobs auto --builder html --doctree-dir build/docs/doctrees docs build/docs/html
	$(BIN)/python docs/check_site.py build/docs/html

figures: $(VENV)/.docs  ## draws the pictures of docs/figures again, in a few minutes
	$(BIN)/python docs/figures/draw.py

dist: $(VENV)/.dist  ## wheel and sdist in dist/: metadata, size and import time; installed alone, with each extra, oldest, newest
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/smoke/release.py dist $(if $(QUICK),--quick)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/pyright

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.cli: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[cli]"
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	@touch $@ $(VENV)/.cli

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	@touch $@ $(VENV)/.cli

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	@touch $@ $(VENV)/.cli

$(VENV)/.dist: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[dist]"
	@touch $@

clean:
	rm -rf $(VENV) build dist docs/notebooks .pytest_cache .ruff_cache .jax_cache
