# Each target does all the set-up that it needs, in its own virtual environment (.venv).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROFILE ?= quick
# TorchRec asks for the CUDA build of fbgemm: on a CPU its parts are named one by one (docs/many-items.md).
TORCHREC := torchrec fbgemm-gpu-cpu
JOBS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() or 1)")

.NOTPARALLEL:
.PHONY: help setup test test-all smoke reproduce report reference bench gpu dist lint clean

help:
	@echo "make reproduce [PROFILE=standard|paper]  raw data to figures, tables and verdicts in results/"
	@echo "make report      the published measurements as a report in results/, without training"
	@echo "make reference PROFILE=...  publish results/PROFILE in results/reference/; PART=standard-part a part's"
	@echo "make test        lint, smoke and the fast suite (about 8 minutes on 2 cores)"
	@echo "make test-all    the slow checks too"
	@echo "make smoke       every command on a synthetic corpus (under a minute)"
	@echo "make bench       timings, interleaved, in results/bench/"
	@echo "make gpu         what one GPU shows in ten minutes, in results/reference/gpu/"
	@echo "make lint        ruff, mypy and the arrows between rooms"
	@echo "make dist        a wheel and a source distribution in dist/"

# bin/pip is the last thing that venv writes, so an interrupted one is made again.
$(BIN)/pip:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "gramrun needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/pip pyproject.toml constraints.txt
	@echo "installing gramrun and what it needs into $(VENV) (torch is large; a minute or more)"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable ".[dev]"
	@said=$$($(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --no-deps \
		--only-binary :all: $(TORCHREC) 2>&1) || case "$$said" in \
		*"No matching distribution"*) echo "no wheels of TorchRec for this machine: its tests are skipped";; \
		*) echo "$$said"; exit 1;; esac
	@touch $@

setup: $(VENV)/.installed-dev

reproduce: $(VENV)/.installed
	$(BIN)/python -m experiments.reproduce --profile $(PROFILE)

report: PROFILE := published
report: $(VENV)/.installed
	$(BIN)/python -m experiments.reproduce --profile $(PROFILE) --finished --published

# What is committed of a reproduction: the report with its tables and pictures; nothing is run. A part of a
# profile goes into a folder of its own beside the whole one. What the last report put there goes first.
PUBLISHED := $(or $(PART),$(PROFILE))
REFERENCE := results/reference$(addprefix /,$(PART))

reference:
ifeq ($(origin PROFILE)$(PART),file)
	@echo "name what to publish: make reference PROFILE=published, or PART=standard-part"; exit 2
else
	@test -f results/$(PUBLISHED)/RESULTS.md || { echo "results/$(PUBLISHED): no report there"; exit 2; }
	@mkdir -p $(REFERENCE) && touch $(REFERENCE)/published.txt
	cd $(REFERENCE) && xargs -r rm -f < published.txt
	cd results/$(PUBLISHED) && ls RESULTS.md claims.json runs.csv */*.png */*.csv \
		> $(CURDIR)/$(REFERENCE)/published.txt
	cd results/$(PUBLISHED) && xargs cp --parents -t $(CURDIR)/$(REFERENCE) < $(CURDIR)/$(REFERENCE)/published.txt
endif

smoke: $(VENV)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" bash tests/smoke.sh

test: $(VENV)/.installed-dev smoke lint
	$(BIN)/python -m pytest -m "not slow" -n $(JOBS)

test-all: $(VENV)/.installed-dev smoke lint
	$(BIN)/python -m pytest -n $(JOBS)

bench: $(VENV)/.installed-dev
	$(BIN)/python -m experiments.benchmarks.step_time
	$(BIN)/python -m experiments.benchmarks.estimator_cost
	$(BIN)/python -m experiments.benchmarks.evaluation_speed
	$(BIN)/python -m experiments.benchmarks.growth
	$(BIN)/python -m experiments.benchmarks.row_wise
	$(BIN)/python -m experiments.benchmarks.prepare_speed --sizes 1m simple-scale

gpu: $(VENV)/.installed-dev
	$(BIN)/python -m experiments.benchmarks.gpu

# A wheel and a source distribution, in dist/.
dist: $(VENV)/.installed-dev
	$(BIN)/python -m build

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
