# SPDX-License-Identifier: Apache-2.0
#
# gmsfs: `make`, `make test`, `make check`, `make demo`, `make install`; `make help` lists everything.
#
# Sources are found by wildcard, so a new file needs no edit here. Everything built lies
# below $(O); two values of O never touch each other.

VERSION := 0.1.0
SONAME  := libgmsfs.so.0

O      ?= build
V      ?= 0
WERROR ?= 0

# A sanitizer list as gcc and clang take it, e.g. SANITIZE=address,undefined
SANITIZE ?=

PREFIX     ?= /usr/local
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR     ?= $(PREFIX)/share/man
UNITDIR    ?= $(PREFIX)/lib/systemd/system
PAGESDIR   ?= $(PREFIX)/share/gmsfs/web
COMPDIR    ?= $(PREFIX)/share/bash-completion/completions
# Where the Python package goes, e.g. /usr/lib/python3/dist-packages; empty: not installed.
PYTHONDIR  ?=

AR         ?= ar
OBJCOPY    ?= objcopy
INSTALL    ?= install
PKG_CONFIG ?= pkg-config
FUZZ_CC    ?= clang
CFLAGS     ?= -O2 -g
CPPFLAGS   ?=
LDFLAGS    ?=

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

# ---- what there is -------------------------------------------------------------------------

# src/cuda, src/ask and src/pack belong to the library, which the daemon links too.
BELOW_SRC  := $(sort $(wildcard src/cuda/*.c src/ask/*.c src/pack/*.c))
SRC        := $(filter-out $(BELOW_SRC),$(sort $(wildcard src/*/*.c)))
LIB_SRC    := $(sort $(wildcard libgmsfs/*.c)) $(BELOW_SRC)
EXAMPLES   := $(sort $(patsubst examples/%.c,%,$(wildcard examples/*.c)))
UNIT_TESTS := $(sort $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_*.c)))
API_TESTS  := $(sort $(patsubst tests/api/%.c,%,$(wildcard tests/api/test_*.c)))
FUZZERS    := $(sort $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c)))
TEST_TOOLS := $(sort $(patsubst tests/tools/%.c,%,$(wildcard tests/tools/*.c)))
FAKE_SRC   := $(sort $(wildcard tests/fake_cuda/*.c))
FAULTERS   := $(filter-out hook_%,$(sort $(patsubst tests/fault/%.c,%,$(wildcard tests/fault/*.c))))
BENCHES    := $(sort $(patsubst bench/%.c,%,$(wildcard bench/*.c)))
MAN        := $(sort $(wildcard man/*.[1-8]))
PAGES      := $(sort $(wildcard web/*))
UNITS      := $(sort $(wildcard packaging/systemd/gmsfs*))
PYTHON_SRC := $(sort $(wildcard python/gmsfs/*.py)) python/gmsfs/py.typed
VLLM_SRC   := $(sort $(wildcard python/gmsfs/vllm/*.py))
HEADERS    := $(addprefix libgmsfs/, gmsfs.h gmsfs_memory.h gmsfs_abi.h gmsfs_graph.h gmsfs_region.h gmsfs.hpp)

# The one file with main(); everything else of src/ is what unit programs link.
MAIN_SRC := src/cli/main.c

# The sources that differ in a test build: they use a name that headers declare there, and define away
# in other builds. The objects of the others are shared.
HOOK_NAMES := GMSFS_TEST_HOOKS $(shell grep -l GMSFS_TEST_HOOKS src/*/*.h | \
	xargs sed -n 's/^.define \([a-z_]*\)[^a-z_ ].*/\1/p')
HOOK_SRC   := $(filter $(SRC),$(shell grep -lw $(HOOK_NAMES:%=-e %) src/*/*.c))

OBJ      := $(SRC:%.c=$(O)/obj/%.o)
LIB_OBJ  := $(LIB_SRC:%.c=$(O)/obj/%.o)
TEST_OBJ := $(HOOK_SRC:%.c=$(O)/test/obj/%.o) $(patsubst %.c,$(O)/obj/%.o,$(filter-out $(HOOK_SRC),$(SRC))) \
	$(O)/test/obj/tests/hooks.o $(O)/test/obj/tests/source_test.o
HOOK_OBJ := $(patsubst %.c,$(O)/test/obj/%.o,$(sort $(wildcard tests/fault/hook_*.c)))

BIN      := $(O)/gmsfs
LIB_SO   := $(O)/$(SONAME)
LIB_LINK := $(O)/libgmsfs.so
LIB_A    := $(O)/obj/libparts.a
LIB_OWN_A := $(O)/libgmsfs.a
PC       := $(O)/gmsfs.pc
TEST_BIN := $(O)/test/gmsfs
LARGER_BIN := $(O)/test/gmsfs-larger
LARGER_DIR := $(O)/test/larger
CORE_A   := $(O)/test/libcore.a
FUZZ_A   := $(O)/test/libfuzz.a
FAKE_DIR := $(O)/tests/fake_cuda
FAKE_OBJ := $(FAKE_SRC:%.c=$(O)/obj/%.o)
FAKES    := $(FAKE_DIR)/libcuda.so.1 $(FAKE_DIR)/libnvidia-ml.so.1

# Not needed: where NVIDIA's header is, our declarations are held against it.
CUDA_INCLUDE := $(patsubst %/cuda.h,-isystem %,$(firstword \
	$(wildcard /usr/local/cuda/include/cuda.h /opt/cuda/include/cuda.h)))

# ---- flags ---------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wwrite-strings -Wundef -Wvla
ifneq ($(WERROR),0)
WARNINGS += -Werror
endif

# Asked once, and only when something is compiled or linked: `make help` needs no packages.
# libcurl and ncurses are opened at run time: only their headers are used.
PKGS       := fuse3 libxxhash jansson libnghttp2 expat nettle
HEADERS_OF := libcurl ncursesw
MSGPACK     = $(eval MSGPACK := $$(shell $(PKG_CONFIG) --exists msgpack-c && echo msgpack-c \
	|| echo msgpack))$(MSGPACK)
PKG_CFLAGS  = $(eval PKG_CFLAGS := $$(shell $(PKG_CONFIG) --cflags $(PKGS) $(HEADERS_OF) $(MSGPACK)))$(PKG_CFLAGS)
PKG_LIBS    = $(eval PKG_LIBS := $$(shell $(PKG_CONFIG) --libs $(PKGS) $(MSGPACK)))$(PKG_LIBS)

ALL_CPPFLAGS = -D_GNU_SOURCE -DFUSE_USE_VERSION=314 -DGMSFS_VERSION='"$(VERSION)"' \
	-Isrc -Ilibgmsfs $(PKG_CFLAGS) $(CPPFLAGS)
LIB_CPPFLAGS = -D_GNU_SOURCE -Isrc -Ilibgmsfs $(CPPFLAGS)
ALL_CFLAGS   = -std=c17 $(WARNINGS) -pthread -fstack-protector-strong $(CFLAGS)
LIB_CFLAGS   = $(ALL_CFLAGS) -fPIC -fvisibility=hidden
ALL_LDFLAGS  = -pthread $(LDFLAGS)
SO_LDFLAGS   = -Wl,-z,defs

ifneq ($(SANITIZE),)
ALL_CFLAGS  += -fsanitize=$(SANITIZE) -fno-sanitize-recover=undefined -fno-omit-frame-pointer
ALL_LDFLAGS += -fsanitize=$(SANITIZE)
# A sanitized shared library takes the runtime's symbols from the program that loads it.
SO_LDFLAGS  :=
endif

# In test builds these calls of our own objects go through tests/fault/hook_*.c.
HOOKED     := free keeper_main worker_main copier_main $(shell \
	sed -n 's/^POINT.\([a-z0-9_]*\),.*/\1/p' tests/fault/points.h) $(shell \
	sed -n 's/^STEP.\([a-z0-9_]*\).*/\1/p' tests/fault/steps.h)
HOOK_FLAGS := $(foreach name,$(HOOKED),-Wl,--wrap=$(name))

DEPFLAGS = -MMD -MP -MT $@ -MF $(basename $@).d

FILL_PC = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
	-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' -e 's|@VERSION@|$(VERSION)|'

ifeq ($(V),0)
Q   := @
say  = @printf '  %-7s %s\n' '$(1)' '$(patsubst ./%,%,$(2))';
else
Q   :=
say  =
endif
# make -s
ifneq ($(findstring s,$(firstword -$(MAKEFLAGS))),)
say  = @
endif

# ---- building ------------------------------------------------------------------------------

.PHONY: all lib examples units benches bats-needs tests
all: $(BIN) lib examples

lib: $(LIB_SO) $(LIB_LINK) $(LIB_OWN_A) $(PC)

examples: $(EXAMPLES:%=$(O)/examples/%)

units: $(UNIT_TESTS:%=$(O)/tests/unit/%)

benches: $(BENCHES:%=$(O)/bench/%) $(O)/bench/gmsfs_unrecorded $(O)/tests/tools/hog $(O)/tests/tools/triton_table

# The programs that bats files call, except the benches.
bats-needs: all $(TEST_BIN) $(LARGER_BIN) $(O)/tests/tools/gmsctl-larger $(API_TESTS:%=$(O)/tests/api/%) \
	$(TEST_TOOLS:%=$(O)/tests/tools/%) $(FAKES) $(FAULTERS:%=$(O)/tests/fault/%)

tests: bats-needs units benches

# Says what is missing before the compiler does, and never installs by itself.
$(O)/.packages:
	$(Q)mkdir -p $(@D)
	$(Q)missing=; for p in $(PKGS) $(HEADERS_OF) $(MSGPACK); do \
		$(PKG_CONFIG) --exists $$p || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
		echo "make: pkg-config does not find:$$missing; run scripts/deps" >&2; exit 1; fi
	$(Q)touch $@

# Relinks when a source file came or went: the lists themselves are prerequisites.
$(O)/.sources: FORCE
	$(Q)mkdir -p $(@D)
	$(Q)echo '$(SRC) $(LIB_SRC)' | cmp -s - $@ || echo '$(SRC) $(LIB_SRC)' > $@
.PHONY: FORCE
FORCE:

$(O)/obj/src/%.o: src/%.c | $(O)/.packages
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(DEPFLAGS) -c -o $@ $<

$(O)/test/obj/src/%.o: src/%.c | $(O)/.packages
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) -DGMSFS_TEST_HOOKS $(ALL_CFLAGS) $(DEPFLAGS) -c -o $@ $<

$(O)/test/obj/tests/%.o: tests/%.c | $(O)/.packages
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) -DGMSFS_TEST_HOOKS $(ALL_CFLAGS) $(DEPFLAGS) -c -o $@ $<

$(O)/obj/libgmsfs/%.o: libgmsfs/%.c
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(LIB_CPPFLAGS) $(LIB_CFLAGS) $(DEPFLAGS) -c -o $@ $<

$(BELOW_SRC:%.c=$(O)/obj/%.o): $(O)/obj/%.o: %.c
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(LIB_CPPFLAGS) $(LIB_CFLAGS) $(DEPFLAGS) -c -o $@ $<

$(BIN): $(OBJ) $(LIB_A) $(O)/.sources
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(OBJ) $(LIB_A) $(PKG_LIBS)

$(TEST_BIN): $(TEST_OBJ) $(HOOK_OBJ) $(LIB_A) $(O)/.sources
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(HOOK_FLAGS) -o $@ $(TEST_OBJ) \
		$(HOOK_OBJ) $(LIB_A) $(PKG_LIBS)

# A build with a larger ABI, as a later one may be: INFO answers one field more, and the ledger has twice as many
# slots. The files of the daemon that know of it, and a client of its own.
$(LARGER_DIR)/gmsfs_abi.h: libgmsfs/gmsfs_abi.h Makefile
	$(Q)mkdir -p $(@D)
	$(call say,GEN,$@)sed -e '/^struct gmsfs_ioc_info {/,/^};/ s/^};/    uint64_t later;\n};/' \
		-e '/sizeof(struct gmsfs_ioc_info) ==/d' $< > $@

$(LARGER_DIR)/ioctl.c: src/fs/ioctl.c Makefile
	$(Q)mkdir -p $(@D)
	$(call say,GEN,$@)sed 's/^    [*]info = (struct gmsfs_ioc_info){/&\n        .later = 77,/' $< > $@

$(LARGER_DIR)/ioctl.o: $(LARGER_DIR)/ioctl.c $(LARGER_DIR)/gmsfs_abi.h
	$(call say,CC,$@)$(CC) -I$(LARGER_DIR) $(ALL_CPPFLAGS) -DGMSFS_TEST_HOOKS $(ALL_CFLAGS) $(DEPFLAGS) -c -o $@ $<

$(LARGER_DIR)/ledger_memory.c: src/fs/ledger_memory.c Makefile
	$(Q)mkdir -p $(@D)
	$(call say,GEN,$@)sed 's/\("GMSFS_LEDGER_SLOTS"\), /\1, 2 * /' $< > $@

$(LARGER_DIR)/ledger_memory.o: $(LARGER_DIR)/ledger_memory.c
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) -DGMSFS_TEST_HOOKS $(ALL_CFLAGS) $(DEPFLAGS) -c -o $@ $<

LARGER_OBJ := $(filter-out %/src/fs/ioctl.o %/src/fs/ledger_memory.o,$(TEST_OBJ)) $(LARGER_DIR)/ioctl.o \
	$(LARGER_DIR)/ledger_memory.o
$(LARGER_BIN): $(LARGER_OBJ) $(HOOK_OBJ) $(LIB_A) $(O)/.sources
	$(call say,LD,$@)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) $(HOOK_FLAGS) -o $@ $(LARGER_OBJ) \
		$(HOOK_OBJ) $(LIB_A) $(PKG_LIBS)

$(O)/tests/tools/gmsctl-larger: tests/tools/gmsctl.c $(LARGER_DIR)/gmsfs_abi.h $(CORE_A) $(LIB_A)
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) -I$(LARGER_DIR) $(ALL_CPPFLAGS) -DGMSFS_TEST_HOOKS -DLARGER_ABI -Itests/unit $(ALL_CFLAGS) \
		$(DEPFLAGS) $(ALL_LDFLAGS) -o $@ $< $(CORE_A) $(LIB_A) $(PKG_LIBS)

$(LIB_A): $(LIB_OBJ) $(O)/.sources
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $(LIB_OBJ)

# What programs link is one object whose only symbols are those of the shared library; our own
# programs and tests link its parts.
$(LIB_OWN_A): $(LIB_OBJ) $(O)/.sources
	$(call say,AR,$@)rm -f $@ && $(LD) -r -o $(O)/obj/libgmsfs.o $(LIB_OBJ) && \
		$(OBJCOPY) --localize-hidden $(O)/obj/libgmsfs.o && $(AR) rcs $@ $(O)/obj/libgmsfs.o

$(LIB_SO): $(LIB_OBJ) libgmsfs/libgmsfs.map $(O)/.sources
	$(call say,LD,$@)$(CC) $(LIB_CFLAGS) $(ALL_LDFLAGS) $(SO_LDFLAGS) -shared \
		-Wl,-z,nodelete -Wl,-soname,$(SONAME) -Wl,--version-script=libgmsfs/libgmsfs.map -o $@ $(LIB_OBJ)

$(LIB_LINK): $(LIB_SO)
	$(Q)ln -sf $(SONAME) $@

$(PC): libgmsfs/gmsfs.pc.in Makefile
	$(Q)mkdir -p $(@D)
	$(call say,GEN,$@)$(FILL_PC) $< > $@

# As a user would build them: the public header, the shared library, nothing else.
$(O)/examples/%: examples/%.c $(LIB_LINK)
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(LIB_CPPFLAGS) $(ALL_CFLAGS) $(DEPFLAGS) $(ALL_LDFLAGS) -o $@ $< \
		-L$(O) -lgmsfs -Wl,-rpath,'$$ORIGIN/..'

$(CORE_A): $(filter-out %/$(MAIN_SRC:.c=.o),$(TEST_OBJ)) $(O)/.sources
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# The same without the parts in which no fuzz target decodes: sanitized, each takes a second.
NOT_FUZZED := $(wildcard src/cli/*.c src/service/*.c src/mover/*.c) \
	$(filter-out src/triton/wire_%,$(wildcard src/triton/*.c)) \
	$(filter-out src/rpc/message%,$(wildcard src/rpc/*.c))
$(FUZZ_A): $(filter-out $(NOT_FUZZED:%.c=$(O)/obj/%.o) $(NOT_FUZZED:%.c=$(O)/test/obj/%.o),$(TEST_OBJ)) \
	$(O)/.sources
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# Whatever driver the machine has, unit programs open the fake one.
$(O)/tests/unit/%: tests/unit/%.c $(CORE_A) $(LIB_A) | $(FAKES)
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) -DGMSFS_TEST_HOOKS -Itests/unit $(ALL_CFLAGS) $(DEPFLAGS) \
		$(ALL_LDFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../fake_cuda' -o $@ $< $(CORE_A) $(LIB_A) $(PKG_LIBS)

$(O)/tests/api/%: tests/api/%.c $(LIB_A)
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(LIB_CPPFLAGS) -Itests/unit $(ALL_CFLAGS) $(DEPFLAGS) $(ALL_LDFLAGS) \
		-o $@ $< $(LIB_A)

# A driver without a GPU, for whoever looks for the driver here first.
$(O)/obj/tests/fake_cuda/%.o: tests/fake_cuda/%.c
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(LIB_CPPFLAGS) $(CUDA_INCLUDE) $(LIB_CFLAGS) $(DEPFLAGS) -c -o $@ $<

FAKE_NVML := $(patsubst %,$(O)/obj/tests/fake_cuda/%.o,nvml machine account)
$(FAKE_DIR)/libcuda.so.1: $(filter-out %/nvml.o,$(FAKE_OBJ))
$(FAKE_DIR)/libnvidia-ml.so.1: $(FAKE_NVML)
$(FAKES):
	$(Q)mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LIB_CFLAGS) $(ALL_LDFLAGS) $(SO_LDFLAGS) -shared \
		-Wl,-soname,$(@F) -o $@ $^

# Programs that bats files call; not tests by themselves.
$(O)/tests/tools/%: tests/tools/%.c $(CORE_A) $(LIB_A)
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) -DGMSFS_TEST_HOOKS -Itests/unit $(ALL_CFLAGS) $(DEPFLAGS) \
		$(ALL_LDFLAGS) -o $@ $< $(CORE_A) $(LIB_A) $(PKG_LIBS)

# Programs of the tests of faults: what they call themselves can fail, too.
$(O)/tests/fault/%: tests/fault/%.c $(HOOK_OBJ) $(CORE_A) $(LIB_A)
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) -DGMSFS_TEST_HOOKS $(ALL_CFLAGS) $(DEPFLAGS) \
		$(ALL_LDFLAGS) $(HOOK_FLAGS) -o $@ $< $(HOOK_OBJ) $(CORE_A) $(LIB_A) $(PKG_LIBS)

# libFuzzer brings main. Built by `make fuzz` with the compiler and the flags that it needs.
$(O)/tests/fuzz/%: tests/fuzz/%.c $(FUZZ_A) $(LIB_A)
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) -DGMSFS_TEST_HOOKS $(ALL_CFLAGS) -fsanitize=fuzzer \
		$(DEPFLAGS) $(ALL_LDFLAGS) -o $@ $< $(FUZZ_A) $(LIB_A) $(PKG_LIBS)

# The library is static here: the floors use its msgpack reader, which it does not export. gpu_load
# takes the command's own time of a copy, so it is made of the command's own objects.
COMMAND_OBJ := $(filter-out $(O)/obj/$(MAIN_SRC:.c=.o),$(OBJ))
$(O)/bench/gpu_load: $(COMMAND_OBJ)
$(O)/bench/gpu_load: BENCH_OBJ = $(COMMAND_OBJ)
$(O)/bench/gpu_load_several: $(COMMAND_OBJ)
$(O)/bench/gpu_load_several: BENCH_OBJ = $(COMMAND_OBJ)
$(O)/bench/load_many: $(COMMAND_OBJ)
$(O)/bench/load_many: BENCH_OBJ = $(COMMAND_OBJ)
$(O)/bench/choice: $(COMMAND_OBJ)
$(O)/bench/choice: BENCH_OBJ = $(COMMAND_OBJ)
$(O)/bench/pause: $(COMMAND_OBJ)
$(O)/bench/pause: BENCH_OBJ = $(COMMAND_OBJ)
$(O)/bench/load: $(O)/obj/src/base/pages.o
$(O)/bench/load: BENCH_OBJ = $(O)/obj/src/base/pages.o
$(O)/bench/evict: $(O)/obj/src/core/evict.o
$(O)/bench/evict: BENCH_OBJ = $(O)/obj/src/core/evict.o
$(O)/bench/%: bench/%.c $(LIB_A)
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(DEPFLAGS) $(ALL_LDFLAGS) -o $@ $< \
		$(BENCH_OBJ) $(LIB_A) $(PKG_LIBS)

# The command without a journal, which bench/recorded.c compares with.
UNRECORDED := transaction_record transaction_unrecord transaction_note
$(O)/bench/gmsfs_unrecorded: bench/unrecorded/wrap.c $(OBJ) $(LIB_A)
	$(Q)mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(DEPFLAGS) $(ALL_LDFLAGS) \
		$(UNRECORDED:%=-Wl,--wrap=%) -o $@ $< $(OBJ) $(LIB_A) $(PKG_LIBS)

-include $(OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(HOOK_OBJ:.o=.d) $(LIB_OBJ:.o=.d) $(FAKE_OBJ:.o=.d)
-include $(wildcard $(LARGER_DIR)/*.d $(O)/examples/*.d $(O)/bench/*.d $(O)/tests/*/*.d)

# ---- installing ----------------------------------------------------------------------------

# The calls that a page of section 3 describes, but the one that it is named after: links to it, so
# that man(1) finds each.
PAGE_CALLS = awk '/^\.Sh/ { on = $$2 == "SYNOPSIS" } \
	on && $$1 == ".Fn" && FILENAME !~ "/" $$2 "[.]3$$" { print $$2 }'

.PHONY: install uninstall
install: all
	$(INSTALL) -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR) \
		$(DESTDIR)$(UNITDIR) $(DESTDIR)$(COMPDIR)
	$(INSTALL) -m 755 $(BIN) $(DESTDIR)$(BINDIR)/gmsfs
	$(INSTALL) -m 755 $(LIB_SO) $(DESTDIR)$(LIBDIR)/$(SONAME)
	ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libgmsfs.so
	$(INSTALL) -m 644 $(LIB_OWN_A) $(DESTDIR)$(LIBDIR)/libgmsfs.a
	$(FILL_PC) libgmsfs/gmsfs.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/gmsfs.pc
	$(INSTALL) -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	$(INSTALL) -m 644 packaging/completion/gmsfs $(DESTDIR)$(COMPDIR)
	@set -e; for unit in $(UNITS); do \
		sed 's|@BINDIR@|$(BINDIR)|' $$unit > $(DESTDIR)$(UNITDIR)/$${unit##*/}; done
	@set -e; for page in $(MAN); do dir=$(DESTDIR)$(MANDIR)/man$${page##*.}; \
		$(INSTALL) -d "$$dir"; $(INSTALL) -m 644 "$$page" "$$dir"; done
	@set -e; for page in $(filter %.3,$(MAN)); do for name in $$($(PAGE_CALLS) $$page); do \
		ln -sf $${page##*/} $(DESTDIR)$(MANDIR)/man3/$$name.3; done; done
ifneq ($(PAGES),)
	$(INSTALL) -d $(DESTDIR)$(PAGESDIR)
	$(INSTALL) -m 644 $(PAGES) $(DESTDIR)$(PAGESDIR)
endif
ifneq ($(PYTHONDIR),)
	$(INSTALL) -d $(DESTDIR)$(PYTHONDIR)/gmsfs/vllm
	$(INSTALL) -m 644 $(PYTHON_SRC) $(DESTDIR)$(PYTHONDIR)/gmsfs
	$(INSTALL) -m 644 $(VLLM_SRC) $(DESTDIR)$(PYTHONDIR)/gmsfs/vllm
endif

uninstall:
	rm -f $(DESTDIR)$(BINDIR)/gmsfs $(DESTDIR)$(LIBDIR)/$(SONAME) \
		$(DESTDIR)$(LIBDIR)/libgmsfs.so $(DESTDIR)$(LIBDIR)/libgmsfs.a \
		$(DESTDIR)$(LIBDIR)/pkgconfig/gmsfs.pc \
		$(HEADERS:libgmsfs/%=$(DESTDIR)$(INCLUDEDIR)/%) \
		$(UNITS:packaging/systemd/%=$(DESTDIR)$(UNITDIR)/%) $(DESTDIR)$(COMPDIR)/gmsfs
	rm -rf $(DESTDIR)$(PAGESDIR)
	$(if $(PYTHONDIR),rm -rf $(DESTDIR)$(PYTHONDIR)/gmsfs)
	@for page in $(MAN); do rm -f $(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/}; done
	@for name in $$($(PAGE_CALLS) $(filter %.3,$(MAN))); do rm -f $(DESTDIR)$(MANDIR)/man3/$$name.3; done

# ---- showing and checking ------------------------------------------------------------------

.PHONY: demo test check fault-test bench check-asan check-engines check-nodes check-web soak crash-test fuzz fuzzers lint wheel deb check-deb gpu-bench gpu-check
demo:
	@scripts/deps build
	@$(MAKE) --no-print-directory all
	@O=$(O) scripts/demo

# TESTS names unit programs and bats files, e.g. TESTS='test_lock 00-smoke'; FILTER picks tests within
# bats files by their names; JOBS is how many files run at a time. With TESTS nothing is installed, and
# only what these need is built: the unit programs themselves, and the programs that bats files call.
UNITS_NAMED := $(filter $(UNIT_TESTS),$(TESTS))
BATS_NAMED  := $(filter-out $(UNIT_TESTS),$(TESTS))
test_goals = $(if $(TESTS),$(UNITS_NAMED:%=$1/tests/unit/%) $(if $(BATS_NAMED),bats-needs) \
	$(if $(findstring bench,$(BATS_NAMED)),benches),$(if $2,bats-needs units,tests))
test_deps := $(if $(TESTS),--no-install $(if $(BATS_NAMED),test,build),test)

# The quick set; tests are slow, and left out here, by tags in their files (tests/run --help).
test:
	@scripts/deps $(test_deps)
	@$(MAKE) --no-print-directory -j$(shell nproc) $(call test_goals,$(O),$(if $(FILTER),,quick))
	@O=$(O) tests/run $(if $(TESTS)$(FILTER),,--quick) $${FILTER:+--filter "$$FILTER"} $(TESTS)

# All tests; ONLY=slow: the tests that `make test` leaves out.
check:
	@scripts/deps test
	@$(MAKE) --no-print-directory -j$(shell nproc) tests
	@O=$(O) tests/run $(ONLY:%=--%)

# Every call site in every deed of 59-faults, where `make check` takes each of them once. FAULTS=all does
# the same for other ways to run it, e.g. `make check-asan TESTS=59-faults`.
fault-test:
	@scripts/deps test
	@$(MAKE) --no-print-directory -j$(shell nproc) tests
	@O=$(O) FAULTS=all BATS_TEST_TIMEOUT=7200 BATS_TIMEOUT=36000 tests/run 59-faults

# Needs 8 GiB of free memory, 16 with many processors; PIECE and MODEL make it smaller, BENCH picks
# some. DIR is on the disk that is saved to and loaded from.
bench:
	@scripts/deps build
	@$(MAKE) --no-print-directory -j$(shell nproc) all benches
	@O=$(O) bench/run $(BENCH)

# Both on device 0 of this machine; see doc/tests.md.
gpu-bench:
	@scripts/deps build
	@$(MAKE) --no-print-directory -j$(shell nproc) all benches
	@O=$(O) bench/run gpu_attach gpu_slabs gpu_allocate gpu_graph_calls gpu_load gpu_load_several gpu_copy gpu_move gpu_switch gpu_disk gpu_cat \
		gpu_python gpu_modules gpu_graph_torch gpu_gms gpu_engine

gpu-check:
	@scripts/deps test
	@$(MAKE) --no-print-directory -j$(shell nproc) tests
	@O=$(O) GMSFS_GPU=real GMSFS_GPU_CYCLES=$${GMSFS_GPU_CYCLES-1000} tests/run $(TESTS)

# Real engines, which the Pythons of GMSFS_TEST_PYTHON have, a colon between two; and the names that loaders
# need in every supported release of them, out of the package index.
check-engines:
	@scripts/deps test
	@$(MAKE) --no-print-directory -j$(shell nproc) tests
	@O=$(O) GMSFS_ENGINES=1 BATS_TEST_TIMEOUT=2400 BATS_TIMEOUT=7200 tests/run 80-engines

# Nodes in network namespaces, with one source for all, and the faults of links.
check-nodes:
	@scripts/deps test
	@$(MAKE) --no-print-directory -j$(shell nproc) tests
	@O=$(O) GMSFS_NODES=1 tests/run 90-nodes

# The page of `gmsfs web` in Chromium. SHOTS is where its screenshots go.
SHOTS ?= $(O)/web
check-web:
	@scripts/deps web
	@$(MAKE) --no-print-directory -j$(shell nproc) bats-needs
	@mkdir -m 755 -p $(SHOTS)
	@O=$(O) GMSFS_BROWSER=1 GMSFS_SHOTS=$(abspath $(SHOTS)) tests/run 37-page

check-asan:
	@scripts/deps $(test_deps)
	@$(MAKE) --no-print-directory -j$(shell nproc) O=$(O)/asan SANITIZE=address,undefined \
		CFLAGS='-O1 -g1' $(call test_goals,$(O)/asan,$(filter quick,$(ONLY)))
	@O=$(O)/asan SANITIZE=address,undefined tests/run $(ONLY:%=--%) $${FILTER:+--filter "$$FILTER"} $(TESTS)

# Random clients, killed at random, on STORES stores over MOUNTS mounts. Without SEED one is drawn, and
# told. SANITIZE=address,undefined runs it sanitized. Then TRITON regions come and go. GMS=1: instead,
# a million random frames of each of GMS's protocols, 60,000 connects and 100,000 exports.
SECONDS ?= 60
STORES  ?= 4
MOUNTS  ?= 1
CLIENTS ?= 12
STALL   ?= 60
TRITON  ?= 100000
SOAK_O   = $(O)$(if $(SANITIZE),/asan)
soak:
	@scripts/deps test
	@$(MAKE) --no-print-directory -j$(shell nproc) O=$(SOAK_O) $(if $(SANITIZE),CFLAGS='-O1 -g') tests
	@O=$(SOAK_O) SANITIZE=$(SANITIZE) tests/soak $(if $(SEED),--seed $(SEED)) $(if $(GMS),--gms,\
		--seconds $(SECONDS) --stores $(STORES) --mounts $(MOUNTS) --clients $(CLIENTS) \
		--stall $(STALL) --triton $(TRITON))

# KILLS of workers at random moments; SEED repeats a run. FULL=1: at every step of every deed, and for
# each of these at every EVERY_AGAIN-th of the worker that goes on, also of the copier; and before that,
# every order of what can happen to the places of two stores. GMSFS_GPU=real: on device 0.
KILLS       ?= 1000
EVERY_AGAIN ?= 1
crash-test:
	@scripts/deps test
	@$(MAKE) --no-print-directory -j$(shell nproc) tests
	@O=$(O) tests/crash-test --kills $(KILLS) $(if $(SEED),--seed $(SEED))
	@$(if $(FULL),GMSFS_STATES=0 $(O)/tests/unit/test_core_places)
	@$(if $(FULL),O=$(O) tests/crash-test --steps 1 $(EVERY_AGAIN))

# FUZZ names targets, e.g. FUZZ='fuzz_name fuzz_record'; each runs for FUZZ_SECONDS (60).
fuzz:
	@scripts/deps fuzz
	@mkdir -p $(O)/fuzz
	@echo 'int LLVMFuzzerTestOneInput(const char *, long);' \
		'int LLVMFuzzerTestOneInput(const char *p, long n) { return n && !p; }' | \
		$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -x c -o $(O)/fuzz/.probe - || { \
		echo 'make fuzz: $(FUZZ_CC) cannot build for libFuzzer (above: why); install clang and' \
			'its runtime (Debian: clang, libclang-rt-dev), or name another with FUZZ_CC=' >&2; \
		exit 1; }
	@$(MAKE) --no-print-directory -j$(shell nproc) O=$(O)/fuzz CC=$(FUZZ_CC) \
		SANITIZE=fuzzer-no-link,address,undefined CFLAGS='-O1 -g' fuzzers
	@O=$(O)/fuzz tests/fuzz/run $(FUZZ)

fuzzers: $(FUZZERS:%=$(O)/tests/fuzz/%)

# Takes neither PREFIX nor a compiler of Python's: the package is Python, the library is built.
wheel: $(LIB_SO)
	@scripts/make-wheel $(LIB_SO) $(O)

deb:
	@scripts/deps deb
	@O=$(O) scripts/make-deb $(VERSION)

check-deb: deb
	@O=$(O) scripts/check-deb

lint:
	@scripts/deps lint
	@O=$(O) scripts/lint

.PHONY: format clean help
format:
	clang-format -i $(wildcard src/*/*.[ch] libgmsfs/*.[ch] examples/*.[ch] bench/*.[ch] tests/*/*.[ch])

clean:
	rm -rf $(O)

# For editors and clangd: how each file of C is compiled.
.PHONY: compile_commands.json
compile_commands.json:
	@$(MAKE) --no-print-directory -nB V=1 tests | scripts/compile-commands > $@

help:
	@printf '%s\n' 'Build' \
	  '  make                the gmsfs command, libgmsfs (shared, static) and the examples, in build/' \
	  '  make tests          also the programs of the tests and the benches' \
	  '  make install        into $$DESTDIR$$PREFIX (PREFIX=/usr/local); with PYTHONDIR=DIR the Python package too' \
	  '  make uninstall      removes the installed files' \
	  '  make wheel          a wheel of the Python package that brings libgmsfs, in build/' \
	  '  make deb            Debian packages, in build/deb' \
	  '  make clean          removes build/' \
	  '' 'Try and test' \
	  '  make demo           mounts, loads, shares and kills on this machine; MODEL=FILE for your own' \
	  '  make test           the quick tests; JOBS=N files at a time' \
	  '                      TESTS="test_lock 20-locks" runs these files alone; FILTER="a reader waits" picks tests by name' \
	  '  make check          all tests; ONLY=slow: the tests that make test leaves out' \
	  '  make lint           both compilers, static checkers, format, shell, manual, include layers' \
	  '  make check-asan     all tests, ONLY=quick or TESTS, under AddressSanitizer and UBSan, in build/asan, with' \
	  '                      fewer of the calls that fail and of the kills of workers' \
	  '  make check-deb      installs the packages of make deb in a clean Debian' \
	  '' 'Test for hours' \
	  '  make fault-test     lets each call of the daemon fail in every request that comes by, not once only' \
	  '  make crash-test     KILLS=1000 kills of the worker while random clients work, and notice nothing;' \
	  '                      SEED=N repeats, FULL=1 also at every step of every request, and once more in' \
	  '                      the recovery, by JOBS=N processes; GMSFS_GPU=real on device 0 (tests/crash-test)' \
	  '  make soak           random clients, killed at random, for SECONDS=60 on STORES=4 stores over' \
	  '                      MOUNTS=1 mounts by CLIENTS=12; SEED=N repeats, SANITIZE=address,undefined;' \
	  '                      GMS=1: instead, requests of GMS clients, very often (tests/soak)' \
	  '  make fuzz           every decoder of foreign bytes under libFuzzer, FUZZ_SECONDS=60 each;' \
	  '                      FUZZ="NAME..." picks some, JOBS=N at a time' \
	  '  make check-nodes    nodes in network namespaces that pull a store from each other' \
	  '  make check-web      the page of gmsfs web in Chromium; screenshots go to SHOTS=build/web' \
	  '  make check-engines  real vLLM and SGLang engines, of the Pythons that GMSFS_TEST_PYTHON names, and releases' \
	  '' 'On a GPU (device 0)' \
	  '  make gpu-check      all tests on a real GPU, and tests that need hardware' \
	  '  make gpu-bench      ours against bare calls of the CUDA driver' \
	  '' 'Measure and edit' \
	  '  make bench          ours against floors, as one table; BENCH="lock attach" picks some' \
	  '  make format         clang-format over everything' \
	  '  make compile_commands.json  how each file is compiled, for editors and clangd' '' \
	  'O=DIR builds elsewhere, V=1 shows commands, WERROR=1 makes warnings errors,' \
	  'CC, CFLAGS, CPPFLAGS and LDFLAGS are yours.'
