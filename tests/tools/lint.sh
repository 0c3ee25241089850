#!/bin/sh
# Line length, file length, and the one direction of includes.
set -u
bad=0
say() { echo "lint: $*"; bad=1; }

# Folders of compiler/, lowest first; `library` is compiler/ itself, `runtime` the runtime's
# headers: the PTX device drives its launchers. A file may include its own layer and those before.
layers="base front check dag exec layout explain import plan proof emit ptx cubin verify library
    runtime prove command"
rank_of() {
    echo $layers | awk -v want="$1" '{ for (i = 1; i <= NF; i++) if ($i == want) print i }'
}
# The layer of an include, as a file of layer $1 writes it.
layer_of() {
    case $2 in
    */*) if [ -e "compiler/$2" ]; then echo "${2%%/*}"
         elif [ -e "runtime/$2" ]; then echo runtime; fi ;;
    *) if [ -e "compiler/$1/$2" ]; then echo "$1"
       elif [ -e "compiler/$2" ]; then echo library
       elif [ -e "runtime/$2" ]; then echo runtime; fi ;;
    esac
}
# The few headers that every layer may use.
free_of_order() {
    case $1 in
    device/iso_num.cuh|device/iso_fn.cuh|device/iso_abi.cuh|device/iso_rope.cuh) return 0 ;;
    device/iso_random.cuh|device/iso_rounded.cuh|device/iso_short.cuh|\
    device/iso_ex2.cuh) return 0 ;;
    isoc_parse.h|isoc_scan.h) return 0 ;;
    *) return 1 ;;
    esac
}

for f in compiler/*.[ch] compiler/*/*.[ch]; do
    own=${f#compiler/}
    case $own in */*) own=${own%%/*} ;; *) own=library ;; esac
    rank=$(rank_of "$own")
    if [ -z "$rank" ]; then say "$f: belongs to no layer of tests/tools/lint.sh"; continue; fi
    for i in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$f"); do
        free_of_order "$i" && continue
        theirs=$(rank_of "$(layer_of "$own" "$i")")
        if [ -z "$theirs" ]; then say "$f: includes $i, which no layer has"; continue; fi
        [ "$theirs" -le "$rank" ] || say "$f ($own) includes $i of a higher layer"
    done
done

for f in runtime/*.[ch] runtime/*/*.[ch]; do
    [ -e "$f" ] || continue
    for i in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$f"); do
        i=${i#../}; i=${i#../}; i=${i#compiler/}
        case $i in isoc.h|device/iso_abi.cuh|device/iso_num.cuh|device/iso_rope.cuh) continue ;;
        esac
        [ -e "runtime/$i" ] || [ -e "$(dirname "$f")/$i" ] ||
            say "$f includes $i; runtime sees the compiler through isoc.h alone"
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
