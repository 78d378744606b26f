# Two commands on a fresh machine: `make check` certifies the device at hand, `make test` runs the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/.package
STAMP := $(VENV)/.installed

# The suite runs in two processes; a free one takes half of what the other has left.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

# On Linux a software adapter can always be had, so a missing one is a failure there, not a skip.
# The compilers of GPUs can be had on x86-64 there.
ifeq ($(shell uname -sm),Linux x86_64)
export ROWGRAD_EXPECT ?= wgpu:vulkan wgpu:gl cupy nvrtc clang-19 chromium fxc
else ifeq ($(shell uname -s),Linux)
export ROWGRAD_EXPECT ?= wgpu:vulkan wgpu:gl chromium
endif

.PHONY: check test test-full test-tint test-swiftshader test-as-gpu bench lint driver compiler browser clean

check: $(PACKAGE) driver
	$(BIN)/rowgrad check

test: $(STAMP) driver compiler
	$(PYTEST) -m "not slow"

test-full: $(STAMP) driver compiler browser build/naga/.fetched build/fxc/fxc
	$(PYTEST)

bench: $(STAMP) driver
	$(BIN)/rowgrad bench --quick
	$(BIN)/python benchmarks/peers.py --quick

# The suite on another compiler, Dawn's, and on another driver. What Dawn takes is Mesa 25, newer than Debian 12's.
WGSL_TESTS := -m "not slow" -k "not cpu and not on-host"

test-tint: export VK_DRIVER_FILES = $(CURDIR)/build/lavapipe/icd.json
test-tint: export ROWGRAD_TINT = 1
test-tint: export ROWGRAD_EXPECT = wgpu:vulkan
test-tint: $(STAMP) driver build/lavapipe/icd.json
	$(PYTEST) $(WGSL_TESTS)

test-swiftshader: export VK_DRIVER_FILES = $(CURDIR)/build/swiftshader/icd.json
test-swiftshader: export ROWGRAD_EXPECT = wgpu:vulkan
test-swiftshader: $(STAMP) driver build/swiftshader/icd.json
	$(PYTEST) $(WGSL_TESTS)

# The suite on a software adapter that is planned as a GPU: a GPU's variants, and what the tests ask of GPUs.
test-as-gpu: export ROWGRAD_PLANNED_AS_GPU = 1
test-as-gpu: export ROWGRAD_EXPECT = wgpu:vulkan
test-as-gpu: $(STAMP) driver
	$(PYTEST) $(WGSL_TESTS)

# What translates the shaders for Metal and DirectX 12, and a C++ compiler that takes the former for the CPU.
build/naga/.fetched: $(STAMP)
	@command -v c++ >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends g++; }
	$(BIN)/python -m pip install --quiet --editable '.[translate]'
	PATH="$(CURDIR)/$(BIN):$$PATH" npm install --prefix build/naga --ignore-scripts --no-audit --no-fund naga-wasm@30.1.0
	@touch $@

# The npm of build/naga/.fetched gets it. Where it cannot be had there is no such file, and the next time tries again.
build/fxc/fxc: tools/fxc.sh tools/fxc.c | build/naga/.fetched
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tools/fxc.sh

build/%/icd.json:
	@sh tools/other_driver.sh $*

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/ci.yml

driver:
	@sh tools/vulkan_driver.sh

compiler: $(STAMP)
	@sh tools/amd_compiler.sh $(BIN)/python

browser:
	@sh tools/browser.sh

$(PACKAGE): pyproject.toml
	$(PYTHON) -m venv $(VENV) || { echo "install Python's venv first: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(STAMP): $(PACKAGE)
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) build dist
