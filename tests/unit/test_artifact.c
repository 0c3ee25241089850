/* The appended manifest: found again, refused when any byte moved, safe on any bytes. */
#define LLVMFuzzerTestOneInput fuzz_artifact
#include "../fuzz/fuzz_artifact.c"
#include "base/file.h"
#include "cubin/cubin.h"
#include "replay.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The least cubin: a header, one section of code, the names, and three section headers. */
enum { NAMES_AT = 64 + 16, TABLE_AT = 112, SIZE = TABLE_AT + 3 * 64 };
static const char names[] = "\0.text.k\0.shstrtab";

static void put_section(char *at, u32 name, u32 type, u64 offset, u64 size)
{
    store32(at, name);
    store32(at + 4, type);
    store64(at + 24, offset);
    store64(at + 32, size);
}

static Str small_cubin(Arena *arena)
{
    char *c = arena_alloc(arena, SIZE);
    memcpy(c, "\177ELF\2\1\1", 7);
    store16(c + 18, CUBIN_MACHINE);
    store64(c + 40, TABLE_AT);
    store16(c + 58, 64);
    store16(c + 60, 3);
    store16(c + 62, 2);
    memset(c + 64, 0x5a, 16);
    memcpy(c + NAMES_AT, names, sizeof names);
    put_section(c + TABLE_AT + 64, 1, 1, 64, 16);
    put_section(c + TABLE_AT + 128, 9, 3, NAMES_AT, sizeof names);
    return (Str){c, SIZE};
}

static Str manifest_of(Arena *arena, Str cubin)
{
    Digest d = sha256(cubin.s, (size_t)cubin.n);
    Str hex = digest_hex(arena, &d);
    return str_format(arena, "{\"cubin_sha256\":\"%.*s\",\"format\":1}\n", STR_FMT(hex));
}

static Str artifact_of(Arena *arena, Str *cubin, Str *manifest)
{
    Str out;
    *cubin = small_cubin(arena);
    *manifest = manifest_of(arena, *cubin);
    ck_assert_ptr_null(artifact_append(*cubin, *manifest, &out, arena));
    return out;
}

START_TEST(manifest_is_found_again)
{
    Arena *arena = arena_new();
    Str cubin, manifest, found, back;
    Str out = artifact_of(arena, &cubin, &manifest);
    ck_assert_ptr_null(artifact_manifest(out, &found));
    ck_assert(str_eq(found, manifest));
    ck_assert_ptr_null(artifact_cubin(out, &back, arena));
    ck_assert(str_eq(back, cubin));
    ck_assert_ptr_null(artifact_check(out, arena));
    arena_free(arena);
}
END_TEST

START_TEST(sections_stay_and_names_resolve)
{
    Arena *arena = arena_new();
    Str cubin, manifest;
    Str out = artifact_of(arena, &cubin, &manifest);
    Cubin c;
    Section s;
    ck_assert_ptr_null(cubin_open(out, &c));
    ck_assert_uint_eq(c.n_sections, 4);
    ck_assert(cubin_find(&c, ".text.k", &s));
    ck_assert_uint_eq(s.offset, 64);
    ck_assert(cubin_find(&c, ".note.iso", &s));
    ck_assert_uint_eq(s.type, 7);
    /* Only the header's three fields differ from the cubin. */
    for (int i = 0; i < cubin.n; i++)
        if (out.s[i] != cubin.s[i])
            ck_assert((i >= 40 && i < 48) || (i >= 60 && i < 62));
    arena_free(arena);
}
END_TEST

START_TEST(no_manifest_twice)
{
    Arena *arena = arena_new();
    Str cubin, manifest, twice;
    Str out = artifact_of(arena, &cubin, &manifest);
    ck_assert_str_eq(artifact_append(out, manifest, &twice, arena), "it has a manifest already");
    arena_free(arena);
}
END_TEST

START_TEST(every_changed_byte_is_refused)
{
    Arena *arena = arena_new();
    Str cubin, manifest;
    Str out = artifact_of(arena, &cubin, &manifest);
    for (int i = 0; i < out.n; i++)
        for (int bit = 0; bit < 8; bit++) {
            Arena *scratch = arena_new();
            Str bad = str_copy(scratch, out);
            ((char *)bad.s)[i] ^= (char)(1 << bit);
            ck_assert_msg(artifact_check(bad, scratch) != NULL, "byte %d bit %d", i, bit);
            arena_free(scratch);
        }
    arena_free(arena);
}
END_TEST

START_TEST(every_short_file_is_refused)
{
    Arena *arena = arena_new();
    Str cubin, manifest, found;
    Str out = artifact_of(arena, &cubin, &manifest);
    for (int n = 0; n < out.n; n++) {
        char *exact = malloc(n ? (size_t)n : 1); /* so that a sanitizer sees any read past it */
        memcpy(exact, out.s, (size_t)n);
        ck_assert_ptr_nonnull(artifact_manifest((Str){exact, n}, &found));
        free(exact);
    }
    arena_free(arena);
}
END_TEST

/* Random bytes over the headers: whatever the answer, no read outside. */
START_TEST(hostile_headers_are_survived)
{
    Arena *arena = arena_new();
    Str cubin, manifest;
    Str out = artifact_of(arena, &cubin, &manifest);
    u32 seed = 12345;
    for (int round = 0; round < 20000; round++) {
        char *exact = malloc((size_t)out.n);
        memcpy(exact, out.s, (size_t)out.n);
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            int at = (int)((seed >> 8) % (u32)out.n);
            exact[at] = (char)(seed >> (round % 3 == 0 ? 24 : 16));
        }
        Arena *scratch = arena_new();
        (void)artifact_check((Str){exact, out.n}, scratch);
        arena_free(scratch);
        free(exact);
    }
    arena_free(arena);
}
END_TEST

/* What the fuzzer found or started from. */
START_TEST(corpus_is_survived)
{
    ck_assert_int_ge(replay_folder("tests/fuzz/corpus/artifact", LLVMFuzzerTestOneInput), 3);
}
END_TEST

START_TEST(files_are_written_whole_or_not_at_all)
{
    Arena *arena = arena_new();
    char folder[] = "/tmp/isoc-test-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    Str path = str_format(arena, "%s/a", folder), back;
    ck_assert_ptr_null(file_write(path.s, STR("first")));
    ck_assert_ptr_null(file_write(path.s, STR("second")));
    ck_assert_ptr_null(file_read(path.s, &back, arena));
    ck_assert(str_is(back, "second"));
    Str nowhere = str_format(arena, "%s/none/a", folder);
    ck_assert_ptr_nonnull(file_write(nowhere.s, STR("x")));
    ck_assert_ptr_nonnull(file_read(nowhere.s, &back, arena));
    ck_assert_int_eq(unlink(path.s), 0);
    ck_assert_int_eq(rmdir(folder), 0); /* empty: no temporary file was left */
    arena_free(arena);
}
END_TEST

Suite *artifact_suite(void);
Suite *artifact_suite(void)
{
    Suite *suite = suite_create("artifact");
    TCase *tests = tcase_create("artifact");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, manifest_is_found_again);
    tcase_add_test(tests, sections_stay_and_names_resolve);
    tcase_add_test(tests, no_manifest_twice);
    tcase_add_test(tests, every_changed_byte_is_refused);
    tcase_add_test(tests, every_short_file_is_refused);
    tcase_add_test(tests, hostile_headers_are_survived);
    tcase_add_test(tests, corpus_is_survived);
    tcase_add_test(tests, files_are_written_whole_or_not_at_all);
    suite_add_tcase(suite, tests);
    return suite;
}
