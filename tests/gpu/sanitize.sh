#!/bin/sh
# compute-sanitizer over every kernel of the given cubins, and over kernels with one defect each,
# which it must report.
#
#   tests/gpu/sanitize.sh build/gpu_suite FILE.cubin...
#
# Fails if a tool reports on a kernel of ours, if a run does not finish, or if a defect passes
# unseen: by the tool or, where the tool does not follow the copy engine, by wrong bits.
# LOGS: an empty folder for the logs. LIMIT: seconds for one run. SHARDS: processes that share a
# cubin's kernels under racecheck, which is slow: there, sizes of products are cut down. JOBS:
# processes at a time: of twenty that began together most found no memory for a context.
set -u
suite=$1
shift
tool=${SANITIZER:-compute-sanitizer}
logs=${LOGS:-$(mktemp -d)}
limit=${LIMIT:-600}
shards=${SHARDS:-4}
jobs=${JOBS:-8}
running=0
filter=
"$tool" --help 2>&1 | grep -q -e --kernel-name && filter="--kernel-name kns=iso_"
mkdir -p "$logs"

# What a tool's log says: a number of reports, or nothing where it did not come to its summary.
reports() {
    sed -n -e 's/^=* *ERROR SUMMARY: \([0-9]*\) error.*/\1/p' \
        -e 's/^=* *RACECHECK SUMMARY: \([0-9]*\) hazard.*/\1/p' "$1" | tail -n 1
}

# start COMMAND...: beside the others.
start() {
    "$@" &
    running=$((running + 1))
    [ $running -lt "$jobs" ] || { wait; running=0; }
}

# clean NAME TOOL COMMAND...: it must finish and report nothing.
clean() {
    name=$1 kind=$2
    shift 2
    only=
    case $name in *.cubin*) only=$filter ;; esac
    timeout "$limit" "$tool" --tool "$kind" $only "$@" >"$logs/$name.$kind.log" 2>&1
    status=$?
    n=$(reports "$logs/$name.$kind.log")
    if [ "$n" = 0 ] && [ $status = 0 ]; then
        say=ok
    else
        say=WRONG
    fi
    echo "$say $kind, $name: ${n:-did not finish}${n:+ reports}, exit $status" \
        >"$logs/$name.$kind.result"
}

# seen KERNEL DEFECT TOOL NEED: the tool reports; or, where NEED is bits, the outputs are wrong.
seen() {
    log=$logs/$1.$2.$3.log
    timeout "$limit" "$tool" --tool "$3" "$suite" seeded "$1" "$2" >"$log" 2>&1
    n=$(reports "$log")
    by=WRONG
    bits=
    [ "${n:-0}" -gt 0 ] && by="ok, reported"
    if [ "$4" = bits ]; then
        bits=$(timeout "$limit" "$suite" seeded "$1" "$2" 10 2>&1 | tail -n 1)
        case $bits in
        *": 0 of"*) ;;
        *"outputs differ"*) [ "$by" = WRONG ] && by="ok, wrong bits" ;;
        esac
    fi
    echo "$by: $3, $1 with defect $2: ${n:-no summary} reports${bits:+; alone, $bits}" \
        >"$logs/$1.$2.$3.result"
}

for kernel in product stream gather copy handoff; do
    for kind in memcheck racecheck synccheck; do
        start clean "$kernel" $kind "$suite" seeded "$kernel" none
    done
done
start seen gather sync racecheck tool
start seen stream sync racecheck tool
start seen handoff full racecheck tool
start seen copy full racecheck bits
start seen product late racecheck bits
start seen product empty racecheck bits
start seen product init synccheck tool
start seen stream bounds memcheck tool
wait

for cubin in "$@"; do
    name=$(basename "$cubin")
    start clean "$name" memcheck "$suite" "$cubin" --sanitize 0/1
    start clean "$name" synccheck "$suite" "$cubin" --sanitize 0/1
    i=0
    while [ $i -lt "$shards" ]; do
        start clean "$name.$i" racecheck "$suite" "$cubin" --sanitize $i/"$shards" --small
        i=$((i + 1))
    done
done
wait

cat "$logs"/*.result
! grep -q '^WRONG' "$logs"/*.result
