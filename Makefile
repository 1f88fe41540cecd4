# Every target sets itself up from a fresh clone: make and Python 3.11 or newer are enough.
# `make test SPARK=4.3` takes that Spark, in an environment of its own; 4.2 is the newest that Delta runs on.

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3,$(shell command -v $(name) 2>/dev/null)))
SPARK ?= 4.2
VENV := .venv$(if $(filter 4.2,$(SPARK)),,-spark-$(SPARK))
BIN := $(VENV)/bin
STAMP := $(VENV)/installed.stamp
WORKERS ?= 2

.PHONY: help demo screenshots test lint unit coverage wheel site interop soak bench config clean
.DEFAULT_GOAL := help

help:
	@echo "make demo     servers and messages step by step; a master, its replica, the master's death; the data pipeline"
	@echo "              ... and the dashboard, which KEEP=1 keeps running"
	@echo "make screenshots  the pictures of the documents, with Chromium"
	@echo "make test     lint, unit, wheel and site: what every change must pass"
	@echo "make lint     ruff, pyright, and the directions of imports"
	@echo "make unit     tests without Java, on $(WORKERS) workers (WORKERS=n)"
	@echo "make coverage the same, slower, and which lines no test runs"
	@echo "make wheel    the package, installed and started in an empty environment"
	@echo "make site     the documents as a site, build/site/index.html"
	@echo "make interop  the same wire and the same files with real RocketMQ software (downloads it)"
	@echo "make soak     a long run under faults"
	@echo "make bench    side by side with Java; ratios on the screen and as JSON (QUICK=1: under five minutes)"
	@echo "make config   write docs/configuration.md from the settings"
	@echo "make clean    remove the environment and what the targets left"
	@echo "Any of them sets up $(VENV) first. SPARK=4.3 takes that Spark, in an environment of its own."

demo: $(STAMP)
	$(BIN)/python tools/demo.py
	$(BIN)/python tools/demo_replication.py
	$(BIN)/python tools/demo_failover.py
	$(BIN)/python tools/demo_pipeline.py
	KEEP=$(KEEP) $(BIN)/python tools/demo_dashboard.py

screenshots: $(STAMP)
	$(BIN)/python -m tools.screenshots

test: lint unit wheel site

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python src
	$(BIN)/lint-imports

UNIT := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=15 -m "not interop or interop_quick"

unit: $(STAMP)
	$(BIN)/pytest $(UNIT)

coverage: $(STAMP)
	$(BIN)/pytest $(UNIT) --cov --cov-report=
	@echo "--- coverage: the modules with most lines that no test runs, and the total"
	@$(BIN)/coverage report --sort=miss | tail -n 13

wheel: $(STAMP)
	$(BIN)/python tools/check_wheel.py

site: $(STAMP)
	$(BIN)/mkdocs build --quiet

# Spark comes second, without the Java brokers of the first part, some of which keep a core busy to their end.
interop: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=15 -m "interop and not spark"
	$(BIN)/pytest --durations=15 -m "interop and spark"

soak: $(STAMP)
	$(BIN)/python tools/soak.py

bench: $(STAMP)
	$(BIN)/python -m bench $(if $(QUICK),--quick)

config: $(STAMP)
	$(BIN)/python -m tools.make_configuration

clean:
	rm -rf $(VENV) build dist .coverage .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# One stamp for all of the set-up: a change of pyproject.toml installs again.
$(STAMP): pyproject.toml tools/make_venv.py
	@test -n "$(PYTHON)" || { echo "no Python found: install Python 3.11 or newer, or run make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) tools/make_venv.py $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,spark]' 'pyspark==$(SPARK).*'
	@touch $@
