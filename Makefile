# The commands of Trainwright. `make help` lists them; the longer ones live in infra/.
#
# PYTHON         Python 3.11 or 3.12 that .venv is made from; found on the PATH when empty
# TORCH_VERSION  the PyTorch release
# TORCH_INDEX    package index with the PyTorch build for this machine; pip's default when empty.
#                To change the build of an existing .venv: make clean first
# ARGS           more arguments for `demo`, `gpu`, `bench`, `parity` and `lock`
# PYTEST_ARGS    more arguments for the Python tests of `test`
# ROW            the one row of `gpu` to measure; all of them when empty
# DRY            not empty: `gpu` runs at toy size, on any machine, and records nothing
# PAUSES         rounds of `pauses`
# ONLY           the one row of `bench` to measure; all of them when empty

PYTHON ?=
TORCH_VERSION ?= 2.13.0
TORCH_INDEX ?=
ARGS ?=
PYTEST_ARGS ?=
ROW ?=
DRY ?=
PAUSES ?= 20
ONLY ?=

BIN = .venv/bin
NODE = infra/with-node.sh
INSTALL = PYTHON="$(PYTHON)" TORCH_VERSION="$(TORCH_VERSION)" TORCH_INDEX="$(TORCH_INDEX)" infra/venv.sh

.PHONY: help demo test gpu bench parity pauses dev check fix openapi setup frontend chromium lock clean on-linux

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: on-linux .venv/.runtime frontend ## train a small model through the whole platform (ARGS=--once: then end)
	@$(BIN)/python infra/demo.py $(ARGS)

test: check chromium ## everything: checks, unit tests, the tests with real servers, the browser test
	@echo "test: frontend"
	@$(NODE) npm test --silent
	@echo "test: python and browser"
	@$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

gpu: setup ## every check and benchmark that needs a GPU (ROW=name: that one), recorded in docs/benchmarks.md
	@$(BIN)/python -m tests.benchmarks.gpu $(ROW) $(if $(DRY),--dry-run) $(ARGS)

bench: setup $(if $(filter-out ui,$(ONLY)),,frontend) ## ratios measured on this CPU (ONLY=name: that one), in bench.json; no gate
	@$(BIN)/python -m tests.benchmarks.cpu $(ONLY) $(ARGS)

parity: setup ## compare every layout's training with one process, recorded in docs/parity.md (ARGS: cells, --steps, --minutes; or --layouts)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.parity.run $(ARGS)

pauses: setup ## pause and resume a run at 20 random moments (PAUSES=n: at n) and compare its losses bit by bit
	@TRAINWRIGHT_PAUSES=$(PAUSES) OMP_NUM_THREADS=1 $(BIN)/pytest -n 0 -s tests/faults/test_pauses.py $(PYTEST_ARGS)

dev: setup frontend ## API, worker and agent with reload, and Vite's server for the frontend
	@infra/dev.sh

check: setup frontend ## lint, types, import arrows, freshness of the generated client
	@echo "check: ruff"
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@echo "check: mypy"
	@$(BIN)/mypy --no-error-summary
	@echo "check: import arrows"
	@$(BIN)/lint-imports --no-cache --no-logo
	@echo "check: frontend"
	@$(NODE) npm run check --silent
	@echo "check: generated client"
	@infra/check-client.sh

fix: setup ## let ruff repair and format the Python sources
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

openapi: setup frontend ## regenerate the API description, the frontend's types from it, and docs/spec.md
	@$(BIN)/trainwright schema --markdown > docs/spec.md
	@$(BIN)/python -m trainwright_backend.openapi > frontend/openapi.json
	@$(NODE) npm run openapi --silent >/dev/null

setup: .venv/.dev ## create .venv with the locked dependencies, tools included
	@:

.venv/.runtime: pyproject.toml requirements/runtime.txt infra/venv.sh
	@$(INSTALL) runtime

.venv/.dev: .venv/.runtime requirements/dev.txt
	@$(INSTALL) dev

frontend: .venv/.runtime ## build the frontend, if its sources have changed
	@infra/build-frontend.sh

chromium: ## see to it that the browser tests find a Chromium
	@infra/chromium.sh

lock: setup ## resolve the lock files again (ARGS=--upgrade: to the newest releases)
	@infra/lock.sh $(ARGS)

clean: ## delete what was installed and built here; never a data folder
	rm -rf .venv .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	rm -rf frontend/node_modules backend/trainwright_backend/static

on-linux:
	@[ "$$(uname -s)" = Linux ] || { \
	  echo "The node agent needs Linux: run the demo in WSL2 or in a Linux VM (SDK and CLI work here)." >&2; exit 1; }
