/* .note.iso: appended behind a cubin, found again, and taken off again. */
#include "artifact.h"

#include "cubin.h"

#include <jansson.h>
#include <string.h>

/* Behind the cubin lie: padding, the note, the new name table, padding, the new section table. The
 * note's descriptor begins with what artifact_cubin must put back:
 *   u64 size of the cubin, u64 its section table's offset, u16 its count, u16 its name index,
 *   u32 zero, SHA-256 of the manifest, then the manifest. */
enum {
    ENTRY = 64,
    NOTE_TYPE = 1,
    SHT_NOTE = 7,
    NOTE_HEAD = 12 + 4, /* sizes and type, then "ISO\0" */
    RESTORE = 24 + 32,
    AT_TABLE = 40, /* e_shoff */
    AT_COUNT = 60, /* e_shnum */
    AT_NAMES = 62, /* e_shstrndx */
};
static const char section_name[] = ".note.iso";

static u64 align_up(u64 n, u64 to)
{
    return (n + to - 1) / to * to;
}

typedef struct Places {
    u64 note, note_size, names, names_size, table, total;
} Places;

static Places place(const Cubin *cubin, Str manifest)
{
    Places p;
    p.note = align_up((u64)cubin->bytes.n, 16);
    p.note_size = align_up(NOTE_HEAD + RESTORE + (u64)manifest.n, 4);
    p.names = p.note + p.note_size;
    p.names_size = cubin->names_size + sizeof section_name;
    p.table = align_up(p.names + p.names_size, 8);
    p.total = p.table + ((u64)cubin->n_sections + 1) * ENTRY;
    return p;
}

static void put_note(char *at, const Cubin *cubin, Str manifest)
{
    store32(at, 4);
    store32(at + 4, RESTORE + (u32)manifest.n);
    store32(at + 8, NOTE_TYPE);
    memcpy(at + 12, "ISO", 4);
    at += NOTE_HEAD;
    store64(at, (u64)cubin->bytes.n);
    store64(at + 8, cubin->sections_at);
    store16(at + 16, (u16)cubin->n_sections);
    store16(at + 18, load16(cubin->bytes.s + AT_NAMES));
    Digest digest = sha256(manifest.s, (size_t)manifest.n);
    memcpy(at + 24, digest.byte, sizeof digest.byte);
    memcpy(at + RESTORE, manifest.s, (size_t)manifest.n);
}

static void put_sections(char *file, const Cubin *cubin, const Places *p, u16 names)
{
    char *table = file + p->table;
    memcpy(table, cubin->bytes.s + cubin->sections_at, (size_t)cubin->n_sections * ENTRY);
    char *strings = table + (size_t)names * ENTRY;
    store64(strings + 24, p->names);
    store64(strings + 32, p->names_size);
    char *note = table + (size_t)cubin->n_sections * ENTRY;
    store32(note, (u32)cubin->names_size);
    store32(note + 4, SHT_NOTE);
    store64(note + 24, p->note);
    store64(note + 32, p->note_size);
    store64(note + 48, 4); /* sh_addralign */
}

/* Every section must be readable as it is: a name beyond the old table would take the new name
 * that is put there. */
static const char *takes_manifest(const Cubin *cubin)
{
    for (u32 i = 0; i < cubin->n_sections; i++) {
        Section s;
        const char *problem = cubin_section(cubin, i, &s);
        if (problem)
            return problem;
        if (str_is(s.name, section_name))
            return "it has a manifest already";
    }
    return NULL;
}

const char *artifact_append(Str bytes, Str manifest, Str *out, Arena *arena)
{
    Cubin cubin;
    const char *problem = cubin_open(bytes, &cubin);
    if (!problem)
        problem = takes_manifest(&cubin);
    if (problem)
        return problem;
    Places p = place(&cubin, manifest);
    if (p.total > INT32_MAX || cubin.n_sections >= 0xff00 - 1)
        return "it is too large";
    char *file = arena_alloc(arena, p.total);
    u16 names = load16(bytes.s + AT_NAMES);
    memcpy(file, bytes.s, (size_t)bytes.n);
    put_note(file + p.note, &cubin, manifest);
    memcpy(file + p.names, bytes.s + cubin.names_at, (size_t)cubin.names_size);
    memcpy(file + p.names + cubin.names_size, section_name, sizeof section_name);
    put_sections(file, &cubin, &p, names);
    store64(file + AT_TABLE, p.table);
    store16(file + AT_COUNT, (u16)(cubin.n_sections + 1));
    *out = (Str){file, (int)p.total};
    return NULL;
}

/* The note's descriptor: RESTORE bytes, then the manifest. */
static const char *find_note(Str bytes, Str *descriptor)
{
    Cubin cubin;
    Section s;
    const char *problem = cubin_open(bytes, &cubin);
    if (problem)
        return problem;
    if (!cubin_find(&cubin, section_name, &s) || !s.in_file)
        return "it has no .note.iso section";
    const char *at = bytes.s + s.offset;
    if (s.size < NOTE_HEAD + RESTORE || load32(at) != 4 || load32(at + 8) != NOTE_TYPE ||
        memcmp(at + 12, "ISO", 4) != 0)
        return "its .note.iso section is not a note of isoc";
    u64 size = load32(at + 4);
    if (size < RESTORE || size > s.size - NOTE_HEAD)
        return "its .note.iso section is cut short";
    *descriptor = (Str){at + NOTE_HEAD, (int)size};
    return NULL;
}

const char *artifact_manifest(Str bytes, Str *manifest)
{
    Str d;
    const char *problem = find_note(bytes, &d);
    if (!problem)
        *manifest = (Str){d.s + RESTORE, d.n - RESTORE};
    return problem;
}

const char *artifact_cubin(Str bytes, Str *cubin, Arena *arena)
{
    Str d;
    const char *problem = find_note(bytes, &d);
    if (problem)
        return problem;
    u64 size = load64(d.s);
    if (size < ENTRY || size > (u64)(d.s - bytes.s))
        return "its .note.iso section names an impossible size";
    Str copy = str_copy(arena, (Str){bytes.s, (int)size});
    char *file = (char *)copy.s;
    store64(file + AT_TABLE, load64(d.s + 8));
    store16(file + AT_COUNT, load16(d.s + 16));
    store16(file + AT_NAMES, load16(d.s + 18));
    *cubin = copy;
    return NULL;
}

static const char *check_digest(Str manifest, Str cubin, Arena *arena)
{
    json_t *root = json_loadb(manifest.s, (size_t)manifest.n, 0, NULL);
    const char *said = json_string_value(json_object_get(root, "cubin_sha256"));
    Digest digest = sha256(cubin.s, (size_t)cubin.n);
    const char *problem = NULL;
    if (!root)
        problem = "its manifest is not JSON";
    else if (!said)
        problem = "its manifest has no digest of the cubin";
    else if (!str_eq(str_of(said), digest_hex(arena, &digest)))
        problem = "its bytes are not those that its manifest was made for";
    json_decref(root);
    return problem;
}

/* The digest covers the cubin; building the artefact anew covers what stands behind it. */
const char *artifact_check(Str bytes, Arena *arena)
{
    Str manifest, cubin, again;
    const char *problem = artifact_manifest(bytes, &manifest);
    if (!problem)
        problem = artifact_cubin(bytes, &cubin, arena);
    if (!problem)
        problem = artifact_append(cubin, manifest, &again, arena);
    if (problem)
        return problem;
    if (!str_eq(bytes, again))
        return "its bytes are not as isoc wrote them";
    return check_digest(manifest, cubin, arena);
}
