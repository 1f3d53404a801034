# The commands of Trainwright. `make help` lists them; the longer ones live in infra/.
#
# PYTHON         Python 3.11 or 3.12 from which .venv is created; found on the PATH when empty
# TORCH_VERSION  the PyTorch release
# TORCH_INDEX    package index with the PyTorch build for this machine; pip's default when empty.
#                To change the build of an existing .venv: make clean first
# ARGS           more arguments for `demo`, `gpu`, `bench`, `load`, `parity-table` and `lock`
# PYTEST_ARGS    more arguments for pytest, in every target that runs Python tests
# ROW            the one row of `gpu` to measure; all of them when empty
# DRY            not empty: `gpu` runs at toy size, on any machine, and records nothing
# PAUSES         rounds of `pauses`
# PART           k/n: `layouts`, `parity` and `faults` run every n-th of their tests, from the k-th on; all of them when empty
# ONLY           the one row of `bench`, `load` or `faults` to measure; all of them when empty
# DATABASE       the database of `load`, sqlite or postgresql; both when empty
# MINUTES        minutes of `load`'s rows `mix` and `soak`; 10 when empty
# LONG           not empty: `faults` injects each fault as often as before a release, for hours
# TABLE          empty: `faults` runs its tests, and not the fault table, which takes hours

PYTHON ?=
TORCH_VERSION ?= 2.13.0
TORCH_INDEX ?=
ARGS ?=
PYTEST_ARGS ?=
ROW ?=
DRY ?=
PAUSES ?= 20
ONLY ?=
DATABASE ?=
MINUTES ?=
LONG ?=
TABLE ?= yes

# Tests start hundreds of Python processes. Without cached bytecode, each compiles all sources again.
unexport PYTHONDONTWRITEBYTECODE

BIN = .venv/bin
NODE = infra/with-node.sh
# Many tests wait, so there is one worker more than cores. With two more, tests with short timeouts begin to fail. Those of `faults`
# start so many trainings that one per core is enough.
CORES = $(shell getconf _NPROCESSORS_ONLN)
WORKERS = $$(($(CORES) + 1))
# Tests also write thousands of small databases. These are in memory if there is room, so that no test waits for the disk.
TEST_DIR = $(shell [ "$$(df --output=avail --block-size=G /dev/shm 2>/dev/null | tr -dc '0-9')" -ge 8 ] 2>/dev/null && echo /dev/shm)
PYTEST = $(if $(TEST_DIR),TMPDIR=$(TEST_DIR)) $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
CHECKS = check-python check-frontend
SLOW = databases layouts parity pauses faults browsers wheel-check docs-check bench-dry compose-check systemd-check
INSTALL = PYTHON="$(PYTHON)" TORCH_VERSION="$(TORCH_VERSION)" TORCH_INDEX="$(TORCH_INDEX)" infra/venv.sh

.PHONY: help demo docs test test-python everything $(SLOW) gpu bench load parity-table dev check $(CHECKS) test-frontend fix openapi sync-client setup tools \
  frontend wheel release chromium lock clean on-linux

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: on-linux .venv/.runtime frontend ## train a small model on the entire platform (ARGS=--once: exit afterwards)
	@$(BIN)/python infra/demo.py $(ARGS)

test: tools frontend chromium ## unit tests, tests with real servers and in the browser; all except the slow ones
	@$(MAKE) --no-print-directory -j test-python test-frontend

test-python:
	@echo "test: python and browser"
	@$(PYTEST) -m "not slow" $(PYTEST_ARGS)

everything: ## make check, make test and all slow tests below; targets that pass are recorded in .ci/passed
	@failed=; \
	for target in check test $(SLOW); do \
	  echo "make $$target"; \
	  if $(MAKE) --no-print-directory $$target PART=; then .ci/changed-targets --passed $$target; \
	  else failed="$$failed $$target"; fi; \
	done; \
	[ -z "$$failed" ] || { echo "everything: failed:$$failed"; exit 1; }

databases: tools ## backend tests on PostgreSQL that make test runs on SQLite only, and long ones
	@$(PYTEST) -m "slow(target='$@') and not fault_row" tests/backend $(PYTEST_ARGS)

layouts: tools ## the trainer's long tests: every parallel layout, FP8 setting, injected fault, compiled model and small preset
	@$(PYTEST) -m "slow(target='$@')" $(if $(PART),--part $(PART)) tests/trainer tests/integration $(PYTEST_ARGS)

parity: tools ## compare the training of every layout with one process, a few steps each
	@$(PYTEST) -m "slow(target='$@')" $(if $(PART),--part $(PART)) tests/parity $(PYTEST_ARGS)

pauses: tools ## pause and resume a run at random moments (PAUSES=n: at n) and compare its losses bit by bit
	@TRAINWRIGHT_PAUSES=$(PAUSES) \
	  $(BIN)/pytest -n 0 -s -m "slow(target='$@')" tests/faults $(PYTEST_ARGS)

faults: WORKERS = $(CORES)
faults: tools ## inject faults and count violations, in faults.json (ONLY=F8: one row; LONG=1: for hours); older data folders; hostile files; kills of agents and supervisors
	@$(if $(ONLY),:,$(PYTEST) -m "slow(target='$@') and not fault_row" $(if $(PART),--part $(PART)) tests/faults tests/integration tests/prepare tests/backend tests/agent $(PYTEST_ARGS))
	@$(if $(TABLE),TRAINWRIGHT_FAULTS_LONG=$(LONG) $(BIN)/pytest -n 0 -m "fault_row$(if $(ONLY),(name='$(ONLY)'))" tests/faults tests/backend tests/trainer $(PYTEST_ARGS),:)

browsers: tools frontend chromium ## browser tests of every page in every size and color scheme, and of long runs
	@$(PYTEST) -m "slow(target='$@')" tests/e2e $(PYTEST_ARGS)

wheel-check: tools frontend chromium ## build the wheel, install it into an empty environment, and train a model with it
	@TORCH_VERSION="$(TORCH_VERSION)" TORCH_INDEX="$(TORCH_INDEX)" \
	  $(PYTEST) -m "slow(target='$@')" tests/integration $(PYTEST_ARGS)

compose-check: tools ## start docker-compose.yml with images built here, crash and upgrade it; as root, needs Podman
	@infra/deployment-tools.sh
	@TORCH_INDEX="$(TORCH_INDEX)" $(BIN)/pytest -n 0 -m "slow(target='$@')" tests/deployment $(PYTEST_ARGS)

systemd-check: tools frontend ## install a server and a node with systemd by the commands of the documentation, in a container; as root, needs Podman
	@infra/deployment-tools.sh
	@TORCH_VERSION="$(TORCH_VERSION)" TORCH_INDEX="$(TORCH_INDEX)" \
	  $(BIN)/pytest -n 0 -m "slow(target='$@')" tests/deployment $(PYTEST_ARGS)

docs-check: tools frontend ## build the documentation's site, and run the commands of README and tutorials
	@$(PYTEST) -m "slow(target='$@')" tests/docs $(PYTEST_ARGS)

bench-dry: tools frontend chromium ## run every benchmark at toy size
	@$(BIN)/python -m tests.benchmarks.harness.triton_wheel
	@$(PYTEST) -m "slow(target='$@')" tests/benchmarks $(PYTEST_ARGS)

gpu: tools ## every check and benchmark that needs a GPU (ROW=name: only that one), recorded in docs/benchmarks.md
	@$(BIN)/python -m tests.benchmarks.gpu $(ROW) $(if $(DRY),--dry-run) $(ARGS)

bench: tools $(if $(filter-out ui,$(ONLY)),,frontend) ## ratios measured on this CPU (ONLY=name: only that one), in bench.json
	@$(BIN)/python -m tests.benchmarks.cpu $(ONLY) $(ARGS)

load: tools ## the load table for SQLite and for PostgreSQL with S3, in load.json (ONLY=mix: one row; DATABASE=sqlite; MINUTES=60)
	@$(BIN)/python -m tests.benchmarks.load.run $(ONLY) $(if $(DATABASE),--database $(DATABASE)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

parity-table: tools ## record how close every layout's training is to one process, in docs/parity.md (ARGS: cells, --steps, --minutes; or --layouts)
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.parity.run $(ARGS)

dev: tools frontend ## API, worker and agent with reload, and Vite's server for the frontend
	@infra/dev.sh

check: tools frontend ## lint, types, import contracts, and whether the generated client is up to date
	@$(MAKE) --no-print-directory -j $(CHECKS)

check-python:
	@echo "check: ruff, mypy, import rules"
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/mypy --no-error-summary

check-frontend:
	@echo "check: frontend, generated client"
	@infra/check-client.sh
	@$(NODE) npm run check --silent

# The Python tests often wait; the frontend's run meanwhile.
test-frontend:
	@echo "test: frontend"
	@nice -n 5 $(NODE) npm test --silent

fix: tools ## let ruff repair and format the Python sources
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

openapi: tools frontend ## regenerate the API description, the frontend's types from it, docs/spec.md, docs/end-codes.md and the rules of docs/parallelism.md
	@$(BIN)/trainwright schema --markdown > docs/spec.md
	@$(BIN)/python -m trainwright.reference.end_codes > docs/end-codes.md
	@$(BIN)/python -m trainwright.reference.layouts docs/parallelism.md
	@$(BIN)/python -m trainwright_backend.openapi > frontend/openapi.json
	@$(NODE) npm run openapi --silent >/dev/null

docs: tools ## build the documentation's site in docs/_build/html
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html
	@echo "docs/_build/html/index.html"

sync-client: tools ## regenerate the SDK's synchronous client from the asynchronous one
	@$(BIN)/python infra/sync_client.py

setup: .venv/.runtime ## create .venv with the packages that the platform needs
	@$(if $(filter frontend,$(MAKECMDGOALS)),:,echo "Next, for the pages: make frontend")

tools: .venv/.dev ## setup, and install the tools for tests and development
	@:

.venv/.runtime: pyproject.toml requirements/runtime.txt infra/venv.sh
	@$(INSTALL) runtime

.venv/.dev: .venv/.runtime requirements/dev.txt
	@$(INSTALL) dev

frontend: .venv/.runtime ## build the frontend, if its sources have changed
	@infra/build-frontend.sh
	@$(if $(filter frontend,$(MAKECMDGOALS)),echo "Next: .venv/bin/trainwright-server up",:)

wheel: frontend ## build dist/trainwright-…-py3-none-any.whl, with the pages inside
	@rm -rf dist && $(BIN)/python -m hatchling build --target wheel

release: tools frontend ## build what a release publishes, in dist/: wheel, sources, bills of materials, digests
	@$(BIN)/python infra/release.py $(TORCH_VERSION)

chromium: ## make sure that the browser tests find Chromium
	@infra/chromium.sh

lock: tools ## resolve the lock files again (ARGS=--upgrade: to the newest versions)
	@infra/lock.sh $(ARGS)

clean: ## delete what was installed and built here, but no data folder
	rm -rf .venv .venv-peers .triton .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	rm -rf frontend/node_modules backend/trainwright_backend/static

on-linux:
	@[ "$$(uname -s)" = Linux ] || { \
	  echo "The node agent needs Linux: run the demo in WSL2 or in a Linux VM (SDK and CLI work here)." >&2; exit 1; }
