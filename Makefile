# `make run` and `make test` do all their set-up on a fresh machine: Python 3.11 and this file.
PYTHON ?= python3.11
BIN := .venv/bin
export DO_NOT_TRACK = true
export MLFLOW_DISABLE_TELEMETRY = true
export PREFECT_SERVER_ANALYTICS_ENABLED = false
export DVC_NO_ANALYTICS = true

.PHONY: setup run test check slow bench study peers gpu-check

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

run: setup
	$(BIN)/podracer run

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/pytest -n 2 --dist loadgroup -m "not slow and not gpu"

slow: setup
	$(BIN)/pytest -m slow

bench: setup
	$(BIN)/python -m benchmarks.env_pairs
	$(BIN)/python -m benchmarks.train_pairs
	$(BIN)/python -m benchmarks.pod_pairs
	$(BIN)/python -m benchmarks.planted_pairs
	$(BIN)/python -m benchmarks.data_pairs
	$(BIN)/python -m benchmarks.minute_market

gpu-check: setup
	$(BIN)/python -m benchmarks.gpu_check

# Our side of the learning study (hours); what benchmarks/results has is not trained again.
study: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt 'gymnasium[box2d,mujoco]'
	$(BIN)/python -m benchmarks.memory_study
	$(BIN)/python -m benchmarks.learn_pairs

# The environments of FinRL and ElegantRL, to compare with; without what they pull in.
peers: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps finrl==0.3.7 elegantrl==0.3.6
	$(BIN)/python -m benchmarks.peers_env
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt 'gymnasium[box2d,mujoco]'
	$(BIN)/python -m benchmarks.learn_pairs --peer
