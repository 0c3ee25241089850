/* One call of the executor: what is looked up once, and the workers that share its tiles. */
#include "exec_impl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* ---- nodes ----------------------------------------------------------------------------------- */

u64 exec_mask(const ExecCall *call, const DagNode *node)
{
    return call->mask[node->number - call->first];
}

ExecReduce *exec_reduce_of(const ExecCall *call, const DagNode *node)
{
    int r = call->reduce_of[node->number - call->first];
    return r < 0 ? NULL : &call->reduces[r];
}

static bool needs_cut(const ExecCall *call, const DagNode *node, bool *seen)
{
    bool *mark = &seen[node->number - call->first];
    const ExecReduce *reduce = exec_reduce_of(call, node);
    if (*mark)
        return false;
    *mark = true;
    if (reduce && reduce->cut)
        return true;
    for (int i = 0; i < node->n_args; i++)
        if (needs_cut(call, node->args[i], seen))
            return true;
    return false;
}

bool exec_needs_cut(const ExecCall *call, const DagNode *node, Arena *arena)
{
    return needs_cut(call, node, arena_array(arena, bool, call->n_numbers));
}

u64 exec_dimensions(const Contract *contract, u64 atoms)
{
    u64 mask = 0;
    for (int a = 0; a < contract->n_atoms; a++) {
        int ragged = contract->axes[contract->atom_axis[a]].coordinate_of;
        if (atoms >> a & 1)
            mask |= (u64)1 << (ragged < 0 ? a : contract->axes[ragged].atom);
    }
    return mask;
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* What the box has of the reduced atoms, taken as one axis row-major. */
static void find_run(const Contract *contract, const ExecBox *box, ExecReduce *reduce)
{
    const DagNode *node = reduce->node;
    i64 len = 1;
    bool split = false; /* an atom before had more than one index, so that this one must be whole */
    reduce->extent = 1;
    reduce->one_run = true;
    for (int i = 0; i < node->n_atoms; i++) {
        const ExecRange *range = &box->atom[node->atoms[i]];
        i64 size = atom_size(contract, node->atoms[i], box->free_length);
        i64 n = range->hi > range->lo ? range->hi - range->lo : 0;
        reduce->one_run &= !split || n == size;
        split |= n > 1;
        reduce->extent *= size;
        reduce->lo = reduce->lo * size + (n ? range->lo : 0);
        len *= n;
    }
    reduce->hi = reduce->lo + len;
    reduce->cut = len != reduce->extent;
}

static void reduce_init(const ExecCall *call, const DagNode *node, ExecReduce *reduce, Arena *arena)
{
    const ExecJob *job = call->job;
    reduce->node = node;
    find_run(job->contract, &job->box, reduce);
    reduce->leaves = reduce->cut || dag_folds(node);
    reduce->root = tree_expand(arena, node->tree, reduce->extent);
    int n;
    const int *summed = dag_summed(node, &n);
    for (int i = 0; i < n; i++)
        reduce->over.dim[reduce->over.n++] =
            exec_dim(arena, &job->box.atom[summed[i]], summed[i], false);
}

void exec_call_init(ExecCall *call, const ExecJob *job, Arena *arena)
{
    const OpDag *op = job->op;
    int last = 0;
    *call = (ExecCall){.job = job, .first = op->nodes.n ? op->nodes.v[0]->number : 0};
    for (int i = 0; i < op->nodes.n; i++) {
        int number = op->nodes.v[i]->number;
        call->first = number < call->first ? number : call->first;
        last = number > last ? number : last;
    }
    call->n_numbers = last - call->first + 1;
    call->mask = arena_array(arena, u64, call->n_numbers);
    call->reduce_of = arena_array(arena, int, call->n_numbers);
    memset(call->reduce_of, 0xFF, sizeof(int) * (size_t)call->n_numbers);
    for (int i = 0; i < op->nodes.n; i++)
        call->mask[op->nodes.v[i]->number - call->first] =
            exec_dimensions(job->contract, op->nodes.v[i]->mask);
    call->n_reduces = op->reduces.n;
    call->reduces = arena_array(arena, ExecReduce, op->reduces.n);
    for (int i = 0; i < op->reduces.n; i++) {
        reduce_init(call, op->reduces.v[i], &call->reduces[i], arena);
        call->reduce_of[op->reduces.v[i]->number - call->first] = i;
    }
}

/* ---- workers --------------------------------------------------------------------------------- */

typedef struct ExecRun {
    const ExecCall *call;
    const ExecSpace *space;
    const ExecTiles *tiles;
    ExecWork *work;
    void *context;
    atomic_llong next;
    atomic_bool out_of_memory;
} ExecRun;

static void run_tile(ExecRun *run, ExecScratch *scratch, i64 index)
{
    i64 first[MAX_ATOMS];
    ExecMark mark = scratch_mark(scratch);
    ExecScope scope = {.call = run->call, .scratch = scratch};
    exec_tile(run->space, run->tiles, index, &scope.space, first);
    exec_scope_start(&scope);
    run->work(run->context, &scope, first);
    scratch_release(scratch, mark);
}

/* Each worker has an arena of its own, whose exhaustion ends that worker alone. */
static void *worker(void *context)
{
    ExecRun *run = context;
    Arena *arena = arena_new();
    jmp_buf out_of_memory;
    if (!arena || setjmp(out_of_memory)) {
        run->out_of_memory = true;
        arena_free(arena);
        return NULL;
    }
    arena_on_oom(arena, &out_of_memory);
    ExecScratch scratch = {.arena = arena};
    for (;;) {
        i64 index = atomic_fetch_add(&run->next, 1);
        if (index >= run->tiles->total || run->out_of_memory)
            break;
        run_tile(run, &scratch, index);
    }
    arena_free(arena);
    return NULL;
}

void exec_run(const ExecCall *call, const ExecSpace *space, const ExecTiles *tiles, ExecWork *work,
              void *context, Arena *arena)
{
    enum { MOST = 64 };
    pthread_t thread[MOST];
    ExecRun run = {.call = call, .space = space, .tiles = tiles, .work = work, .context = context};
    int wanted = call->job->threads < MOST ? call->job->threads : MOST, started = 0;
    while (started < wanted - 1 && started < tiles->total - 1 &&
           pthread_create(&thread[started], NULL, worker, &run) == 0)
        started++;
    worker(&run);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    /* A worker cannot leave through the caller's jump target: fail here in its stead. */
    if (run.out_of_memory)
        arena_alloc(arena, SIZE_MAX / 2);
}
