/* An attend in memory: what its requests hold, clause 6.13 written a second time, and batches.
 * Ownership: an Attention lives until front_close; what run gives, until bits_free. */
#ifndef ISOC_TEST_ATTEND_LAB_H
#define ISOC_TEST_ATTEND_LAB_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/iso_ex2.cuh"
#include "device/iso_fn.cuh"
#include "exec/exec.h"
#include "meaning.h"

enum { KV = 2, GROUP = 2, HEADS = KV * GROUP, DEPTH = 16, ROW = HEADS * DEPTH, KEY = KV * DEPTH };

#define HEAD                                                                                       \
    "contract c version 1; numerics sm_90;\n"                                                      \
    "axis tokens = sequence * position ragged, heads = kv 2 * group 2, head_dim = half 2 * rot 8;\n"

#define ATTENTION(settings)                                                                        \
    HEAD "op f(q: bf16[tokens, heads, head_dim], k, v: bf16[sequence, position, kv, head_dim])\n"  \
    "   -> (o: f32[tokens, heads, head_dim], lse: f32[tokens, heads]) {\n"                         \
    "    attend o, lse = q, k, v { over head_dim; " settings " }\n}\n"

#define SUNK(settings)                                                                             \
    HEAD "op f(q: bf16[tokens, heads, head_dim], k, v: bf16[sequence, position, kv, head_dim],\n"  \
    "          sinks: f32[heads])\n"                                                               \
    "   -> (o: f32[tokens, heads, head_dim], lse: f32[tokens, heads]) {\n"                         \
    "    attend o, lse = q, k, v, sinks { over head_dim; " settings " }\n}\n"

#define SCALE "scale_log2 0.36067376;"
#define SMALL SCALE " block 16; split 48;"

/* ---- contracts ------------------------------------------------------------------------------- */

typedef struct Attention {
    Front f;
    Contract contract;
    Dag dag;
} Attention;

static inline void attention_open(Attention *a, const char *text)
{
    meaning_open(&a->f, text, &a->contract, &a->dag);
}

static const Attend *attend_of(const Attention *a)
{
    for (int i = 0; i < a->dag.ops[0].nodes.n; i++)
        if (a->dag.ops[0].nodes.v[i]->kind == DAG_ATTEND)
            return a->dag.ops[0].nodes.v[i]->attend;
    return NULL;
}

/* ---- what requests hold ---------------------------------------------------------------------- */

static inline u32 mixed(u32 x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

enum { OF_QUERY, OF_KEY, OF_VALUE };

/* A row of keys or values that holds `pattern` everywhere; position -1: none. */
typedef struct Poison {
    int what;
    i64 position;
    u16 pattern;
} Poison;

static Poison poison = {OF_VALUE, -1, 0};

/* bf16 of both signs, from 2^-3 to 4: element i of the row of a request's position. */
static inline u16 content(int what, int request, i64 position, int i)
{
    if (what == poison.what && position == poison.position)
        return poison.pattern;
    u32 r = mixed(mixed(mixed((u32)what * 77 + (u32)request) + (u32)position) + (u32)i);
    return (u16)((r & 1) << 15 | (124 + (r >> 1) % 5) << 7 | (r >> 8 & 0x7F));
}

static inline float sink_of(int head)
{
    return 0.75f * (float)head - 1.0f;
}

/* ---- clause 6.13 once more ------------------------------------------------------------------- */

/* Each variant breaks one rule, to show that a test would see it. */
typedef enum Variant {
    AS_WRITTEN,
    SUM_IN_ORDER,   /* one chain over the block's weights */
    SUM_OF_ROUNDED, /* of the weights as the products take them */
    LANES_LEFT,     /* lanes joined from the left */
    PARTS_LEFT,     /* a lane's parts joined from the left */
    LANES_EACH_BLOCK,
    ONE_SPLIT,
    MAXIMUM_FIRST,  /* of all keys, so that nothing is ever scaled */
    GROUPS_PACKED,  /* seen keys moved together */
    VARIANTS
} Variant;

typedef struct Maybe {
    bool has;
    float x;
} Maybe;

static inline Maybe plus(Maybe a, Maybe b)
{
    return !a.has ? b : !b.has ? a : (Maybe){true, iso_add(a.x, b.x)};
}

static inline Maybe pairs(const Maybe *x, bool left)
{
    return left ? plus(plus(plus(x[0], x[1]), x[2]), x[3])
                : plus(plus(x[0], x[1]), plus(x[2], x[3]));
}

typedef struct Reference {
    const Attend *a;
    const FdpaClass *class;
    Variant variant;
    int request, kv;
    i64 lo, hi;
    const u16 *query;
    float m;
    Maybe lanes[4];
    float o[DEPTH];
    bool present;
} Reference;

static inline float ref_exp(const Reference *r, float x)
{
    return r->a->exp2 == FN_EXP2      ? iso_exp2(x)
           : r->a->exp2 == FN_EX2     ? iso_ex2(x)
           : r->a->exp2 == FN_EXP2_D3 ? iso_exp2_d3(x)
                                      : iso_exp2_d6(x);
}

static inline float ref_by(const Reference *r)
{
    return iso_bits_f32(r->a->capped ? r->a->cap : r->a->scale);
}

/* `maxima rounded`, as the clause has it. */
static inline float ref_block_maximum(const Reference *r, float t)
{
    float x = iso_mul(t, ref_by(r));
    return iso_fma(iso_mul(x, 0x1p106f), 0.0f, iso_sub(iso_add(x, 0x1.8p26f), 0x1.8p26f));
}

static inline float ref_rounded_weight(const Reference *r, float t, float m)
{
    float c = ref_by(r), b = iso_sub(0x1.8p23f, m);
    if (r->a->exp2 == FN_EX2)
        return iso_ex2(iso_fma(t, c, -m));
    float v = iso_max(t, iso_mul(iso_sub(m, 124.0f), iso_div(1.0f, c))), n = iso_fma(v, c, b);
    float rest = iso_fma(v, c, iso_sub(b, n));
    float p = r->a->exp2 == FN_EXP2_D3 ? iso_exp2_d3(rest) : iso_exp2_d6(rest);
    return iso_bits_f32(iso_f32_bits(p) + (iso_f32_bits(n) << 23));
}

static inline float ref_weight(const Reference *r, float t, float m)
{
    return r->a->rounded ? ref_rounded_weight(r, t, m) : ref_exp(r, iso_sub(t, m));
}

static inline float ref_score(const Reference *r, i64 key)
{
    FdpaElem q[DEPTH], k[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        q[i] = fdpa_elem(FDPA_BF16, r->query[i]);
        k[i] = fdpa_elem(FDPA_BF16, content(OF_KEY, r->request, key, r->kv * DEPTH + i));
    }
    float t = fdpa_step(r->class, q, k, 0);
    if (r->a->capped)
        t = iso_tanh(iso_mul(t, iso_bits_f32(r->a->scale)));
    return r->a->rounded ? t : iso_mul(t, ref_by(r));
}

static inline bool is_seen(const Reference *r, i64 key)
{
    return key >= r->lo && key < r->hi;
}

static inline float ref_max(const Reference *r, i64 from, i64 to)
{
    float m = iso_bits_f32(0xFF800000u);
    for (i64 key = from; key < to; key++)
        m = is_seen(r, key) ? iso_max(m, ref_score(r, key)) : m;
    return r->a->rounded ? ref_block_maximum(r, m) : m;
}

static inline void ref_sums(Reference *r, i64 block, const float *w, float alpha, float m)
{
    Maybe lane[4] = {{false, 0}};
    i64 n = r->a->block;
    for (int l = 0; l < 4; l++) {
        Maybe part[4] = {{false, 0}};
        int place = 0;
        for (i64 i = 0; i < n; i++) {
            if (i / 2 % 4 != l)
                continue;
            float x = r->variant == SUM_OF_ROUNDED ? iso_f32_of_bf16(iso_bf16_of_f32(w[i])) : w[i];
            int p = (int)(place++ / (n / 16));
            if (is_seen(r, block + i))
                part[p] = plus(part[p], (Maybe){true, x});
        }
        lane[l] = pairs(part, r->variant == PARTS_LEFT);
    }
    if (r->variant == SUM_IN_ORDER || r->variant == LANES_EACH_BLOCK) {
        Maybe all = {false, 0};
        for (i64 i = 0; i < n; i++)
            all = is_seen(r, block + i) ? plus(all, (Maybe){true, w[i]}) : all;
        lane[0] = r->variant == SUM_IN_ORDER ? all : pairs(lane, false);
        lane[1] = lane[2] = lane[3] = (Maybe){false, 0};
    }
    for (int l = 0; l < 4; l++) {
        if (r->lanes[l].has)
            r->lanes[l].x = iso_mul(r->lanes[l].x, alpha);
        if (r->a->rounded)
            lane[l].x = iso_fma(m, 0.0f, lane[l].x);
        r->lanes[l] = plus(r->lanes[l], lane[l]);
    }
}

static inline void ref_values(Reference *r, i64 block, const float *w, float alpha)
{
    const FdpaElem none = {0, FDPA_EXP_ZERO};
    i64 from = r->variant == GROUPS_PACKED && r->lo > block ? r->lo : block;
    for (int e = 0; e < DEPTH; e++) {
        float c = r->present ? iso_mul(r->o[e], alpha) : 0;
        for (i64 group = from; group < block + r->a->block; group += 16) {
            FdpaElem p[16], v[16];
            bool any = false;
            for (int i = 0; i < 16; i++) {
                i64 key = group + i;
                bool in = is_seen(r, key) && key < block + r->a->block;
                any |= in;
                p[i] = in ? fdpa_elem(FDPA_BF16, iso_bf16_of_f32(w[key - block])) : none;
                v[i] = in ? fdpa_elem(FDPA_BF16, content(OF_VALUE, r->request, key,
                                                         r->kv * DEPTH + e)) : none;
            }
            c = any ? fdpa_step(r->class, p, v, c) : c;
        }
        r->o[e] = c;
    }
}

static inline void ref_split(Reference *r, i64 from, i64 to)
{
    float w[1 << 11];
    r->present = false;
    memset(r->lanes, 0, sizeof r->lanes);
    for (i64 block = from; block < to; block += r->a->block) {
        i64 end = block + r->a->block;
        if (end <= r->lo || block >= r->hi)
            continue;
        float m = ref_max(r, block, end);
        m = r->variant == MAXIMUM_FIRST ? ref_max(r, 0, r->hi) : r->present ? iso_max(r->m, m) : m;
        float alpha = r->present ? ref_exp(r, iso_sub(r->m, m)) : 1;
        for (i64 key = block; key < end; key++)
            w[key - block] = is_seen(r, key) ? ref_weight(r, ref_score(r, key), m) : 0;
        ref_sums(r, block, w, alpha, m);
        ref_values(r, block, w, alpha);
        r->m = m;
        r->present = true;
    }
}

/* out: the values, then the lse. */
static inline void ref_row(Reference *r, const float *sink, float *out)
{
    float m = 0, l = 0, o[DEPTH];
    bool present = false;
    i64 step = r->variant == ONE_SPLIT ? 1 << 20 : r->a->split;
    for (i64 from = 0; from < r->hi; from += step) {
        ref_split(r, from, from + step < r->hi ? from + step : r->hi);
        if (!r->present)
            continue;
        float sum = pairs(r->lanes, r->variant == LANES_LEFT).x;
        float most = present ? iso_max(m, r->m) : r->m;
        float a = present ? ref_exp(r, iso_sub(m, most)) : 0, b = ref_exp(r, iso_sub(r->m, most));
        l = present ? iso_add(iso_mul(l, a), iso_mul(sum, b)) : sum;
        for (int e = 0; e < DEPTH; e++)
            o[e] = present ? iso_add(iso_mul(o[e], a), iso_mul(r->o[e], b)) : r->o[e];
        m = most;
        present = true;
    }
    if (present && sink) {
        float s = iso_mul(*sink, 0x1.715476p+0f), most = iso_max(m, s);
        float a = ref_exp(r, iso_sub(m, most));
        l = iso_add(iso_mul(l, a), ref_exp(r, iso_sub(s, most)));
        for (int e = 0; e < DEPTH; e++)
            o[e] = iso_mul(o[e], a);
        m = most;
    }
    for (int e = 0; e < DEPTH; e++)
        out[e] = !present ? 0 : r->a->rounded ? iso_mul(o[e], iso_div(1.0f, l)) : iso_div(o[e], l);
    out[DEPTH] = present ? iso_add(iso_mul(m, 0x1.62e43p-1f), iso_log(l))
                         : iso_bits_f32(0xFF800000u);
}

static inline void ref_token(const Attention *a, int request, i64 position, i64 length,
                             Variant variant, bool sinks, int head, float *out)
{
    u16 query[DEPTH];
    float sink = sink_of(head);
    Reference r = {.a = attend_of(a), .class = a->contract.numerics, .variant = variant,
                   .request = request, .kv = head / GROUP, .hi = length, .query = query};
    if (r.a->causal && position + 1 < r.hi)
        r.hi = position + 1;
    if (r.a->window && position + 1 > r.a->window)
        r.lo = position + 1 - r.a->window;
    for (int i = 0; i < DEPTH; i++)
        query[i] = content(OF_QUERY, request, position, head * DEPTH + i);
    ref_row(&r, sinks ? &sink : NULL, out);
}

/* ---- batches --------------------------------------------------------------------------------- */

enum { SLOTS = 8 };

/* Requests' tokens as one launch has them. */
typedef struct Batch {
    int n, cap;
    int *request, *sequence, *position; /* of each token */
    int slots, request_of[SLOTS], length[SLOTS];
    i64 positions;      /* that a slot has room for */
    bool lengths;       /* are given */
    u16 stale;          /* where nothing was stored; and in keys from `length` on */
    const i64 *place;   /* by slot and position, in keys; NULL: dense */
    i64 places;
    int threads;
    int pieces, piece;  /* of its splits each slot has those of `piece` alone; 0: it has all */
    const int *turns;
} Batch;

static inline void batch_slot(Batch *b, int request, int length)
{
    b->request_of[b->slots] = request;
    b->length[b->slots++] = length;
    b->positions = length > b->positions ? length : b->positions;
}

static inline void batch_token(Batch *b, int slot, int position)
{
    if (b->n == b->cap) {
        b->cap = b->cap ? 2 * b->cap : 64;
        size_t size = sizeof(int) * (size_t)b->cap;
        b->request = realloc(b->request, size);
        b->sequence = realloc(b->sequence, size);
        b->position = realloc(b->position, size);
    }
    b->request[b->n] = slot < 0 ? 0 : b->request_of[slot];
    b->sequence[b->n] = slot;
    b->position[b->n++] = position;
}

static inline void batch_free(Batch *b)
{
    free(b->request);
    free(b->sequence);
    free(b->position);
}

typedef struct Bits { /* of each token */
    u32 (*o)[ROW];
    u32 (*lse)[HEADS];
} Bits;

static inline bool lies_here(const Batch *b, i64 split, int slot, i64 key)
{
    int turn = b->turns ? b->turns[slot] : 0;
    return !b->pieces || (key / split + turn) % b->pieces == b->piece;
}

static inline u16 *stored_rows(const Batch *b, i64 split, int what, i64 *n)
{
    *n = b->place ? b->places : b->slots * b->positions;
    u16 *rows = malloc((size_t)(*n * KEY) * sizeof *rows + 1);
    for (i64 i = 0; i < *n * KEY; i++)
        rows[i] = b->stale;
    for (int slot = 0; slot < b->slots; slot++)
        for (i64 key = 0; key < b->length[slot]; key++) {
            i64 row = b->place ? b->place[slot * b->positions + key] : slot * b->positions + key;
            for (int i = 0; i < KEY && lies_here(b, split, slot, key); i++)
                rows[row * KEY + i] = content(what, b->request_of[slot], key, i);
        }
    return rows;
}

/* NULL: all keys are here. Of a piece the roots are written, and no results. */
static inline Bits run_splits(const Attention *a, const Batch *b, const ExecSplits *splits)
{
    i64 n, places = b->slots * b->positions, split = attend_of(a)->split;
    u16 *k = stored_rows(b, split, OF_KEY, &n), *v = stored_rows(b, split, OF_VALUE, &n);
    u16 *q = malloc((size_t)b->n * ROW * sizeof *q + 1);
    i64 *place = malloc((size_t)places * sizeof *place + 1);
    Bits out = {malloc((size_t)b->n * sizeof *out.o + 1),
                malloc((size_t)b->n * sizeof *out.lse + 1)};
    float sinks[HEADS];
    Arena *arena = arena_new();
    for (int h = 0; h < HEADS; h++)
        sinks[h] = sink_of(h);
    for (int t = 0; t < b->n; t++)
        for (int i = 0; i < ROW; i++)
            q[t * ROW + i] = content(OF_QUERY, b->request[t], b->position[t], i);
    for (i64 i = 0; b->place && i < places; i++)
        place[i] = b->place[i] * KEY;
    ExecTensor params[] = {
        {.data = q, .stride = {ROW, DEPTH, 1}},
        {.data = k, .stride = {b->positions * KEY, KEY, DEPTH, 1}},
        {.data = v, .stride = {b->positions * KEY, KEY, DEPTH, 1}},
        {.data = sinks, .stride = {1}},
    };
    for (int i = 1; i < 3 && b->place; i++) {
        params[i].place = place;
        params[i].positions = b->positions;
    }
    ExecTensor results[] = {{.data = out.o, .stride = {ROW, DEPTH, 1}},
                            {.data = out.lse, .stride = {HEADS, 1}}};
    ExecJob job = {.contract = &a->contract, .op = &a->dag.ops[0], .params = params,
                   .results = results, .positions = b->position, .sequences = b->sequence,
                   .lengths = b->lengths ? b->length : NULL,
                   .splits = splits, .threads = b->threads ? b->threads : 1};
    exec_box_all(&a->contract, b->n, &job.box);
    ck_assert(splits && splits->piece >= 0 ? exec_attend_part(&job, arena) : exec_op(&job, arena));
    arena_free(arena);
    free(k);
    free(v);
    free(q);
    free(place);
    return out;
}

static inline Bits run(const Attention *a, const Batch *b)
{
    return run_splits(a, b, NULL);
}

static inline void bits_free(Bits *b)
{
    free(b->o);
    free(b->lse);
}

/* Whole requests, one after another. */
static inline Bits run_whole(const Attention *a, const int *lengths, int n, Batch *b)
{
    *b = (Batch){.slots = 0};
    for (int r = 0; r < n; r++)
        batch_slot(b, r, lengths[r]);
    for (int r = 0; r < n; r++)
        for (int p = 0; p < lengths[r]; p++)
            batch_token(b, r, p);
    return run(a, b);
}

#endif
