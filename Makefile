# The front door. Each target works from a fresh clone: what is missing is installed or named.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
VENV ?= .venv
PYTHON := $(abspath $(VENV))/bin/python
JOBS ?= $(shell nproc)
# Tests that run side by side: they wait for each other, and for time to pass, half of their time.
AT_ONCE ?= 3
# What fails beside others may pass alone; the script says what is never forgiven.
RUN_TESTS := scripts/run_tests.py
TORCH_FLAGS := -DRANVIER_PYTHON=$(PYTHON)

.PHONY: help setup build demo test test-core test-asan test-tsan test-sanitizers test-threads test-python test-torch test-fabrics \
        fuzz bench test-arm64 clang tidy format clean build-core build-threads run-waiting run-computing run-python run-threads
help:
	@echo "make demo    train a CNN with 4 workers over a slow network, plain and with bf16 on the wire"
	@echo "make build   the programs ranvier and ranvier-train, in build/release/bin"
	@echo "make test    the tests of every change: unit, property, conformance, end to end, Python"
	@echo "             (test-core, test-python: one part alone)"
	@echo "make test-threads  what has threads, under tsan"
	@echo "make test-sanitizers  everything but Python and torch under asan with ubsan, and under tsan"
	@echo "make test-arm64  the core compiled for 64-bit ARM, and its tests under qemu"
	@echo "make fuzz    decoders and parsers on hostile bytes, FUZZ_SECONDS (60) each"
	@echo "make test-torch  all of PyTorch's own tests of torch.distributed over ranvier, and the frameworks"
	@echo "make test-fabrics  the conformance suite and DDP over mpi, ucx and grpc, as far as this machine has them"
	@echo "make bench   all_reduce up to 256 MiB against Open MPI and, through torch.distributed, against gloo"
	@echo "make clang   everything compiled by clang 14 as well"
	@echo "make tidy    clang-tidy over the core;  make format  clang-format over everything"

setup:
	@scripts/setup.sh $(VENV)

build: setup
	cmake --preset release $(TORCH_FLAGS) -DRANVIER_TESTS=OFF -DRANVIER_BENCHMARKS=OFF
	cmake --build --preset release -j $(JOBS)

demo: build
	$(PYTHON) scripts/demo.py build/release/bin/ranvier

# Tests that only compute take the processors when other tests leave them idle. As a group of processes of its own, to be
# ended together, and not as a session: Linux shares its processors among sessions first (sched_autogroup), and an idle one
# then has half of them.
test: build-core
	@mkdir -p build
	idle=$$(chrt --idle 0 true 2>/dev/null && echo chrt --idle 0); \
	set -m; $$idle $(MAKE) run-computing > build/idle.log 2>&1 & background=$$!; set +m; \
	trap 'kill -- -$$background 2>/dev/null' EXIT INT TERM; \
	$(MAKE) run-waiting && $(MAKE) run-python KEEP="RANVIER_TESTS RANVIER_BENCHMARKS RANVIER_EXAMPLES" && \
	  { wait $$background || { cat build/idle.log; false; }; }
	@echo "make test passed:"
	@sed -n 's/.*tests passed/  unit, conformance, end to end: &/p' build/core.log
	@sed -n 's/.*tests passed/  what only computes: &/p' build/computing.log
	@sed -n 's/^[0-9].* passed.* in .*/  Python: &/p' build/python.log
	@sed -n 's/.* only alone, at a second try$$/  UNSTEADY: &/p' build/core.log build/computing.log build/python.log

test-sanitizers: test-asan test-tsan

test-core: build-core
	$(MAKE) run-waiting run-computing

build-core: setup
	cmake --preset dev $(TORCH_FLAGS)
	cmake --build --preset dev -j $(JOBS)

run-waiting:
	$(RUN_TESTS) build/core.log ctest --preset dev -j $(AT_ONCE) -LE '^computes$$'

run-computing:
	$(RUN_TESTS) build/computing.log ctest --preset dev -j $(JOBS) -L '^computes$$'

test-asan: setup
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan

test-tsan: setup
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan

# For every change to what has threads: 11 minutes on two cores, and 8 to compile it the first time. Without the programs,
# which take half of the time to build.
THREADED := base bounded_loss lent_memory loopback paced ring shm simulated tcp tcp_meeting udp guest_messages control_plane engine \
            exchange conformance replica replica_loss
test-threads: build-threads
	$(MAKE) run-threads

build-threads: setup
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS) --target $(THREADED:%=%_test)

# Every fourth case of the conformance suite, and neither what takes turns in one simulated world nor the longest of
# those that repeat a few operations for the sake of their numbers: make test-tsan has all.
UNTHREADED := */simulated*:UdpConnection.*:UdpFairness.*:Learning.CorrectsAModelThatIsWrong*:Learning.NoiseDoesNotMove*:$\
              LearningJob.ChallengersKeepToTheLinks*:Coded.AppliedAndHeldBackAddUp*:SharedScale.IsWithinHalfAStep*
run-threads:
	GTEST_FILTER='-$(UNTHREADED)' $(RUN_TESTS) build/tsan.log ctest --preset tsan -j $(AT_ONCE) \
	  -R "^($$(echo $(THREADED) | tr ' ' '|'))_test(_0)?$$"

# What qemu lacks: pages that are there before they are touched, mincore(2), TCP_INFO, and when a packet came.
ARM64 := base kernel schedule sync codec coding decoder_memory loopback ring lent_memory bulk_copy shm tcp udp engine \
         bounded_loss exchange
NOT_UNDER_QEMU := LentMemory.IsGivenBackWhenItIsFreed:ShmMemory.IsTouchedWhenTheRanksMeet:*/Tcp.CountsTheSegmentsOfItsData/*:$\
                  Udp.WhenAPacketArrivedIsKnownByWhoeverReadsItLate
test-arm64:
	@scripts/setup.sh $(VENV) g++-aarch64-linux-gnu qemu-user-static
	scripts/arm64_sysroot.sh build/arm64-sysroot
	cmake --preset arm64
	cmake --build --preset arm64 -j $(JOBS) --target ranvier $(ARM64:%=%_test)
	GTEST_FILTER='-$(NOT_UNDER_QEMU)' ctest --preset arm64 -j $(JOBS) -R "^($$(echo $(ARM64) | tr ' ' '|'))_test(_[0-9]+)?$$"

# The conformance suite over the transports that stand in modules.
test-fabrics: test-core
	RANVIER_TEST_LONG=1 build/dev/bin/conformance_test --gtest_filter='*mpi*:*ucx*:*grpc*'
	cd tests/python && RANVIER_TEST_LONG=1 PYTHONPATH=$(CURDIR)/build/dev/python $(PYTHON) -B -m pytest -q test_transports.py

# All of PyTorch's own suite over ranvier, at 2, 3 and 4 ranks, and the frameworks of docs/frameworks.md, with the
# package that users build: isolated from what else is installed.
test-torch: setup
	$(PYTHON) -m pip install --quiet --disable-pip-version-check .
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements-frameworks.txt
	$(PYTHON) tests/python/pytorch_suite/run.py
	RANVIER_TEST_LONG=1 $(PYTHON) -m pytest -q tests/python/test_pytorch_suite.py tests/python/test_frameworks.py tests/python/test_rebuild.py tests/python/test_parallelism.py

# What pip does for users, in the folder of test-core, so that nothing is compiled twice. KEEP: what that folder has
# beyond the package, which goes on to be configured there, for tests of it may still be running.
test-python: setup
	$(MAKE) run-python

run-python:
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps . \
	  -Cbuild-dir=build/dev -Ccmake.build-type=RelWithDebInfo -Ccmake.define.RANVIER_DEVELOPER=ON \
	  $(KEEP:%=-Ccmake.define.%=ON)
	$(RUN_TESTS) build/python.log $(PYTHON) -m pytest -q --durations=15 -n $(AT_ONCE) --dist worksteal tests/python

# Long campaigns; the corpora stay in build/fuzz and are gone on with. Tests run some seconds of each (fuzz_short_*).
# lanes_fuzz: a rank keeps messages that come before their recv, of up to half of the memory that is left.
FUZZ_SECONDS ?= 60
FUZZERS := calls_fuzz checkpoint_fuzz codec_fuzz coding_fuzz control_fuzz exchange_fuzz files_fuzz greeting_fuzz guests_fuzz http2_fuzz lanes_fuzz lines_fuzz meeting_fuzz requests_fuzz ring_fuzz text_fuzz tls_fuzz udp_fuzz
fuzz:
	@scripts/setup.sh $(VENV) clang-14 libclang-rt-14-dev
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS) --target $(FUZZERS)
	set -e; for fuzzer in $(FUZZERS); do mkdir -p build/fuzz/corpus/$$fuzzer; limits=-rss_limit_mb=1024; \
	  if [ $$fuzzer = lanes_fuzz ]; then limits="-rss_limit_mb=4096 -malloc_limit_mb=65536"; fi; \
	  build/fuzz/bin/$$fuzzer -max_total_time=$(FUZZ_SECONDS) -max_len=8192 $$limits \
	    -print_final_stats=1 build/fuzz/corpus/$$fuzzer tests/fuzz/corpus/$$fuzzer; done

bench: build
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps .
	benchmarks/collectives/all_reduce.py build/release/bin/ranvier $(PYTHON)

clang: setup
	@scripts/setup.sh $(VENV) clang-14
	cmake --preset clang $(TORCH_FLAGS)
	cmake --build --preset clang -j $(JOBS)

tidy:
	@scripts/setup.sh $(VENV) clang-14 clang-tidy-14
	cmake --preset tidy
	cmake --build --preset tidy -j $(JOBS)

format:
	@scripts/setup.sh $(VENV) clang-format-14
	git ls-files '*.cc' '*.h' | xargs clang-format-14 -i

clean:
	rm -rf build
