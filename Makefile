# Every target sets up what it needs by itself: the stamps below stand for what is installed in .venv.
VENV := .venv
BIN := $(VENV)/bin
RUN_EXTRAS := cli,compiler,demo
RTL_EXTRAS := $(RUN_EXTRAS),rtl
RUN := $(VENV)/.stamp-run
RTL := $(VENV)/.stamp-rtl
DEV := $(VENV)/.stamp-dev
TORCH := .venv-torch/.stamp
RELEASE := .venv-release/.stamp
FUZZ := $(VENV)/.stamp-fuzz
LINKS := hw sim runtime compiler apps boards cli

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup sim test near test-full test-torch test-arm test-c campaign frozen fuzz faults damage atheris bench bench-timing bench-synth area-model rtl synth bitstream lint types check docs site docs-check release audit clean
ON := model# what `make sim` runs on: model, or rtl for the circuit
SEED := 0# of bench-timing, campaign, fuzz, faults and damage
LIMIT := 4# seconds of CPU time of a quick test: twice what it may take, for slower machines
BASE := HEAD# what `near` compares with
JOBS := 2# processes of the tests, of frozen, of fuzz and of damage
PATTERN :=# of the programs of frozen, by default all
PART :=# of test-full, by default all
COUNT := 5000# faults; damaged files of each format
CASES := $(wildcard ../shared/vectors)# folder of recorded cases for faults
SECONDS := 60# of fuzz, of atheris for each format
KEY :=# SSH key that signs a release
CONFIG := pynq_z1# preset or file for rtl and synth
BOARD := pynq_z1# name or file for bitstream
ARM := trixie# release of Debian for test-arm
# what needs numpy and pytest alone
ARM_TESTS := tests/runtime $(foreach name,config errors regs rounding units,tests/hw/test_$(name).py) tests/hw/isa \
	tests/boards/test_selftest.py tests/boards/zynq/test_board.py

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DEV) ## create .venv with everything that users and developers need

sim: $(if $(filter rtl,$(ON)),$(RTL),$(RUN)) ## classify handwritten digits on the behavioural model, or on the circuit: ON=rtl
	@$(BIN)/python examples/digits/run.py --on $(ON)

test: $(DEV) ## run the quick tests
	@$(BIN)/pytest -n $(JOBS) -m "not circuit and not slow" --cpu-limit $(LIMIT)

near: $(DEV) ## run the quick tests of what differs from the last commit, or from BASE=revision
	@$(BIN)/python tools/near.py $(BASE)

test-full: $(DEV) ## run the slow tests in parts of up to 50 minutes, a line for each; PART=name runs one (.ci/slow)
	@$(BIN)/python .ci/slow $(JOBS) $(PART)

test-torch: $(TORCH) ## test the import of PyTorch programs and training, in .venv-torch: torch slows the import of TVM
	@.venv-torch/bin/pytest tests/compiler/frontend/test_torch.py tests/apps/quantise/test_torch.py tests/apps/quantise/test_mlperf_tiny.py tests/apps/odimo tests/cli/test_odimo.py

test-arm: $(DEV) ## run what runs on the board on an emulated 32-bit ARM; ARM=bookworm: with an older numpy
	@.ci/arm $(ARM)
	@build/arm/python -m pytest -p no:cacheprovider -m "not slow" $(ARM_TESTS)
	@$(BIN)/pytest tests/boards/zynq/test_arm.py

test-c: $(DEV) ## build networks as C and run them with simulated accelerators, on this machine and, with its compiler, on an emulated ARM
	@$(BIN)/pytest -n $(JOBS) -rs tests/runtime/c

campaign: $(DEV) ## try 5,000 mutants of programs and 5,000 damaged .tw files; SEED=n makes others
	@$(BIN)/tilewright verify --mutate 5000 --seed $(SEED)
	@$(BIN)/python -m tests.damage --only 'program .tw' --seed $(SEED) --count 5000

frozen: $(DEV) ## compile networks and compare bytes, cycles and operators on the host with tests/data/frozen.json; PATTERN=name
	@$(BIN)/python tools/frozen.py --jobs $(JOBS) $(if $(PATTERN),-k '$(PATTERN)')

fuzz: $(RTL) ## run random programs on all devices and compare; SECONDS=n, JOBS=j, SEED=s
	@$(BIN)/python -m tools.fuzz.command --seconds $(SECONDS) --jobs $(JOBS) --seed $(SEED)

faults: $(RTL) ## try COUNT faults on the simulated circuit: bus errors, stalls, resets, corrupt instructions; SEED=n makes others
	@$(BIN)/python -m tools.faults.command --seed $(SEED) --count $(COUNT) $(if $(CASES),--cases $(CASES))

damage: $(DEV) ## read COUNT damaged files of every format, by default 5,000, in processes with limits; SEED=n makes others
	@$(BIN)/python -m tests.damage --count $(COUNT) --seed $(SEED) --jobs $(JOBS)

atheris: $(FUZZ) ## ... files that coverage guides, SECONDS for each format, by default 60; goes on where it ended
	@$(BIN)/python -m tests.damage.guided --seconds $(SECONDS) --seed $(SEED)

bench: $(RTL) ## measure model and simulated circuit on the layers of ResNet-18
	@$(BIN)/tilewright bench
	@$(BIN)/tilewright bench --on rtl --config vta
	@$(BIN)/tilewright bench --on rtl --config pynq_z1

bench-timing: $(RTL) ## measure the timing model against the simulated circuit; SEED=n makes other tilings and programs
	@$(BIN)/python -m tools.timing --seed $(SEED)

bench-synth: $(DEV) ## compare the core's timing before placement with the recorded figures
	@$(BIN)/python -m tools.synth

area-model: $(DEV) ## fit the model of areas to what Yosys counts: two hours; goes on where it was killed
	@nice -n 5 $(BIN)/python -m tools.area

rtl: $(RTL) ## write the Verilog of CONFIG (default pynq_z1) to build/rtl
	@mkdir -p build/rtl
	@$(BIN)/tilewright rtl --config $(CONFIG) -o build/rtl/$(basename $(notdir $(CONFIG))).v

synth: $(DEV) ## count what the circuit of CONFIG takes of the PYNQ-Z1's FPGA
	@$(BIN)/tilewright synth --config $(CONFIG)

bitstream: $(DEV) ## build the bitstream of CONFIG for BOARD in build/BOARD
	@$(BIN)/tilewright bitstream --config $(CONFIG) --board $(BOARD)

lint: $(DEV) ## ruff: lint and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(DEV) ## pyright
	@mkdir -p build/pkg/tilewright
	@for d in $(LINKS); do ln -sfn ../../../$$d build/pkg/tilewright/$$d; done
	@ln -sfn ../../../cli/python/__init__.py build/pkg/tilewright/__init__.py
	@ln -sfn ../../../cli/python/delegate.py build/pkg/tilewright/delegate.py
	@ln -sfn ../../../cli/python/odimo.py build/pkg/tilewright/odimo.py
	@$(BIN)/pyright & $(BIN)/pyright -p pyright-strict.json; strict=$$?; wait $$! && exit $$strict

check: lint types $(DEV) ## everything that must pass before a change goes in: lint, types, quick tests and those of circuits
	@$(BIN)/pytest -n $(JOBS) -m "not slow"

docs: $(DEV) ## bring the generated tables and the picture in docs/ up to date
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/picture.py

release: $(DEV) $(RELEASE) ## make sdist, wheel, bill of materials, licences and checksums in build/release; KEY=file signs them
	@.ci/release $(KEY)

audit: $(DEV) $(RELEASE) ## look for known weaknesses of the packages in .venv; asks a server
	@mkdir -p build
	@$(BIN)/python -m pip freeze --exclude-editable > build/versions.txt
	@.venv-release/bin/pip-audit --no-deps --disable-pip -r build/versions.txt

site: $(DEV) ## build the documentation as HTML in build/site; warnings are errors
	@$(BIN)/sphinx-build -q -W --keep-going -E -b html docs build/site

docs-check: site ## ... and check its links, run the notebooks and the pages' Python blocks, and read their command lines
	@$(BIN)/python docs/links.py build/site
	@$(BIN)/pytest -n $(JOBS) tests/test_docs.py tests/test_blocks.py tests/test_site.py tests/test_notebooks.py

clean: ## remove what was built or cached; .venv stays
	@rm -rf build out .pytest_cache .ruff_cache .hypothesis *.egg-info
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# What `sim` and `bench` need; make test adds the rest to the same .venv.
$(RUN): pyproject.toml .ci/setup
	@.ci/setup $(RUN_EXTRAS)
	@touch $@

$(RTL): pyproject.toml .ci/setup
	@.ci/setup --tools $(RTL_EXTRAS)
	@touch $(RUN) $@

$(DEV): pyproject.toml .ci/setup
	@.ci/setup --tools $(RTL_EXTRAS),plots,explore,report,quantise,language,board,synth,formal,docs,dev
	@touch $(RUN) $(RTL) $@

$(RELEASE): pyproject.toml .ci/setup
	@python3 -m venv --clear .venv-release
	@.venv-release/bin/pip -q --disable-pip-version-check install "$$(pwd)[release]"
	@touch $@

$(FUZZ): $(DEV)
	@.ci/setup fuzz
	@touch $@

$(TORCH): pyproject.toml .ci/setup
	@VENV=.venv-torch .ci/setup cli,compiler,demo,plots,torch,train,dev
	@touch $@
