# make demo   set up what is needed and run the demonstration
# make test   set up what the tests need; run lint, types, layers and tests
# make clean  remove the environment

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test lint unit format clean

demo: $(VENV)/.demo
	$(BIN)/prolip demo

test: lint unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/pytest -n 2

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "prolip needs Python 3.10 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --progress-bar off -c constraints.txt -e '.[offline,plot]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --progress-bar off -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV)
