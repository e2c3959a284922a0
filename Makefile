# Start with `make demo` and `make test`; the other targets are for development.
# `make demo DEMO="--steps 100"` passes options to the demo. PYTHON=python3.12 selects another interpreter (3.11 or newer).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test quick oldest newest gpu campaign lint format docs pictures licences packages lock clean

demo: $(READY)
	$(BIN)/dnlnet demo $(DEMO)

# Run all tests of a file in one process, so that shared fixtures are built once.
# A dead worker ends the run; pytest-xdist would otherwise start another and might wait forever.
PYTEST := $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

test: lint
	$(PYTEST)

# Skip tests that train, start processes or browsers, or try hundreds of cases.
quick: lint
	$(PYTEST) -m "not slow"

# Run the quick tests with the oldest or the newest versions of all dependencies.
oldest newest: $(READY)
	.ci/versions $@

# Check and measure the block on a GPU; the results are in the folder gpu.
gpu: $(READY)
	mkdir -p gpu
	$(BIN)/dnlnet verify --device cuda --json gpu/verify.json
	$(BIN)/dnlnet bench block --device cuda --json gpu/block.json

# Try hundreds of kills, flipped bits, full disks and bad inputs. CAMPAIGN="inputs --sample 50" runs a part.
campaign: $(READY)
	PYTHONPATH=tests $(BIN)/python -m campaign $(CAMPAIGN)

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(READY)
	$(BIN)/zensical build --clean
	@echo "documentation: site/index.html"

# Write the images of README and docs. PICTURES="--demo demo" uses the output of an earlier demo.
pictures: $(READY)
	$(BIN)/python docs/figures.py $(PICTURES)

# List the licence and origin of every file in the packages; fail if one has none.
licences: $(READY)
	$(BIN)/python .ci/licences.py

# Build both packages into dist, install them into empty environments with each extra, and measure that.
packages: $(READY)
	$(BIN)/python .ci/packages.py

# Lock exact versions with hashes for every platform, without naming a package index. dnlnet-street is in this repository.
lock: $(READY)
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --upgrade --quiet \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-package dnlnet-street \
	  --custom-compile-command "make lock" -o requirements.lock

$(READY): requirements.lock pyproject.toml packages/street/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dnlnet needs Python 3.11 or newer, found $$($(PYTHON) --version 2>&1); set PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "Installing into $(VENV): several GB the first time, under a minute afterwards."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "could not make $(VENV); on Debian install python3-venv: apt install python3-venv" >&2; exit 2; }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --disable-pip-version-check "$$(sed -n 's/^\(uv==[^ ]*\).*/\1/p' requirements.lock)"
	$(BIN)/uv pip sync --python $(BIN)/python --require-hashes --compile-bytecode requirements.lock
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --no-build-isolation --editable . --editable packages/street
	@touch $(READY)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
