# Every job of the checkout; `make help` lists them. All of them work in .venv, which holds what requirements.lock says, or its part for `make run`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE = $(foreach folder,contracts runwire services tests benchmarks examples,$(if $(shell find $(folder) -name '*.py' 2>/dev/null | head -n 1),$(folder)))
UV_VERSION := 0.13.9

.DEFAULT_GOAL := help
.PHONY: help run test unit coverage check lint format bench chaos compose schemas docs playground models providers wheel lock clean

help: ## List the jobs.
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

run: $(if $(wildcard $(VENV)/ready),$(VENV)/ready,$(VENV)/runs) ## Start everything here and put one question through; ONCE=1 stops after the answer, PORT=8081 is the gateway's.
	@if $(BIN)/python -P -m services.planner --check 2>&1 | grep -q 'asked through LiteLLM'; then \
		echo 'The model is asked through LiteLLM, which is not installed yet.'; $(MAKE) --no-print-directory $(VENV)/ready; fi
	$(BIN)/runwire up --demo $(if $(ONCE),--once) $(if $(PORT),--port $(PORT))

# Two workers for each of two cores: the tests wait for half of their time.
# What hangs and takes no notice of the limits of functions and fixtures ends its worker, which says where.
HUNG = -o faulthandler_timeout=450 -o faulthandler_exit_on_timeout=true

# The rules of the house, which look at the sources alone: `make lint` checks them.
RULES = tests/test_house.py tests/test_texts.py tests/test_dependencies.py

test: $(VENV)/ready ## Run the tests that `make lint` does not run; ARGS="-k name" goes to pytest.
	$(BIN)/python -m pytest -n 4 --dist loadgroup $(HUNG) $(RULES:%=--ignore=%) $(ARGS)

unit: $(VENV)/ready ## Run the tests that need no server; ARGS as for test.
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m unit $(ARGS)

coverage: export COVERAGE_FILE = $(CURDIR)/build/coverage/data
coverage: $(VENV)/ready ## Run the tests, slower, and show which lines none of them runs; ARGS as for test.
	rm -rf build/coverage && mkdir -p build/coverage
	-COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

check: $(VENV)/ready ## Check style, types, import rules and schemas.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE) hatch_build.py
	NO_COLOR=1 $(BIN)/lint-imports --no-logo
	$(BIN)/python -m contracts --check

lint: check ## Check all of that and the rules of the house.
	$(BIN)/python -m pytest -q -p no:randomly $(RULES)

format: $(VENV)/ready ## Format the code and sort its imports.
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/ready ## Measure, beside the raw parts; prints ratios.
	$(BIN)/python -m benchmarks $(ARGS)

chaos: export SHARE ?= 1/1
chaos: $(VENV)/ready ## Kill processes at random, try all seeds and cases; SHARE=2/6 does a sixth, TEST_SEED=7 repeats.
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m chaos --timeout 1800 $(ARGS)

compose: $(VENV)/ready ## Start the containers, carry out docs/deploy.md, upgrade and roll back with runs open; needs Docker, Go, npm and the command nats.
	$(BIN)/python -m pytest -m compose -p no:randomly tests/compose $(ARGS)

schemas: $(VENV)/ready ## Write contracts/schemas/, asyncapi.json and the generated pages of docs/rules/ again.
	$(BIN)/python -m contracts
	$(BIN)/python -m tests.support.reference_pages

docs: build/docs/ready ## Build the site of docs/ into build/site, with search and llms.txt; in an environment of its own.
	build/docs/bin/mkdocs --quiet build --strict

playground: ## Build the playground from web/ and its types from the schemas, after a change of either; needs npm.
	cd sdk/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run types
	cd web && npm ci --ignore-scripts --no-audit --no-fund && npm run check && npm run build

models: $(VENV)/ready ## Write the table of models' prices and context sizes again, after an upgrade of LiteLLM.
	$(BIN)/python -m tests.support.model_table

providers: $(VENV)/ready ## Ask the real providers whose keys are set, for docs/rules/tried.md; ARGS names more models.
	$(BIN)/python -m benchmarks.providers $(ARGS)

wheel: $(VENV)/ready ## Build the wheel for users into dist/.
	$(BIN)/python -m hatchling build --target wheel

lock: COMPILE = build/uv/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" --quiet
lock: build/uv/bin/uv ## Write the locks again, of all jobs, of `make run` and of `make docs`; UPGRADE=1 takes newer versions.
	$(COMPILE) --extra all --group dev $(if $(UPGRADE),--upgrade) --output-file requirements.lock
	$(COMPILE) --extra run --group build --constraint requirements.lock --output-file requirements-run.lock
	$(subst pyproject.toml,,$(COMPILE)) --group docs $(if $(UPGRADE),--upgrade) --output-file requirements-docs.lock

clean: ## Remove what the jobs made, .venv too.
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist

build/uv/bin/uv:
	$(PYTHON) -m venv build/uv
	build/uv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

build/docs/ready: requirements-docs.lock
	$(PYTHON) -m venv --clear build/docs
	build/docs/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: -r $<
	@touch $@

# Nothing outside a lock is fetched: the checkout itself is built by the hatchling that the lock installed, without dependencies.
# The environment of `make run` is a part of that of the other jobs, which replace it.
$(VENV)/ready: requirements.lock
	$(call installed,$<,750)
	-@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib
	@touch $@ $(VENV)/runs

$(VENV)/runs: requirements-run.lock
	$(call installed,$<,320)
	@touch $@

define installed
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python 3.11 or newer is needed; choose one with: make PYTHON=python3.12 $(MAKECMDGOALS)' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo 'This Python has no venv module; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	@echo 'Installing what $(1) says into $(VENV), once: about $(2) MB, half a minute or more without another word.'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: --no-compile -r $(1)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
endef
