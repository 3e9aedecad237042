# Everything from a fresh clone on a machine with Python 3.11 or later and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: test lint demo fuzz chaos soak lock clean

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=10

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

demo: $(READY)
	$(BIN)/etude train --env catch:rows=5,columns=5 --rule actor_critic --steps 60000 --seeds 2 --out runs/demo-$$(date +%Y%m%d-%H%M%S)

# What takes too long for `make test`; what came out is in docs/reference/promises.md.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz

chaos: $(READY)
	$(BIN)/python -m tests.chaos
	$(BIN)/python -m tests.chaos_cluster

soak: $(READY)
	$(BIN)/python -m benchmarks.soak --minutes 60

# Installs exactly what is locked: left to itself, pip would resolve extras anew as soon as a release
# newer than the lock appears. `pip check` then says whether the lock is complete.
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Etude needs Python 3.11 or later.')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $(READY)

# Pins every dependency for all supported platforms and Pythons, with hashes. Of the suites, those that
# have wheels for all of them.
lock:
	uv pip compile --universal --fork-strategy fewest --generate-hashes --python-version 3.11 \
		pyproject.toml --extra tensorboard --extra tune --extra cluster --extra atari --extra minigrid \
		--group dev --quiet --output-file requirements.lock

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
