#!/bin/sh
# What isoc is for, on one contract: compile it, prove its layouts, run them, compare the bits.
set -e
BUILD=${BUILD:-build}
contract=contracts/qwen3-8b.iso
mkdir -p "$BUILD/demo"

echo
echo "== 1. $contract becomes one cubin: every op, for every tensor- and sequence-parallel layout"
"$BUILD/isoc" "$contract" -o "$BUILD/demo/qwen3-8b.cubin" --time

echo
echo "== 2. the tree of one output of o_proj on 4 ranks with sequence parallelism"
"$BUILD/isoc" explain "$contract" o_proj --layout tp4_sp

echo
echo "== 3. every layout run rank by rank on the CPU executor, against the op run whole"
"$BUILD/isoc" verify "$BUILD/demo/qwen3-8b.cubin" --device cpu

if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    echo
    echo "== 4. the same on the GPU"
    ${MAKE:-make} --no-print-directory gpu_suite
    "$BUILD/gpu_suite" "$BUILD/demo/qwen3-8b.cubin" --quick
else
    echo
    echo "== 4. no GPU here: where there is one this step runs the kernels and compares their bits"
fi
