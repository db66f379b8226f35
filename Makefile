# SPDX-License-Identifier: Apache-2.0
# GNU make only. `make help` lists the targets. No recursion into folders, no
# configure step. Targets that a person types on a fresh machine (demo, check,
# asan ...) first run .ci/deps and then call make again, because pkg-config can
# answer only after that.

NAME    := kvpush
VERSION := 0.1.0
ABI     := 0

# --- knobs a packager or a user may set -------------------------------------
prefix       ?= /usr/local
exec_prefix  ?= $(prefix)
libdir       ?= $(exec_prefix)/lib
bindir       ?= $(exec_prefix)/bin
includedir   ?= $(prefix)/include
DESTDIR      ?=
# Where this prefix's python3 looks for packages.
PYTHON       ?= python3
pythondir    ?= $(prefix)/lib/$(if $(filter /usr,$(prefix)),python3,$(or $(call once,PYTHON_FOLDER,$(PYTHON) -c 'import sys; print("python%d.%d" % sys.version_info[:2])' 2>/dev/null),python3))/dist-packages
CC           ?= cc
CFLAGS       ?= -O2 -g
V            ?= 0
VARIANT      ?= release
WERROR       ?= 0
INSTALL      ?= install
PKG_CONFIG   ?= pkg-config
CLANG        ?= clang-14
CLANG_FORMAT ?= clang-format-14
CLANG_TIDY   ?= clang-tidy-14
FUZZ_SECONDS ?= 10
ARGS         ?=
# Seconds until a hanging test program is killed.
TEST_TIMEOUT ?= 120

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-8s %s\n' '$(1)' '$(2)')
B := build/$(VARIANT)
# Use all cores unless the caller chose a number.
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))
again = +$(Q)$(MAKE) --no-print-directory $(JOBS)

# Expanded on first use, once: pkg-config is not there before .ci/deps ran.
once = $(eval $(1) := $$(shell $(2)))$($(1))

# --- warnings: one set, everywhere, always errors in CI (WERROR=1) -----------
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion \
	-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
	-Wwrite-strings -Wpointer-arith -Wcast-qual -Wcast-align -Wformat=2 \
	-Wundef -Wvla -Wdouble-promotion -Wimplicit-fallthrough -Wswitch-enum
WARN += $(if $(filter 1,$(WERROR)),-Werror)
IS_CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null | head -1))
WARN += $(if $(IS_CLANG),-Wthread-safety)

# --- variants: each has its own build folder, so switching never rebuilds all -
VF_release := -DKVP_DEBUG=0 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fstack-protector-strong
VF_debug   := -DKVP_DEBUG=2 -O1 -fno-omit-frame-pointer
VF_asan    := $(VF_debug) -fsanitize=address,undefined -fno-sanitize-recover=all
VF_ubsan   := $(VF_debug) -fsanitize=undefined -fno-sanitize-recover=all
VF_tsan    := $(VF_debug) -fsanitize=thread
VF_fuzz    := $(VF_debug) -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
VF_cov     := -DKVP_DEBUG=1 -O0 --coverage
VFLAGS := $(VF_$(VARIANT))
$(if $(VFLAGS),,$(error unknown VARIANT '$(VARIANT)': release debug asan ubsan tsan fuzz cov))

# The C11 memory model of rte_ring is the one that ThreadSanitizer understands,
# and as fast on x86; all variants use it so that all test the same code.
KVP_CFLAGS := -std=gnu17 -D_GNU_SOURCE -DRTE_USE_C11_MEM_MODEL -fPIC -fvisibility=hidden \
	-pthread -MMD -MP $(WARN) -Iinclude

# The C++ header and its tests: the C compiler's sibling, its warnings less those that are C's alone.
ifeq ($(origin CXX),default)
CXX := $(if $(IS_CLANG),$(patsubst clang%,clang++%,$(notdir $(CC))),g++)
endif
CXX_WARN := $(filter-out -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition,$(WARN))
KVP_CXXFLAGS := -std=gnu++17 -fPIC -pthread -MMD -MP $(CXX_WARN) -Iinclude -Iengine -Itests/compat

# --- DPDK: its static archives, hidden inside the library ---------------------
# Named one by one: `pkg-config --static --libs libdpdk` would pull in every
# driver. mempool_ring registers itself in a constructor that nobody references.
# Debian's flags ask for -march=corei7; dataplane/ is built for the same level
# under its portable name.
DPDK_CFLAGS = $(call once,DPDK_CFLAGS,$(PKG_CONFIG) --cflags libdpdk 2>/dev/null)
DPDK_LIBDIR = $(call once,DPDK_LIBDIR,$(PKG_CONFIG) --variable=libdir libdpdk 2>/dev/null)
DPDK_INC    = $(patsubst -I%,-isystem %,$(patsubst -march=corei7,-march=x86-64-v2,$\
	$(or $(DPDK_CFLAGS),$(error $(PKG_CONFIG) does not find libdpdk: run 'make deps'))))
DPDK_LIBS   = -Wl,--whole-archive $(DPDK_LIBDIR)/librte_mempool_ring.a -Wl,--no-whole-archive \
	-Wl,--start-group $(patsubst %,$(DPDK_LIBDIR)/librte_%.a,eal ring mempool kvargs telemetry) \
	-Wl,--end-group -lnuma -lbsd
# Devices: shared, since libibverbs loads the providers' own libraries.
VERBS_LIBS  = $(call once,VERBS_LIBS,$(PKG_CONFIG) --libs libibverbs hwloc 2>/dev/null || echo -libverbs -lhwloc)
CMOCKA_CFLAGS = $(call once,CMOCKA_CFLAGS,$(PKG_CONFIG) --cflags cmocka 2>/dev/null)
CMOCKA_LIBS   = $(call once,CMOCKA_LIBS,$(PKG_CONFIG) --libs cmocka 2>/dev/null || echo -lcmocka)
JANSSON_LIBS  = $(call once,JANSSON_LIBS,$(PKG_CONFIG) --libs jansson 2>/dev/null || echo -ljansson)

# --- layering: a folder can include only what its flags let it see -----------
INC_engine    = -Iengine
INC_dataplane = -Iengine -Idataplane $(DPDK_INC)
INC_control   = -Iengine -Idataplane -Icontrol -DKVP_VERSION_TEXT='"$(VERSION)"'
INC_perf      = -Iengine -Idataplane -Icontrol -Iperf $(DPDK_INC)
INC_tests     = -Iengine -Idataplane -Icontrol -Itests -Itests/fake -Itests/fake/verbs $(DPDK_INC) \
	$(patsubst -I%,-isystem %,$(CMOCKA_CFLAGS))

SRC  := $(sort $(wildcard engine/*.c dataplane/*.c dataplane/*/*.c control/*.c))
OBJ  := $(SRC:%.c=$(B)/%.o)
# The simulation's world replaces parts of the library, so only its own programs are linked with it.
SIM := $(patsubst %.c,$(B)/%.o,$(sort $(wildcard tests/unit/verbs_sim*.c)))
HELP := $(patsubst %.c,$(B)/%.o,$(sort $(filter-out $(wildcard tests/*/test_*.c tests/unit/verbs_sim*.c), \
	$(wildcard tests/fake/*.c tests/fake/*/*.c tests/unit/*.c tests/integ/*.c))))
UNIT := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/unit/test_*.c)))
INTEG := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/integ/test_*.c)))
FUZZ := $(patsubst %.c,$(B)/%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
COMPAT := $(patsubst %.cc,$(B)/%,$(sort $(wildcard tests/compat/test_*.cc)))
COMPAT_HELP := $(patsubst %.cc,$(B)/%.o,$(sort $(filter-out $(wildcard tests/compat/test_*.cc),$(wildcard tests/compat/*.cc))))
REPLAY := $(FUZZ:$(B)/tests/fuzz/fuzz_%=$(B)/tests/fuzz/replay_%)
COMMAND := $(B)/$(NAME)
MICRO := $(patsubst %.c,$(B)/%,$(sort $(wildcard perf/micro/*.c)))
MICRO_CXX := $(patsubst %.cc,$(B)/%,$(sort $(wildcard perf/micro/*.cc)))
DEMO := $(if $(wildcard perf/demo/*.c),$(B)/perf/demo/kvpush-demo)
LATENCY := $(if $(wildcard perf/latency.c),$(B)/perf/kvpush-latency)
BESIDE := $(if $(wildcard perf/verbs/*.c),$(B)/perf/kvpush-verbs)
RDMA_LOAD := $(if $(wildcard tests/rdma/*.c),$(B)/tests/rdma/load)
LIMITS := $(patsubst %.c,$(B)/%.o,$(wildcard perf/limits.c))
PUBLIC_H := $(sort $(wildcard include/$(NAME)/*.h))
PUBLIC_HPP := $(sort $(wildcard include/llm_datadist/*.h)) # LLM-DataDist's names, C++ only
PUBLIC_PY := $(sort $(wildcard control/python/$(NAME)/*.py control/python/$(NAME)/py.typed))
ALL_CC := $(sort $(PUBLIC_HPP) $(wildcard tests/compat/*.cc tests/compat/*.h tests/compat/*/*.h perf/micro/*.cc))
ALL_C := $(sort $(wildcard engine/*.[ch] dataplane/*.[ch] dataplane/*/*.[ch] control/*.[ch] control/*/*.[ch] \
	include/$(NAME)/*.h tests/*/*.[ch] tests/fake/*/*.[ch] perf/*.[ch] perf/*/*.[ch]))

LIB_A  := $(B)/lib$(NAME).a
LIB_SO := $(B)/lib$(NAME).so

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all deps demo demo-run check check-run unit integ compat replay unit-run integ-run compat-run replay-run \
	suite programs check-fault check-rdma check-rdma-uml rdma-programs rdma-asan asan ubsan tsan fuzz fuzz-run cov cov-run bench format format-check lint \
	lint-run tidy cppcheck check-hot check-layers check-headers check-exports check-readme check-command \
	check-sizes check-spdx check-glossary check-deps install uninstall check-install clean help

all: $(LIB_A) $(LIB_SO) $(B)/$(NAME).pc $(COMMAND) ## build the library; needs what `make deps` installs

deps: ## install the Debian packages that building, testing and linting need
	@.ci/deps build test lint fuzz

# --- objects and libraries ----------------------------------------------------
$(B)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(KVP_CFLAGS) $(INC_$(firstword $(subst /, ,$<))) $(CFLAGS) $(VFLAGS) -c -o $@ $<

$(B)/%.o: %.cc Makefile
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CPPFLAGS) $(KVP_CXXFLAGS) $(CFLAGS) $(VFLAGS) -c -o $@ $<

# Pairs of counters in vector registers cost these loops a third of their speed.
$(B)/dataplane/verbs/verbs_post_fast.o $(B)/engine/cursor.o: KVP_CFLAGS += -fno-tree-slp-vectorize

# Not installed: for this tree's own programs and tests, which may see hidden symbols.
$(LIB_A): $(OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/libhelp.a: $(HELP)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# nodelete: EAL's threads outlive the last engine, so the code must stay mapped.
$(LIB_SO): $(OBJ) control/$(NAME).map
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(VFLAGS) $(LDFLAGS) -shared -pthread -Wl,-soname,lib$(NAME).so.$(ABI) \
		-Wl,--version-script=control/$(NAME).map -Wl,--exclude-libs,ALL -Wl,-z,defs \
		-Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,--as-needed \
		-o $@ $(OBJ) $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)
	$(Q)ln -sf lib$(NAME).so $(B)/lib$(NAME).so.$(ABI)

$(B)/$(NAME).pc: Makefile
	@mkdir -p $(@D)
	$(Q)printf '%s\n' 'prefix=$(prefix)' 'libdir=$(libdir)' 'includedir=$(includedir)' '' \
		'Name: $(NAME)' 'Description: pushes KV-cache blocks between hosts' \
		'Version: $(VERSION)' 'Libs: -L$${libdir} -l$(NAME)' 'Cflags: -I$${includedir}' >$@

# --- programs -------------------------------------------------------------------
LINK = $(CC) $(CFLAGS) $(VFLAGS) $(LDFLAGS) -pthread -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -o $@

# The installed command is linked with the library that is installed beside it.
$(COMMAND): $(B)/control/cli/main.o $(LIB_SO)
	$(call say,LINK,$@)
	$(Q)$(LINK) $< -L$(B) -l$(NAME) -Wl,-rpath,'$$ORIGIN' -Wl,-rpath,'$$ORIGIN/../lib' $(LDLIBS)

$(DEMO): $(patsubst %.c,$(B)/%.o,$(wildcard perf/demo/*.c)) $(LIMITS) $(LIB_A)
	$(call say,LINK,$@)
	$(Q)$(LINK) $^ $(JANSSON_LIBS) $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)

$(LATENCY): $(B)/perf/latency.o $(LIMITS) $(LIB_A)
	$(call say,LINK,$@)
	$(Q)$(LINK) $^ $(JANSSON_LIBS) $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)

# Its bytes are checked by the demo's generator.
$(BESIDE): $(patsubst %.c,$(B)/%.o,$(wildcard perf/verbs/*.c)) $(B)/perf/demo/content.o $(LIB_A)
	$(call say,LINK,$@)
	$(Q)$(LINK) $^ $(JANSSON_LIBS) $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)

$(MICRO): %: %.o $(LIB_A)
	$(call say,LINK,$@)
	$(Q)$(LINK) $^ $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)

$(MICRO_CXX): %: %.o $(LIB_A)
	$(call say,LINK,$@)
	$(Q)$(LINK_CXX) $^ $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)

programs: $(DEMO) $(LATENCY) $(BESIDE) $(MICRO) $(MICRO_CXX)

demo: ## show a push between two processes; sets the machine up first (ARGS=...)
	@.ci/deps build
	$(again) demo-run
demo-run: $(DEMO)
	$(Q)$(DEMO) $(ARGS)

bench: ## run the latency benchmark and the micro-benchmarks
	@.ci/deps build test
	$(again) $(LATENCY) $(MICRO) $(MICRO_CXX)
	@for m in $(LATENCY) $(MICRO) $(MICRO_CXX); do printf '\n== %s\n' "$$m"; $$m || exit 1; done

# --- tests ----------------------------------------------------------------------
# A test is linked with its helpers (tests/fake/, files beside it not called
# test_*) and the library, all as archives, so that what a test or a fake defines
# itself replaces the library's file. A test that replaces only some functions of
# a file names the objects to link instead of the library, in a comment in its
# first lines: `links:` followed by the .o files.
LINKED := $(shell awk 'FNR == 1 { on = 0 } FNR > 30 { next } \
	/links:/ && FNR <= 30 { on = 1; sub(/.*links:/, "") } \
	on { line = $$0; done = sub(/\*\/.*/, "", line); n = split(line, w, /[ \t*]+/); \
	for (i = 1; i <= n; i++) if (w[i] ~ /\.o$$/) printf "%s|%s ", FILENAME, w[i]; if (done) on = 0 }' \
	/dev/null $(wildcard tests/unit/test_*.c tests/integ/test_*.c) 2>/dev/null)
links = $(addprefix $(B)/,$(patsubst $(1).c|%,%,$(filter $(1).c|%,$(LINKED))))

$(filter %/test_dataplane_verbs_sim %/test_dataplane_verbs_sim_fence %/test_dataplane_verbs_sim_sges \
	%/test_dataplane_verbs_sim_signal,$(UNIT)): $(SIM)

.SECONDEXPANSION:
$(UNIT) $(INTEG): $(B)/%: $(B)/%.o $$(if $$(HELP),$$(B)/libhelp.a) $$(or $$(call links,$$*),$$(LIB_A))
	$(call say,LINK,$@)
	$(Q)$(LINK) $(filter %.o,$^) $(filter %.a,$^) $(CMOCKA_LIBS) $(DPDK_LIBS) $(VERBS_LIBS) $(JANSSON_LIBS) $(LDLIBS)

LINK_CXX = $(patsubst $(CC),$(CXX),$(firstword $(LINK))) $(wordlist 2,99,$(LINK))
$(COMPAT): $(B)/%: $(B)/%.o $(COMPAT_HELP) $(LIB_A)
	$(call say,LINK,$@)
	$(Q)$(LINK_CXX) $^ $(CMOCKA_LIBS) $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)

$(FUZZ): $(B)/tests/fuzz/%: $(B)/tests/fuzz/%.o $(LIB_A)
	$(call say,LINK,$@)
	$(Q)$(LINK) -fsanitize=fuzzer $^ $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)

$(REPLAY): $(B)/tests/fuzz/replay_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/replay_main.o $(LIB_A)
	$(call say,LINK,$@)
	$(Q)$(LINK) $^ $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)

# ThreadSanitizer of gcc 12 cannot map its shadow under much address randomisation.
CALM := $(if $(filter tsan,$(VARIANT)),$(shell setarch -R true 2>/dev/null && echo setarch -R))
SANITIZER_ENV := ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
	UBSAN_OPTIONS=print_stacktrace=1 \
	TSAN_OPTIONS=second_deadlock_stack=1:suppressions=$(CURDIR)/tests/lint/tsan.supp
TALLY ?= build/$@.tally
RUN = $(SANITIZER_ENV) TALLY=$(TALLY) LOGS=$(B)/log tests/lint/run.sh $(TEST_TIMEOUT)

unit-run: $(UNIT)
	@$(RUN) $(UNIT:%='$(CALM) %')
integ-run: $(INTEG)
	@$(RUN) $(INTEG:%='$(CALM) %')
# Python loads the library itself, which a sanitizer's runtime would have to be loaded before.
compat-run: $(COMPAT) $(if $(filter release,$(VARIANT)),$(LIB_SO))
	@$(RUN) $(COMPAT:%='$(CALM) %') $(if $(filter release,$(VARIANT)),'env PYTHONDONTWRITEBYTECODE=1 \
		PYTHONPATH=control/python KVPUSH_LIBRARY=$(B)/lib$(NAME).so $(PYTHON) tests/compat/test_python.py')
replay-run: $(REPLAY)
	@$(RUN) $(foreach r,$(REPLAY),'$(CALM) $(r) $(wildcard tests/fuzz/corpus/$(patsubst replay_%,fuzz_%,$(notdir $(r))))')

# One kind of test, with its closing line. The sub-make builds in parallel, then runs in order.
unit integ compat replay: ## one kind of test alone (VARIANT=debug by default for unit)
	@.ci/deps build test
	@rm -f build/$@.tally
	$(again) $(if $(filter unit,$@),$(if $(filter file,$(origin VARIANT)),VARIANT=debug)) TALLY=build/$@.tally $@-run
	@tests/lint/tally.sh '' build/$@.tally

# Unit tests with all assertions, the rest as it is shipped.
check: ## all tests and structural checks; sets the machine up first; no root, no NIC after that
	@.ci/deps build test
	$(again) check-run
check-run:
	@rm -f build/check.tally
	$(again) VARIANT=debug TALLY=build/check.tally unit-run
	$(again) VARIANT=release all programs
	$(again) VARIANT=release TALLY=build/check.tally integ-run
	$(again) VARIANT=release TALLY=build/check.tally compat-run
	$(again) VARIANT=release TALLY=build/check.tally replay-run
	@TALLY=build/check.tally LOGS=build/release/log tests/lint/run.sh $(TEST_TIMEOUT) \
		$(patsubst %,'$(MAKE) --no-print-directory VARIANT=release %',check-hot check-layers \
			check-headers check-exports check-readme check-command check-deps)
	@tests/lint/tally.sh '' build/check.tally

# Transfers ended at random moments, whose blocks change hands at once: as many as prove something.
TRIALS ?= 10000
check-fault: ## 10,000 ended transfers per transport, direction and kind, with canaries (TRIALS=...)
	@.ci/deps build test
	$(again) VARIANT=release $(patsubst %,build/release/tests/integ/%,test_canary)
	@rm -f build/$@.tally
	@KVP_TEST_TRIALS=$(TRIALS) TALLY=build/$@.tally LOGS=build/release/log tests/lint/run.sh 900 build/release/tests/integ/test_canary
	@tests/lint/tally.sh 'fault: ' build/$@.tally

asan ubsan tsan: ## unit and integration tests under one sanitizer
	@.ci/deps build test
	@rm -f build/$@.tally
	$(again) VARIANT=$@ TALLY=build/$@.tally TEST_TIMEOUT=$$((3 * $(TEST_TIMEOUT))) suite
	@tests/lint/tally.sh '$@: ' build/$@.tally
suite: unit-run
	$(again) integ-run
	$(again) compat-run

# Everything over verbs, on a machine of its own that is emulated: what was built here runs there.
# CASES='integ/* rail/loss-*' runs some; tests/rdma/cases.sh has the list.
CASES ?=
RDMA_SECONDS ?= 900
rdma = tests/rdma/machine.sh -t $(RDMA_SECONDS) -e CASES='$(CASES)'
check-rdma: ## all of the engine over verbs, and faults under load, in an emulated machine with RDMA devices
	@.ci/deps build test rdma
	$(again) VARIANT=release rdma-programs
	$(if $(if $(CASES),$(findstring asan,$(CASES)),all),$(again) VARIANT=asan rdma-asan)
	@$(rdma) tests/rdma/cases.sh
check-rdma-uml: RDMA_SECONDS = 3600
check-rdma-uml: ## verbs benchmarks and mass cases, in a user-mode kernel at full speed
	@.ci/deps build test rdma rdma-uml
	$(again) VARIANT=release rdma-programs programs
	@$(rdma) -u tests/rdma/uml.sh
$(RDMA_LOAD): $(patsubst %.c,$(B)/%.o,$(wildcard tests/rdma/*.c)) $(LIB_A)
	$(call say,LINK,$@)
	$(Q)$(LINK) $^ $(DPDK_LIBS) $(VERBS_LIBS) $(LDLIBS)
rdma-programs: $(INTEG) $(COMPAT) $(LIB_SO) $(DEMO) $(RDMA_LOAD)
rdma-asan: $(INTEG)

fuzz: ## build and run each fuzzer for FUZZ_SECONDS (clang)
	@.ci/deps build fuzz
	$(again) VARIANT=fuzz CC=$(CLANG) fuzz-run
# New inputs stay under build/; copy the good ones to tests/fuzz/corpus/ by hand.
fuzz-run: $(FUZZ)
	@for f in $(FUZZ); do n=$${f##*/}; mkdir -p build/corpus/$$n build/crash; seeds=tests/fuzz/corpus/$$n; \
		[ -d $$seeds ] || seeds=; \
		$$f -max_total_time=$(FUZZ_SECONDS) -print_final_stats=0 -verbosity=0 -timeout=10 \
			-artifact_prefix=build/crash/$$n- build/corpus/$$n $$seeds >build/crash/$$n.log 2>&1 || \
			{ tail -60 build/crash/$$n.log; exit 1; }; \
		printf '  FUZZED   %s\n' $$f; done

cov: ## line coverage of the unit and integration tests
	@.ci/deps build test
	$(again) VARIANT=cov TALLY=build/cov.tally suite
	$(again) VARIANT=cov cov-run
cov-run:
	@for o in $(OBJ); do gcov -n -o $$o $${o#$(B)/} 2>/dev/null; done | tests/lint/coverage.sh

# --- reading the code without running it --------------------------------------
format: ## rewrite sources with clang-format 14
	$(Q)$(CLANG_FORMAT) --style=file -i $(ALL_C) $(ALL_CC)
format-check:
	$(call say,FORMAT,$(words $(ALL_C) $(ALL_CC)) files)
	$(Q)$(CLANG_FORMAT) --style=file --dry-run --Werror $(ALL_C) $(ALL_CC)

lint: ## everything that reads code without running it
	@.ci/deps build test lint
	$(again) lint-run
lint-run: format-check check-layers check-headers check-sizes check-spdx check-glossary tidy cppcheck

# Off: C11's Annex K, which glibc does not have; conversions, which the compiler's warnings
# judge; padding, which separates writers on purpose; sizes of pointers, which arrays of
# pointers need; equal branches, which say different things.
TIDY_CHECKS := -*,bugprone-*,clang-analyzer-*,cert-err34-c,misc-redundant-expression,$\
	-bugprone-easily-swappable-parameters,-bugprone-reserved-identifier,-bugprone-misplaced-widening-cast,$\
	-bugprone-sizeof-expression,-bugprone-branch-clone,$\
	-bugprone-narrowing-conversions,-bugprone-implicit-widening-of-multiplication-result,$\
	-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling,$\
	-clang-analyzer-optin.performance.Padding
TIDY := $(SRC:%=tidy/%)
.PHONY: $(TIDY)
tidy: $(TIDY)
$(TIDY): tidy/%:
	$(call say,TIDY,$*)
	$(Q)out=$$($(CLANG_TIDY) --quiet --warnings-as-errors='*' --checks='$(TIDY_CHECKS)' $* -- \
		-std=gnu17 -D_GNU_SOURCE -DRTE_USE_C11_MEM_MODEL -DKVP_DEBUG=2 -Iinclude \
		$(INC_$(firstword $(subst /, ,$*))) $(if $(filter engine/error.c,$*),,-include tests/lint/tidy.h) 2>&1) || { printf '%s\n' "$$out"; exit 1; }
cppcheck:
	$(call say,CPPCHECK,$(words $(SRC)) files)
	$(Q)cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,performance,portability \
		--inline-suppr --suppressions-list=tests/lint/cppcheck.supp -D_GNU_SOURCE -DKVP_DEBUG=0 \
		-Iinclude -Iengine -Idataplane -Icontrol engine dataplane control

check-sizes:
	$(call say,SIZES,$(words $(ALL_C)) files)
	@tests/lint/sizes.sh $(ALL_C)
check-spdx:
	$(call say,SPDX,)
	@tests/lint/spdx.sh $(ALL_C) $(ALL_CC) $(filter %.py,$(PUBLIC_PY)) $(wildcard tests/*/*.py) Makefile .ci/deps .ci/run $(wildcard tests/lint/*.sh tests/rdma/*.sh control/*.map)
check-glossary:
	$(call say,WORDS,)
	@tests/lint/glossary.sh README.md $(filter-out tests/%,$(ALL_C))

# Hot objects, joined, may leave only the allowed symbols undefined. Anything else
# (malloc, printf, pthread_*, read ...) could block, allocate or enter the kernel.
HOT_TCP := $(filter dataplane/tcp/%_fast.c,$(SRC))
HOT_VERBS := $(filter dataplane/verbs/%_fast.c,$(SRC))
HOT     := $(filter-out $(HOT_TCP) $(HOT_VERBS),$(filter %_fast.c engine/cursor.c engine/open.c engine/tally.c engine/transfer.c,$(SRC)))
check-hot: $(patsubst %.c,$(B)/%.o,$(HOT) $(HOT_TCP) $(HOT_VERBS)) ## hot objects call no allocator, lock, log or system call
	$(call say,HOT,$(words $(HOT) $(HOT_TCP) $(HOT_VERBS)) objects)
	@tests/lint/hot.sh $(B)/hot.o '$(patsubst %.c,$(B)/%.o,$(HOT))' \
		tcp '$(patsubst %.c,$(B)/%.o,$(HOT_TCP))' verbs '$(patsubst %.c,$(B)/%.o,$(HOT_VERBS))'

# engine/ knows no device, clock or thread; only dataplane/ knows DPDK; nothing
# above the seam knows a transport's name.
check-layers:
	$(call say,LAYERS,)
	@tests/lint/layers.sh

# Every public header compiles alone, as C11 and as C++17, with warnings on.
check-headers:
	$(call say,HEADERS,$(words $(PUBLIC_H)) files)
	@for h in $(PUBLIC_H); do for l in 'c -std=c11' 'c++ -std=c++17'; do \
		echo "#include \"$$h\"" | $(CC) -x $$l -Wall -Wextra -Wpedantic -Werror -I. -fsyntax-only - || exit 1; \
	done; done
	@for h in $(wildcard engine/*.h control/*.h dataplane/*.h dataplane/*/*.h); do \
		case $$h in engine/*) inc='$(INC_engine)';; dataplane/*) inc='$(DPDK_INC) -Iengine -Idataplane';; \
		*) inc='-Iengine -Idataplane -Icontrol';; esac; \
		echo "#include \"$$h\"" | $(CC) -x c -std=gnu17 -D_GNU_SOURCE -DRTE_USE_C11_MEM_MODEL \
			-DKVP_DEBUG=0 -Wall -Werror -Iinclude $$inc -I. -fsyntax-only - || exit 1; \
	done

check-exports: $(LIB_SO) ## the library exports what the headers declare, and needs only libc, libnuma, libbsd
	$(call say,EXPORTS,$<)
	@tests/lint/exports.sh $(LIB_SO) control/$(NAME).map $(ABI) $(PUBLIC_H)

check-readme: $(LIB_SO) ## the README's C program compiles and prints what the README says
	$(call say,README,)
	@CC='$(CC)' tests/lint/readme.sh README.md $(B)

check-command: $(COMMAND) ## the command's output and exit status
	$(call say,COMMAND,$<)
	@tests/install/command.sh $(COMMAND) $(VERSION)

check-deps: ## .ci/deps asks for what is missing, and only that
	$(call say,DEPS,)
	@tests/lint/deps_test.sh

# --- installation ---------------------------------------------------------------
# The .pc is written here, since prefix may differ from the one at build time.
install: all ## honours DESTDIR, prefix, libdir, includedir
	$(INSTALL) -d '$(DESTDIR)$(libdir)/pkgconfig' '$(DESTDIR)$(includedir)/$(NAME)'
	$(INSTALL) -d '$(DESTDIR)$(bindir)'
	$(INSTALL) -m 755 $(COMMAND) '$(DESTDIR)$(bindir)/$(NAME)'
	$(INSTALL) -d '$(DESTDIR)$(includedir)/llm_datadist'
	$(INSTALL) -m 644 $(PUBLIC_H) '$(DESTDIR)$(includedir)/$(NAME)/'
	$(INSTALL) -m 644 $(PUBLIC_HPP) '$(DESTDIR)$(includedir)/llm_datadist/'
	$(INSTALL) -d '$(DESTDIR)$(pythondir)/$(NAME)'
	$(INSTALL) -m 644 $(PUBLIC_PY) '$(DESTDIR)$(pythondir)/$(NAME)/'
	$(INSTALL) -m 755 $(LIB_SO) '$(DESTDIR)$(libdir)/lib$(NAME).so.$(VERSION)'
	ln -sf lib$(NAME).so.$(VERSION) '$(DESTDIR)$(libdir)/lib$(NAME).so.$(ABI)'
	ln -sf lib$(NAME).so.$(ABI) '$(DESTDIR)$(libdir)/lib$(NAME).so'
	sed -e 's|^prefix=.*|prefix=$(prefix)|' -e 's|^libdir=.*|libdir=$(libdir)|' \
		-e 's|^includedir=.*|includedir=$(includedir)|' $(B)/$(NAME).pc \
		>'$(DESTDIR)$(libdir)/pkgconfig/$(NAME).pc'

uninstall: ## removes exactly what install wrote
	rm -f $(foreach s,$(VERSION) $(ABI),'$(DESTDIR)$(libdir)/lib$(NAME).so.$(s)') \
		'$(DESTDIR)$(bindir)/$(NAME)' '$(DESTDIR)$(libdir)/lib$(NAME).so' '$(DESTDIR)$(libdir)/pkgconfig/$(NAME).pc' \
		$(PUBLIC_H:include/%='$(DESTDIR)$(includedir)/%') $(PUBLIC_HPP:include/%='$(DESTDIR)$(includedir)/%') \
		$(foreach f,$(notdir $(PUBLIC_PY)),'$(DESTDIR)$(pythondir)/$(NAME)/$(f)')
	rm -rf '$(DESTDIR)$(pythondir)/$(NAME)/__pycache__'
	-rmdir '$(DESTDIR)$(pythondir)/$(NAME)' '$(DESTDIR)$(includedir)/$(NAME)' '$(DESTDIR)$(includedir)/llm_datadist' '$(DESTDIR)$(libdir)/pkgconfig' 2>/dev/null

check-install: ## install to a temporary root, build and run a program against it, uninstall
	@.ci/deps build test fuzz
	$(again) all
	@MAKE='$(MAKE)' CC='$(CC)' CLANG='$(CLANG)' PYTHON='$(PYTHON)' PKG_CONFIG='$(PKG_CONFIG)' tests/install/check.sh

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F':.*## ' '/^[a-z][a-z -]*:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

-include $(OBJ:.o=.d) $(HELP:.o=.d) $(COMPAT:%=%.d) $(COMPAT_HELP:.o=.d) $(MICRO_CXX:%=%.d) $(SIM:.o=.d) $(UNIT:%=%.d) $(INTEG:%=%.d) $(FUZZ:%=%.d) $(MICRO:%=%.d) \
	$(wildcard $(B)/perf/*.d $(B)/perf/demo/*.d $(B)/tests/rdma/*.d $(B)/perf/verbs/*.d $(B)/tests/fuzz/replay_main.d)
