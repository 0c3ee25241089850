#!/bin/sh
# Host measurements: the tensor-core model, and the compiler from nothing and again.
set -e
BUILD=${BUILD:-build}
mkdir -p "$BUILD/bench"
${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -ffp-contract=off -fno-fast-math -pthread \
    -I. -Icompiler -o "$BUILD/bench/fdpa" tests/bench/bench_fdpa.c "$BUILD/libiso.a" \
    -ljansson -lcrypto -ldl -lm
echo "== the tensor-core model"
"$BUILD/bench/fdpa"
for again in "from nothing" "again"; do
    echo "== contracts/qwen3-8b.iso, $again"
    [ "$again" = again ] || rm -rf "$BUILD/bench/cache"
    "$BUILD/isoc" contracts/qwen3-8b.iso -o "$BUILD/bench/k.cubin" --cache="$BUILD/bench/cache" \
        --time > "$BUILD/bench/table" 2> "$BUILD/bench/times"
    grep ' s' "$BUILD/bench/times"
done
