/* ELF64 sections of a cubin, every offset checked before it is followed. */
#include "cubin.h"

#include <string.h>

enum { HEADER = 64, ENTRY = 64, NOBITS = 8 };

static u64 load(const char *at, int bytes)
{
    u64 value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | (u8)at[i];
    return value;
}

static void store(char *at, int bytes, u64 value)
{
    for (int i = 0; i < bytes; i++, value >>= 8)
        at[i] = (char)(value & 0xff);
}

u16 load16(const char *at)
{
    return (u16)load(at, 2);
}

u32 load32(const char *at)
{
    return (u32)load(at, 4);
}

u64 load64(const char *at)
{
    return load(at, 8);
}

void store16(char *at, u16 value)
{
    store(at, 2, value);
}

void store32(char *at, u32 value)
{
    store(at, 4, value);
}

void store64(char *at, u64 value)
{
    store(at, 8, value);
}

static bool inside(u64 total, u64 offset, u64 size)
{
    return offset <= total && size <= total - offset;
}

const char *cubin_open(Str bytes, Cubin *cubin)
{
    u64 total = bytes.n < 0 ? 0 : (u64)bytes.n;
    if (total < HEADER || memcmp(bytes.s, "\177ELF\2\1\1", 7) != 0)
        return "it is not a 64-bit little-endian ELF file";
    if (load16(bytes.s + 18) != CUBIN_MACHINE)
        return "it is an ELF file for another machine than a CUDA device";
    cubin->bytes = bytes;
    cubin->sections_at = load64(bytes.s + 40);
    cubin->n_sections = load16(bytes.s + 60);
    if (load16(bytes.s + 58) != ENTRY || cubin->n_sections == 0)
        return "it has no section headers of the usual size";
    if (!inside(total, cubin->sections_at, (u64)cubin->n_sections * ENTRY))
        return "its section headers lie past the end of the file";
    u32 names = load16(bytes.s + 62);
    if (names >= cubin->n_sections)
        return "its section name table does not exist";
    const char *at = bytes.s + cubin->sections_at + (u64)names * ENTRY;
    cubin->names_at = load64(at + 24);
    cubin->names_size = load64(at + 32);
    if (!inside(total, cubin->names_at, cubin->names_size))
        return "its section names lie past the end of the file";
    return NULL;
}

const char *cubin_section(const Cubin *cubin, u32 i, Section *section)
{
    if (i >= cubin->n_sections)
        return "there is no such section";
    const char *at = cubin->bytes.s + cubin->sections_at + (u64)i * ENTRY;
    u64 name = load32(at);
    section->type = load32(at + 4);
    section->offset = load64(at + 24);
    section->size = load64(at + 32);
    section->link = load32(at + 40);
    section->info = load32(at + 44);
    section->in_file = section->type != NOBITS;
    if (name >= cubin->names_size)
        return "a section's name lies outside the name table";
    const char *s = cubin->bytes.s + cubin->names_at + name;
    const char *end = memchr(s, 0, (size_t)(cubin->names_size - name));
    if (!end)
        return "a section's name has no end";
    section->name = (Str){s, (int)(end - s)};
    if (section->in_file && !inside((u64)cubin->bytes.n, section->offset, section->size))
        return "a section lies past the end of the file";
    return NULL;
}

bool cubin_find(const Cubin *cubin, const char *name, Section *section)
{
    for (u32 i = 0; i < cubin->n_sections; i++)
        if (!cubin_section(cubin, i, section) && str_is(section->name, name))
            return true;
    return false;
}
