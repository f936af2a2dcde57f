# `make demo` and `make test` work on a fresh machine that has Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# the tests wait more than they work: two at a time on each core; not many more, or their servers become slow
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((cores < 8 ? cores + 1 : 8)))
PYTEST_ARGS ?=

.PHONY: demo test chaos bench check format servers clean

# one stamp a set of dependencies, so that the demo does not wait for the tools of the tests
$(VENV)/.pip: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sqllocks needs Python 3.11 or later: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.demo: $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

demo: $(VENV)/.demo
	$(BIN)/sqllocks demo

# the servers are found, unpacked or installed, and started, by the tests themselves
# (those of their processes that start anew need not compile the library anew, whatever the shell says)
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS) || { \
		test $$? -eq 1 && echo "once more, alone: what failed beside other tests" && \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(PYTEST_ARGS); }

# make chaos SECONDS=60 SEED=1 DATABASE=mysql: processes that are killed, stopped and cut off, and a verdict
chaos: $(VENV)/.dev
	$(BIN)/python -m tests.chaos --database $(or $(DATABASE),postgresql) --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

# some peers need Python 3.12, so the newest that is found here runs the benchmarks, in an environment of theirs
BENCH_VENV := .venv-bench
BENCH_PYTHON ?= $(shell for python in python3.14 python3.13 python3.12 \
	$(foreach minor,14 13 12,$(wildcard $(HOME)/.pyenv/versions/3.$(minor).*/bin/python3)) $(PYTHON); do \
	"$$python" -c "" 2>/dev/null && echo "$$python" && break; done)

$(BENCH_VENV)/.bench: pyproject.toml benchmarks/installing.py
	$(BENCH_PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(BENCH_VENV)/bin/python -m pip install --quiet --editable '.[all]'
	$(BENCH_VENV)/bin/python -m benchmarks.installing
	touch $@

# make bench QUICK=1: a minute, to see that everything works; make bench README=1 refreshes the README's tables
bench: $(BENCH_VENV)/.bench
	$(BENCH_VENV)/bin/python -m benchmarks.run $(if $(QUICK),--quick) $(if $(README),--readme)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

servers: $(VENV)/.dev
	$(BIN)/python -m tests.servers up

clean:
	rm -rf $(VENV) $(BENCH_VENV) .servers .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
