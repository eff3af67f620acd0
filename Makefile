# `make` prints what can be done here. All that is needed is GNU make and Python 3.11 or newer.

PYTHON ?= python3
# How many tests run side by side, and what else to tell pytest: make test TESTS=tests/domain ARGS="-k cron"
JOBS ?= 3
TESTS ?= tests
ARGS ?=

# What `make quick` leaves to `make test`: tests that start many processes, fill long tables, or wait by design.
QUICK := not many_processes and not forks and not plans and not sqlite_file and not thousand and not many_writers \
    and not second_library and not a_command_prints and not upgrades

BIN := .venv/bin
READY := .venv/.ready

# The tests are imported by several processes, and pytest rewrites every module. Without the compiled files of the last
# run each process spends 8 s on that.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help pictures setup serve quick test coverage check format generate save-store verify rules docs release bench \
    bench-time bench-api bench-peers bench-horizon crash crash-points chaos fuzz simulate simulate-planted soak \
    constraints clean bench-flat bench-steps bench-limits bench-pages screens
.DELETE_ON_ERROR:

help: ## print this list
	@echo "make <target>, where the target is one of:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

setup: $(READY) ## make .venv with everything that development needs

# uv installs in seconds; where it cannot be had, or cannot reach what pip can, pip does the same work.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Holdbeat needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -x $(BIN)/uv || $(BIN)/python -m pip install -qq --disable-pip-version-check uv || true
	@{ test -x $(BIN)/uv && $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
	       --constraints constraints.txt --editable '.[postgres,otel,dev]'; } || { \
	    echo "uv could not install; trying pip"; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	       --constraint constraints.txt --editable '.[postgres,otel,dev]'; }
	@$(BIN)/python -m compileall -q src
	@touch $@

serve: setup ## run the demonstration: API, dashboard and a worker in one process
	$(BIN)/holdbeat demo

quick: setup ## what to run at every save: lint, types, domain tests, store tests on SQLite (under a minute)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	HYPOTHESIS_PROFILE=quick tools/test_in_memory.sh $(BIN)/python -m pytest -q -n $(JOBS) --store sqlite \
	    -k '$(QUICK)' tests/domain tests/conformance $(ARGS)

test: setup ## run all tests, on SQLite and PostgreSQL (TESTS=path, ARGS="more options", JOBS=n)
	@tools/ensure_chromium.sh >/dev/null
	tools/test_in_memory.sh $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS) $(ARGS)

# Coverage of what the domain tests and the tests of the store on SQLite reach in their own process.
coverage: setup ## measure which lines the domain tests and the store tests on SQLite run (htmlcov/index.html)
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -q -n $(JOBS) --store sqlite tests/domain tests/conformance \
	    --cov --cov-report=term:skip-covered --cov-report=html $(ARGS)

check: setup ## formatting, lint, types, layers, clocks, SQL, sizes, rules
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.check_clock
	$(BIN)/python -m tools.check_sql
	$(BIN)/python -m tools.check_size
	@output=$$($(BIN)/python -m tools.rules --missing tools/rules_missing.txt 2>&1) || { echo "$$output" | grep FAILED; exit 1; }

format: setup ## format the code and mend what ruff can mend
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

generate: setup ## write everything that is made from the code: the pages of reference and the picture of the states
	$(BIN)/python -m tools.write_reference
	$(BIN)/python -m tools.draw_states

save-store: setup ## keep a store of the newest schema for upgrade tests, after adding a migration
	$(BIN)/python -m tests.conformance.saved_stores

verify: setup ## fail if `make generate` would change something
	$(BIN)/python -m tools.write_reference --check
	$(BIN)/python -m tools.draw_states --check

rules: setup ## print which test proves which rule of docs/rules.md, and what is missing
	$(BIN)/python -m tools.rules --missing tools/rules_missing.txt $(ARGS)

docs: setup .venv/.docs-ready ## build the docs site with its Python reference (build/site/index.html)
	$(BIN)/python -m tools.build_docs

.venv/.docs-ready: $(READY)
	@{ test -x $(BIN)/uv && $(BIN)/uv pip install --quiet --python $(BIN)/python \
	       --constraints constraints.txt --editable '.[docs]'; } || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

release: check verify ## build and check the files of a release; publishes nothing
	$(BIN)/python -m tools.release

bench: setup ## measure the stores: jobs per second, latency of a claim
	$(BIN)/python -m benchmarks.store $(ARGS)

bench-time: setup ## measure how late schedules fire
	$(BIN)/python -m benchmarks.time $(ARGS)

bench-api: setup ## measure the HTTP API
	$(BIN)/python -m benchmarks.api $(ARGS)

bench-peers: setup ## measure Holdbeat beside other Python queues, in one run (ROUNDS=n; ARGS=--quick for a first impression)
	$(BIN)/python -m benchmarks.peers $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

bench-flat: setup ## measure claims, enqueues, lists and the overview beside a million rows
	$(BIN)/python -m benchmarks.store --part flat $(ARGS)

bench-steps: setup ## measure steps beside single commits, alone and of 64 handlers, and fan-out and fan-in of 10,000
	$(BIN)/python -m benchmarks.store --part steps $(ARGS)

bench-limits: setup ## measure claims beside 100,000 partitions and 200 limits
	$(BIN)/python -m benchmarks.store --part limits $(ARGS)

bench-pages: setup ## measure every page and its API calls beside a million jobs, on both stores (ARGS=--quick)
	$(BIN)/python -m benchmarks.pages $(ARGS)

bench-horizon: setup ## measure what a snapshot that stays open costs claims on PostgreSQL
	$(BIN)/python -m benchmarks.horizon $(ARGS)

crash: setup ## the long campaign of killing processes and databases
	$(BIN)/python -m pytest tests/crash --campaign=long -p no:xdist --timeout=3600 $(ARGS)

POINTS ?= 10000
SEED ?= 1
crash-points: setup ## kill a life at POINTS steps, 7 of 10 on SQLite and 3 on PostgreSQL, and judge each (JOBS=n, SEED=n)
	$(BIN)/python -m tests.crash.campaign --points $(POINTS) --jobs $(JOBS) --seed $(SEED) $(ARGS)

SEEDS ?= 20
HOURS ?= 24
simulate: setup ## simulate days of several processes under faults on a virtual clock (SEEDS=n HOURS=h)
	$(BIN)/python -m tests.simulate.simulate --seeds $(SEEDS) --hours $(HOURS) --jobs $(JOBS) $(ARGS)

simulate-planted: setup ## put known bugs into the program and see how soon the simulator finds each
	$(BIN)/python -m tests.simulate.simulate --planted $(ARGS)

MINUTES ?= 10
chaos: setup ## break real processes and both stores for a while, and judge what they did (MINUTES=n)
	$(BIN)/python -m tests.chaos.chaos --minutes $(MINUTES) $(ARGS)

fuzz: setup ## send generated requests to a server on each store and count its answers (MINUTES=n for each store)
	$(BIN)/python -m tests.fuzz.fuzz --minutes $(MINUTES) $(ARGS)

soak: setup ## run for a long time under load and look for what grows
	$(BIN)/python -m benchmarks.soak $(ARGS)

pictures: setup ## draw the pictures of the README anew (docs/*.png)
	@tools/ensure_chromium.sh >/dev/null
	$(BIN)/python -m tests.web.picture

screens: setup ## draw every page in three sizes and both themes (test-artifacts/screens)
	@tools/ensure_chromium.sh >/dev/null
	$(BIN)/python -m tests.web.screens $(ARGS)

constraints: setup ## resolve the versions in constraints.txt anew
	@test -x $(BIN)/uv || { echo "This needs uv: $(BIN)/python -m pip install uv"; exit 1; }
	$(BIN)/uv pip compile --quiet --universal --upgrade --no-header --no-annotate --all-extras \
	    pyproject.toml --output-file constraints.txt
	@! grep -n '://' constraints.txt || { echo "constraints.txt must hold no address"; exit 1; }
	@touch $(READY)

clean: ## remove .venv and everything that was generated
	rm -rf .venv .venv-peers build dist htmlcov .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .schemathesis
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
