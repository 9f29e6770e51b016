# SPDX-License-Identifier: Apache-2.0
# `make run` and `make test` do all of their own set-up: virtual environment, C build, and, as root on
# a Debian host, the packages that are missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(wildcard native/*.c native/*.h) native/build_core.py

.PHONY: run test test-capture fuzz perf lint clean

# A rejected cell (exit 1) is a finding that the table explains, no failure of the command.
run: $(STAMP)
	$(BIN)/pagetier run || [ $$? = 1 ]

test: $(STAMP)
	.ci/need toolchain
	.ci/need live
	.ci/need lab
	.ci/need browser
	-$(BIN)/pagetier lab setup >&2
	$(BIN)/pytest -m 'not capture'

# The engine's tests: llama.cpp is compiled once (minutes), for any x86-64 with AVX2, and pip keeps
# the wheel it built.
test-capture: $(STAMP)
	.ci/need capture
	CMAKE_ARGS="-DGGML_NATIVE=OFF" $(BIN)/pip install --quiet --disable-pip-version-check \
	    --editable '.[dev,capture]'
	$(BIN)/pytest -m capture

# So many seconds for each importer and for the parser in C.
fuzz: $(STAMP)
	.ci/need toolchain
	$(BIN)/python tests/fuzz/run.py --seconds $(or $(FUZZ_SECONDS),60)

# Every benchmark runs; those that missed a bar are named at the end.
perf: $(STAMP)
	.ci/need perf
	@missed=; for bench in tests/perf/bench_*.py; do \
	    name=$$(basename $$bench .py); echo "== $$name"; \
	    $(BIN)/python -m tests.perf.$$name || missed="$$missed $$name"; \
	done; [ -z "$$missed" ] || { echo "a bar was missed:$$missed" >&2; exit 1; }

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=.layout $(BIN)/lint-imports

$(STAMP): pyproject.toml setup.py $(NATIVE)
	PYTHON="$(PYTHON)" .ci/need build
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf build dist native/_core.c native/*.so $(STAMP)
