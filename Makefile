# Every target sets up what it needs by itself: the stamps below stand for what is installed in .venv.
VENV := .venv
BIN := $(VENV)/bin
RUN_EXTRAS := cli,compiler,demo
RUN := $(VENV)/.stamp-run
RTL := $(VENV)/.stamp-rtl
DEV := $(VENV)/.stamp-dev
ON ?= model
LINKS := hw sim runtime compiler boards cli

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup sim test test-full bench lint types check docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DEV) ## create .venv with everything that users and developers need

sim: $(if $(filter rtl,$(ON)),$(RTL),$(RUN)) ## classify handwritten digits on the model (ON=rtl: on the circuit, needs g++)
	@$(BIN)/python examples/digits/run.py --on $(ON)

test: $(DEV) ## run the tests but for the slow ones
	@$(BIN)/pytest -m "not slow"

test-full: $(DEV) ## run all tests
	@$(BIN)/pytest

bench: $(RUN) ## measure the model's speed on the layers of ResNet-18
	@$(BIN)/tilewright bench

lint: $(DEV) ## ruff: lint and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(DEV) ## pyright
	@mkdir -p build/pkg/tilewright
	@for d in $(LINKS); do ln -sfn ../../../$$d build/pkg/tilewright/$$d; done
	@$(BIN)/pyright

check: lint types test ## everything that must pass before a change goes in

docs: $(DEV) ## bring the generated tables in docs/ up to date
	@$(BIN)/python docs/generate.py

clean: ## remove what was built or cached; .venv stays
	@rm -rf build out .pytest_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# What `sim` and `bench` need; make test adds the rest to the same .venv.
$(RUN): pyproject.toml .ci/setup
	@.ci/setup $(RUN_EXTRAS)
	@touch $@

$(RTL): pyproject.toml .ci/setup
	@.ci/setup --tools $(RUN_EXTRAS),rtl
	@touch $(RUN) $@

$(DEV): pyproject.toml .ci/setup
	@.ci/setup --tools $(RUN_EXTRAS),rtl,dev
	@touch $(RUN) $(RTL) $@
