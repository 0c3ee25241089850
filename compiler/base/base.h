/* Arenas, slices, growable arrays: the memory of every stage.
 * Ownership: an arena owns all that is allocated from it; nothing is freed singly. */
#ifndef ISOC_BASE_H
#define ISOC_BASE_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;

/* ---- arenas ---------------------------------------------------------------------------- */

typedef struct Arena Arena;

/* NULL when memory is short. */
Arena *arena_new(void);
void arena_free(Arena *arena);

/* Where an allocation failure goes: the pipeline sets a jump target once, so that no stage has
 * to test every allocation. Without a target an exhausted arena returns NULL. */
void arena_on_oom(Arena *arena, jmp_buf *target);

/* Zeroed memory, aligned for any type. */
void *arena_alloc(Arena *arena, size_t size);
#define arena_new_of(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define arena_array(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))

/* Test hook: the k-th allocation from now fails (0: never). Counted over all arenas. */
void arena_fail_at(u64 k);

/* ---- slices ---------------------------------------------------------------------------- */

typedef struct Str {
    const char *s;
    int n;
} Str;

#define STR(literal) ((Str){(literal), (int)sizeof(literal) - 1})
#define STR_FMT(str) (str).n, (str).s /* for %.*s */

Str str_of(const char *zero_terminated);
bool str_eq(Str a, Str b);
bool str_is(Str a, const char *zero_terminated);
/* Zero-terminated copy in the arena. */
Str str_copy(Arena *arena, Str a);
Str str_format(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Levenshtein distance, for "did you mean". */
int str_distance(Str a, Str b);

/* ---- growable arrays ------------------------------------------------------------------- */

#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *v;                                                                                      \
        int n, cap;                                                                                \
    }

/* Appends; the element is an lvalue or value of the vector's type. */
#define vec_push(arena, vec, element)                                                              \
    (vec_reserve((arena), (void **)&(vec)->v, &(vec)->cap, (vec)->n + 1, sizeof *(vec)->v),        \
     (vec)->v[(vec)->n++] = (element))

void vec_reserve(Arena *arena, void **v, int *cap, int need, size_t size);

/* ---- text being built ------------------------------------------------------------------ */

typedef struct Text {
    Arena *arena;
    char *s; /* always zero-terminated once written to */
    int n, cap;
} Text;

void text_add(Text *text, Str s);
void text_printf(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
Str text_str(const Text *text);

/* ---- element types ---------------------------------------------------------------------- */

/* X(enum suffix, name in the language, bytes) */
#define DTYPE_LIST(X)                                                                              \
    X(BF16, "bf16", 2)                                                                             \
    X(F16, "f16", 2)                                                                               \
    X(F32, "f32", 4)

typedef enum DType {
#define X(suffix, name, bytes) DT_##suffix,
    DTYPE_LIST(X)
#undef X
        DT_COUNT
} DType;

const char *dtype_name(DType type);
int dtype_bytes(DType type);

/* ---- digests ---------------------------------------------------------------------------- */

typedef struct Digest {
    u8 byte[32];
} Digest;

Digest sha256(const void *data, size_t size);
bool digest_eq(const Digest *a, const Digest *b);
/* 64 lower-case hexadecimal digits. */
Str digest_hex(Arena *arena, const Digest *digest);

#endif
