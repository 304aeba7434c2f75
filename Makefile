BIN := .venv/bin
READY := .venv/.ready

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 14

demo: $(READY) ## simulate and compare the built-in example
	@$(BIN)/geotrain demo

test: $(READY) ## run all tests
	@$(BIN)/python -m pytest -q -m "not alone" --numprocesses 2 --dist loadfile --no-loadscope-reorder --timeout 120
	@$(BIN)/python -m pytest -q -m alone --reruns 3 --reruns-delay 2

check: $(READY) ## format, lint, types, direction of imports
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: $(READY) ## run the benchmarks
	@$(BIN)/python -m benchmarks

clean: ## remove the environment and everything else that was made
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@echo "preparing .venv (once)"
	@test -x $(BIN)/python || python3 -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

.PHONY: help demo test check bench clean
