/* The plan: per op a shape, per layout and rank a completed shape, per row count a schedule. */
#include "plan.h"
#include "plan_impl.h"

typedef struct Builder {
    const Dag *dag;
    Plan *plan;
    Arena *arena;
    Diags *diags;
    VEC(Str) keys;        /* per kernel of the plan */
    bool *schedule_told;  /* per schedule of the contract: refused once */
} Builder;

/* One op, its shape in the family that takes it. */
typedef struct Shape {
    bool known;
    Kernel kernel;
    const TreeNode **roots; /* per reduce */
} Shape;

static Span op_span(const OpDag *op)
{
    return op->op->ast ? op->op->ast->name.span : (Span){0};
}

static Planner planner_of(const Builder *builder, const OpDag *op)
{
    return (Planner){.contract = builder->dag->contract, .op = op, .arena = builder->arena};
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool has_block(const OpDag *op, DagKind form)
{
    for (int i = 0; i < op->nodes.n; i++)
        if (op->nodes.v[i]->kind == form)
            return true;
    return false;
}

/* The family of an op with a block form, or its one reason. */
static bool find_block(Builder *builder, const OpDag *op, DagKind form, Kernel *shape)
{
    Planner planner = planner_of(builder, op);
    if (form == DAG_ATTEND ? plan_attend(&planner, shape)
        : form == DAG_DRAW ? plan_draw(&planner, shape) : plan_top(&planner, shape))
        return true;
    Diag *diag = diag_add(builder->diags, DIAG_NO_FAMILY, op_span(op),
                          "%.*s fits no kernel family", STR_FMT(op->op->name));
    diag_note(builder->diags, diag, "%s: %.*s", dag_kind_name(form), STR_FMT(planner.reason));
    return false;
}

static bool find_family(Builder *builder, const OpDag *op, Kernel *shape)
{
    static const struct {
        const char *name;
        bool (*fit)(Planner *, Kernel *);
    } families[] = {{"gemm", plan_gemm}, {"fold", plan_fold}, {"slots", plan_slots},
                    {"row", plan_row},   {"map", plan_map}};
    enum { N = sizeof families / sizeof families[0] };
    Str reasons[N];
    for (DagKind form = DAG_ATTEND; form <= DAG_TOP; form++)
        if (has_block(op, form))
            return find_block(builder, op, form, shape);
    for (int i = 0; i < N; i++) {
        Planner planner = planner_of(builder, op);
        if (families[i].fit(&planner, shape))
            return true;
        reasons[i] = planner.reason;
    }
    Diag *diag = diag_add(builder->diags, DIAG_NO_FAMILY, op_span(op),
                          "%.*s fits no kernel family", STR_FMT(op->op->name));
    for (int i = 0; i < N; i++)
        if (reasons[i].n)
            diag_note(builder->diags, diag, "%s: %.*s", families[i].name, STR_FMT(reasons[i]));
    return false;
}

static void make_shape(Builder *builder, const OpDag *op, Shape *shape)
{
    shape->known = find_family(builder, op, &shape->kernel);
    shape->roots = arena_array(builder->arena, const TreeNode *, op->reduces.n + 1);
    for (int i = 0; shape->known && i < op->reduces.n; i++)
        shape->roots[i] =
            tree_expand(builder->arena, op->reduces.v[i]->tree,
                        reduce_extent(builder->dag->contract, op->reduces.v[i]));
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int intern_kernel(Builder *builder, const Kernel *kernel)
{
    Text key = {.arena = builder->arena};
    plan_print_kernel(builder->dag, kernel, false, &key);
    for (int i = 0; i < builder->keys.n; i++)
        if (str_eq(builder->keys.v[i], text_str(&key)))
            return i;
    Kernel *own = arena_new_of(builder->arena, Kernel);
    *own = *kernel;
    vec_push(builder->arena, &builder->plan->kernels, own);
    vec_push(builder->arena, &builder->keys, text_str(&key));
    return builder->plan->kernels.n - 1;
}

static Diag *refuse_layout(Builder *builder, const PlanOp *op, Str reason)
{
    Diag *diag = diag_add(builder->diags, DIAG_NO_FAMILY, op_span(op->op),
                          "%.*s fits no kernel: %.*s", STR_FMT(op->op->op->name),
                          STR_FMT(reason));
    if (op->at.layout)
        diag_note(builder->diags, diag, "in layout %.*s", STR_FMT(op->at.layout->name.text));
    return diag;
}

static void refuse_schedule(Builder *builder, const PlanOp *op, const Schedule *schedule,
                            Str reason)
{
    bool *told = &builder->schedule_told[schedule - builder->dag->contract->schedules];
    if (*told)
        return;
    *told = true;
    Diag *diag = diag_add(builder->diags, DIAG_SCHEDULE_UNFIT, schedule->span,
                          "%.*s cannot follow this schedule: %.*s", STR_FMT(op->op->op->name),
                          STR_FMT(reason));
    if (op->at.layout)
        diag_note(builder->diags, diag, "in layout %.*s", STR_FMT(op->at.layout->name.text));
}

static bool is_empty(const Contract *contract, const OpDag *op, const Part *part)
{
    for (int a = 0; a < contract->n_atoms; a++)
        if ((op->op->space >> a & 1) && !contract->axes[contract->atom_axis[a]].free &&
            part->lo[a] >= part->hi[a])
            return true;
    return false;
}

/* Kernels that write slots by themselves: a token's, all together, are on every rank. */
static bool has_own_slots(const Kernel *kernel)
{
    return kernel->family == FAMILY_MAP || (kernel->family == FAMILY_ROW && !kernel->row.columns) ||
           (kernel->family == FAMILY_JOIN && kernel->join.of == FAMILY_ROW && !kernel->row.columns);
}

enum { NO_KERNEL = -1, REFUSED = -2 };

/* The kernel of one rank from a row count on; NO_KERNEL: none is needed. */
static int rank_kernel(Builder *builder, const Shape *shape, const PlanOp *op, int rank,
                       const Schedule *schedule, i64 rows)
{
    Kernel kernel = shape->kernel;
    Planner planner = planner_of(builder, op->op);
    RankPlan plan = {.at = &op->at, .roots = shape->roots, .part = op->part_of_rank[rank],
                     .roots_out = op->at.any_reduced, .rows = rows};
    if (is_empty(builder->dag->contract, op->op, &plan.part))
        return NO_KERNEL;
    bool by_row = kernel.family == FAMILY_ROW || kernel.family == FAMILY_TOP;
    bool fits = kernel.family == FAMILY_GEMM ? plan_gemm_rank(&planner, &plan, &kernel)
                : by_row                     ? plan_row_rank(&planner, &plan, &kernel)
                                             : true;
    if (fits && has_own_slots(&kernel))
        fits = plan_own_slots(&planner, &kernel, &plan.part);
    if (!fits) {
        refuse_layout(builder, op, planner.reason);
        return REFUSED;
    }
    if (kernel.family != FAMILY_GEMM ||
        plan_schedule(&planner, schedule, rows, &plan.part, &kernel))
        return intern_kernel(builder, &kernel);
    if (schedule)
        refuse_schedule(builder, op, schedule, planner.reason);
    else
        refuse_layout(builder, op, planner.reason);
    return REFUSED;
}

/* ---- variants -------------------------------------------------------------------------------- */

typedef VEC(i64) Borders;

static void add_border(Builder *builder, Borders *borders, i64 at)
{
    int i = 0;
    if (at <= 0 || at > ROWS_MAX)
        return;
    while (i < borders->n && borders->v[i] < at)
        i++;
    if (i < borders->n && borders->v[i] == at)
        return;
    vec_push(builder->arena, borders, at);
    for (int k = borders->n - 1; k > i; k--)
        borders->v[k] = borders->v[k - 1];
    borders->v[i] = at;
}

static bool schedule_ends(const Schedule *schedule)
{
    return schedule->rows_max > 0 && schedule->rows_max < ROWS_MAX;
}

/* First row counts of the ranges in which nothing changes. */
static void find_borders(Builder *builder, const OpDag *op, Family family, Borders *borders)
{
    const Contract *contract = builder->dag->contract;
    const i64 *table;
    if (family == FAMILY_ROW)
        add_border(builder, borders, ROW_CLUSTER_ROWS + 1);
    if (family != FAMILY_GEMM)
        return;
    int n = plan_table_borders(&table);
    for (int i = 0; i < n; i++)
        add_border(builder, borders, table[i]);
    for (int i = 0; i < contract->n_schedules; i++) {
        const Schedule *schedule = &contract->schedules[i];
        if (&contract->ops[schedule->op] != op->op)
            continue;
        add_border(builder, borders, schedule->rows_min);
        if (schedule_ends(schedule))
            add_border(builder, borders, schedule->rows_max + 1);
    }
}

static const Schedule *schedule_at(const Contract *contract, const OpDag *op, i64 rows)
{
    for (int i = 0; i < contract->n_schedules; i++) {
        const Schedule *schedule = &contract->schedules[i];
        if (&contract->ops[schedule->op] == op->op && rows >= schedule->rows_min &&
            (!schedule_ends(schedule) || rows <= schedule->rows_max))
            return schedule;
    }
    return NULL;
}

static bool same_variant(const Variant *a, const Variant *b, int ranks)
{
    for (int r = 0; r < ranks; r++)
        if (a->kernel_of_rank[r] != b->kernel_of_rank[r])
            return false;
    return a->schedule == b->schedule;
}

static bool make_variant(Builder *builder, const Shape *shape, PlanOp *op, i64 from, i64 to,
                         Variant *out)
{
    const Schedule *schedule = schedule_at(builder->dag->contract, op->op, from);
    static const char *const by[] = {"table", "contract"};
    *out = (Variant){from, to, by[schedule != NULL],
                     arena_array(builder->arena, int, op->at.ranks)};
    for (int r = 0; r < op->at.ranks; r++) {
        out->kernel_of_rank[r] = rank_kernel(builder, shape, op, r, schedule, from);
        if (out->kernel_of_rank[r] == REFUSED)
            return false;
    }
    return true;
}

static bool make_parts_variant(Builder *builder, const Shape *shape, PlanOp *op)
{
    Shape own = *shape;
    Planner planner = planner_of(builder, op->op);
    op->variants = arena_new_of(builder->arena, Variant);
    op->n_variants = 1;
    return plan_attend_parts(&planner, &shape->kernel, &own.kernel) &&
           make_variant(builder, &own, op, 0, ROWS_MAX, op->variants);
}

/* Of attention a variant is a program, and ranges overlap: the first that has a count is taken. */
static bool make_attend_variants(Builder *builder, const Shape *shape, PlanOp *op)
{
    AttendSchedule schedules[ATTEND_SCHEDULES];
    if (op->at.any_reduced)
        return make_parts_variant(builder, shape, op);
    int n = plan_attend_schedules(&shape->kernel.attend, schedules);
    op->variants = arena_array(builder->arena, Variant, n);
    for (int i = 0; i < n; i++) {
        Shape own = *shape;
        own.kernel.attend = schedules[i].kernel;
        if (!make_variant(builder, &own, op, schedules[i].rows_min, schedules[i].rows_max,
                          &op->variants[op->n_variants++]))
            return false;
    }
    return true;
}

/* All ranges are tried even after a refusal: each schedule that does not fit gets its message. */
static bool make_variants(Builder *builder, const Shape *shape, PlanOp *op)
{
    bool good = true;
    Borders borders = {0};
    find_borders(builder, op->op, shape->kernel.family, &borders);
    op->variants = arena_array(builder->arena, Variant, borders.n + 1);
    for (int i = 0; i <= borders.n; i++) {
        Variant variant, *last = op->n_variants ? &op->variants[op->n_variants - 1] : NULL;
        i64 from = i ? borders.v[i - 1] : 0, to = i < borders.n ? borders.v[i] - 1 : ROWS_MAX;
        if (!make_variant(builder, shape, op, from, to, &variant)) {
            good = false;
            continue;
        }
        if (last && same_variant(last, &variant, op->at.ranks))
            last->rows_max = to;
        else
            op->variants[op->n_variants++] = variant;
    }
    return good;
}

/* ---- joins ----------------------------------------------------------------------------------- */

/* Roots are exchanged once: all sums are cut, and none waits for another. */
static bool joins_fit(Builder *builder, const Shape *shape, const PlanOp *op)
{
    Str reason = {"", 0};
    const OpDag *dag = op->op;
    if (shape->kernel.family == FAMILY_ROW && dag->reduces.n > 1)
        reason = STR("several sums along a cut axis would exchange roots one after another");
    bool folds = shape->kernel.gemm.fold.n_reduces > 0;
    for (int i = 0; i < dag->reduces.n && !folds; i++)
        if (!layout_cuts(builder->dag->contract, &op->at, dag->reduces.v[i]))
            reason = STR("a mesh cuts some of its sums and not others");
    if (folds && layout_cuts(builder->dag->contract, &op->at, dag->reduces.v[0]))
        reason = STR("a mesh cuts the sum of its product, whose columns it reduces");
    if (!reason.n)
        return true;
    diag_note(builder->diags, refuse_layout(builder, op, reason),
              "let the layout cut this op along another axis, or write it as several ops");
    return false;
}

static bool make_join(Builder *builder, const Shape *shape, PlanOp *op)
{
    const Contract *contract = builder->dag->contract;
    Kernel join;
    int ranks = op->at.ranks, n = 0, *own = arena_array(builder->arena, int, ranks);
    op->finish_of_rank = arena_array(builder->arena, Part, ranks);
    for (int r = 0; r < ranks; r++) {
        layout_finish(contract, &op->at, r, &op->finish_of_rank[r]);
        n = layout_sources(contract, &op->at, r, own);
        if (!op->sources_of_rank)
            op->sources_of_rank = arena_array(builder->arena, int, ranks * n);
        for (int i = 0; i < n; i++)
            op->sources_of_rank[r * n + i] = own[i];
    }
    Planner planner = planner_of(builder, op->op);
    bool attends = shape->kernel.family == FAMILY_ATTEND;
    bool fits = attends ? plan_attend_join(&planner, &shape->kernel, n, &join)
                        : plan_join(&planner, &shape->kernel, &op->at, shape->roots,
                                    op->sources_of_rank, n, &join);
    for (int r = 0; r < ranks && fits && has_own_slots(&join) && !join.own; r++)
        fits = plan_own_slots(&planner, &join, &op->finish_of_rank[r]);
    if (!fits) {
        refuse_layout(builder, op, planner.reason);
        return false;
    }
    op->join_kernel = intern_kernel(builder, &join);
    return true;
}

/* ---- the stage ------------------------------------------------------------------------------- */

static bool plan_op(Builder *builder, const Layout *layout, const OpDag *op, const Shape *shape)
{
    PlanOp out = {.op = op, .join_kernel = -1};
    const Contract *contract = builder->dag->contract;
    if (!layout_apply(contract, op, layout, &out.at, builder->arena, builder->diags))
        return false;
    if (!shape->known)
        return false;
    out.part_of_rank = arena_array(builder->arena, Part, out.at.ranks);
    for (int r = 0; r < out.at.ranks; r++)
        layout_part(contract, &out.at, r, &out.part_of_rank[r]);
    if (out.at.any_reduced &&
        (!joins_fit(builder, shape, &out) || !make_join(builder, shape, &out)))
        return false;
    bool attends = shape->kernel.family == FAMILY_ATTEND;
    if (!(attends ? make_attend_variants : make_variants)(builder, shape, &out))
        return false;
    vec_push(builder->arena, &builder->plan->ops, out);
    return true;
}

static bool plan_layout(Builder *builder, const Layout *layout, const Shape *shapes)
{
    bool good = true;
    for (int i = 0; i < builder->dag->n_ops; i++)
        good &= plan_op(builder, layout, &builder->dag->ops[i], &shapes[i]);
    return good;
}

bool plan_build(const Dag *dag, const Layout *only, Plan *plan, Arena *arena, Diags *diags)
{
    const Contract *contract = dag->contract;
    *plan = (Plan){.dag = dag};
    Builder builder = {.dag = dag, .plan = plan, .arena = arena, .diags = diags};
    builder.schedule_told = arena_array(arena, bool, contract->n_schedules + 1);
    Shape *shapes = arena_array(arena, Shape, dag->n_ops + 1);
    for (int i = 0; i < dag->n_ops; i++)
        make_shape(&builder, &dag->ops[i], &shapes[i]);
    if (only || !contract->n_layouts)
        return plan_layout(&builder, only, shapes);
    bool good = true;
    for (int i = 0; i < contract->n_layouts; i++)
        good &= plan_layout(&builder, &contract->layouts[i], shapes);
    return good;
}
