# Everything happens below the repository: .venv for packages, build/ for what is made, demo/ for the demo.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FOLDERS := records reader transforms pipelines
TEST_PROCESSES ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help install demo test lint types docs unit slow faults benchmark clean lock image worker_image template

help:
	@echo "make demo   set up .venv, make a vocabulary and a masked dataset, verify and read it (a minute)"
	@echo "make test   set up .venv, lint, types, documentation, tests (TEST_PROCESSES=2 at once)"
	@echo "make slow   the tests that take long: clusters, kills, trainings, readers of others"
	@echo "make docs   build the documentation into build/site"
	@echo "make image IMAGE=… | make template IMAGE=… BUCKET=gs://…   for Dataflow, see templates/README.md"
	@echo "make worker_image IMAGE=…   for other clusters; it does not run as root"
	@echo "make faults   try some 5,000 faults and print what held (under an hour; as root some more)"
	@echo "make benchmark   compare with other tools, side by side: a table of ratios (ten minutes)"

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

test: lint types docs unit

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

# A broken link, a flag without example or a public name without page fails. Nothing is fetched.
docs: build/dev.stamp
	@echo "== documentation"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Groups of tests go to processes in the order that tests/conftest.py gives them.
PYTEST = $(BIN)/python -m pytest --numprocesses=$(TEST_PROCESSES) --dist=loadgroup --no-loadscope-reorder

unit: build/dev.stamp
	@echo "== tests, in $(TEST_PROCESSES) processes; 'make slow' has the ones that take long"
	$(PYTEST) -m 'not slow'

slow: build/dev.stamp
	@echo "== tests that take long, in $(TEST_PROCESSES) processes"
	$(PYTEST) -m slow

# FAULTS="--only='kill at random' --minutes=10 --seed=7"
faults: build/dev.stamp
	@echo "== faults: kills, full disks, power loss, hostile input, damage, other users (under an hour)"
	$(BIN)/python -m tests.faults $(FAULTS)

# What the other tools need is an environment of its own; without gigatoken the table has a row less.
build/peers.stamp: | $(BIN)/python
	@echo "== installing the tools that we are compared with into build/peers"
	@mkdir -p build
	$(PYTHON) -m venv build/peers
	build/peers/bin/pip --disable-pip-version-check install --quiet datasets tokenizers
	-build/peers/bin/pip --disable-pip-version-check install --quiet gigatoken
	@touch $@

# BENCHMARK="--megabytes=400 --rounds=5 --parts=text,reader"
benchmark: build/dev.stamp build/peers.stamp
	@echo "== one table of ratios (ten minutes on two cores)"
	$(BIN)/python benchmarks $(BENCHMARK)

# Exactly what a fresh install brings, for the image: Python 3.11 on Linux x86_64, PYTHON=python3.11.
lock:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info[:2] == (3, 11) else "the image has Python 3.11; set PYTHON=")'
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip --disable-pip-version-check install --quiet --dry-run --ignore-installed --report build/lock/report.json '.[gcp,sql]'
	build/lock/bin/python .ci/write_lock.py build/lock/report.json > build/lock/requirements.lock
	mv build/lock/requirements.lock requirements.lock
	rm -rf build/lock

DOCKER ?= docker
# Bases by digest, another user: IMAGE_ARGS='--build-arg PYTHON_IMAGE=python@sha256:… --build-arg RUN_AS=recordmill'
IMAGE_ARGS ?=

image:
	@test -n '$(IMAGE)' || { echo 'make image needs IMAGE=<registry>/<project>/recordmill:<version>'; exit 2; }
	@test -n '$(LAUNCHER_IMAGE)' || { echo 'make image needs LAUNCHER_IMAGE=<registry>/…/python311-template-launcher-base, see Dockerfile'; exit 2; }
	for template in text images; do \
		$(DOCKER) build $(IMAGE_ARGS) --build-arg LAUNCHER_IMAGE='$(LAUNCHER_IMAGE)' --build-arg TEMPLATE=$$template --build-arg IMAGE='$(IMAGE)'-$$template \
			--tag '$(IMAGE)'-$$template . || exit 1; \
	done

# For clusters other than Dataflow: without its launcher, and not as root.
worker_image:
	@test -n '$(IMAGE)' || { echo 'make worker_image needs IMAGE=<registry>/<project>/recordmill:<version>'; exit 2; }
	$(DOCKER) build $(IMAGE_ARGS) --target workers --tag '$(IMAGE)' .

template: build/beam.stamp image
	@test -n '$(BUCKET)' || { echo 'make template needs BUCKET=gs://<bucket>/<folder>'; exit 2; }
	for template in text images; do $(DOCKER) push '$(IMAGE)'-$$template || exit 1; done
	$(PIP) install --quiet --editable '.[gcp]'
	$(BIN)/python -m recordmill.pipelines.templates --image='$(IMAGE)' --folder='$(BUCKET)'

clean:
	rm -rf build demo dist *.egg-info
