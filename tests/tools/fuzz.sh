#!/bin/sh
# Each fuzzer for FUZZ_SECONDS (60), from its corpus in tests/fuzz/corpus/NAME; what it finds stays
# in build/fuzz.
set -e
BUILD=${BUILD:-build}
for f in "$BUILD"/fuzz/fuzz_*; do
    [ -x "$f" ] || continue
    case $f in *.*) continue ;; esac
    name=$(basename "$f"); name=${name#fuzz_}
    mkdir -p "$BUILD/fuzz/found/$name"
    echo "fuzzing $name for ${FUZZ_SECONDS:-60} s"
    "$f" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -print_final_stats=1 \
        -artifact_prefix="$BUILD/fuzz/$name-" "$BUILD/fuzz/found/$name" \
        $(ls -d tests/fuzz/corpus/"$name" 2>/dev/null) 2>&1 | tail -12
done
