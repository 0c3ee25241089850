/* What a model runs: statements written out for their turns, what outputs need, the memory that
 * values share, and the copies of rows. */
#include "prove/machine.h"
#include "model/model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* ---- a model of two repeats' worth: x = first(ids); repeat 3 { k = keep(x); o = look(x, keys);
 * x = last(o, x) }; y = end(x) ---- */

enum { IDS, X0, K, KEYS, O, X1, Y, VALUES };
enum { FIRST, KEEP, LOOK, LAST, END, STATEMENTS };

static MfArgument of_first[] = {{false, IDS}, {true, 0}}, of_keep[] = {{false, X0}, {true, 1}},
                  of_look[] = {{false, X0}, {false, KEYS}}, of_last[] = {{false, O}, {false, X0}},
                  of_end[] = {{false, X1}};
static int to_first[] = {X0}, to_keep[] = {K}, to_look[] = {O}, to_last[] = {X1}, to_end[] = {Y};
static MfStatement statements[STATEMENTS] = {{0, -1, 2, 1, of_first, to_first},
                                             {0, 0, 2, 1, of_keep, to_keep},
                                             {0, 0, 2, 1, of_look, to_look},
                                             {0, 0, 2, 1, of_last, to_last},
                                             {0, -1, 1, 1, of_end, to_end}};
static MfValue values[VALUES] = {[IDS] = {.carry = -1}, [X0] = {.carry = X1}, [K] = {.carry = -1},
                                 [KEYS] = {.carry = -1}, [O] = {.carry = -1},
                                 [X1] = {.carry = -1}, [Y] = {.carry = -1}};
static MfCache caches[] = {{K, KEYS, LOOK, 0}};
static MfRepeat repeats[] = {{3, KEEP, END}};
static MfWeight weights[] = {{.name = "embed"}, {.name = "layers.{layer}.keep"}};
static MfOutput outputs[] = {{"o", O}, {"y", Y}};
static int inputs[] = {IDS};
static MfModel small = {.name = "small", .n_values = VALUES, .n_inputs = 1, .n_caches = 1,
                        .n_weights = 2, .n_repeats = 1, .n_statements = STATEMENTS, .n_outputs = 2,
                        .values = values, .inputs = inputs, .caches = caches, .weights = weights,
                        .repeats = repeats, .statements = statements, .outputs = outputs};
static const Manifest manifest = {.contract = "small", .model = &small};

static Program *open_small(void)
{
    Program *p = calloc(1, sizeof *p);
    ck_assert_int_eq(program_open(p, &manifest), ISO_OK);
    return p;
}

static void close_small(Program *p)
{
    program_close(p);
    free(p);
}

/* What an argument is in a turn: which statement gave it, in which turn. */
static void check_source(const Program *p, int call, int argument, int statement, int turn)
{
    const Slot *slot = &p->slots[p->calls[call].arguments[argument].index];
    ck_assert_int_eq(slot->source, SLOT_OP);
    ck_assert_int_eq(p->calls[slot->from].statement, statement);
    ck_assert_int_eq(slot->turn, turn);
}

/* first, then keep, (cache), look, last of each turn, then end. */
START_TEST(turns_carry_what_the_last_one_left)
{
    Program *p = open_small();
    ck_assert_int_eq(p->n_calls, 1 + 3 * 4 + 1);
    for (int turn = 0; turn < 3; turn++) {
        int keep = 1 + 4 * turn;
        ck_assert_int_eq(p->calls[keep + 1].cache, turn);
        for (int i = 0; i < 4; i++) {
            int argument = i == 3, call = keep + i; /* x of keep, look and last */
            if (i != 1)
                check_source(p, call, argument, turn ? LAST : FIRST, turn ? turn - 1 : -1);
        }
        ck_assert_int_eq(p->uses[1 + turn].turn, turn);
    }
    check_source(p, p->n_calls - 1, 0, LAST, 2);
    ck_assert_int_eq(p->tail, p->n_calls - 1);
    close_small(p);
}
END_TEST

/* A packed pass reads keys where they were made: they live as long as the call that looks. */
START_TEST(values_live_as_long_as_they_are_read)
{
    Program *p = open_small();
    for (int turn = 0; turn < 3; turn++) {
        const ModelCall *cache = &p->calls[2 + 4 * turn];
        ck_assert_int_eq(p->slots[cache->of].last, 3 + 4 * turn);
    }
    const Slot *x = &p->slots[p->calls[p->n_calls - 1].arguments[0].index];
    ck_assert(x->crosses);
    ck_assert_int_eq(p->slots[p->outputs[1]].last, p->n_calls);
    close_small(p);
}
END_TEST

START_TEST(only_what_is_asked_runs)
{
    Program *p = open_small();
    bool *calls = calloc((size_t)p->n_calls, sizeof *calls);
    program_needs(p, (bool[]){false, true}, false, calls);
    for (int i = 0; i < p->n_calls; i++)
        ck_assert_int_eq(calls[i], true);
    program_needs(p, (bool[]){true, false}, false, calls); /* not what follows the last look */
    for (int i = 0; i < p->n_calls; i++)
        ck_assert_int_eq(calls[i], i < 12);
    program_needs(p, (bool[]){false, false}, true, calls); /* the caches alone */
    for (int i = 0; i < p->n_calls; i++)
        ck_assert_int_eq(calls[i], i < 11);
    free(calls);
    close_small(p);
}
END_TEST

START_TEST(a_contract_without_a_model)
{
    Program p;
    const Manifest none = {.contract = "none"};
    ck_assert_int_eq(program_open(&p, &none), ISO_NO_MODEL);
    program_close(&p);
}
END_TEST

/* ---- memory ---- */

enum { INTERVALS = 300 };

START_TEST(values_of_one_time_share_no_memory)
{
    static Interval all[INTERVALS];
    static size_t offset[INTERVALS];
    uint32_t state = (uint32_t)_i + 1;
    size_t sum = 0, now = 0, least = 0;
    for (int i = 0; i < INTERVALS; i++) {
        state = state * 1664525u + 1013904223u;
        all[i] = (Interval){i, i + (int)(state >> 16) % 9, (state >> 8) % 5000, &offset[i]};
    }
    size_t bytes = plan_intervals(all, INTERVALS);
    for (int i = 0; i < INTERVALS; i++) {
        sum += all[i].bytes;
        ck_assert_uint_eq(offset[i] % 256, 0);
        ck_assert_uint_le(offset[i] + all[i].bytes, bytes);
        now = 0;
        for (int k = 0; k <= i; k++) {
            if (all[k].last < all[i].first)
                continue;
            now += all[k].bytes;
            ck_assert(k == i || offset[k] + all[k].bytes <= offset[i] ||
                      offset[i] + all[i].bytes <= offset[k]);
        }
        least = now > least ? now : least;
    }
    ck_assert_uint_ge(bytes, least);
    ck_assert_uint_lt(bytes, 2 * least);
    ck_assert_uint_lt(bytes, sum / 8);
}
END_TEST

/* ---- rows ---- */

enum { ROWS = 7, WIDTH = 301 };

typedef struct Rows {
    uint16_t from[ROWS * WIDTH], to[2][ROWS * WIDTH];
} Rows;

static const int32_t from_index[ROWS] = {3, -1, 6, 2, 0, 3, 5};
static const int32_t to_index[ROWS] = {6, 0, 1, -1, 2, 3, 4};

static void add_region(PtxMemory *memory, const char *name, const void *base, size_t size,
                       bool write)
{
    PtxRegion region = {.name = name, .base = (u8 *)base, .size = size, .writable = write};
    ptx_memory_add(memory, &region);
}

/* The kernel's own text on the machine, against the CPU's copies. */
static void compare_rows(const RowCopy *copy, Rows *rows)
{
    Str problem = {0};
    PtxModule ptx = {0};
    Arena *arena = arena_new();
    PtxMemory memory = {.arena = arena};
    add_region(&memory, "from", rows->from, sizeof rows->from, false);
    add_region(&memory, "to", rows->to[1], sizeof rows->to[1], true);
    add_region(&memory, "from_index", from_index, sizeof from_index, false);
    add_region(&memory, "to_index", to_index, sizeof to_index, false);
    ck_assert_msg(ptx_parse(str_of(model_ptx), &ptx, &problem, arena), "%.*s", STR_FMT(problem));
    Machine machine = {.arena = arena, .ptx = &ptx, .memory = &memory, .report = {.arena = arena}};
    Device cpu = {0}, gpu = {.driver = machine_driver()};
    ck_assert_int_eq(gpu.driver->module_function(&gpu.rows, (CuModule)(void *)&machine,
                                                 "iso_model_rows"), 0);
    RowCopy here = *copy, there = *copy;
    here.to = rows->to[0];
    there.to = rows->to[1];
    memset(rows->to, 0xCD, sizeof rows->to);
    ck_assert_int_eq(device_rows(&cpu, &here), ISO_OK);
    iso_status status = device_rows(&gpu, &there);
    if (machine.report.findings.n)
        ck_abort_msg("%.*s", STR_FMT(machine.report.findings.v[0]));
    ck_assert_int_eq(status, ISO_OK);
    ck_assert(memcmp(rows->to[0], rows->to[1], sizeof rows->to[0]) == 0);
    arena_free(arena);
}

START_TEST(rows_are_copied_by_index)
{
    Rows *rows = calloc(1, sizeof *rows);
    for (int i = 0; i < ROWS * WIDTH; i++)
        rows->from[i] = (uint16_t)(i * 31 + 7);
    RowCopy copy = {.from = rows->from, .from_index = from_index, .rows = ROWS,
                    .row_bytes = WIDTH * sizeof(uint16_t)};
    compare_rows(&copy, rows);
    ck_assert_uint_eq(rows->to[0][2 * WIDTH + 5], rows->from[6 * WIDTH + 5]);
    ck_assert_uint_eq(rows->to[0][1 * WIDTH + 5], 0xCDCD);
    copy.from_index = NULL;
    copy.to_index = to_index;
    compare_rows(&copy, rows);
    ck_assert_uint_eq(rows->to[0][6 * WIDTH], rows->from[0]);
    copy = (RowCopy){.from = rows->from, .from_index = from_index, .rows = ROWS, .first = 3,
                     .count = 3, .row_bytes = WIDTH * sizeof(uint16_t)}; /* rows 3, 4, 5 */
    compare_rows(&copy, rows);
    ck_assert_uint_eq(rows->to[0][0], rows->from[0]);
    ck_assert_uint_eq(rows->to[0][6 * WIDTH], rows->from[2 * WIDTH]);
    ck_assert_uint_eq(rows->to[0][2 * WIDTH], 0xCDCD);
    free(rows);
}
END_TEST

Suite *program_suite(void)
{
    Suite *suite = suite_create("program");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, turns_carry_what_the_last_one_left);
    tcase_add_test(tc, values_live_as_long_as_they_are_read);
    tcase_add_test(tc, only_what_is_asked_runs);
    tcase_add_test(tc, a_contract_without_a_model);
    tcase_add_loop_test(tc, values_of_one_time_share_no_memory, 0, 8);
    tcase_add_test(tc, rows_are_copied_by_index);
    suite_add_tcase(suite, tc);
    return suite;
}
