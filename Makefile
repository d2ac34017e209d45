# `make test` is all a fresh clone needs: it makes .venv, installs into it, and runs every check.

PYTHON      ?= python3
PYTEST_ARGS ?=
BENCH_ARGS  ?=
WORLD_ARGS  ?=
LIVES       ?= $(if $(filter-out 0,$(SEED)),,1000)
SEED        ?= 0
JOBS        ?= 2
MOST        ?= 10
PART        ?= 1
COMPAT      ?=
RAY_SOURCE  ?=
RAYTESTS_ARGS ?=

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The order of the checks is part of the contract, under -j too.
.NOTPARALLEL:
.PHONY: help install demo test check lint types contracts unit live local browser format world rules soak chaos compat raytests bench benchlive benchaffinity benchcontroller benchclusters benchdashboard benchdemand benchgrowth benchfacts benchreports docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## Make .venv and install remora with its dev tools, when pyproject.toml changed

demo: $(STAMP) ## Start a Ray of four nodes here, play the proposals' stories on it, draw who sits where, stop it (a minute)
	@$(BIN)/python -m examples.demo

test: lint types contracts unit live local browser ## Run every check and all tests; stop at the first failure

check: lint types contracts ## Run every check but the tests

lint: $(STAMP) ## Check style and formatting, change nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP) ## Check types; of the examples as a user does, with the types of Ray and nothing excused
	$(BIN)/mypy
	cd examples && ../$(BIN)/mypy --strict --config-file= *.py

contracts: $(STAMP) ## Check which package may import which
	$(BIN)/lint-imports --no-logo

unit: $(STAMP) ## Run the tests; choose some with PYTEST_ARGS="-k taints"
	$(BIN)/python -m pytest -n 2 --ignore tests/live --ignore tests/local --ignore tests/soak --ignore tests/chaos --ignore tests/browser $(PYTEST_ARGS)

live: $(STAMP) ## Run the tests on a real Ray of four raylets on this machine (about eight minutes)
	$(BIN)/python -m pytest tests/live -m "not deep" -W default $(PYTEST_ARGS)

local: $(STAMP) ## Run the tests of remora start, up and down, of the examples and of the documents, on real Rays of their own
	$(BIN)/python -m pytest tests/local -W default $(PYTEST_ARGS)

# Without a Chromium it says what was not run, in the last line; REMORA_DEMAND_BROWSER=1 makes that an error.
browser: $(STAMP) ## Run the tests of the page in Debian's Chromium, on a real Ray and on clusters in memory
	@if $(BIN)/python -m tests.browser.chromium; then \
		$(BIN)/python -m pytest tests/browser -W default $(PYTEST_ARGS); \
	else test -z "$(REMORA_DEMAND_BROWSER)"; fi

world: $(STAMP) ## Play lives of a whole cluster that try to break it: LIVES=10000 SEED=0, or one of them again: SEED=123
	PYTHONPATH=src:. $(BIN)/python -m tests.world --seed $(SEED) $(if $(LIVES),--lives $(LIVES) --jobs $(JOBS) --most $(MOST)) $(WORLD_ARGS)

rules: $(STAMP) ## Put each known bug back: how many lives, of at most LIVES, does it take the world to find it
	PYTHONPATH=src:. $(BIN)/python -m tests.world --rules --seed $(SEED) --lives $(LIVES) --jobs $(JOBS)

soak: $(VENV)/.jobs ## Run the long tests on clusters of their own, which are no part of `make test`
	$(BIN)/python -m pytest tests/live -m deep -W default $(PYTEST_ARGS)
	$(BIN)/python -m pytest tests/soak -W default $(PYTEST_ARGS)

chaos: $(STAMP) ## Kill, stop and cut off every part of real clusters at random (half an hour): SEED=1, a tenth of it with PART=0.1
	SEED=$(if $(filter-out 0,$(SEED)),$(SEED),1) PART=$(PART) $(BIN)/python -m pytest tests/chaos -W default $(PYTEST_ARGS)

compat: $(STAMP) ## Try it on each release of Ray and of Python that it names; some with COMPAT="2.55 python-3.13" (three minutes each)
	$(BIN)/python -m tests.compat $(COMPAT)

raytests: $(STAMP) ## Run Ray's own tests attached, and stock what failed, and say what fails attached only; RAY_SOURCE is a checkout of Ray
	$(BIN)/python -m tests.raytests $(if $(RAY_SOURCE),--source $(RAY_SOURCE)) $(RAYTESTS_ARGS)

format: $(STAMP) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) ## Run the kernel benchmark; pass options with BENCH_ARGS
	$(BIN)/python benchmarks/kernel.py $(BENCH_ARGS)

benchlive: $(STAMP) ## Compare an attached driver with stock Ray, on a real Ray of four raylets
	$(BIN)/python benchmarks/attached.py $(BENCH_ARGS)

benchaffinity: $(STAMP) ## Compare affinity with placement groups and with stock Ray, on a real Ray of four raylets
	$(BIN)/python benchmarks/affinity.py $(BENCH_ARGS)

benchcontroller: $(STAMP) ## Measure the controller over a cluster in memory of up to 10,000 nodes
	$(BIN)/python benchmarks/controller.py $(BENCH_ARGS)

benchclusters: $(STAMP) ## Compare virtual clusters with stock Ray and with placement groups, on a real Ray of two raylets
	$(BIN)/python benchmarks/virtual_clusters.py $(BENCH_ARGS)

benchdashboard: $(STAMP) ## Measure what the page costs the controller and a browser; no Ray is started
	$(BIN)/python benchmarks/dashboard.py $(BENCH_ARGS)

benchdemand: $(STAMP) ## Compare plans of machines to start with Ray's own autoscaler, in one process
	$(BIN)/python benchmarks/demand.py $(BENCH_ARGS)

benchgrowth: $(STAMP) ## Measure how soon machines are asked for and come, on a real Ray with an autoscaler
	$(BIN)/python benchmarks/growth.py $(BENCH_ARGS)

benchfacts: $(STAMP) ## Measure what the design stands on in stock Ray: resizes, tokens, calls
	$(BIN)/python benchmarks/facts.py $(BENCH_ARGS)

benchreports: $(STAMP) ## Measure what one report of up to 4,000 nodes costs the controller; no Ray is started
	$(BIN)/python benchmarks/reports.py $(BENCH_ARGS)

docs: $(VENV)/.docs ## Build the documentation as a site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "the site is in site/: open site/index.html"

clean: ## Remove caches and build output, keep .venv
	rm -rf build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV): a minute or two the first time"
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# Ray's dashboard, which the tests of jobs and of the state API need and which makes every Ray here start more slowly.
$(VENV)/.jobs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[jobs,libraries]'
	@touch $@

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@
