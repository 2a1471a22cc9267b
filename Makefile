# The two commands: `make demo` runs the main job, `make test` runs lint, types and tests.
# Both set up .venv first, from the versions in constraints.txt; a second time there is nothing to do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types unit real fuzz pages docs setup clean

demo: $(READY)
	$(BIN)/holdfast compare permuted_digits --out runs/demo --record
	$(BIN)/holdfast report runs/demo --out runs/demo/report

test: lint types unit real

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# One thread a worker: torch's threads and the workers would fight for the cores.
unit: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --durations=10 -m "not real_data"

# What learns from the real data sets, where they are.
real: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --durations=5 -m real_data

# The fuzzers of tests/fuzz for so many minutes together; FIRST begins with a later try. `make unit` runs them for seconds.
MINUTES ?= 10
FIRST ?= 0
fuzz: $(READY)
	HOLDFAST_FUZZ_MINUTES=$(MINUTES) HOLDFAST_FUZZ_FIRST=$(FIRST) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fuzz

# The tables of the README and the docs, from results/.
pages: $(READY)
	$(BIN)/python docs/refresh.py
	$(BIN)/holdfast paper all --from results --format markdown --to docs/results.md

setup: $(READY)

# pip before all else: the one that comes with Python may have known holes. Then torch by its exact version, so that pip
# does not look for a newer build.
$(READY): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "holdfast needs Python 3.11 or newer; set PYTHON")'
	@echo "setting up $(VENV): a minute or two, once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade pip setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

# The docs site, in site/index.html. Its packages are installed the first time; building needs no network.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

$(VENV)/.docs: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
