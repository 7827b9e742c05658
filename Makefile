# Each target sets up what it needs under .make/ and reinstalls only what has changed.
PYTHON ?= python3
# An extra package index for torch (a CPU-only build, say); empty: whatever pip finds by itself.
TORCH_INDEX ?=
PYTEST_ARGS ?= -n 2 --dist worksteal

# What the shell says of Python is not for the tests: without byte code on disk every process compiles what it imports,
# some ten seconds for JAX and PyTorch, and the tests start many.
unexport PYTHONPATH PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK = 1
WORK := .make
SOURCES := setup.cfg pyproject.toml README.md LICENSE $(shell find tridiag -not -path "*__pycache__*")
# --no-compile: half the time to install; Python compiles what it imports.
PIP_INSTALL := -m pip install --quiet --no-compile --constraint constraints.txt $(addprefix --extra-index-url ,$(TORCH_INDEX))

# The tests run on a copy outside the checkout, so that what they import is the installed wheel.
TESTED := tests tools examples benchmarks docs recipe .ci .github .readthedocs.yaml Makefile CITATION.cff LICENSE *.md *.txt *.cfg *.toml
define pytest
copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && cp -R $(TESTED) "$$copy" \
  && cd "$$copy" && "$(CURDIR)/$(WORK)/$(or $(VENV),test)/bin/python" -m pytest -c setup.cfg
endef

.PHONY: wheels release-check test-matrix test-avx2 test-sse test-arm test-windows dev test test-gpu-offline test-gpu-toolchains demo slow campaign guard doctest lint types docs clean

test: $(WORK)/test.stamp
	$(pytest) $(PYTEST_ARGS)

# The code for GPUs, without one; what needs g++ is skipped where there is none.
test-gpu-offline: VENV := gpu-offline
test-gpu-offline: $(WORK)/gpu-offline.stamp
	$(pytest) -m "(gpu_offline or smoke) and not (gpu_toolchains or slow)" -rs $(PYTEST_ARGS)

# Triton, and XLA for GPUs, without one. What cannot be installed says why, and its tests are skipped.
test-gpu-toolchains: VENV := gpu-toolchains
test-gpu-toolchains: $(WORK)/gpu-toolchains.stamp
	@grep -v "^#" gpu-toolchains.txt | while read -r wheel; do \
	  $(WORK)/$(VENV)/bin/python $(PIP_INSTALL) --retries 1 --no-deps "$$wheel" || echo "$$wheel: not installed"; done
	$(pytest) -m "gpu_toolchains or smoke" -rs $(PYTEST_ARGS)

# The checkout itself, editable: no wheel is built, and an edit is seen at once.
dev: $(WORK)/dev.stamp

$(WORK)/dev.stamp: setup.cfg pyproject.toml constraints.txt
	test -x $(WORK)/dev/bin/python || $(PYTHON) -m venv $(WORK)/dev
	$(WORK)/dev/bin/python $(PIP_INSTALL) --editable ".[test,docs,jax,scipy,torch,dask,xarray,examples,cli,mpi]"
	touch $@

demo: $(WORK)/demo.stamp
	$(WORK)/demo/bin/python examples/ocean_mixing.py

slow: $(WORK)/test.stamp
	$(pytest) -m slow $(PYTEST_ARGS)

# Random cases of the installed package against oracles, on all cores: tests/guarded/__init__.py says what a case is.
campaign: SECONDS ?= 600
campaign: $(WORK)/test.stamp
	$(WORK)/test/bin/python tests/guarded/campaign.py --seconds $(SECONDS) $(RESUME) --output benchmarks/results/campaign.json

# Times of the installed package over references in the same run, against the committed ratios.
guard: $(WORK)/test.stamp
	$(WORK)/test/bin/python benchmarks/guard.py

doctest: $(WORK)/test.stamp
	$(pytest) --doctest-modules --doctest-ignore-import-errors --doctest-glob='*.rst' --pyargs tridiag docs

lint: $(WORK)/check.stamp
	$(WORK)/check/bin/python -m ruff check .
	$(WORK)/check/bin/python -m ruff format --check .

types: $(WORK)/check.stamp
	$(WORK)/check/bin/python -m mypy tridiag

docs: $(WORK)/check.stamp
	$(WORK)/check/bin/python -m sphinx -W --keep-going -q -b html docs docs/_build
	$(WORK)/check/bin/python docs/links.py docs/_build

# What a release consists of: the sources, a wheel for every platform, and one for MACHINE, an architecture of Linux, which
# brings kernels along for its kinds of processors. They are compiled here, whatever the machine; what speaks with Python,
# for each of PYTHONS.
PYTHONS ?= $(PYTHON)
MACHINE ?= $(shell uname -m)
PLATFORM ?= manylinux_2_17_$(MACHINE)
wheels: $(WORK)/wheel.stamp
	rm -rf $(WORK)/wheels $(WORK)/sources && mkdir -p $(WORK)/wheels $(WORK)/sources
	cp -R tridiag setup.cfg pyproject.toml README.md LICENSE $(WORK)/sources && cp tools/platform_wheel.py $(WORK)/sources/setup.py
	cp $(WORK)/wheel/*.whl $(WORK)/wheels
	only=; for python in $(PYTHONS); do \
	  rm -rf $(WORK)/builder && $$python -m venv $(WORK)/builder && $(WORK)/builder/bin/python $(PIP_INSTALL) $(WORK)/wheel/*.whl \
	  && $(WORK)/builder/bin/python tools/wheels.py $(WORK)/sources/tridiag/kernels/objects --machine $(MACHINE) $$only && only="--only python" || exit 1; done
	$(WORK)/builder/bin/python -m pip install --quiet build && $(WORK)/builder/bin/python -m build --sdist --outdir $(WORK)/wheels .
	$(WORK)/builder/bin/python -m pip wheel --quiet --no-deps --wheel-dir $(WORK)/wheels \
	  --config-settings=--build-option=--plat-name=$(PLATFORM) $(WORK)/sources
	ls -l $(WORK)/wheels

# What a user is given: that its metadata is right, and that the sources and each wheel, installed alone, solve, and do
# what README.md shows; that the wheel which brings kernels along compiles nothing, for each of PYTHONS; the pages.
README := import re; exec(re.search(r"```python\n(.*?)```", open("README.md").read(), re.S)[1])
define as_a_user
rm -rf $(WORK)/user && $$python -m venv $(WORK)/user && $(WORK)/user/bin/python $(PIP_INSTALL) $$given \
  && export XDG_CACHE_HOME=$$(mktemp -d) && for verb in solve linear_recurrence logcumsumexp; do \
    $(WORK)/user/bin/python benchmarks/first_solve.py $$verb > $(WORK)/first.json || exit 1; cat $(WORK)/first.json; \
    case $$given in *linux*) grep -q '"compiled": 0,' $(WORK)/first.json || { echo "$$given compiled a kernel"; exit 1; };; esac; \
    done && $(WORK)/user/bin/python -I -c '$(README)'
endef
release-check: wheels docs
	for wheel in $(WORK)/wheels/*.whl; do case $$wheel in *-py3-none-any.whl) pure=true;; *-py3-none-$(PLATFORM).whl) pure=false;; *) pure=;; esac; \
	  unzip -p $$wheel '*.dist-info/WHEEL' | grep -qx "Root-Is-Purelib: $$pure" || { echo "$$wheel is not told as it is"; exit 1; }; done
	$(WORK)/builder/bin/python $(PIP_INSTALL) twine && $(WORK)/builder/bin/python -m twine check --strict $(WORK)/wheels/*
	for given in $(WORK)/wheels/*; do python="$(PYTHON)"; $(as_a_user) || exit 1; done
	for python in $(PYTHONS); do given="$$(echo $(WORK)/wheels/*linux*.whl)"; $(as_a_user) || exit 1; done

# A slice of the tests on other versions of Python and of libraries, as `python:versions`: the oldest that are promised
# (floors.txt), or the newest. A Python that is not here is told. PyTorch is that of constraints.txt alone, as a build for
# CPUs (from TORCH_INDEX): older ones are on the package index as builds for CUDA. Where there is none it is told.
MATRIX ?= python3.11:floors python3.12:newest python3.13:newest python3.14:newest
SLICE := -k "(test_any_axis or test_values or test_determinants or test_every_promise) and numpy and not (float32 or complex)" \
  tests/test_solve.py tests/test_factor.py tests/test_matmul_slogdet.py tests/test_recurrences.py tests/test_logarithms.py \
  tests/test_matrix_recurrence.py tests/test_blocks.py
# Of each library that the verbs take: results, what it traces, and gradients.
LIBRARIES := -k "(test_options_differentiate and (numba_thomas or jax_scan)) or test_a_training_step_works or test_gradients_under_vmap_and_jit \
  or (test_moments_of_one_series and (observed or changing)) or test_jit_and_vmap or (test_gradients_are_finite_differences and numba_scan) \
  or test_any_axis_and_masks or test_determinants_of_any_size or test_labels_stay or test_the_accessor or test_lazy_in_lazy_out" \
  tests/test_gradients_jax.py tests/test_gradients_torch.py tests/test_recurrence_gradients.py tests/test_kalman.py tests/test_dask.py tests/test_xarray.py
test-matrix: $(WORK)/wheel.stamp
	touch $(WORK)/newest.txt
	cp floors.txt $(WORK)/floors.txt
	for pair in $(MATRIX); do python=$${pair%%:*} versions=$${pair##*:}; echo "== $$pair"; \
	  $$python --version > /dev/null 2>&1 || { echo "$$python is not here: not tested"; continue; }; \
	  venv="$(CURDIR)/$(WORK)/matrix-$$python-$$versions"; test -x $$venv/bin/python || $$python -m venv $$venv || exit 1; \
	  $$venv/bin/python -m pip install --quiet --constraint $(WORK)/$$versions.txt \
	    "$$(echo $(WORK)/wheel/*.whl)[scipy,jax,dask,xarray]" pytest pytest-xdist pytest-timeout hypothesis mpmath || exit 1; \
	  without=; $$venv/bin/python -m pip install --quiet --constraint $(WORK)/$$versions.txt $(addprefix --extra-index-url ,$(TORCH_INDEX)) \
	    "$$(grep ^torch== constraints.txt)+cpu" || { echo "PyTorch for CPUs is not here for $$python: not tested"; without="--ignore tests/test_gradients_torch.py"; }; \
	  (copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && cp -R $(TESTED) "$$copy" \
	    && cd "$$copy" && $$venv/bin/python -m pytest -c setup.cfg $(PYTEST_ARGS) $(SLICE) \
	    && $$venv/bin/python -m pytest -c setup.cfg $(PYTEST_ARGS) $(LIBRARIES) $$without) || exit 1; done

# The same slice, by kernels for processors with AVX2 and with SSE 4.2, on one that has more.
test-avx2: PROCESSOR := haswell
test-sse: PROCESSOR := nehalem
test-avx2 test-sse: $(WORK)/test.stamp
	export NUMBA_CPU_NAME=$(PROCESSOR) NUMBA_CPU_FEATURES=; $(pytest) $(PYTEST_ARGS) $(SLICE)

# Every kernel of a wheel, compiled for ARM, macOS and Windows: no symbol that these lack. Those for any ARM then run in an
# emulator, under Debian's Python and wheels for aarch64, against plain loops. Needs Debian, and qemu-user of it; 10
# to 24 minutes of processor time. VERBS="solve factor": those of these alone.
VERBS ?=
ARM := $(WORK)/arm
ARM_PACKAGES := python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 \
  libssl3 libffi8 libbz2-1.0 liblzma5
ARM_PYTHON = env PYTHONDONTWRITEBYTECODE=1 OPENBLAS_NUM_THREADS=1 XDG_CACHE_HOME=$$(mktemp -d) PYTHONPATH=$(ARM)/site \
  qemu-aarch64 -cpu $$processor -L $(ARM)/root $(ARM)/root/usr/bin/python3.11
test-arm: $(ARM)/root.stamp $(WORK)/test.stamp
	rm -rf $(ARM)/objects $(ARM)/site/tridiag && unzip -q -o $(WORK)/wheel/*.whl -d $(ARM)/site
	$(WORK)/test/bin/python tools/other_targets.py $(ARM)/objects --part 1/2 $(VERBS) & first=$$!; \
	  $(WORK)/test/bin/python tools/other_targets.py $(ARM)/objects --part 2/2 $(VERBS); second=$$?; wait $$first && exit $$second
	mv $(ARM)/objects $(ARM)/site/tridiag/kernels/objects
	for processor in cortex-a72 max; do $(ARM_PYTHON) tests/on_arm.py --verbs $(VERBS) || exit 1; done

# Some kernels compiled for Windows and run in Wine, with threads. Needs Debian, and a compiler and Wine of it.
test-windows: $(WORK)/test.stamp
	x86_64-w64-mingw32-gcc --version > /dev/null \
	  || apt-get install -qq --no-install-recommends gcc-mingw-w64-x86-64-win32 wine64
	rm -rf $(WORK)/windows && $(WORK)/test/bin/python tests/on_windows.py $(WORK)/windows

$(ARM)/root.stamp:
	rm -rf $(ARM) && mkdir -p $(ARM)/packages $(ARM)/root $(ARM)/wheels
	qemu-aarch64 --version || apt-get install -qq --no-install-recommends qemu-user
	dpkg --add-architecture arm64 && apt-get update -qq
	cd $(ARM)/packages && apt-get download -qq $(addsuffix :arm64,$(ARM_PACKAGES)) && for x in *.deb; do dpkg -x $$x ../root; done
	$(PYTHON) -m pip download --quiet --dest $(ARM)/wheels --python-version 3.11 --only-binary=:all: \
	  --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 numpy numba llvmlite platformdirs
	for x in $(ARM)/wheels/*.whl; do unzip -q -o $$x -d $(ARM)/site; done
	touch $@

clean:
	rm -rf $(WORK) build *.egg-info docs/_build

$(WORK)/demo.stamp: EXTRAS := jax,scipy,examples,cli
$(WORK)/test.stamp: EXTRAS := test,jax,scipy,torch,dask,xarray,examples,cli,mpi
$(WORK)/gpu-offline.stamp: EXTRAS := test,scipy,jax,pallas,torch,gpu-offline
$(WORK)/gpu-toolchains.stamp: EXTRAS := test,jax,pallas,scipy,torch,gpu-offline
$(WORK)/check.stamp: EXTRAS := test,docs,xarray

$(WORK)/wheel.stamp: $(SOURCES)
	rm -rf build $(WORK)/wheel
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir $(WORK)/wheel .
	touch $@

$(WORK)/%.stamp: $(WORK)/wheel.stamp constraints.txt
	test -x $(WORK)/$*/bin/python || $(PYTHON) -m venv $(WORK)/$*
	$(WORK)/$*/bin/python $(PIP_INSTALL) --force-reinstall --no-deps $(WORK)/wheel/*.whl
	$(WORK)/$*/bin/python $(PIP_INSTALL) "$$(echo $(WORK)/wheel/*.whl)[$(EXTRAS)]"
	touch $@
