# `make demo` and `make test` do all their own set-up; they need Python 3.11 or newer and nothing else.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
BIN := .venv/bin
STAMP := .venv/.ready
# Tests of one file stay in one process, so that what they share is set up once.
SHARED := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo test check coverage slow soak fuzz bench flower-versions docs site clean

help:
	@echo "make demo   compare five policies on digits over five seeds; writes a report (in demo/)"
	@echo "make test   lint, types and all but the slow tests"
	@echo "make check  lint and types alone"
	@echo "make coverage  the same tests, and the lines that they do not run"
	@echo "make slow   only the tests that take most of a minute each"
	@echo "make fuzz   10,000 odd inputs for every reader and command; takes half an hour"
	@echo "make soak   kill and damage everything hundreds of times, and try the laws on many new examples; writes docs/reliability.md"
	@echo "make flower-versions  test deploy/ with Flower's two newest minor releases, each in its own environment"
	@echo "make bench  measure speed; writes benchmarks/results/ and docs/performance.md"
	@echo "make docs   render what the docs take from the code: tables and figures"
	@echo "make site   build the documentation site (in site/); warnings are errors"
	@echo "make clean  remove the virtual environment and everything made"

setup: $(STAMP)
	@$(BIN)/python -m compileall -q src reproduction  # tests start many processes, which may not compile for themselves

$(STAMP): pyproject.toml reproduction/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,text,flower,privacy,web,dev]' -e reproduction
	@touch $(STAMP)

demo: setup
	$(BIN)/fedeas demo --out demo

test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SHARED) -m "not slow and not soak"

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

coverage: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SHARED) -m "not slow and not soak" --cov --cov-report=term-missing:skip-covered

slow: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SHARED) -m slow

fuzz: setup
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m fuzz --inputs 10000 --seed 0 --tried tests/fuzz/tried.json
	$(BIN)/python docs/render.py

soak: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m soak tests/faults --tried tests/faults/tried.json
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SHARED) --hypothesis-profile thorough tests/core tests/planning
	$(BIN)/python docs/render.py

bench: setup
	$(BIN)/python benchmarks/run.py

# Each environment has a Flower of its own, and everything else from .venv.
flower-versions: setup
	@set -e; for version in $$($(BIN)/python tests/flower/newest.py); do \
	  echo "Flower $$version"; own=.venv-flwr-$$version; \
	  $(BIN)/python -m venv $$own; \
	  $(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	    > $$($$own/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/rest.pth; \
	  $$own/bin/pip install --quiet --disable-pip-version-check --no-deps --ignore-installed "flwr==$$version" -e .; \
	  OMP_NUM_THREADS=1 $$own/bin/python -m pytest $(SHARED) -m "not soak" tests/deploy tests/flower; \
	done

docs: setup
	$(BIN)/python docs/render.py

site: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/python -m sphinx -W --keep-going -q -d .site-cache docs site
	@echo "open site/index.html"

clean:
	rm -rf .venv .venv-flwr-* demo reproduced site .site-cache jupyter_execute .pytest_cache .mypy_cache .ruff_cache .hypothesis
