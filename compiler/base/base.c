/* Arenas, slices, growable arrays, digests. */
#include "base.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64 * 1024, ALIGN = 16 };

typedef struct Chunk {
    struct Chunk *next;
    size_t used, size;
    _Alignas(ALIGN) u8 data[];
} Chunk;

struct Arena {
    Chunk *chunks;
    jmp_buf *oom;
};

static _Atomic u64 fail_at;

void arena_fail_at(u64 k)
{
    fail_at = k;
}

/* One counter for every allocation, so that a test can walk k = 1, 2, ... through a whole run. */
static void *count_and_calloc(size_t size)
{
    if (fail_at && --fail_at == 0)
        return NULL;
    return calloc(1, size);
}

Arena *arena_new(void)
{
    return count_and_calloc(sizeof(Arena));
}

void arena_free(Arena *arena)
{
    if (!arena)
        return;
    for (Chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}

void arena_on_oom(Arena *arena, jmp_buf *target)
{
    arena->oom = target;
}

static Chunk *arena_grow(Arena *arena, size_t size)
{
#ifdef ISOC_PURIFY
    size_t room = size; /* one object a chunk, so that a sanitizer sees every overrun */
#else
    size_t room = size > CHUNK ? size : CHUNK;
#endif
    Chunk *c = size < SIZE_MAX / 2 ? count_and_calloc(sizeof(Chunk) + room) : NULL;
    if (!c) {
        if (arena->oom)
            longjmp(*arena->oom, 1);
        return NULL;
    }
    c->size = room;
    /* A large object goes behind the open chunk, whose room stays usable. */
    if (arena->chunks && size > CHUNK / 4) {
        c->next = arena->chunks->next;
        arena->chunks->next = c;
    } else {
        c->next = arena->chunks;
        arena->chunks = c;
    }
    return c;
}

void *arena_alloc(Arena *arena, size_t size)
{
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    Chunk *c = arena->chunks;
    if (!c || c->size - c->used < size)
        c = arena_grow(arena, size);
    if (!c)
        return NULL;
    void *p = c->data + c->used;
    c->used += size;
    return p;
}

Str str_of(const char *s)
{
    return (Str){s, (int)strlen(s)};
}

bool str_eq(Str a, Str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, (size_t)a.n) == 0);
}

bool str_is(Str a, const char *s)
{
    return str_eq(a, str_of(s));
}

Str str_copy(Arena *arena, Str a)
{
    char *s = arena_alloc(arena, (size_t)a.n + 1);
    if (a.n)
        memcpy(s, a.s, (size_t)a.n);
    return (Str){s, a.n};
}

Str str_format(Arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *s = arena_alloc(arena, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return (Str){s, n};
}

int str_distance(Str a, Str b)
{
    enum { LONGEST = 64 };
    int row[LONGEST + 1];
    if (a.n > LONGEST || b.n > LONGEST)
        return LONGEST;
    for (int j = 0; j <= b.n; j++)
        row[j] = j;
    for (int i = 1; i <= a.n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= b.n; j++) {
            int best = diagonal + (a.s[i - 1] != b.s[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b.n];
}

void vec_reserve(Arena *arena, void **v, int *cap, int need, size_t size)
{
    if (need <= *cap)
        return;
    int room = *cap ? *cap * 2 : 8;
    while (room < need)
        room *= 2;
    void *bigger = arena_alloc(arena, (size_t)room * size);
    if (*cap)
        memcpy(bigger, *v, (size_t)*cap * size);
    *v = bigger;
    *cap = room;
}

static void text_reserve(Text *text, int more)
{
    vec_reserve(text->arena, (void **)&text->s, &text->cap, text->n + more + 1, 1);
}

void text_add(Text *text, Str s)
{
    text_reserve(text, s.n);
    if (s.n)
        memcpy(text->s + text->n, s.s, (size_t)s.n);
    text->n += s.n;
    text->s[text->n] = 0;
}

void text_printf(Text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    text_reserve(text, n);
    vsnprintf(text->s + text->n, (size_t)n + 1, format, again);
    text->n += n;
    va_end(again);
    va_end(args);
}

Str text_str(const Text *text)
{
    return (Str){text->s ? text->s : "", text->n};
}

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {
#define X(suffix, name, bytes) {name, bytes},
    DTYPE_LIST(X)
#undef X
};

const char *dtype_name(DType type)
{
    return dtypes[type].name;
}

int dtype_bytes(DType type)
{
    return dtypes[type].bytes;
}

Digest sha256(const void *data, size_t size)
{
    Digest digest = {{0}};
    EVP_Digest(data, size, digest.byte, NULL, EVP_sha256(), NULL);
    return digest;
}

bool digest_eq(const Digest *a, const Digest *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

Str digest_hex(Arena *arena, const Digest *digest)
{
    char *s = arena_alloc(arena, 65);
    for (int i = 0; i < 32; i++)
        snprintf(s + 2 * i, 3, "%02x", digest->byte[i]);
    return (Str){s, 64};
}
