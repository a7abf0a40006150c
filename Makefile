# Everything happens below the repository: .venv for packages, build/ for what is made, demo/ for the demo.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FOLDERS := records reader transforms pipelines
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help install demo test lint types unit benchmark clean

help:
	@echo "make demo   set up .venv, make a vocabulary and a masked dataset, verify and read it"
	@echo "make test   set up .venv, lint, types, all tests"
	@echo "make benchmark   compare with other tools, side by side (long)"

$(BIN)/python:
	@echo "== creating $(VENV)"
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 10) <= sys.version_info < (3, 14) else "recordmill needs Python 3.10 to 3.13, this is %d.%d; set PYTHON=" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

build/beam.stamp: setup.py pyproject.toml | $(BIN)/python
	@echo "== installing recordmill[beam] (TensorFlow and Beam: some minutes the first time)"
	$(PIP) install --quiet --editable '.[beam]'
	@mkdir -p build && touch $@

build/dev.stamp: build/beam.stamp
	@echo "== installing recordmill[dev], what the tests need"
	$(PIP) install --quiet --editable '.[dev]'
	# Model Garden pins the TensorFlow before ours; its loaders, which the tests run, work with both.
	$(PIP) install --quiet --no-deps 'tf-models-official==2.20.0'
	@touch $@

install: build/beam.stamp

demo: build/beam.stamp
	$(BIN)/python examples/demo.py

test: lint types unit

lint: build/dev.stamp
	@echo "== lint"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy finds recordmill.X where folder X is linked as such.
types: build/dev.stamp
	@echo "== types"
	@mkdir -p build/typed/recordmill
	@for folder in $(FOLDERS); do ln -sfn ../../../$$folder build/typed/recordmill/$$folder; done
	$(BIN)/mypy -p recordmill

unit: build/dev.stamp
	@echo "== tests"
	$(BIN)/pytest

benchmark: build/dev.stamp
	$(PIP) install --quiet datasets sentencepiece
	$(BIN)/python benchmarks/text.py

clean:
	rm -rf build demo dist *.egg-info
