#!/bin/sh
# Installs what is missing: `deps.sh build` (compiler, flex, bison, libraries), `nvrtc`,
# `clang`, `python`. Packages come from apt where it can be used; without it one sentence names
# them.
set -u
BUILD=${BUILD:-build}

have() { command -v "$1" >/dev/null 2>&1; }
header() { echo "#include <$1>" | "${CC:-cc}" -E - >/dev/null 2>&1; }

missing() {
    for what in "$@"; do
        case $what in
        build)
            have "${CC:-cc}" || echo gcc libc6-dev
            have "${CXX:-c++}" || echo g++
            have make || echo make
            have flex || echo flex
            have bison || echo bison
            have pkg-config || echo pkg-config
            have "${CC:-cc}" && header check.h || echo check
            have "${CC:-cc}" && header jansson.h || echo libjansson-dev
            have "${CC:-cc}" && header openssl/evp.h || echo libssl-dev
            ;;
        clang) have clang || echo clang ;;
        python) python3 -c 'import venv, ensurepip' 2>/dev/null || echo python3 python3-venv ;;
        esac
    done
}

install() {
    root=
    if [ "$(id -u)" != 0 ]; then
        if have sudo && sudo -n true 2>/dev/null; then
            root=sudo
        else
            echo "isoc needs these packages: $*." >&2
            echo "Install them (apt-get install $*) and run again." >&2
            exit 3
        fi
    fi
    if ! have apt-get; then
        echo "isoc needs these packages, by their Debian names: $*. Install them and run again." >&2
        exit 3
    fi
    echo "installing: $*"
    $root apt-get update -qq >/dev/null || true
    DEBIAN_FRONTEND=noninteractive $root apt-get install -y -qq --no-install-recommends "$@" \
        >/dev/null || { echo "apt-get could not install: $*" >&2; exit 3; }
}

nvrtc_found() {
    for d in "${ISOC_NVRTC:-}" "${CUDA_HOME:-}/lib64" /usr/local/cuda/lib64 "$BUILD/nvrtc"; do
        [ -n "$d" ] && ls "$d"/libnvrtc.so* >/dev/null 2>&1 && return 0
    done
    [ -n "${ISOC_NVRTC:-}" ] && [ -f "$ISOC_NVRTC" ] && return 0
    { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q 'libnvrtc\.so\.1[3-9]'
}

# The wheel holds the two libraries that are needed; its minor version is that of the driver that
# will load the kernels (a newer NVRTC's cubin may not load in an older driver).
nvrtc_wheel() {
    echo "no CUDA Toolkit found: fetching NVRTC 13.0 as a Python wheel into $BUILD/nvrtc"
    if ! have python3; then install python3; fi
    python3 -c 'import venv, ensurepip' 2>/dev/null || install python3-venv
    rm -rf "$BUILD/venv" && mkdir -p "$BUILD/nvrtc"
    python3 -m venv "$BUILD/venv" && "$BUILD/venv/bin/pip" -q --disable-pip-version-check \
        install 'nvidia-cuda-nvrtc==13.0.*' ||
        {
            echo "pip could not install nvidia-cuda-nvrtc; install the CUDA Toolkit 13.0" >&2
            exit 3
        }
    find "$BUILD/venv" -name 'libnvrtc*.so*' -exec cp {} "$BUILD/nvrtc/" \;
    rm -rf "$BUILD/venv"
}

want=$(missing "$@")
[ -z "$want" ] || install $want
case " $* " in
*" nvrtc "*) nvrtc_found || nvrtc_wheel ;;
esac
exit 0
