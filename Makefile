# Two commands do everything: `make app` opens the app, `make test` runs every test.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: app test lint format clean

app: .venv/app.done
	$(BIN)/bsc app

test: .venv/test.done
	$(BIN)/python tests/browser/chromium.py
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

lint: .venv/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	git ls-files | xargs $(BIN)/codespell

format: .venv/test.done
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make app PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "On Debian and Ubuntu, first: apt-get install python3-venv" >&2; exit 2; }

.venv/app.done: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

.venv/test.done: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[test]'
	@touch $@ .venv/app.done

clean:
	rm -rf .venv build dist
