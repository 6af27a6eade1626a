# Everything runs from the virtual environment that `make install` makes; `make demo` and `make test` make it first.
PYTHON ?= python3.11
VENV   ?= .venv
FOCUS_PYTHON ?= python3.12
BIN    := $(VENV)/bin
HOME_DIR ?= demo-home
TORCH_INDEX ?=
PIP_TORCH := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
DATA   ?= ../shared/data
export DAGSTER_DISABLE_TELEMETRY = yes
export DO_NOT_TRACK = 1

.PHONY: install demo retail dev test focus-check soak lint format bench clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_TORCH) -c constraints.txt --editable ".[dev]"
	touch $@

demo: install ## the whole loop on a simulated shop, history kept in $(HOME_DIR)
	$(BIN)/mlcost demo --home $(HOME_DIR)

retail: install ## the whole loop on real data: $(DATA)
	MLCOST_DATA=$(abspath $(DATA)) $(BIN)/mlcost --config examples/retail/mlcost.yaml --home retail-home run

dev: install ## the Dagster UI on what the demo wrote, http://127.0.0.1:3000
	$(BIN)/mlcost dev --home $(HOME_DIR)

test: install
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

# The FinOps Foundation's validator has versions of its own, so it gets an environment of its own; it needs Python 3.12.
focus-check: install
	$(FOCUS_PYTHON) -m venv .venv-focus
	.venv-focus/bin/python -m pip install --quiet --disable-pip-version-check focus-validator==2.2.1 pyarrow==20.0.0
	$(BIN)/python -m pytest -q tests/cost/test_focus_export.py

soak: install
	$(BIN)/python -m pytest -q -m soak --timeout=3600

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	set -e; for file in benchmarks/*.py; do $(BIN)/python $$file --data $(DATA); done

clean:
	rm -rf $(VENV) $(HOME_DIR) retail-home *.egg-info
