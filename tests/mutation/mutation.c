/* Mutations: one thing at a time is broken in a plan or in an op's meaning, and the suite must turn
 * red. A broken plan must fail the proof, and must differ from the executor in bits when the
 * evaluator of plans runs it; a broken meaning must differ from the naive reading. Unbroken, all
 * agree. Usage: mutation PLANEVAL. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../planeval/compare.h"
#include "../property/naive.h"
#include "proof/proof.h"

static int failed;

static void verdict(bool red, const char *name, const char *how)
{
    printf("  %-44s %s: %s\n", name, red ? "red" : "NOT SEEN", how);
    failed += !red;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static const char *op_name;

static bool of_op(const Kernel *kernel, Family family)
{
    return kernel->family == family && str_is(kernel->op->op->name, op_name);
}

#define EACH_KERNEL(plan, family, k)                                                               \
    for (int i_ = 0; i_ < (plan)->kernels.n; i_++)                                                 \
        for (Kernel *k = (plan)->kernels.v[i_]; k && of_op(k, family); k = NULL)

static void join_from_the_left(JoinProgram *p)
{
    for (int i = 0; i < p->n_roots; i++)
        p->n_ops[i] = i > 0;
}

static void reassociate(Plan *plan)
{
    EACH_KERNEL(plan, FAMILY_GEMM, k)
        if (!k->gemm.roots_out)
            join_from_the_left(&k->gemm.program);
    EACH_KERNEL(plan, FAMILY_JOIN, k)
        join_from_the_left(&k->join.program);
}

static void drop_roundings(Plan *plan)
{
    EACH_KERNEL(plan, FAMILY_GEMM, k)
        for (int i = 0; i < k->gemm.program.total_ops; i++)
            k->gemm.program.ops[i].type = DT_F32;
    EACH_KERNEL(plan, FAMILY_JOIN, k)
        for (int i = 0; i < k->join.program.total_ops; i++)
            k->join.program.ops[i].type = DT_F32;
}

static void swap_ints(int *a, int *b)
{
    int t = *a;
    *a = *b;
    *b = t;
}

static void swap_factors(Plan *plan)
{
    EACH_KERNEL(plan, FAMILY_GEMM, k)
        swap_ints(&k->gemm.group[0].product[0].b, &k->gemm.group[0].product[1].b);
}

static void swap_sources(Plan *plan)
{
    for (int i = 0; i < plan->ops.n; i++) {
        PlanOp *op = &plan->ops.v[i];
        if (!str_is(op->op->op->name, op_name) || op->join_kernel < 0)
            continue;
        int n = plan->kernels.v[op->join_kernel]->join.n_sources;
        for (int r = 0; r < op->at.ranks && n > 2; r++)
            swap_ints(&op->sources_of_rank[r * n + 1], &op->sources_of_rank[r * n + 2]);
    }
}

static void fuse_products(Plan *plan)
{
    EACH_KERNEL(plan, FAMILY_ROW, k)
        k->row.trees[0].form = TREE_CHAIN;
}

static void skip_leaf(Plan *plan)
{
    EACH_KERNEL(plan, FAMILY_GEMM, k)
        k->gemm.leaf_hi[0] = k->gemm.leaf_lo[0] + 16;
}

static void repeat_leaf(Plan *plan)
{
    EACH_KERNEL(plan, FAMILY_GEMM, k)
        if (k->gemm.n_leaves > 1) {
            k->gemm.leaf_lo[1] = k->gemm.leaf_lo[0];
            k->gemm.leaf_hi[1] = k->gemm.leaf_hi[0];
        }
}

static void halve_runs(Plan *plan)
{
    EACH_KERNEL(plan, FAMILY_ROW, k)
        k->row.trees[0].run /= 2;
}

/* Rank 1 computes what rank 0 does. */
static void move_part(Plan *plan)
{
    for (int i = 0; i < plan->ops.n; i++)
        if (str_is(plan->ops.v[i].op->op->name, op_name) && plan->ops.v[i].at.ranks > 1)
            plan->ops.v[i].part_of_rank[1] = plan->ops.v[i].part_of_rank[0];
}

static void leave_result_out(Plan *plan)
{
    EACH_KERNEL(plan, FAMILY_GEMM, k)
        k->gemm.group[0].n_pieces = 0;
}

static const struct PlanMutation {
    const char *name, *op;
    bool odd; /* of the layer whose trees round */
    void (*apply)(Plan *);
} plan_mutations[] = {
    {"a node reassociated", "sum_f32", false, reassociate},
    {"a rounding dropped", "down", true, drop_roundings},
    {"the factors of a product exchanged", "gate_up", false, swap_factors},
    {"ranks' roots taken in another order", "sum_f32", false, swap_sources},
    {"a product fused", "norm_f32", true, fuse_products},
    {"a leaf cut short", "lm_head", false, skip_leaf},
    {"a leaf taken twice, another skipped", "down", false, repeat_leaf},
    {"lanes of other runs", "norm_f32", false, halve_runs},
    {"a rank that does another's part", "qkv", false, move_part},
    {"a result left out", "qkv", false, leave_result_out},
};

static bool proof_holds(const Subject *subject)
{
    Certificate certificate = {0};
    Sources sources = {.arena = subject->arena};
    Diags diags;
    diags_init(&diags, subject->arena, &sources);
    return proof_check(subject->plan, &certificate, subject->arena, &diags);
}

static void mutate_plan(Compare *c, const struct PlanMutation *m)
{
    static const i64 rows[] = {5, 33};
    Subject subject;
    char how[96];
    if (!subject_small(&subject, m->odd)) {
        verdict(false, m->name, "no plan");
        return;
    }
    c->op = op_name = m->op;
    c->subject = &subject;
    c->counts = (Counts){0};
    if (m->apply)
        m->apply((Plan *)subject.plan);
    bool holds = proof_holds(&subject), ran = compare_subject(c, rows, 2);
    if (ran)
        snprintf(how, sizeof how, "proof %s, %ld of %ld elements differ",
                 holds ? "HOLDS" : "fails", c->counts.differ, c->counts.elements);
    else
        snprintf(how, sizeof how, "proof %s, the evaluator refuses the plan",
                 holds ? "HOLDS" : "fails");
    if (m->apply)
        verdict(!holds && (!ran || c->counts.differ > 0), m->name, how);
    else if (!holds || !ran || c->counts.differ)
        verdict(false, m->name, how);
    subject_close(&subject);
}

static void mutate_plans(const char *planeval, const char *folder)
{
    Compare c = {.planeval = planeval, .folder = folder, .quiet = true};
    int n = (int)(sizeof plan_mutations / sizeof *plan_mutations);
    printf("plans\n");
    for (int i = 0; i < n; i++) {
        struct PlanMutation none = {"nothing broken", plan_mutations[i].op, plan_mutations[i].odd,
                                    NULL};
        mutate_plan(&c, &none);
        mutate_plan(&c, &plan_mutations[i]);
    }
}

/* ---- meanings -------------------------------------------------------------------------------- */

typedef struct Meaning {
    Lab lab;
    Tree *tree;         /* of the reduce, for the mutation to change */
    DagNode *sub, *sum; /* y = f32(sum) - z */
} Meaning;

/* y[t, n] = f32(sum(k by split 8 { leaf } join) x * w) - z */
static void meaning_make(Meaning *m, TreeForm leaf, DType join, u64 seed)
{
    Lab *lab = &m->lab;
    u64 state = seed * 0x9E3779B97F4A7C15u | 1;
    lab_init(lab, 3);
    int t = lab_axis(lab, 0), n = lab_axis(lab, 4), k = lab_axis(lab, 64);
    int tk[] = {t, k}, nk[] = {n, k}, tn[] = {t, n};
    DType type = leaf == TREE_MMA ? DT_BF16 : DT_F32;
    int x = lab_param(lab, type, 2, tk), w = lab_param(lab, type, 2, nk);
    int z = lab_param(lab, DT_F32, 2, tn);
    const DagNode *product = lab_op(lab, DAG_MUL, type, lab_input(lab, x), lab_input(lab, w));
    m->tree = (Tree *)lab_parts(lab, TREE_SPLIT, 8, 0, JOIN_PAIRWISE, join, lab_leaf(lab, leaf));
    m->sum = (DagNode *)lab_reduce(lab, MONOID_SUM, m->tree, 1, &k, product);
    const DagNode *y = lab_cast(lab, DT_F32, m->sum);
    m->sub = (DagNode *)lab_op(lab, DAG_SUB, DT_F32, y, lab_input(lab, z));
    lab_result(lab, 2, tn, m->sub);
    lab_fill(lab, 0, &state);
}

static void meaning_reassociate(Meaning *m)
{
    m->tree->join = JOIN_LEFT;
}

static void meaning_drop_rounding(Meaning *m)
{
    m->tree->type = DT_F32;
    m->sum->type = DT_F32;
}

static void meaning_fuse(Meaning *m)
{
    ((Tree *)m->tree->child)->form = TREE_CHAIN;
}

static void meaning_swap(Meaning *m)
{
    const DagNode *left = m->sub->args[0];
    m->sub->args[0] = m->sub->args[1];
    m->sub->args[1] = left;
}

static void meaning_merge_leaves(Meaning *m)
{
    m->tree->count = 4;
}

/* Elements that differ from the naive reading of the op as it was. */
static long meaning_differs(TreeForm leaf, DType join, void (*apply)(Meaning *), u64 seed)
{
    Meaning original, broken;
    long differ = 0;
    meaning_make(&original, leaf, join, seed);
    meaning_make(&broken, leaf, join, seed);
    if (apply)
        apply(&broken);
    if (!lab_run(&broken.lab, 1))
        differ = -1;
    for (i64 e = 0; differ >= 0 && e < 12; e++) {
        const i64 index[MAX_ATOMS] = {e / 4, e % 4};
        differ += naive_value(&original.lab, original.sub, index) != lab_out(&broken.lab, 0, e);
    }
    lab_free(&original.lab);
    lab_free(&broken.lab);
    return differ;
}

static void mutate_meanings(void)
{
    enum { SEEDS = 40 };
    static const struct {
        const char *name;
        TreeForm leaf;
        DType join;
        void (*apply)(Meaning *);
    } all[] = {
        {"a node reassociated", TREE_MMA, DT_F32, meaning_reassociate},
        {"a rounding dropped", TREE_MMA, DT_BF16, meaning_drop_rounding},
        {"the operands of a difference exchanged", TREE_MMA, DT_F32, meaning_swap},
        {"a product fused", TREE_CHAIN_ADD, DT_F32, meaning_fuse},
        {"leaves of another length", TREE_MMA, DT_F32, meaning_merge_leaves},
    };
    printf("meanings\n");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        long differ = 0, unbroken = 0;
        char how[96];
        for (u64 seed = 1; seed <= SEEDS; seed++) {
            unbroken += meaning_differs(all[i].leaf, all[i].join, NULL, seed);
            differ += meaning_differs(all[i].leaf, all[i].join, all[i].apply, seed);
        }
        snprintf(how, sizeof how, "%ld of %d elements differ, %ld unbroken", differ, 12 * SEEDS,
                 unbroken);
        verdict(differ > 0 && unbroken == 0, all[i].name, how);
    }
}

/* ---- parts ----------------------------------------------------------------------------------- */

static const char *joined(Meaning *m, int skip, bool exchange, bool nudge)
{
    const ExecRoots *roots[4];
    int n[4], atom = m->sum->atoms[0];
    for (int r = 0; r < 4; r++) {
        ExecJob job = lab_job(&m->lab, 1);
        ExecRoots *own;
        job.box.atom[atom].lo = 16 * r;
        job.box.atom[atom].hi = 16 * (r + 1);
        if (!exec_part(&job, &own, &n[r], m->lab.arena))
            return "a part is refused";
        if (r == skip)
            own->forest.n = 0;
        if (r == 1 && nudge)
            own->values[0] = -own->values[0];
        roots[r] = own;
    }
    const ExecRoots *first = roots[0];
    if (exchange) {
        roots[0] = roots[1];
        roots[1] = first;
    }
    u32 before[12];
    memcpy(before, m->lab.out[0].data, sizeof before);
    ExecJob job = lab_job(&m->lab, 1);
    if (!exec_join(&job, roots, n, 4, m->lab.arena))
        return "the join refuses";
    return memcmp(before, m->lab.out[0].data, sizeof before) ? "bits differ" : NULL;
}

static void mutate_parts(void)
{
    Meaning m;
    meaning_make(&m, TREE_MMA, DT_F32, 1);
    printf("parts\n");
    if (!lab_run(&m.lab, 1) || joined(&m, -1, false, false))
        verdict(false, "nothing broken", "parts and join are not the whole");
    const char *skipped = joined(&m, 2, false, false), *exchanged = joined(&m, -1, true, false);
    const char *nudged = joined(&m, -1, false, true);
    verdict(skipped, "a rank's roots left out", skipped ? skipped : "equal");
    verdict(exchanged, "two ranks' roots exchanged", exchanged ? exchanged : "equal");
    verdict(nudged, "the sign of one root", nudged ? nudged : "equal");
    lab_free(&m.lab);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/mutation-XXXXXX", command[64];
    if (!mkdtemp(folder))
        return EXIT_FAILURE;
    setvbuf(stdout, NULL, _IOLBF, 0);
    mutate_plans(argc > 1 ? argv[1] : "build/planeval", folder);
    mutate_meanings();
    mutate_parts();
    snprintf(command, sizeof command, "rm -rf %s", folder);
    printf("%s\n", failed ? "FAILED: a mutation went unseen"
                         : "every mutation turns the suite red");
    return system(command) == 0 && !failed ? EXIT_SUCCESS : EXIT_FAILURE;
}
