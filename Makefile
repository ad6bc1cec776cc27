# `make demo` and `make test` work on a machine that has only Python (3.11 or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto

.PHONY: demo bench test test-all lint types format clean

demo: $(VENV)/.cli  ## the paper's experiment: 100 data sets, seven methods; prints tables, writes balson_paper/
	$(BIN)/balson paper

bench: $(VENV)/.bench  ## speed and accuracy as ratios measured in one run, 7 minutes; QUICK=1 for one
	$(BIN)/balson bench $(if $(QUICK),--quick)

test: $(VENV)/.test  ## the test suite without the long statistical tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: $(VENV)/.test  ## every test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

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

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .jax_cache
