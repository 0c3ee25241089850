/* Keys that ranks share by whole splits: each has its own alone, and the bits are the whole's. */
#include "attend_lab.h"

enum { PIECES = 4, ROOT = DEPTH + 4, NOT_A_NUMBER = 0x7FC1 };

static const int lengths[] = {1, 47, 48, 49, 96, 97, 200, 313};
enum { REQUESTS = sizeof lengths / sizeof *lengths };

/* Some tokens of each request, the last of all, and one of no request. */
static void fill(Batch *b)
{
    *b = (Batch){.stale = NOT_A_NUMBER};
    for (int r = 0; r < REQUESTS; r++)
        batch_slot(b, r, lengths[r]);
    for (int r = 0; r < REQUESTS; r++)
        for (int p = lengths[r] > 5 ? lengths[r] - 5 : 0; p < lengths[r]; p++)
            batch_token(b, r, p);
    batch_token(b, -1, 3);
    batch_token(b, 6, 50);
}

static void strides_of(const Attention *a, const Batch *b, ExecSource *source)
{
    const Attend *attend = attend_of(a);
    i64 stride = 1;
    (void)b;
    for (int atom = a->contract.n_atoms - 1; atom >= 0; atom--)
        if (attend->rows >> atom & 1) {
            i64 size = atom_size(&a->contract, atom, 0);
            source->stride[atom] = stride;
            stride *= size ? size : 1;
        }
    source->stride[attend->tokens] = HEADS;
}

/* Parts of all pieces, each with its own keys alone, then the join, which has none. */
static Bits run_pieces(const Attention *a, const Batch *whole, int pieces, const int *turns,
                       const int *turns_of_join)
{
    ExecSource source[PIECES] = {{0}};
    Batch b = *whole;
    i64 split = attend_of(a)->split;
    ExecSplits splits = {.pieces = pieces, .turns = turns, .source = source};
    splits.places = ((b.positions + split - 1) / split + pieces - 1) / pieces;
    size_t bytes = (size_t)(b.n * HEADS * splits.places) * ROOT * sizeof(float);
    b.pieces = pieces;
    b.turns = turns;
    for (b.piece = 0; b.piece < pieces; b.piece++) {
        strides_of(a, &b, &source[b.piece]);
        source[b.piece].roots = malloc(bytes);
        memset(source[b.piece].roots, 0xFF, bytes);
        splits.piece = b.piece;
        Bits none = run_splits(a, &b, &splits);
        bits_free(&none);
    }
    splits.piece = -1;
    splits.turns = turns_of_join;
    Bits out = run_splits(a, &b, &splits);
    for (int i = 0; i < pieces; i++)
        free(source[i].roots);
    return out;
}

static bool same(const Batch *b, const Bits *x, const Bits *y)
{
    return !memcmp(x->o, y->o, (size_t)b->n * sizeof *x->o) &&
           !memcmp(x->lse, y->lse, (size_t)b->n * sizeof *x->lse);
}

static const int turns[REQUESTS] = {0, 1, 2, 3, 1, 0, 3, 2}, none[REQUESTS] = {0};

START_TEST(shares_have_the_bits_of_the_whole)
{
    static const char *const texts[] = {
        ATTENTION(SMALL), SUNK(SMALL " window 70;"), ATTENTION(SMALL " mask none;"),
        ATTENTION("scale 0.25; cap_log2 5; block 16; split 16; exp exp2;"),
        SUNK(SMALL " maxima rounded;"),
    };
    Attention a;
    Batch b;
    attention_open(&a, texts[_i]);
    fill(&b);
    b.lengths = true;
    b.threads = 3;
    Bits whole = run(&a, &b);
    for (int pieces = 2; pieces <= PIECES; pieces++) {
        int turn[REQUESTS];
        for (int r = 0; r < REQUESTS; r++)
            turn[r] = turns[r] % pieces;
        Bits shared = run_pieces(&a, &b, pieces, NULL, NULL);
        ck_assert(same(&b, &whole, &shared));
        bits_free(&shared);
        shared = run_pieces(&a, &b, pieces, turn, turn);
        ck_assert(same(&b, &whole, &shared));
        bits_free(&shared);
    }
    bits_free(&whole);
    batch_free(&b);
    front_close(&a.f);
}
END_TEST

START_TEST(another_order_shows)
{
    Attention a;
    Batch b;
    attention_open(&a, ATTENTION(SMALL));
    fill(&b);
    Bits whole = run(&a, &b), shared = run_pieces(&a, &b, PIECES, turns, none);
    ck_assert(!same(&b, &whole, &shared));
    bits_free(&shared);
    bits_free(&whole);
    batch_free(&b);
    front_close(&a.f);
}
END_TEST

Suite *attend_share_suite(void)
{
    Suite *suite = suite_create("attend_share");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, shares_have_the_bits_of_the_whole, 0, 5);
    tcase_add_test(tc, another_order_shows);
    suite_add_tcase(suite, tc);
    return suite;
}
