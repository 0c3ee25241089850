#!/bin/sh
# Kernel text of every contract here against that of another revision (BASE, by default HEAD): a
# refactoring must leave all of it byte-identical.
set -u
BUILD=${BUILD:-build}
base=${BASE:-HEAD}
work=$BUILD/replay
rm -rf "$work" && mkdir -p "$work" || exit 1
git worktree prune
git worktree add -q --detach "$work/tree" "$base" || exit 2
trap 'git worktree remove --force "$work/tree"' EXIT
echo "building $base"
if ! make -s -C "$work/tree" BUILD=build build/isoc >/dev/null; then
    echo "$base does not build"
    exit 2
fi
differ=0 all=0
for contract in contracts/*.iso tests/gpu/contracts/*.iso; do
    all=$((all + 1))
    "$BUILD/isoc" --emit=cuda -Wno-roots "$contract" -o "$work/new.cu" >/dev/null || exit 1
    "$work/tree/build/isoc" --emit=cuda -Wno-roots "$contract" -o "$work/old.cu" >/dev/null ||
        : >"$work/old.cu"
    # The first line names version and fingerprint.
    for which in old new; do
        tail -n +2 "$work/$which.cu" >"$work/$which"
    done
    if ! cmp -s "$work/old" "$work/new"; then
        echo "$contract: kernel text differs"
        differ=$((differ + 1))
    fi
done
echo "$differ of $all contracts differ from $base"
[ "$differ" = 0 ]
