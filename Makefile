# Two commands: `make up` starts a demo fleet, `make test` runs every test. `make` alone lists the rest.
# Every path is relative, so that a clone may live in a folder with spaces in its name.

SHELL := /bin/sh
BIN := .venv/bin
ARGS ?=
# Most tests wait for processes more than they compute: three at a time on two cores, all tests of a file in one.
SIDE_BY_SIDE := -n 3 --dist loadfile --durations 10
.DEFAULT_GOAL := help
# The steps of one goal depend on one another in order; the work inside a step is parallel where it pays.
.NOTPARALLEL:
.SUFFIXES:

.PHONY: help
help: ## list all goals
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r goal text; do \
	  case " $(ABSENT) " in *" $$goal "*) ;; *) printf 'make %-12s %s\n' "$$goal" "$$text";; esac; done

.PHONY: up
up: setup ## start a demo fleet on this machine, without root; Ctrl-C stops it
	@etcd="$$($(BIN)/python tools/find_etcd.py)" && PATH="$${etcd%/*}:$$PATH" exec $(BIN)/holdfast lab up $(ARGS)

.PHONY: lab
lab: setup ## the same with hosts and web site in network namespaces, on the kernel: sudo make lab
	@etcd="$$($(BIN)/python tools/find_etcd.py)" && PATH="$${etcd%/*}:$$PATH" exec $(BIN)/holdfast lab up --netns $(ARGS)

.PHONY: test
test: system-deps setup check ## run all checks and tests; as root on Debian, install what tests need first
	@$(BIN)/python tools/find_etcd.py --dependable >/dev/null || echo 'tests that need an etcd are skipped' >&2
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(ARGS)

.PHONY: test-openstack
test-openstack: system-deps setup ## run the tests that need a real Neutron, in an environment of their own
	@sh tools/test_openstack.sh $(ARGS)

.PHONY: check
check: setup ## run ruff, mypy --strict and import-linter, and build the docs with warnings as errors
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo 'not formatted: run .venv/bin/ruff format on the files that .venv/bin/ruff format --check names' >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo >build/lint-imports.txt 2>&1 || { cat build/lint-imports.txt; exit 1; }
	@$(MAKE) --no-print-directory docs

.PHONY: docs
docs: setup ## build the documentation into build/docs
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -d build/doctrees docs build/docs

.PHONY: setup
setup: ## create .venv; the command is .venv/bin/holdfast
	@sh tools/setup.sh

.PHONY: system-deps
system-deps: ## as root on a Debian family: install the system packages that tests need, without starting services
	@sh tools/system-deps.sh

.PHONY: lock
lock: ## update the locks: requirements.lock, requirements-base.lock, requirements-dev.lock
	@sh tools/lock.sh $(ARGS)


.PHONY: dist
dist: setup ## build what is shipped into dist/: wheel, locks, parts lists, Debian packages; SIGN=KEY signs it
	@SIGN='$(SIGN)' sh tools/dist.sh

.PHONY: audit
audit: setup ## look up known vulnerabilities of everything in the locks; exit 3 if no database of them can be asked
	@sh tools/audit.sh

.PHONY: fuzz
fuzz: setup ## fuzz the HTTP API from its own OpenAPI document, with schemathesis in an environment of its own
	@sh tools/fuzz_api.sh $(ARGS)

# Goals that are listed only if what they run exists.

ifneq ($(wildcard bench/__main__.py),)
.PHONY: bench
bench: setup ## run a benchmark: make bench ARGS="store --json"
	@$(BIN)/python -m bench $(ARGS)
else
ABSENT += bench
endif

ifneq ($(wildcard tests/faults/__main__.py tests/faults.py),)
.PHONY: faults
faults: setup ## check the fault matrix row by row: protected, noticed without protection, no test yet
	@$(BIN)/python -m tests.faults $(ARGS)
else
ABSENT += faults
endif

ifneq ($(shell grep -rl --include='*.py' 'mark[.]soak' tests 2>/dev/null),)
.PHONY: soak
soak: setup ## run the long versions of tests: thousands of kills, rounds and seeds
	@$(BIN)/python -m pytest -m soak $(ARGS)
else
ABSENT += soak
endif
