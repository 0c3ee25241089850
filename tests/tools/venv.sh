#!/bin/sh
# venv.sh FOLDER PACKAGE...: a virtual environment with these packages, made once. Prints its
# Python.
set -eu
folder=$1; shift
if [ ! -x "$folder/bin/python" ] || [ "$(cat "$folder/.packages" 2>/dev/null)" != "$*" ]; then
    rm -rf "$folder"
    python3 -m venv "$folder" >&2
    [ $# = 0 ] || "$folder/bin/pip" -q --disable-pip-version-check install "$@" >&2
    echo "$*" > "$folder/.packages"
fi
echo "$folder/bin/python"
