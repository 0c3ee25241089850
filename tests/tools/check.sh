#!/bin/sh
# Every tests/*/run: each says what it does and fails by its exit status.
set -u
failed=0
for t in tests/*/run; do
    [ -x "$t" ] || continue
    echo "$(basename "$(dirname "$t")") tests"
    "$t" || { echo "FAILED: $t"; failed=1; }
done
exit $failed
