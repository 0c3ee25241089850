/* Coverage, movement and rows: boxes compared with boxes. Row pieces are compared as fractions of
 * the row count, which settles them for every count: floor(T x) is monotone in x. */
#include "proof_impl.h"

static Str none(void)
{
    return (Str){"", 0};
}

static bool is_free(const Contract *contract, int atom)
{
    return contract->axes[contract->atom_axis[atom]].free;
}

static bool is_coordinate(const Contract *contract, int atom)
{
    return contract->axes[contract->atom_axis[atom]].coordinate_of >= 0;
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* Slots are cut along the axis that they are of: a box has both. */
typedef struct Box {
    const Contract *contract;
    u64 atoms;
    const Part *part;
} Box;

static bool rows_inside(const Part *a, const Part *b)
{
    i64 i = a->rows_index, n = a->rows_count, j = b->rows_index, m = b->rows_count;
    return i * m >= j * n && (i + 1) * m <= (j + 1) * n;
}

static bool rows_apart(const Part *a, const Part *b)
{
    i64 i = a->rows_index, n = a->rows_count, j = b->rows_index, m = b->rows_count;
    return (i + 1) * m <= j * n || (j + 1) * n <= i * m;
}

static bool same_keys(const Part *a, const Part *b)
{
    return a->keys_index == b->keys_index && a->keys_count == b->keys_count;
}

static bool box_inside(Box a, const Part *b)
{
    for (int at = 0; at < a.contract->n_atoms; at++)
        if ((a.atoms >> at & 1) && is_coordinate(a.contract, at) && !same_keys(a.part, b))
            return false;
    for (int at = 0; at < a.contract->n_atoms; at++)
        if ((a.atoms >> at & 1) &&
            (is_free(a.contract, at) ? !rows_inside(a.part, b)
                                     : a.part->lo[at] < b->lo[at] || a.part->hi[at] > b->hi[at]))
            return false;
    return true;
}

static bool box_equal(Box a, const Part *b)
{
    Box other = {a.contract, a.atoms, b};
    return box_inside(a, b) && box_inside(other, a.part);
}

static bool box_apart(Box a, const Part *b)
{
    for (int at = 0; at < a.contract->n_atoms; at++)
        if ((a.atoms >> at & 1) &&
            (is_free(a.contract, at) ? rows_apart(a.part, b)
                                     : a.part->hi[at] <= b->lo[at] || b->hi[at] <= a.part->lo[at]))
            return true;
    return false;
}

static i64 box_elements(Box box)
{
    i64 n = 1;
    for (int at = 0; at < box.contract->n_atoms; at++)
        if ((box.atoms >> at & 1) && !is_free(box.contract, at) &&
            !is_coordinate(box.contract, at))
            n *= box.part->hi[at] - box.part->lo[at];
    return n;
}

static bool has_free(const Contract *contract, const Tensor *tensor)
{
    for (int i = 0; i < tensor->n_atoms; i++)
        if (is_free(contract, tensor->atoms[i]))
            return true;
    return false;
}

static i64 whole_elements(const Contract *contract, const Tensor *tensor)
{
    u64 atoms = layout_tensor_atoms(contract, tensor);
    i64 n = 1;
    for (int at = 0; at < contract->n_atoms; at++)
        if ((atoms >> at & 1) && !is_free(contract, at) && !is_coordinate(contract, at))
            n *= contract->axes[contract->atom_axis[at]].size;
    return n;
}

/* Distinct boxes are apart and fill the tensor: then every element is in exactly one of them. */
static Str boxes_fill(const Prover *prover, const Tensor *tensor, const Part *parts)
{
    i64 have = 0, count = 1;
    for (int r = 0; r < prover->op->at.ranks; r++) {
        Box box = {prover->contract, layout_tensor_atoms(prover->contract, tensor), &parts[r]};
        bool seen = false;
        for (int q = 0; q < r && !seen; q++) {
            seen = box_equal(box, &parts[q]);
            if (!seen && !box_apart(box, &parts[q]))
                return str_format(prover->arena, "ranks %d and %d share a part of %.*s", q, r,
                                  STR_FMT(tensor->name.text));
        }
        have += seen ? 0 : box_elements(box);
        if (has_free(prover->contract, tensor))
            count = parts[r].rows_count;
    }
    i64 need = whole_elements(prover->contract, tensor) * count;
    return have == need ? none()
                        : str_format(prover->arena, "%lld of %lld elements of %.*s have an owner",
                                     (long long)have, (long long)need,
                                     STR_FMT(tensor->name.text));
}

static const Part *written_parts(const PlanOp *op)
{
    return op->finish_of_rank ? op->finish_of_rank : op->part_of_rank;
}

/* ---- coverage -------------------------------------------------------------------------------- */

/* The first that has a count is taken; ranges may overlap. */
static Str variants_fill(const Prover *prover)
{
    const PlanOp *op = prover->op;
    i64 next = 0;
    for (int i = 0; i < op->n_variants; i++) {
        if (op->variants[i].rows_min > next)
            return str_format(prover->arena, "no kernel for %lld rows", (long long)next);
        if (op->variants[i].rows_max >= next)
            next = op->variants[i].rows_max + 1;
    }
    return next > INT32_MAX ? none()
                            : str_format(prover->arena, "no kernel for %lld rows",
                                         (long long)next);
}

void proof_coverage(Prover *prover)
{
    const Op *op = prover->op->op->op;
    Str difference = variants_fill(prover);
    for (int i = 0; i < op->n_results && !difference.n; i++)
        difference = boxes_fill(prover, &op->results[i], written_parts(prover->op));
    proof_record(prover, "coverage", STR("all"), difference,
                 STR("every element of every result has one owner, every row count a kernel"),
                 NULL, NULL);
}

/* ---- movement -------------------------------------------------------------------------------- */

static bool move_brings(Move move, Box held, const Part *needed)
{
    Box need = {held.contract, held.atoms, needed};
    switch (move) {
    case MOVE_NONE:
        return box_equal(held, needed);
    case MOVE_SLICE:
        return box_inside(need, held.part);
    case MOVE_ALL_GATHER:
        return box_inside(held, needed);
    case MOVE_ALL_TO_ALL:
        return true;
    default:
        return false;
    }
}

/* Gathers and exchanges take from all ranks, who hold everything between them. */
static Str moved(const Prover *prover, const Tensor *tensor, Move move, const Part *from,
                 const Part *to)
{
    for (int r = 0; r < prover->op->at.ranks; r++) {
        Box held = {prover->contract, layout_tensor_atoms(prover->contract, tensor), &from[r]};
        if (!move_brings(move, held, &to[r]))
            return str_format(prover->arena, "%s does not bring %.*s to rank %d", move_name(move),
                              STR_FMT(tensor->name.text), r);
    }
    bool others = move == MOVE_ALL_GATHER || move == MOVE_ALL_TO_ALL;
    return others ? boxes_fill(prover, tensor, from) : none();
}

static bool kernel_reads(const Kernel *kernel, int param)
{
    for (int i = 0; i < kernel->n_bindings; i++)
        if (!kernel->bindings[i].result && kernel->bindings[i].tensor == param)
            return true;
    return false;
}

static const Kernel *some_kernel(const Prover *prover)
{
    const PlanOp *op = prover->op;
    for (int r = 0; r < op->at.ranks; r++)
        if (op->variants[0].kernel_of_rank[r] >= 0)
            return prover->plan->kernels.v[op->variants[0].kernel_of_rank[r]];
    return NULL;
}

static Part *held_parts(const Prover *prover, const Tensor *tensor)
{
    Part *held = arena_array(prover->arena, Part, prover->op->at.ranks);
    for (int r = 0; r < prover->op->at.ranks; r++)
        layout_held(prover->contract, &prover->op->at, tensor, r, &held[r]);
    return held;
}

static Str param_moved(const Prover *prover, int param)
{
    const PlanOp *op = prover->op;
    const Tensor *tensor = &op->op->op->params[param];
    const Kernel *kernel = some_kernel(prover);
    const Part *held = held_parts(prover, tensor);
    Str difference = none();
    if (kernel && kernel_reads(kernel, param))
        difference = moved(prover, tensor, op->at.param_move[param], held, op->part_of_rank);
    if (!difference.n && op->join_kernel >= 0 &&
        kernel_reads(prover->plan->kernels.v[op->join_kernel], param))
        difference = moved(prover, tensor, op->at.param_move[param], held, op->finish_of_rank);
    return difference;
}

/* Roots go from all sources to whoever finishes; the finished part is then what is held. */
static Str result_moved(const Prover *prover, int result)
{
    const PlanOp *op = prover->op;
    const Tensor *tensor = &op->op->op->results[result];
    Move move = op->at.result_move[result];
    bool roots = move == MOVE_ALL_REDUCE || move == MOVE_REDUCE_SCATTER;
    bool alone = op->join_kernel >= 0 &&
                 prover->plan->kernels.v[op->join_kernel]->join.n_sources == 1;
    if (roots != (op->join_kernel >= 0) && !alone)
        return str_format(prover->arena, "%s of %.*s without roots to join", move_name(move),
                          STR_FMT(tensor->name.text));
    return moved(prover, tensor, roots ? MOVE_NONE : move, written_parts(op),
                 held_parts(prover, tensor));
}

/* Of the splits of an `attend` each source has its own, and between them they have all. */
static Str splits_cover(const Prover *prover, int n)
{
    const PlanOp *op = prover->op;
    if (!n || op->at.reduced->kind != DAG_ATTEND)
        return none();
    for (int r = 0; r < op->at.ranks; r++)
        for (int s = 0; s < n; s++) {
            const Part *source = &op->part_of_rank[op->sources_of_rank[r * n + s]];
            if (source->keys_count != n || source->keys_index != s)
                return str_format(prover->arena, "source %d of rank %d has other splits", s, r);
        }
    return none();
}

/* What a source computed of the outer axes holds all that the finishing rank joins. */
static Str sources_cover(const Prover *prover)
{
    const PlanOp *op = prover->op;
    int n = op->join_kernel < 0 ? 0
                                : prover->plan->kernels.v[op->join_kernel]->join.n_sources;
    Str splits = splits_cover(prover, n);
    if (splits.n)
        return splits;
    for (int i = 0; i < op->op->reduces.n && n; i++) {
        if (!layout_leaves_roots(prover->contract, &op->at, op->op->reduces.v[i]))
            continue;
        Tensor value = {.index_of = 0};
        for (int a = 0; a < prover->contract->n_atoms; a++)
            if ((op->op->reduces.v[i]->mask >> a & 1) && !is_coordinate(prover->contract, a)) {
                value.atoms[value.n_atoms++] = a;
                value.mask |= (u64)1 << a;
            }
        for (int r = 0; r < op->at.ranks; r++)
            for (int s = 0; s < n; s++) {
                int source = op->sources_of_rank[r * n + s];
                Box need = {prover->contract, layout_tensor_atoms(prover->contract, &value),
                            &op->finish_of_rank[r]};
                if (!box_inside(need, &op->part_of_rank[source]))
                    return str_format(prover->arena, "rank %d has not all that rank %d joins",
                                      source, r);
            }
    }
    return none();
}

void proof_movement(Prover *prover)
{
    const Op *op = prover->op->op->op;
    Str difference = sources_cover(prover);
    for (int i = 0; i < op->n_params && !difference.n; i++)
        difference = param_moved(prover, i);
    for (int i = 0; i < op->n_results && !difference.n; i++)
        difference = result_moved(prover, i);
    proof_record(prover, "movement", STR("all"), difference,
                 STR("what is held, moved, is what is needed"), NULL, NULL);
}

/* ---- rows ------------------------------------------------------------------------------------ */

void proof_rows(Prover *prover)
{
    const OpDag *op = prover->op->op;
    Str difference = none();
    for (int i = 0; i < op->reduces.n && !difference.n; i++)
        for (int k = 0; k < op->reduces.v[i]->n_atoms; k++)
            if (is_free(prover->contract, op->reduces.v[i]->atoms[k]))
                difference = STR("a sum runs over the free axis");
    proof_record(prover, "rows", STR("all"), difference,
                 STR("no sum meets two rows, so one row's proof is every row's, whatever their "
                     "number"), NULL, NULL);
}
