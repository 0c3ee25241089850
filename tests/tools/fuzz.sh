#!/bin/sh
# Each fuzzer for FUZZ_SECONDS (60), from texts of its kind; FUZZ_ONLY="manifest ptx" names some.
# What it finds stays in build/fuzz.
set -e
BUILD=${BUILD:-build}
found=$BUILD/fuzz/found

# Folders that a fuzzer starts from. Manifests are made here, of one layout, where NVRTC is there.
seeds() {
    case $1 in
    contract) echo tests/fuzz/corpus/contract tests/reject tests/golden tests/ptx contracts ;;
    import) echo tests/import ;;
    ptx) echo tests/ptx/foreign ;;
    manifest)
        mkdir -p "$found/from-manifest"
        for c in tests/python/small:tp2 tests/ptx/fold:tp2_sp tests/ptx/grouped:tp2 \
            tests/rollout/tiny:tp1; do
            "$BUILD/isoc" ${c%:*}.iso --emit=manifest --layout=${c#*:} \
                -o "$found/from-manifest/$(basename ${c%:*})" >/dev/null 2>&1 || true
        done
        echo "$found/from-manifest" ;;
    *) echo "tests/fuzz/corpus/$1" ;;
    esac
}

for f in "$BUILD"/fuzz/fuzz_*; do
    [ -x "$f" ] || continue
    case $f in *.*) continue ;; esac
    name=$(basename "$f"); name=${name#fuzz_}
    case " ${FUZZ_ONLY:-$name} " in *" $name "*) ;; *) continue ;; esac
    mkdir -p "$found/$name"
    echo "fuzzing $name for ${FUZZ_SECONDS:-60} s"
    "$f" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=3000 \
        -print_final_stats=1 -artifact_prefix="$BUILD/fuzz/$name-" "$found/$name" $(seeds "$name") \
        > "$found/$name.log" 2>&1 || { tail -40 "$found/$name.log"; exit 1; }
    tail -12 "$found/$name.log"
done
