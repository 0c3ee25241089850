/* attend over shapes: groups of heads, depths, types, classes, and what one rank has of a box. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/iso_num.cuh"
#include "exec/exec.h"
#include "meaning.h"

enum { TOKENS = 41 };

typedef struct Shape {
    int kv, group, depth, width; /* width: of the values */
    int filled;                  /* of the depth; the rest is zeros */
    const char *numerics, *type;
    int repeat;                  /* heads of keys that hold the same */
} Shape;

typedef struct Output {
    float *o, *lse; /* [token][head][width], [token][head] */
} Output;

static u16 element(int what, int token, int head, int i, bool half)
{
    u32 r = (u32)what * 7919 + (u32)token * 104729 + (u32)head * 1299709 + (u32)i * 15485863;
    r = (r ^ r >> 15) * 0x2c1b3c6du;
    r = (r ^ r >> 12) * 0x297a2d39u;
    r ^= r >> 15;
    return half ? (u16)((r & 1) << 15 | (12 + r / 2 % 4) << 10 | (r >> 8 & 0x3FF))
                : (u16)((r & 1) << 15 | (124 + r / 2 % 4) << 7 | (r >> 8 & 0x7F));
}

static u16 *make(const Shape *s, int what, int heads, int n, int filled, int repeat)
{
    u16 *data = malloc((size_t)(TOKENS * heads * n) * sizeof *data);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < n; i++)
                data[(t * heads + h) * n + i] =
                    i < filled ? element(what, t, h / repeat, i, !strcmp(s->type, "f16")) : 0;
    return data;
}

static void open_shape(Front *f, Contract *contract, Dag *dag, const Shape *s, const char *keys)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "contract c version 1; numerics %s;\n"
             "axis tokens = sequence * position ragged, heads = kv %d * group %d;\n"
             "axis depth = %d, width = %d;\n"
             "op f(q: %s[tokens, heads, depth], k: %s[sequence, position%s, depth],\n"
             "     v: %s[sequence, position%s, width])\n"
             "   -> (o: f32[tokens, heads, width], lse: f32[tokens, heads]) {\n"
             "    attend o, lse = q, k, v { over depth; scale_log2 0.1; block 16; split 32; }\n}\n",
             s->numerics, s->kv, s->group, s->depth, s->width, s->type, s->type, keys, s->type,
             keys);
    meaning_open(f, text, contract, dag);
}

static int atom_named(const Contract *contract, const char *name)
{
    for (int a = 0; a < contract->n_atoms; a++)
        if (str_is(contract->axes[contract->atom_axis[a]].name.text, name))
            return a;
    ck_abort_msg("no atom %s", name);
    return -1;
}

/* What a rank has of the box; NULL: all. */
typedef struct Share {
    const char *atom;
    i64 lo, hi;
} Share;

static Output run_shape(const Shape *s, bool shared, const Share *share, int threads)
{
    Front f;
    Contract contract;
    Dag dag;
    int heads = s->kv * s->group, positions[TOKENS], sequences[TOKENS] = {0};
    int filled = s->filled ? s->filled : s->depth, repeat = s->repeat ? s->repeat : 1;
    open_shape(&f, &contract, &dag, s, shared ? "" : ", kv");
    u16 *q = make(s, 0, heads, s->depth, filled, 1);
    u16 *k = make(s, 1, s->kv, s->depth, filled, repeat);
    u16 *v = make(s, 2, s->kv, s->width, s->width, repeat);
    Output out = {malloc(sizeof(float) * (size_t)(TOKENS * heads * s->width)),
                  malloc(sizeof(float) * (size_t)(TOKENS * heads))};
    for (int t = 0; t < TOKENS; t++)
        positions[t] = t;
    ExecTensor params[] = {{.data = q, .stride = {heads * s->depth, s->depth, 1}},
                           {.data = k, .stride = {0, s->kv * s->depth, s->depth, 1}},
                           {.data = v, .stride = {0, s->kv * s->width, s->width, 1}}};
    for (int i = 1; i < 3 && shared; i++)
        params[i].stride[2] = 1;
    const ExecTensor results[] = {{.data = out.o, .stride = {heads * s->width, s->width, 1}},
                                  {.data = out.lse, .stride = {heads, 1}}};
    ExecJob job = {.contract = &contract, .op = &dag.ops[0], .params = params, .results = results,
                   .positions = positions, .sequences = sequences, .threads = threads};
    exec_box_all(&contract, TOKENS, &job.box);
    if (share) {
        job.box.atom[atom_named(&contract, share->atom)].lo = share->lo;
        job.box.atom[atom_named(&contract, share->atom)].hi = share->hi;
    }
    ck_assert(exec_op(&job, f.arena));
    free(q);
    free(k);
    free(v);
    front_close(&f);
    return out;
}

static void output_free(Output *out)
{
    free(out->o);
    free(out->lse);
}

static bool same(const Shape *s, const Output *a, const Output *b)
{
    size_t rows = (size_t)(TOKENS * s->kv * s->group);
    return !memcmp(a->o, b->o, sizeof(float) * rows * (size_t)s->width) &&
           !memcmp(a->lse, b->lse, sizeof(float) * rows);
}

/* A group of heads has the bits that each head has with a copy of the keys of its own. */
START_TEST(groups_share_their_keys)
{
    static const int groups[] = {1, 2, 3, 4, 8};
    int group = groups[_i], kv = _i == 4 ? 1 : 2;
    Shape grouped = {.kv = kv, .group = group, .depth = 32, .width = 32, .numerics = "sm_90",
                     .type = "bf16"}, apart = grouped;
    apart.kv = kv * group;
    apart.group = 1;
    apart.repeat = group;
    Output a = run_shape(&grouped, false, NULL, 2), b = run_shape(&apart, false, NULL, 1);
    ck_assert(same(&grouped, &a, &b));
    output_free(&a);
    output_free(&b);
}
END_TEST

/* Keys without an axis of heads are one head's: latent attention's values have fewer elements. */
START_TEST(keys_may_have_no_heads)
{
    Shape s = {.kv = 1, .group = 4, .depth = 72, .width = 64, .numerics = "sm_90", .type = "bf16"};
    Output a = run_shape(&s, true, NULL, 1), b = run_shape(&s, false, NULL, 1);
    ck_assert(same(&s, &a, &b));
    output_free(&a);
    output_free(&b);
}
END_TEST

/* Depths are filled up to whole groups with zeros; one more element moves bits. */
START_TEST(depths_are_filled_with_zeros)
{
    static const int depths[] = {1, 15, 16, 40, 64, 96, 128, 250};
    Shape s = {.kv = 1, .group = 2, .depth = depths[_i], .width = 8, .numerics = "sm_90",
               .type = "bf16"}, wide = s;
    wide.depth = (s.depth + 15) / 16 * 16 + 16;
    wide.filled = s.depth;
    Output a = run_shape(&s, false, NULL, 1), b = run_shape(&wide, false, NULL, 1);
    ck_assert(same(&s, &a, &b));
    output_free(&b);
    wide.filled++;
    b = run_shape(&wide, false, NULL, 1);
    ck_assert(!same(&s, &a, &b));
    output_free(&a);
    output_free(&b);
}
END_TEST

/* The class's step is part of it, and so is the type; values are near in all of them. */
START_TEST(classes_and_types)
{
    Shape s = {.kv = 2, .group = 2, .depth = 64, .width = 16, .numerics = "sm_90", .type = "bf16"};
    Shape others[] = {s, s, s, s};
    others[0].numerics = "sm_100";
    others[1].numerics = "sm_80";
    others[2].type = "f16";
    others[3].numerics = "sm_70";
    others[3].type = "f16";
    Output a = run_shape(&s, false, NULL, 1);
    for (int i = 0; i < 4; i++) {
        Output b = run_shape(&others[i], false, NULL, 1);
        ck_assert_int_eq(same(&s, &a, &b), i == 0);
        for (int t = 0; t < TOKENS * 4 * 16; t++)
            ck_assert(b.o[t] == b.o[t] && b.o[t] < 8 && b.o[t] > -8);
        output_free(&b);
    }
    output_free(&a);
}
END_TEST

/* Heads, groups, tokens and elements of values are computed alike, alone or with the others. */
START_TEST(a_rank_has_the_bits_of_the_whole)
{
    static const Share shares[] = {
        {"kv", 1, 3}, {"group", 1, 2}, {"tokens", 17, 40}, {"width", 5, 16}, {"kv", 2, 2},
    };
    const Share *share = &shares[_i];
    Shape s = {.kv = 4, .group = 2, .depth = 16, .width = 16, .numerics = "sm_90", .type = "bf16"};
    Output a = run_shape(&s, false, NULL, 1), b = run_shape(&s, false, share, 3);
    int found = 0;
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < 8; h++)
            for (int w = 0; w < 16; w++) {
                i64 at = str_is(str_of(share->atom), "kv") ? h / 2
                         : str_is(str_of(share->atom), "group") ? h % 2
                         : str_is(str_of(share->atom), "tokens") ? t : w;
                if (at < share->lo || at >= share->hi)
                    continue;
                found++;
                ck_assert_uint_eq(iso_f32_bits(a.o[(t * 8 + h) * 16 + w]),
                                  iso_f32_bits(b.o[(t * 8 + h) * 16 + w]));
                ck_assert_uint_eq(iso_f32_bits(a.lse[t * 8 + h]), iso_f32_bits(b.lse[t * 8 + h]));
            }
    ck_assert_int_eq(found == 0, share->lo == share->hi);
    output_free(&a);
    output_free(&b);
}
END_TEST

Suite *attend_shapes_suite(void)
{
    Suite *suite = suite_create("attend_shapes");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, groups_share_their_keys, 0, 5);
    tcase_add_test(tc, keys_may_have_no_heads);
    tcase_add_loop_test(tc, depths_are_filled_with_zeros, 0, 8);
    tcase_add_test(tc, classes_and_types);
    tcase_add_loop_test(tc, a_rank_has_the_bits_of_the_whole, 0, 5);
    suite_add_tcase(suite, tc);
    return suite;
}
