/* `top` in the executor and as a graph: a row's order, ties, groups, what is no number. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "meaning.h"

enum { FEW = 7, MANY = 48, ROWS = 240 };

static const char text[] =
    "contract c version 1; numerics sm_90;\n"
    "param KEPT = 3;\n"
    "axis tokens = sequence * position ragged;\n"
    "axis few = 7, three = 3 of few, all = 7 of few;\n"
    "axis many = 48, eight = 8 of many, one = 1 of many;\n"
    "op plain(z: f32[tokens, few]) -> chosen: few[tokens, three] {\n"
    "    top chosen = z { over few; order score; }\n"
    "}\n"
    "op whole(z: f32[tokens, few]) -> chosen: few[tokens, all] {\n"
    "    top chosen = z { over few; order score; }\n"
    "}\n"
    "op ascending(z: f32[tokens, many], bias: f32[many]) -> chosen: many[tokens, eight] {\n"
    "    top chosen = z + bias { over many; order index; }\n"
    "}\n"
    "op grouped(z: f32[tokens, many]) -> chosen: many[tokens, eight] {\n"
    "    top chosen = z { over many; groups 8; keep KEPT; group_sum 2; order score; }\n"
    "}\n"
    "op greatest(z: f32[tokens, many]) -> chosen: many[tokens, eight] {\n"
    "    top chosen = z { over many; order index; groups 4; group_sum 1; keep 1; }\n"
    "}\n"
    "op first(z: f32[tokens, many]) -> chosen: many[tokens, one] {\n"
    "    top chosen = z { over many; order index; }\n"
    "}\n";

/* As the contract has them. */
typedef struct Rule {
    int n, k, groups, keep, sum;
    bool ascending, biased;
} Rule;

static const Rule rules[] = {
    {FEW, 3, 1, 1, 1, false, false},   {FEW, 7, 1, 1, 1, false, false},
    {MANY, 8, 1, 1, 1, true, true},    {MANY, 8, 8, 3, 2, false, false},
    {MANY, 8, 4, 1, 1, true, false},   {MANY, 1, 1, 1, 1, true, false},
};

enum { RULES = sizeof rules / sizeof rules[0] };

static Front f;
static Contract contract;
static Dag dag;

static void open_ops(void)
{
    meaning_open(&f, text, &contract, &dag);
}

static void close_ops(void)
{
    front_close(&f);
}

static void run(int op, float *z, float *bias, int rows, int32_t *chosen)
{
    const Rule *r = &rules[op];
    ExecTensor params[] = {{.data = z, .stride = {r->n, 1}}, {.data = bias, .stride = {1}}};
    ExecTensor result = {.data = chosen, .stride = {r->k, 1}};
    ExecJob job = {.contract = &contract, .op = &dag.ops[op], .params = params,
                   .results = &result, .threads = 2};
    exec_box_all(&contract, rows, &job.box);
    ck_assert(exec_op(&job, f.arena));
}

/* ---- the clause's own words: each against all others ----------------------------------------- */

static bool is_before(const float *z, int v, int u)
{
    if (isnan(z[v]) || isnan(z[u]))
        return isnan(z[v]) && (!isnan(z[u]) || v < u);
    return z[v] > z[u] || (z[v] == z[u] && v < u);
}

static int count_before(const float *z, const bool *in, int n, int v)
{
    int count = 0;
    for (int u = 0; u < n; u++)
        count += in[u] && is_before(z, u, v);
    return count;
}

/* The scores of the first members, one after the other. */
static float score_of_group(const Rule *r, const float *z, int g)
{
    int size = r->n / r->groups;
    bool in[MANY];
    float sum = 0;
    for (int v = 0; v < r->n; v++)
        in[v] = v / size == g;
    for (int place = 0; place < r->sum; place++)
        for (int v = 0; v < r->n; v++)
            if (in[v] && count_before(z, in, r->n, v) == place)
                sum = place ? sum + z[v] : z[v];
    return sum;
}

static void choose(const Rule *r, const float *z, int32_t *chosen)
{
    float group[MANY];
    bool all[MANY], in[MANY], taken[MANY];
    for (int g = 0; g < r->groups; g++) {
        group[g] = score_of_group(r, z, g);
        all[g] = true;
    }
    for (int v = 0; v < r->n; v++)
        in[v] = count_before(group, all, r->groups, v / (r->n / r->groups)) < r->keep;
    for (int v = 0; v < r->n; v++) {
        int place = in[v] ? count_before(z, in, r->n, v) : r->k;
        taken[v] = place < r->k;
        if (taken[v] && !r->ascending)
            chosen[place] = v;
    }
    for (int v = 0, place = 0; v < r->n && r->ascending; v++)
        if (taken[v])
            chosen[place++] = v;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static u64 state;

static u32 dice(u32 below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (u32)(state >> 33) % below;
}

/* Few values, so that ties stand at every border; zeros of both signs; what is not finite. */
static float some_score(int row)
{
    static const float rare[] = {NAN, -NAN, INFINITY, -INFINITY, 0, -0.0f, 1e-45f, -1e-45f};
    float x = (float)dice(1 << 20) / (1 << 18) - 2;
    switch (row % 6) {
    case 0: return x;
    case 1: return floorf(x);
    case 2: return dice(2) ? 0.0f : -0.0f;
    case 3: return dice(9) ? floorf(x * 2) / 2 : rare[dice(8)];
    case 4: return rare[dice(8)];
    default: return row % 12 == 5 ? NAN : 1;
    }
}

static void compare(const Rule *r, const float *z, const int32_t *got, int row)
{
    int32_t want[MANY];
    choose(r, z, want);
    for (int k = 0; k < r->k; k++)
        ck_assert_msg(got[k] == want[k], "rule %d, row %d, slot %d: %d, not %d",
                      (int)(r - rules), row, k, got[k], want[k]);
}

START_TEST(rows_are_chosen_as_the_clause_says)
{
    const Rule *r = &rules[_i];
    float *z = arena_array(f.arena, float, ROWS * MANY), bias[MANY];
    int32_t *chosen = arena_array(f.arena, int32_t, ROWS * MANY);
    state = 11 + (u64)_i;
    for (int i = 0; i < ROWS * r->n; i++)
        z[i] = some_score(i / r->n);
    for (int v = 0; v < MANY; v++)
        bias[v] = (float)(v % 3) / 4;
    run(_i, z, bias, ROWS, chosen);
    for (int i = 0; i < ROWS; i++) {
        for (int v = 0; v < r->n && r->biased; v++)
            z[i * r->n + v] += bias[v];
        compare(r, z + i * r->n, chosen + i * r->k, i);
    }
}
END_TEST

START_TEST(ties_go_to_the_lowest_index)
{
    float z[MANY], same[FEW] = {1, 1, 1, 1, 1, 1, 1}, zeros[FEW] = {-0.0f, 0, -1, 0, -0.0f, 0, 0};
    int32_t chosen[8];
    run(0, same, NULL, 1, chosen);
    ck_assert_mem_eq(chosen, ((const int32_t[]){0, 1, 2}), 12);
    run(0, zeros, NULL, 1, chosen);
    ck_assert_mem_eq(chosen, ((const int32_t[]){0, 1, 3}), 12);
    /* Groups of 6: 1 and 2 tie with 5 and 7 at the border; of those that are kept, 8 first. */
    for (int v = 0; v < MANY; v++)
        z[v] = v / 6 == 4 ? 3 : v / 6 == 1 || v / 6 == 2 || v / 6 == 5 || v / 6 == 7 ? 2 : 1;
    run(3, z, NULL, 1, chosen);
    ck_assert_mem_eq(chosen, ((const int32_t[]){24, 25, 26, 27, 28, 29, 6, 7}), 32);
}
END_TEST

/* A NaN is above all numbers, and a group that has one above those that have none. */
START_TEST(what_is_no_number_comes_first)
{
    float z[MANY] = {0};
    int32_t chosen[8];
    z[47] = NAN;
    z[3] = INFINITY;
    run(5, z, NULL, 1, chosen);
    ck_assert_int_eq(chosen[0], 47);
    run(4, z, NULL, 1, chosen);
    ck_assert_mem_eq(chosen, ((const int32_t[]){36, 37, 38, 39, 40, 41, 42, 47}), 32);
}
END_TEST

START_TEST(the_graph_as_text)
{
    Text out = {.arena = f.arena}, hashed = {.arena = f.arena};
    dag_print(&dag, &dag.ops[3], &out);
    *strstr(out.s, "  fingerprint") = 0;
    ck_assert_str_eq(out.s, "op grouped\n"
                            "  %0 = z: f32[tokens, many]\n"
                            "  %1 = top over many 8 by score groups 8 keep 3 group_sum 2 %0: "
                            "f32[tokens, eight]\n"
                            "  chosen = %1\n");
    dag_canonical(&dag, &dag.ops[2], &hashed);
    ck_assert_ptr_null(strstr(hashed.s, "functions "));
    ck_assert_str_eq(strstr(hashed.s, "param 0"),
                     "param 0 z f32 [a0:free, a1:48]\n"
                     "param 1 bias f32 [a1:48]\n"
                     "result 0 chosen index of a1:48 [a0:free, a2:8]\n"
                     "%0 = input f32 0 [a0:free, a1:48]\n"
                     "%1 = input f32 1 [a1:48]\n"
                     "%2 = add f32 %0 %1\n"
                     "%3 = top f32 over [a1:48] at [a2:8] 8 by index %2\n"
                     "store 0 = %3\n");
}
END_TEST

Suite *top_suite(void)
{
    Suite *suite = suite_create("top");
    TCase *tc = tcase_create("all");
    tcase_add_checked_fixture(tc, open_ops, close_ops);
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, rows_are_chosen_as_the_clause_says, 0, RULES);
    tcase_add_test(tc, ties_go_to_the_lowest_index);
    tcase_add_test(tc, what_is_no_number_comes_first);
    tcase_add_test(tc, the_graph_as_text);
    suite_add_tcase(suite, tc);
    return suite;
}
