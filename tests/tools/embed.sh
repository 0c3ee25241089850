#!/bin/sh
# embed.sh TABLE FILE...: files as byte arrays in one C file: ISO C promises only 4,095 characters a
# string literal.
set -e
table=$1; shift
echo '/* Made by tests/tools/embed.sh. */'
echo '#include "base/device_text.h"'
for f in "$@"; do
    id=$(basename "$f" | tr -c 'A-Za-z0-9\n' '_')
    echo "static const unsigned char text_$id[] = {"
    od -An -v -tu1 "$f" | sed -e 's/  */,/g' -e 's/^,//' -e 's/$/,/'
    echo '0};'
done
echo "const DeviceText $table[] = {"
for f in "$@"; do
    id=$(basename "$f" | tr -c 'A-Za-z0-9\n' '_')
    echo "    {\"$(basename "$f")\", (const char *)text_$id, sizeof text_$id - 1},"
done
echo '    {0, 0, 0},'
echo '};'
