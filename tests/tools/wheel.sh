#!/bin/sh
# Makes the Python wheel from $BUILD/wheel/libiso.so; prints its path. Nothing is written beside the
# sources: a copy of them is packed.
set -eu
BUILD=${BUILD:-build}
source=$BUILD/wheel/source
python=$(sh tests/tools/venv.sh "$BUILD/python" numpy ml_dtypes 'setuptools>=77')

rm -rf "$source" "$BUILD"/wheel/*.whl
mkdir -p "$source/licenses"
cp -r runtime/python/pyproject.toml runtime/python/setup.py runtime/python/isoc "$source/"
cp runtime/iso.h README.md LICENSE "$source/"
cp "$BUILD/wheel/libiso.so" "$source/isoc/"
ldd "$BUILD/wheel/libiso.so" | awk '$1 ~ /^libjansson/ { print $3 }' | while read -r library; do
    cp -L "$library" "$source/isoc/"
done
rm -rf "$source/isoc/__pycache__"
# The wheel holds these two; Debian and its kin keep their terms here.
for package in libjansson-dev libssl-dev; do
    [ ! -r "/usr/share/doc/$package/copyright" ] ||
        cp "/usr/share/doc/$package/copyright" "$source/licenses/$package"
done
"$python" -m pip -q --disable-pip-version-check wheel --no-deps --no-build-isolation \
    -w "$BUILD/wheel" "$source"
ls "$BUILD"/wheel/*.whl
