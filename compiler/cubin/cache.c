/* One file an entry: what it is, the digest of the rest, two sizes, cubin, PTX. */
#include "cache.h"

#include "cubin.h"
#include "base/device_text.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char magic[8] = "ISOCACH1";
enum { HEAD = 8 + 32, SIZES = 16 };

Str cache_dir(const char *dir, Arena *arena)
{
    if (dir)
        return str_copy(arena, str_of(dir));
    const char *own = getenv("ISOC_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own)
        return str_copy(arena, str_of(own));
    if (xdg && *xdg)
        return str_format(arena, "%s/isoc", xdg);
    if (home && *home)
        return str_format(arena, "%s/.cache/isoc", home);
    return STR("");
}

Digest cache_key(const Nvrtc *nvrtc, Str arch, Str program, Arena *arena)
{
    Text text = {.arena = arena};
    text_printf(&text, "isoc %s\nNVRTC %.*s\n", ISOC_VERSION, STR_FMT(nvrtc_version(nvrtc, arena)));
    text_add(&text, nvrtc_options(arena, arch));
    for (const DeviceText *t = device_texts; t->name; t++) {
        Digest digest = sha256(t->text, t->size);
        text_printf(&text, "%s %.*s\n", t->name, STR_FMT(digest_hex(arena, &digest)));
    }
    text_add(&text, program);
    return sha256(text.s, (size_t)text.n);
}

static Str entry_path(Str dir, const Digest *key, Arena *arena)
{
    return str_format(arena, "%.*s/%.*s", STR_FMT(dir), STR_FMT(digest_hex(arena, key)));
}

bool cache_get(Str dir, const Digest *key, Binary *binary, Arena *arena)
{
    Str bytes;
    if (dir.n == 0 || file_read(entry_path(dir, key, arena).s, &bytes, arena))
        return false;
    if (bytes.n < HEAD + SIZES || memcmp(bytes.s, magic, sizeof magic) != 0)
        return false;
    Digest digest = sha256(bytes.s + HEAD, (size_t)(bytes.n - HEAD));
    if (memcmp(digest.byte, bytes.s + sizeof magic, sizeof digest.byte) != 0)
        return false;
    u64 cubin = load64(bytes.s + HEAD), ptx = load64(bytes.s + HEAD + 8);
    u64 room = (u64)(bytes.n - HEAD - SIZES);
    if (cubin > room || ptx != room - cubin)
        return false;
    const char *at = bytes.s + HEAD + SIZES;
    binary->cubin = str_copy(arena, (Str){at, (int)cubin});
    binary->ptx = str_copy(arena, (Str){at + cubin, (int)ptx});
    binary_read_uses(binary, arena);
    return true;
}

static void make_folders(Str dir, Arena *arena)
{
    Str path = str_copy(arena, dir);
    char *s = (char *)path.s;
    for (int i = 1; i <= path.n; i++)
        if (i == path.n || s[i] == '/') {
            s[i] = 0;
            (void)mkdir(s, 0777); /* one that is there already is fine; another fault shows later */
            s[i] = i == path.n ? 0 : '/';
        }
}

void cache_put(Str dir, const Digest *key, const Binary *binary, Arena *arena)
{
    if (dir.n == 0)
        return;
    int size = HEAD + SIZES + binary->cubin.n + binary->ptx.n;
    char *bytes = arena_alloc(arena, (size_t)size), *at = bytes + HEAD;
    store64(at, (u64)binary->cubin.n);
    store64(at + 8, (u64)binary->ptx.n);
    memcpy(at + SIZES, binary->cubin.s, (size_t)binary->cubin.n);
    memcpy(at + SIZES + binary->cubin.n, binary->ptx.s, (size_t)binary->ptx.n);
    Digest digest = sha256(at, (size_t)(size - HEAD));
    memcpy(bytes, magic, sizeof magic);
    memcpy(bytes + sizeof magic, digest.byte, sizeof digest.byte);
    make_folders(dir, arena);
    (void)file_write(entry_path(dir, key, arena).s, (Str){bytes, size});
}
