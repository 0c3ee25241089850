/* A tile of rows as a kernel computes it, in C: every block of the tile for all of its rows, masks
 * by selection, sums held at +0 where nothing is, values past the tile's end zeroed. By clause
 * 6.15 these are the executor's bits. */
#include "attend_lab.h"

enum { TILE = 64, BLOCK = 128 };

typedef struct Row {
    i64 lo, hi;        /* keys that it sees */
    const u16 *query;
    bool started, any; /* in this split, in one before */
    float m, lane[4], o[DEPTH];
    float total_m, total_l, total_o[DEPTH];
} Row;

typedef struct Tile {
    const Attention *a;
    const Attend *at;
    int head;
    i64 lo, hi;  /* keys that some row sees */
    bool exact;  /* values that the row does not see are zeroed: the second try */
} Tile;

static float tile_exp(float x)
{
    return iso_exp2_d6(x);
}

static float tile_score(const Tile *t, const Row *row, i64 key)
{
    FdpaElem q[DEPTH], k[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        u16 bits = key < t->hi ? content(OF_KEY, 0, key, t->head / GROUP * DEPTH + i) : 0;
        q[i] = fdpa_elem(FDPA_BF16, row->query[i]);
        k[i] = fdpa_elem(FDPA_BF16, bits);
    }
    return iso_mul(fdpa_step(t->a->contract.numerics, q, k, 0), iso_bits_f32(t->at->scale));
}

/* A thread of the quad has columns 2 l and 2 l + 1 of every eight: four chains, a quarter each. */
static float lane_sum(const float *p, int n, int lane)
{
    float chain[4];
    for (int part = 0; part < 4; part++)
        for (int i = 0; i < n / 16; i++) {
            int place = part * (n / 16) + i;
            float x = p[place / 2 * 8 + lane * 2 + place % 2];
            chain[part] = i ? iso_add(chain[part], x) : x;
        }
    return iso_add(iso_add(chain[0], chain[1]), iso_add(chain[2], chain[3]));
}

static void tile_values(const Tile *t, Row *row, i64 block, const float *p, float alpha)
{
    for (int e = 0; e < DEPTH; e++) {
        float c = iso_mul(row->o[e], alpha);
        for (i64 group = 0; group < t->at->block; group += 16) {
            FdpaElem w[16], v[16];
            for (int i = 0; i < 16; i++) {
                i64 key = block + group + i;
                bool held = key < t->hi && (!t->exact || (key >= row->lo && key < row->hi));
                u16 bits = held ? content(OF_VALUE, 0, key, t->head / GROUP * DEPTH + e) : 0;
                w[i] = fdpa_elem(FDPA_BF16, iso_bf16_of_f32(p[group + i]));
                v[i] = fdpa_elem(FDPA_BF16, bits);
            }
            c = fdpa_step(t->a->contract.numerics, w, v, c);
        }
        row->o[e] = c;
    }
}

/* Whether a row has begun is known from positions, never from a maximum that is -inf. */
static void tile_block(const Tile *t, Row *row, i64 block)
{
    float score[BLOCK], p[BLOCK], m = row->m;
    int n = (int)t->at->block;
    for (int i = 0; i < n; i++) {
        bool seen = block + i >= row->lo && block + i < row->hi;
        score[i] = tile_score(t, row, block + i);
        m = seen ? iso_max(m, score[i]) : m;
        row->started |= seen;
    }
    float base = row->started ? m : 0, alpha = tile_exp(iso_sub(row->m, base));
    for (int i = 0; i < n; i++) {
        bool seen = block + i >= row->lo && block + i < row->hi;
        p[i] = seen ? tile_exp(iso_sub(score[i], base)) : 0;
    }
    for (int lane = 0; lane < 4; lane++)
        row->lane[lane] = iso_add(iso_mul(row->lane[lane], alpha), lane_sum(p, n, lane));
    tile_values(t, row, block, p, alpha);
    row->m = m;
}

static void end_split(Row *row)
{
    if (!row->started)
        return;
    float l = iso_add(iso_add(row->lane[0], row->lane[1]), iso_add(row->lane[2], row->lane[3]));
    float m = row->any ? iso_max(row->total_m, row->m) : row->m;
    float a = tile_exp(iso_sub(row->total_m, m)), b = tile_exp(iso_sub(row->m, m));
    row->total_l = row->any ? iso_add(iso_mul(row->total_l, a), iso_mul(l, b)) : l;
    for (int e = 0; e < DEPTH; e++)
        row->total_o[e] = row->any ? iso_add(iso_mul(row->total_o[e], a), iso_mul(row->o[e], b))
                                   : row->o[e];
    row->total_m = m;
    row->any = true;
}

static void tile_rows(const Tile *t, Row *rows, int n)
{
    i64 split = t->at->split, block = t->at->block;
    for (i64 from = t->lo / split * split; from < t->hi; from += split) {
        for (int r = 0; r < n; r++) {
            memset(rows[r].o, 0, sizeof rows[r].o);
            memset(rows[r].lane, 0, sizeof rows[r].lane);
            rows[r].m = iso_bits_f32(0xFF800000u);
            rows[r].started = false;
        }
        for (i64 b = from; b < from + split; b += block)
            for (int r = 0; r < n && b < t->hi && b + block > t->lo; r++)
                tile_block(t, &rows[r], b);
        for (int r = 0; r < n; r++)
            end_split(&rows[r]);
    }
}

static bool row_is_nan(const Row *row)
{
    bool nan = false;
    for (int e = 0; e < DEPTH; e++)
        nan |= row->total_o[e] != row->total_o[e];
    return nan;
}

static int compare_row(const Bits *bits, int token, int head, const Row *row)
{
    float lse = iso_add(iso_mul(row->total_m, 0x1.62e43p-1f), iso_log(row->total_l));
    int n = iso_f32_bits(lse) != bits->lse[token][head];
    for (int e = 0; e < DEPTH; e++)
        n += iso_f32_bits(iso_div(row->total_o[e], row->total_l)) !=
             bits->o[token][head * DEPTH + e];
    return n;
}

/* `n` rows of a request from `first` on, whose bits the executor has given; how many differ. */
static int compare_tile(const Attention *a, const Bits *bits, int first, int n, int head,
                        int *again)
{
    Row rows[TILE] = {{.lo = 0}};
    u16 query[TILE][DEPTH];
    Tile t = {.a = a, .at = attend_of(a), .head = head, .lo = first, .hi = first + n};
    int differ = 0;
    for (int r = 0; r < n; r++) {
        i64 p = first + r, window = t.at->window;
        for (int i = 0; i < DEPTH; i++)
            query[r][i] = content(OF_QUERY, 0, p, head * DEPTH + i);
        rows[r] = (Row){.lo = window && p >= window ? p + 1 - window : 0, .hi = p + 1,
                        .query = query[r]};
        t.lo = rows[r].lo < t.lo ? rows[r].lo : t.lo;
    }
    tile_rows(&t, rows, n);
    for (int r = 0; r < n; r++) {
        if (row_is_nan(&rows[r])) {
            t.exact = true;
            rows[r].any = false;
            tile_rows(&t, &rows[r], 1);
            t.exact = false;
            ++*again;
        }
        differ += compare_row(bits, r, head, &rows[r]);
    }
    return differ;
}

static const char *const settings[] = {
    ATTENTION(SCALE),
    ATTENTION(SCALE "block 64; split 128;"),
    ATTENTION(SCALE "block 64; split 128; window 70;"),
    ATTENTION(SCALE "block 128; split 256; window 1;"),
};

static int run_tile(const char *text, int first, int n, int *again)
{
    Attention a;
    Batch b = {.slots = 0};
    attention_open(&a, text);
    batch_slot(&b, 0, first + n);
    for (int r = 0; r < n; r++)
        batch_token(&b, 0, first + r);
    Bits bits = run(&a, &b);
    int differ = compare_tile(&a, &bits, first, n, 2, again);
    bits_free(&bits);
    batch_free(&b);
    front_close(&a.f);
    return differ;
}

START_TEST(tiles_have_the_bits_of_rows)
{
    static const int starts[] = {0, 1, 64, 100, 127, 250, 1000, 1020};
    int again = 0;
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(run_tile(settings[_i], starts[i], i % 2 ? 9 : TILE, &again), 0);
    ck_assert_int_eq(again, 0);
}
END_TEST

/* A value that is NaN, infinite or large where only later rows see it; a key likewise. */
START_TEST(tiles_survive_what_later_rows_see)
{
    static const u16 patterns[] = {0x7FC0, 0x7F80, 0xFF80, 0x7F7F};
    int again = 0;
    for (int what = OF_KEY; what <= OF_VALUE; what++)
        for (int i = 0; i < 4; i++) {
            poison = (Poison){what, 140, patterns[i]};
            ck_assert_int_eq(run_tile(settings[_i], 110, TILE, &again), 0);
        }
    poison.position = -1;
    ck_assert_int_gt(again, 0);
}
END_TEST

Suite *attend_tile_suite(void)
{
    Suite *suite = suite_create("attend_tile");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, tiles_have_the_bits_of_rows, 0, 4);
    tcase_add_loop_test(tc, tiles_survive_what_later_rows_see, 0, 4);
    suite_add_tcase(suite, tc);
    return suite;
}
