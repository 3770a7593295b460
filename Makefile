# Two commands do everything: `make app` opens the app, `make test` runs every test.
PYTHON ?= python3
BIN := .venv/bin
TEST_PROCESSES ?= $(shell $(PYTHON) -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')# browser tests often wait
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: app test lint audit format lock clean

app: .venv/app.done
	$(BIN)/bsc app

test: .venv/test.done
	$(BIN)/python tests/browser/chromium.py
	$(BIN)/python tests/hostile/nginx.py
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

lint: .venv/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	git ls-files | xargs $(BIN)/codespell

audit: .venv/bin/python
	$(BIN)/python .ci/audit.py

format: .venv/test.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make app PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "On Debian and Ubuntu, first: apt-get install python3-venv" >&2; exit 2; }

# Hashes are checked for all packages but torch, whose build (CPU, CUDA) depends on the machine.
.venv/app.done: pyproject.toml constraints.txt requirements.lock | .venv/bin/python
	$(PIP) install --require-hashes --no-deps --requirement requirements.lock
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

.venv/test.done: .venv/app.done
	$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[test]'
	@touch $@

# Writes requirements.lock; needs uv.
lock:
	echo torch | uv pip compile pyproject.toml --group lock --constraint constraints.txt --excludes - --universal \
		--generate-hashes --no-annotate --custom-compile-command 'make lock' --quiet --output-file requirements.lock

clean:
	rm -rf .venv build dist
