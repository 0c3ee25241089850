# isoc: builds the compiler (build/isoc), the library (build/libiso.a, .so) and their tests.
#
#   make demo     install what is missing, build, compile a contract, show that its layouts agree
#   make check    every test that needs no GPU (tests/README.md)
#   make          build only
#
# Also: lint, unit, wheel (Python), san (ASan + UBSan), clang, fuzz, mutants, replay (kernel text
# against another revision), contracts (all of them compiled, long), proofs (all of them proved on the
# PTX machine, hours), bench, smollm2 (weights), install, clean, deps; with a GPU gpu_suite,
# bench-gemm, bench-attend, bench-ranks. Only install writes outside build/

BUILD  ?= build
PREFIX ?= /usr/local
CC     ?= cc
FLEX   ?= flex
BISON  ?= bison
OPT    ?= -O2 -g
VERSION := 0.1.0

# Rounding is part of the meaning: no contraction, no fast math, whatever OPT says.
CFLAGS_ALL := -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -fPIC $(OPT) \
    -ffp-contract=off -fno-fast-math -pthread $(EXTRA)
CPPFLAGS_ALL := -I. -Icompiler -Iruntime -I$(BUILD)/gen -DISOC_VERSION='"$(VERSION)"' $(CPPFLAGS)
LIBS := -ljansson -lcrypto -ldl -lpthread -lm

comma := ,

# ---- what there is to build ------------------------------------------------------------------

main_src := $(wildcard compiler/command/*.c)
lib_src  := $(filter-out $(main_src),$(wildcard compiler/*.c compiler/*/*.c \
    runtime/*.c runtime/*/*.c))
gen_src  := $(if $(wildcard grammar/isoc.y),$(BUILD)/gen/isoc_parse.c $(BUILD)/gen/isoc_scan.c) \
    $(BUILD)/gen/device_text.c $(BUILD)/gen/contract_text.c
unit_src := $(wildcard tests/unit/*.c)
device   := $(sort $(wildcard compiler/device/*.cuh))
pieces   := $(sort $(wildcard contracts/include/*.isoi))

object   = $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out $(BUILD)/gen/%,$(1))) \
    $(patsubst $(BUILD)/gen/%.c,$(BUILD)/obj/gen/%.o,$(filter $(BUILD)/gen/%,$(1)))
lib_obj  := $(call object,$(lib_src) $(gen_src))
main_obj := $(call object,$(main_src))
unit_obj := $(call object,$(unit_src))
gen_head := $(if $(wildcard grammar/isoc.y),$(BUILD)/gen/isoc_parse.h $(BUILD)/gen/isoc_scan.h)

map     := $(wildcard runtime/libiso.map)
mapflag := $(addprefix -Wl$(comma)--version-script=,$(map))
outputs := $(BUILD)/libiso.a $(BUILD)/libiso.so $(if $(main_src),$(BUILD)/isoc)

.PHONY: all wheel check unit gpu_suite mutants demo lint san clang fuzz fuzzers replay contracts proofs \
    bench bench-gemm bench-attend bench-ranks smollm2 deps install clean
.DELETE_ON_ERROR:
all: $(outputs)

# ---- rules -----------------------------------------------------------------------------------

$(BUILD)/obj/%.o: %.c | $(gen_head)
	@mkdir -p $(@D)
	@echo "  cc   $<"
	@$(CC) $(CFLAGS_ALL) $(CPPFLAGS_ALL) $(flags) -MMD -MP -c $< -o $@

# Generated code is not ours to make warning-free.
$(BUILD)/obj/gen/%.o: $(BUILD)/gen/%.c | $(gen_head)
	@mkdir -p $(@D)
	@echo "  cc   $<"
	@$(CC) $(CFLAGS_ALL) $(CPPFLAGS_ALL) -Wno-unused-function -Wno-sign-compare \
	    -Wno-unused-but-set-variable -MMD -MP -c $< -o $@

$(BUILD)/gen/isoc_parse.c: grammar/isoc.y
	@mkdir -p $(@D)
	@echo "  bison $<"
	@$(BISON) -Wall -Werror --defines=$(BUILD)/gen/isoc_parse.h -o $@ $<
$(BUILD)/gen/isoc_parse.h: $(BUILD)/gen/isoc_parse.c ;

$(BUILD)/gen/isoc_scan.c: grammar/isoc.l
	@mkdir -p $(@D)
	@echo "  flex $<"
	@$(FLEX) --header-file=$(BUILD)/gen/isoc_scan.h -o $@ $<
$(BUILD)/gen/isoc_scan.h: $(BUILD)/gen/isoc_scan.c ;

$(BUILD)/gen/device_text.c: tests/tools/embed.sh $(device) $(wildcard compiler/device)
	@mkdir -p $(@D)
	@echo "  embed compiler/device"
	@sh tests/tools/embed.sh device_texts $(device) > $@

$(BUILD)/gen/contract_text.c: tests/tools/embed.sh $(pieces) $(wildcard contracts/include)
	@mkdir -p $(@D)
	@echo "  embed contracts/include"
	@sh tests/tools/embed.sh contract_texts $(pieces) > $@

$(BUILD)/libiso.a: $(lib_obj)
	@echo "  ar   $@"
	@rm -f $@ && ar rcs $@ $^

$(BUILD)/libiso.so: $(lib_obj) $(map)
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -shared -Wl,-soname,libiso.so.0 $(mapflag) \
	    -o $@ $(lib_obj) $(LIBS)

# For the wheel, with what a user's machine may lack: libcrypto inside, where it cannot meet
# Python's own, and jansson beside it, since distributions' static one fits no shared library.
$(BUILD)/wheel/libiso.so: $(lib_obj) $(map)
	@mkdir -p $(@D)
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -shared -s -Wl,-soname,libiso.so.0 $(mapflag) \
	    -Wl,-rpath,'$$ORIGIN' -o $@ $(lib_obj) -ljansson -l:libcrypto.a -ldl -lpthread -lm

wheel: $(BUILD)/wheel/libiso.so
	@BUILD=$(BUILD) sh tests/tools/wheel.sh

$(BUILD)/isoc: $(main_obj) $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

$(BUILD)/unit: $(unit_obj) $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $$(pkg-config --libs check) $(LIBS)

# The GPU suite is built anywhere; it runs where there is a driver.
gpu_obj := $(call object,$(wildcard tests/gpu/*.c))
$(BUILD)/obj/tests/gpu/%.o: CPPFLAGS_ALL += -Icompiler/device -Itests/gpu
$(gpu_obj): | $(BUILD)/gen/suite_text.h $(BUILD)/gen/seeded_text.h
c_string := sed -e 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&\\n"/'

$(BUILD)/gen/suite_text.h: tests/gpu/values.cuh tests/gpu/check.cu
	@mkdir -p $(@D)
	@(echo 'static const char suite_text[] ='; cat $^ | sed -e '/#include "values.cuh"/d' | \
	    $(c_string); echo ';') > $@

$(BUILD)/gen/seeded_text.h: tests/gpu/seeded.cu tests/gpu/parts/plain.cuh
	@mkdir -p $(@D)
	@(echo 'static const char seeded_text[] ='; sed -e '/#include "parts/{r $(word 2,$^)' -e 'd}' \
	    $< | $(c_string); echo ';') > $@

$(BUILD)/gpu_suite: $(gpu_obj) $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

gpu_suite: $(BUILD)/gpu_suite

ranks_obj := $(call object,$(wildcard tests/ranks/*.c))
$(BUILD)/obj/tests/ranks/%.o: CPPFLAGS_ALL += -Icompiler/device

$(BUILD)/ranks: $(ranks_obj) $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

$(BUILD)/foreign: $(BUILD)/obj/tests/ptx/foreign.o $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

$(BUILD)/mutate: $(call object,$(patsubst %,tests/ptx/%.c,mutants beside survivors))
$(BUILD)/mutate $(BUILD)/faults: $(BUILD)/%: $(BUILD)/obj/tests/ptx/%.o \
    $(BUILD)/obj/tests/ptx/bench.o $(BUILD)/obj/tests/ptx/requests.o $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

# Every mutant of the representative kernels, 95 CPU minutes; goes on where it was stopped.
mutants: $(BUILD)/mutate
	nice $(BUILD)/mutate tests/ptx/mutants.iso o_proj/join1,rope,norm,streamed,o_proj,attention \
	    -j 2 -o $(BUILD)/mutants.txt -list tests/ptx/survivors.txt

-include $(patsubst %,$(BUILD)/obj/tests/ptx/%.d,bench beside device faults foreign mutants \
    mutate requests survivors)

# The PTX machine's launches on a GPU too: built anywhere, runs where there is a driver.
device_obj := $(call object,tests/ptx/device.c tests/gpu/gpu.c)
$(BUILD)/obj/tests/ptx/device.o: CPPFLAGS_ALL += -Itests/gpu
$(BUILD)/ptx_device: $(device_obj) $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

gpu_ranks_obj := $(call object,$(wildcard tests/gpu_ranks/*.c) tests/gpu/gpu.c \
    tests/ranks/common.c tests/ranks/probe.c)
$(BUILD)/obj/tests/gpu_ranks/%.o: CPPFLAGS_ALL += -Icompiler/device -Itests/gpu -Itests/ranks

$(BUILD)/gpu_ranks: $(gpu_ranks_obj) $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

# On GPUS GPUs: bits, then what a collective costs beside NCCL's, in one run. The smaller model has
# the smaller sizes.
GPUS ?= 2
bench-ranks: $(BUILD)/gpu_ranks $(BUILD)/isoc
	$(BUILD)/isoc contracts/qwen3-8b.iso -o $(BUILD)/bench-ranks.cubin
	$(BUILD)/isoc contracts/qwen3-0.6b.iso -o $(BUILD)/bench-ranks-small.cubin
	$(BUILD)/gpu_ranks bits $(BUILD)/bench-ranks.cubin 4096 $(GPUS)
	$(BUILD)/gpu_ranks speed $(BUILD)/bench-ranks.cubin 1 $(GPUS)
	$(BUILD)/gpu_ranks speed $(BUILD)/bench-ranks-small.cubin 1 $(GPUS)
	NCCL_NVLS_ENABLE=0 python3 tests/gpu_ranks/nccl.py $(GPUS)

-include $(gpu_ranks_obj:.o=.d)

# Products against cuBLAS: built anywhere, runs where there is a driver and cublasLt.
bench_gemm_obj := $(call object,tests/bench/bench_gemm.c tests/bench/cublas.c tests/gpu/gpu.c)
$(BUILD)/obj/tests/bench/%.o: CPPFLAGS_ALL += -Itests/gpu
$(BUILD)/bench_gemm: $(bench_gemm_obj) $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

$(BUILD)/products.cubin: tests/bench/products.iso $(BUILD)/isoc
	@$(BUILD)/isoc $< -o $@

# The example of a sampler and a trainer.
rollout_obj := $(call object,$(wildcard examples/rollout/*.c))
$(BUILD)/rollout: $(rollout_obj) $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

# A decoding step of a whole model: build/bench_model CUBIN LAYOUT SEQUENCES POSITION.
$(BUILD)/bench_model: $(BUILD)/obj/tests/bench/bench_model.o $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

bench-gemm: $(BUILD)/bench_gemm $(BUILD)/products.cubin
	@$(BUILD)/bench_gemm $(BUILD)/products.cubin

# Attention: decode over paged caches and prefill.
bench_attend_obj := $(call object,tests/bench/bench_attend.c tests/gpu/gpu.c)
$(BUILD)/obj/tests/bench/bench_attend.o: CPPFLAGS_ALL += -Icompiler/device
$(BUILD)/bench_attend: $(bench_attend_obj) $(BUILD)/libiso.a
	@echo "  ld   $@"
	@$(CC) $(CFLAGS_ALL) -o $@ $^ $(LIBS)

$(BUILD)/attention.cubin: tests/bench/attention.iso $(BUILD)/isoc
	@$(BUILD)/isoc $< -o $@

bench-attend: $(BUILD)/bench_attend $(BUILD)/attention.cubin
	@$(BUILD)/bench_attend $(BUILD)/attention.cubin

-include $(gpu_obj:.o=.d) $(ranks_obj:.o=.d) $(bench_gemm_obj:.o=.d) $(bench_attend_obj:.o=.d) \
    $(lib_obj:.o=.d) $(main_obj:.o=.d) $(unit_obj:.o=.d) $(rollout_obj:.o=.d) \
    $(BUILD)/obj/tests/bench/bench_model.d

# ---- tests -----------------------------------------------------------------------------------

unit: $(BUILD)/unit
	@echo "unit tests"
	@CK_DEFAULT_TIMEOUT=300 $(BUILD)/unit

check:
	@sh tests/tools/deps.sh build python
	@$(MAKE) --no-print-directory all lint unit
	@BUILD=$(BUILD) sh tests/tools/check.sh

lint:
	@sh tests/tools/lint.sh

demo:
	@sh tests/tools/deps.sh build nvrtc
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) sh tests/tools/demo.sh

san:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/san OPT="-O1 -g" CPPFLAGS=-DISOC_PURIFY \
	    EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" all unit

clang:
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/clang CC=clang all unit

# libFuzzer comes with clang; the fuzzed code is built with it, apart from the ordinary objects.
fuzz: $(BUILD)/isoc
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang OPT="-O1 -g" \
	    CPPFLAGS=-DISOC_PURIFY fuzzers \
	    EXTRA="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"
	@BUILD=$(BUILD) sh tests/tools/fuzz.sh

fuzzers: $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
$(BUILD)/fuzz_%: tests/fuzz/fuzz_%.c $(BUILD)/libiso.a
	@echo "  fuzz $@"
	@$(CC) $(CFLAGS_ALL) $(CPPFLAGS_ALL) -fsanitize=fuzzer -o $@ $^ $(LIBS)

# Every contract there is: one whose kernels spill registers is found by no other target.
contracts: $(patsubst contracts/%.iso,$(BUILD)/contracts/%.cubin,$(wildcard contracts/*.iso))
$(BUILD)/contracts/%.cubin: contracts/%.iso $(wildcard contracts/include/*.isoi) $(BUILD)/isoc
	@mkdir -p $(@D)
	@echo "  isoc $<"
	@$(BUILD)/isoc -Wno-roots $< -o $@ >/dev/null

# Every kernel of every contract, which no check has time for; what is proved stays.
proofs: $(patsubst contracts/%.iso,$(BUILD)/contracts/%.proof.json,$(wildcard contracts/*.iso))
$(BUILD)/contracts/%.proof.json: $(BUILD)/contracts/%.cubin
	@$(BUILD)/isoc prove $< -o $@ >$(@:.json=.txt) || { cat $(@:.json=.txt); exit 1; }
	@echo "  prove $<" && grep '^[0-9].* outputs' $(@:.json=.txt)

# Kernel text of every contract against another revision's: BASE=..., by default HEAD.
replay: $(BUILD)/isoc
	@BUILD=$(BUILD) sh tests/tools/replay.sh

# SmolLM2-135M-Instruct's weights into build/smollm2.
smollm2:
	@BUILD=$(BUILD) sh tests/tools/smollm2.sh

bench: all
	@BUILD=$(BUILD) sh tests/tools/bench.sh

deps:
	@sh tests/tools/deps.sh build nvrtc clang

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/pkgconfig \
	    $(DESTDIR)$(PREFIX)/include/iso $(DESTDIR)$(PREFIX)/share/isoc
	install -m 755 $(BUILD)/isoc $(DESTDIR)$(PREFIX)/bin/
	install -m 644 $(BUILD)/libiso.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(BUILD)/libiso.so $(DESTDIR)$(PREFIX)/lib/libiso.so.$(VERSION)
	ln -sf libiso.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/libiso.so.0
	ln -sf libiso.so.0 $(DESTDIR)$(PREFIX)/lib/libiso.so
	install -m 644 runtime/iso.h runtime/iso_group.h runtime/iso_model.h runtime/status.def \
	    compiler/isoc.h $(DESTDIR)$(PREFIX)/include/iso/
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' tests/tools/iso.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/iso.pc
	cp -r contracts $(DESTDIR)$(PREFIX)/share/isoc/

clean:
	rm -rf build
