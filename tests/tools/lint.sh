#!/bin/sh
# Line length, file length, and the one direction of includes.
set -u
bad=0
say() { echo "lint: $*"; bad=1; }

# Lowest first. A file may include its own layer and those before it.
layers="
base scalar literal device_text
source file cubin reader
tree fdpa
diag
ast
parse
contract check
dag fn
exec
layout explain diff
import
plan
proof
emit
nvrtc
cache
artifact
ptx
census
manifest_write header_write
sample
verify
pipeline isoc session
iso driver module launch
machine
verify_terms verify_ptx certificate
options progress
commands command main
"
rank_of() {
    echo "$layers" | awk -v want="$1" '{ for (i = 1; i <= NF; i++) if ($i == want) print NR }'
}
# contract.h -> contract; check_ops.c -> check; emit/row.c -> emit.
layer_of() {
    case $1 in
    emit/*) echo emit; return ;;
    ptx/*) echo ptx; return ;;
    esac
    name=$(basename "$1"); name=${name%.*}
    while [ -n "$name" ]; do
        if [ -n "$(rank_of "$name")" ]; then echo "$name"; return; fi
        case $name in *_*) name=${name%_*} ;; *) return ;; esac
    done
}
# The few headers that every layer may use.
free_of_order() {
    case $1 in
    device/iso_num.cuh|device/iso_fn.cuh|device/iso_abi.cuh|device/iso_rope.cuh) return 0 ;;
    device/iso_random.cuh|device/iso_rounded.cuh|device/iso_short.cuh) return 0 ;;
    isoc_parse.h|isoc_scan.h) return 0 ;;
    *) return 1 ;;
    esac
}

# The runtime's headers stand above the compiler's library: the PTX device drives its launchers.
for f in compiler/*.[ch] compiler/emit/*.[ch] compiler/ptx/*.[ch]; do
    [ -e "$f" ] || continue
    own=$(layer_of "${f#compiler/}")
    if [ -z "$own" ]; then say "$f: belongs to no layer of tests/tools/lint.sh"; continue; fi
    own_rank=$(rank_of "$own")
    for i in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$f"); do
        case $i in ../*) i=${i#../} ;; *) case $f in
            compiler/emit/*) i=emit/$i ;;
            compiler/ptx/*) [ -e "compiler/ptx/$i" ] && i=ptx/$i ;;
            esac ;;
        esac
        case $i in emit/device/*) i=${i#emit/} ;; *.def) [ -e "compiler/$i" ] && continue ;; esac
        free_of_order "$i" && continue
        theirs=$(layer_of "$i")
        if [ -z "$theirs" ]; then say "$f: includes $i, which no layer has"; continue; fi
        [ "$(rank_of "$theirs")" -le "$own_rank" ] || say "$f ($own) includes $i of a higher layer"
    done
done

for f in runtime/*.[ch]; do
    [ -e "$f" ] || continue
    for i in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$f"); do
        i=${i#../compiler/}
        case $i in isoc.h|device/iso_abi.cuh|device/iso_num.cuh|device/iso_rope.cuh) continue ;;
        esac
        [ -e "runtime/$i" ] || say "$f includes $i; runtime sees the compiler through isoc.h alone"
    done
done

# Goldens are what the compiler writes, not what anybody reads line by line.
for f in $(git ls-files 2>/dev/null | grep -E '\.([chly]|cuh|cu|def|sh)$' |
    grep -v '^tests/golden/'); do
    [ -e "$f" ] || continue
    awk -v f="$f" 'length($0) > 100 { print "lint: " f ":" NR ": over 100 columns"; n++ }
        /\t/ && f !~ /Makefile/ { print "lint: " f ":" NR ": a tab"; n++ }
        / $/ { print "lint: " f ":" NR ": space at the end"; n++ }
        END { exit n > 0 }' "$f" || bad=1
    [ "$(wc -l < "$f")" -lt 1000 ] || say "$f: 1000 lines or more"
done

[ $bad = 0 ] && echo "lint: clean"
exit $bad
