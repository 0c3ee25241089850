/* An artefact without a compiler of kernels: a contract's true manifest behind a cubin of sixteen
 * bytes of code. It loads on the CPU device; launching its kernels needs a driver that is not real.
 * Ownership: everything lives in the Artefact's pipeline until artefact_close. */
#ifndef ISOC_TEST_ARTEFACT_H
#define ISOC_TEST_ARTEFACT_H

#include "cubin/cubin.h"
#include "pipeline.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

typedef struct Artefact {
    Pipeline pipeline;
    Str cubin, manifest, bytes;
} Artefact;

/* ELF header, code, names, and three section headers. */
static inline Str artefact_cubin(Arena *arena)
{
    enum { NAMES = 80, TABLE = 112, SIZE = TABLE + 3 * 64 };
    static const char names[] = "\0.text.k\0.shstrtab";
    const u32 sections[2][4] = {{1, 1, 64, 16}, {9, 3, NAMES, sizeof names}};
    char *c = arena_alloc(arena, SIZE);
    memset(c, 0, SIZE);
    memcpy(c, "\177ELF\2\1\1", 7);
    store16(c + 18, CUBIN_MACHINE);
    store64(c + 40, TABLE);
    store16(c + 58, 64);
    store16(c + 60, 3);
    store16(c + 62, 2);
    memset(c + 64, 0x5a, 16);
    memcpy(c + NAMES, names, sizeof names);
    for (int i = 0; i < 2; i++) {
        char *at = c + TABLE + 64 * (i + 1);
        store32(at, sections[i][0]);
        store32(at + 4, sections[i][1]);
        store64(at + 24, sections[i][2]);
        store64(at + 32, sections[i][3]);
    }
    return (Str){c, SIZE};
}

/* The artefact with another manifest. */
static inline Str artefact_with(const Artefact *a, Str manifest, Arena *arena)
{
    Str out;
    ck_assert_ptr_null(artifact_append(a->cubin, manifest, &out, arena));
    return out;
}

static inline void artefact_open(Artefact *a, const char *contract)
{
    static const Str options[] = {{"--fmad=false", 12}};
    Pipeline *p = &a->pipeline;
    MemoryFile file = {STR("m.iso"), str_of(contract)};
    MemoryFiles files = {1, &file};
    PipelineInput input = {.path = STR("m.iso"), .reader = reader_memory(&files), .cache = ""};
    ck_assert(pipeline_open(p, &input));
    bool ok = pipeline_run(p, STAGE_EMIT);
    char *messages = pipeline_messages(p);
    ck_assert_msg(ok, "%s", messages);
    free(messages);
    a->cubin = artefact_cubin(p->out);
    Digest digest = sha256(a->cubin.s, (size_t)a->cubin.n);
    ManifestBuild build = {.arch = STR("sm_90a"), .nvrtc_major = 13, .n_options = 1,
                           .options = options, .cubin = &digest, .cuda = &digest, .ptx = &digest};
    Text text = {.arena = p->out};
    ck_assert(manifest_write(&p->sources, &p->plan, &p->emitted, &p->certificate, &build, &text));
    a->manifest = text_str(&text);
    a->bytes = artefact_with(a, a->manifest, p->out);
}

static inline void artefact_close(Artefact *a)
{
    pipeline_close(&a->pipeline);
}

#endif
