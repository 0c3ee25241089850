/* Whole tensors, views of them, and ranks as processes. */
#include "ranks.h"

#include "module.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

_Noreturn void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("ranks: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
    _exit(5);
}

void must(iso_status status, const char *what)
{
    if (status != ISO_OK)
        die("%s: %s: %s", what, iso_status_string(status), iso_last_error());
}

static int element_bytes(const iso_tensor *tensor)
{
    return tensor->dtype == ISO_F32 || tensor->dtype == ISO_I32 ? 4 : 2;
}

size_t tensor_bytes(const iso_tensor *tensor)
{
    size_t bytes = (size_t)element_bytes(tensor);
    for (int i = 0; i < tensor->n_axes; i++)
        bytes *= (size_t)tensor->shape[i];
    return bytes;
}

/* ---- whole tensors ---- */

static void fill(iso_tensor *tensor, unsigned seed)
{
    uint16_t *to = tensor->data;
    size_t n = tensor_bytes(tensor) / 2;
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        /* sign, an exponent of 8 binades, all 7 bits of significand */
        to[i] = (uint16_t)((state >> 16 & 0x8000) | (120 + (state >> 13 & 7)) << 7 |
                           (state >> 20 & 0x7f));
    }
}

/* The axis of a tensor that slots of a token are, or -1; the atom that they stand on to *of. */
static int slots_axis(const iso_op *op, int tensor, int *of)
{
    const MfTensor *declared = &op->op->tensors[tensor];
    for (int a = 0; a < declared->n_axes; a++) {
        *of = op->module->manifest->atoms[declared->axes[a].atom[0]].slots_of;
        if (*of >= 0)
            return a;
    }
    return -1;
}

static int places(const iso_op *op, int atom)
{
    return (int)op->module->manifest->atoms[atom].size;
}

void fill_integers(const iso_op *op, int tensor, const iso_tensor *to)
{
    int of, end = slots_axis(op, tensor, &of) < 0 ? 807 : places(op, of);
    int32_t *data = to->data;
    for (size_t i = 0; i < tensor_bytes(to) / 4; i++)
        data[i] = (int32_t)(i * 37 + (size_t)tensor * 11) % (end + 2) - 2;
}

/* The position of each row. */
static const int32_t *positions_from(int64_t row)
{
    enum { MOST = 4096 };
    static int32_t positions[MOST];
    for (int i = 0; i < MOST; i++)
        positions[i] = i * 13 % 1021;
    if (row >= MOST)
        die("too many rows");
    return positions + row;
}

void whole_open(Whole *whole, const iso_module *module, const char *op, int64_t rows)
{
    int params, results;
    must(iso_op_get(module, op, NULL, &whole->op), op);
    must(iso_op_tensors(whole->op, &params, &results), op);
    whole->n = params + results;
    whole->params = params;
    whole->rows = rows;
    for (int i = 0; i < whole->n; i++) {
        iso_tensor *tensor = &whole->tensor[i];
        must(iso_op_tensor(whole->op, ISO_PHASE_RUN, rows, i, tensor, NULL), op);
        size_t bytes = tensor_bytes(tensor);
        tensor->data = calloc(bytes + 64, 1);
        whole->expected[i] = i >= params ? calloc(bytes + 64, 1) : NULL;
        if (!tensor->data || (i >= params && !whole->expected[i]))
            die("no memory for op %s", op);
        if (i < params && tensor->dtype == ISO_I32)
            fill_integers(whole->op, i, tensor);
        else if (i < params)
            fill(tensor, (unsigned)i + 1);
    }
}

void whole_run(Whole *whole)
{
    iso_tensor tensors[TEST_TENSORS];
    iso_run run = {.rows = whole->rows, .positions = positions_from(0)};
    memcpy(tensors, whole->tensor, sizeof tensors);
    for (int i = whole->params; i < whole->n; i++)
        tensors[i].data = whole->expected[i];
    must(iso_op_run(whole->op, tensors, whole->n, &run), "the op on one rank");
}

void whole_close(Whole *whole)
{
    for (int i = 0; i < whole->n; i++) {
        free(whole->tensor[i].data);
        free(whole->expected[i]);
    }
}

/* ---- a rank's part ---- */

/* Which slots of a tensor are a rank's: those that stand in its part, by the index tensor among the
 * parameters; the first part has those that stand nowhere. */
typedef struct Slots {
    const iso_tensor *index; /* NULL: the rank has all elements of its box */
    int axis;                /* of the tensor */
    int64_t rows;            /* before the rank's */
    int64_t lo, hi, n;       /* places: the rank's, and all */
} Slots;

static Slots slots_of(const Whole *whole, const iso_op *op, int tensor, int64_t rows)
{
    Slots slots = {.rows = rows};
    int of, index_of;
    slots.axis = slots_axis(op, tensor, &of);
    if (slots.axis < 0 || op->op->tensors[tensor].dtype == ISO_I32)
        return slots;
    const MfPart *part = op->at->held[tensor] ? &op->at->held[tensor][op->rank]
                                              : &op->at->parts[op->rank];
    slots.lo = part->lo[of];
    slots.hi = part->hi[of];
    slots.n = places(op, of);
    for (int i = 0; i < whole->params; i++)
        if (op->op->tensors[i].dtype == ISO_I32 && slots_axis(op, i, &index_of) == 1 &&
            op->op->tensors[i].axes[1].atom[0] ==
                op->op->tensors[tensor].axes[slots.axis].atom[0])
            slots.index = &whole->tensor[i];
    return slots;
}

static bool slot_is_own(const Slots *slots, const int64_t *at)
{
    if (!slots->index)
        return true;
    int64_t row = slots->rows + at[0], slot = at[slots->axis];
    const int32_t *index = slots->index->data;
    int32_t place = index[row * slots->index->stride[0] + slot * slots->index->stride[1]];
    return place < 0 || place >= slots->n ? slots->lo == 0
                                          : place >= slots->lo && place < slots->hi;
}

static void mask(const iso_tensor *tensor, const Slots *slots, int axis, int64_t *at, char *data)
{
    int bytes = element_bytes(tensor);
    if (axis == tensor->n_axes && !slot_is_own(slots, at))
        memset(data, 0xCD, (size_t)bytes);
    for (at[axis] = 0; axis < tensor->n_axes && at[axis] < tensor->shape[axis]; at[axis]++)
        mask(tensor, slots, axis + 1, at, data + at[axis] * tensor->stride[axis] * bytes);
}

bool mask_slots(const Whole *whole, const iso_op *op, int tensor, int64_t row,
                const iso_tensor *held)
{
    int64_t at[ISO_MAX_AXES + 1];
    Slots slots = slots_of(whole, op, tensor, row);
    if (slots.index && held->data)
        mask(held, &slots, 0, at, held->data);
    return slots.index != NULL;
}

/* What a rank does not hold of a parameter's slots is not there to be read. */
static void *keep_own(const Whole *whole, const iso_op *op, int i, iso_tensor *tensor, int64_t row)
{
    const iso_tensor *all = &whole->tensor[i];
    if (!mask_slots(whole, op, i, row, &(iso_tensor){.data = NULL}))
        return NULL;
    size_t offset = (size_t)((char *)tensor->data - (char *)all->data);
    char *own = malloc(tensor_bytes(all) + 64);
    if (!own)
        die("no memory for a rank's slots");
    memcpy(own, all->data, tensor_bytes(all));
    tensor->data = own + offset;
    mask_slots(whole, op, i, row, tensor);
    return own;
}

/* The rank's tensors, in place in the whole's, but for copies of those whose slots others own too;
 * results poisoned. To be freed: own. */
static void rank_tensors(const Whole *whole, const iso_op *op, iso_tensor *tensors, void **own)
{
    for (int i = 0; i < whole->n; i++) {
        int64_t origin[ISO_MAX_AXES];
        const iso_tensor *all = &whole->tensor[i];
        if (i >= whole->params)
            memset(all->data, 0xCD, tensor_bytes(all));
        must(iso_op_held(op, whole->rows, i, &tensors[i], origin), "iso_op_held");
        char *data = all->data;
        for (int a = 0; a < all->n_axes; a++) {
            tensors[i].stride[a] = all->stride[a];
            data += origin[a] * all->stride[a] * element_bytes(all);
        }
        tensors[i].data = data;
        own[i] = i < whole->params ? keep_own(whole, op, i, &tensors[i], origin[0]) : NULL;
    }
}

/* Elements that are not the expected ones, or, of slots that others own, that were written. */
static int64_t differs(const iso_tensor *tensor, const Slots *slots, int axis, int64_t *at,
                       const char *have, const char *want)
{
    int bytes = element_bytes(tensor);
    if (axis == tensor->n_axes)
        return memcmp(have, slot_is_own(slots, at) ? want : "\xCD\xCD\xCD\xCD", (size_t)bytes) != 0;
    int64_t n = 0;
    for (at[axis] = 0; at[axis] < tensor->shape[axis]; at[axis]++)
        n += differs(tensor, slots, axis + 1, at, have + at[axis] * tensor->stride[axis] * bytes,
                     want + at[axis] * tensor->stride[axis] * bytes);
    return n;
}

/* Elements that were written though the rank does not hold them. */
static int64_t strays(const iso_tensor *all, const iso_tensor *held, const int64_t *origin,
                      int axis, const char *at, bool inside)
{
    int bytes = element_bytes(all);
    int64_t n = 0;
    if (axis == all->n_axes)
        return !inside && memcmp(at, "\xCD\xCD\xCD\xCD", (size_t)bytes) != 0;
    for (int64_t i = 0; i < all->shape[axis]; i++) {
        bool own = i >= origin[axis] && i < origin[axis] + held->shape[axis];
        n += strays(all, held, origin, axis + 1, at + i * all->stride[axis] * bytes,
                    inside && own);
    }
    return n;
}

int64_t rank_differs(const Whole *whole, const iso_op *op, const iso_tensor *tensors)
{
    int64_t n = 0, origin[ISO_MAX_AXES], at[ISO_MAX_AXES];
    for (int i = whole->params; i < whole->n; i++) {
        iso_tensor held;
        size_t offset = (size_t)((char *)tensors[i].data - (char *)whole->tensor[i].data);
        must(iso_op_held(op, whole->rows, i, &held, origin), "iso_op_held");
        Slots slots = slots_of(whole, op, i, origin[0]);
        n += differs(&tensors[i], &slots, 0, at, tensors[i].data,
                     (char *)whole->expected[i] + offset);
        n += strays(&whole->tensor[i], &held, origin, 0, whole->tensor[i].data, true);
    }
    return n;
}

const iso_op *op_of(const iso_module *module, const char *name, const char *layout, int rank)
{
    const iso_op *op;
    iso_layout at = {.name = layout, .rank = rank};
    must(iso_op_get(module, name, &at, &op), name);
    return op;
}

iso_group *join_group(const iso_module *module, const char *where, int rank, int ranks,
                      double timeout, size_t bytes, size_t two_shot)
{
    return join_island(module, where, rank, ranks, timeout, bytes, two_shot, 0);
}

iso_group *join_island(const iso_module *module, const char *where, int rank, int ranks,
                       double timeout, size_t bytes, size_t two_shot, int island)
{
    iso_group *group;
    iso_group_config config = {.size = sizeof config,
                               .rank = rank,
                               .ranks = ranks,
                               .bootstrap = where,
                               .timeout = timeout,
                               .bytes = bytes,
                               .two_shot = two_shot,
                               .island = island};
    must(iso_group_create(&group, module, &config), "iso_group_create");
    return group;
}

iso_status run_op(iso_group *group, const Whole *whole, const iso_op *op, int64_t *differ)
{
    iso_tensor tensors[TEST_TENSORS];
    int64_t origin[ISO_MAX_AXES];
    must(iso_op_origin(op, ISO_PHASE_RUN, whole->rows, whole->params, origin), "iso_op_origin");
    iso_run run = {.rows = whole->rows, .positions = positions_from(origin[0])};
    void *own[TEST_TENSORS];
    rank_tensors(whole, op, tensors, own);
    iso_status status = iso_op_run_group(group, op, tensors, whole->n, &run);
    *differ = status ? 0 : rank_differs(whole, op, tensors);
    for (int i = 0; i < whole->n; i++)
        free(own[i]);
    return status;
}

/* ---- processes ---- */

void start_ranks(int ranks, RankWork work, void *user, int *pids)
{
    fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        if (pids[r] < 0)
            die("no process for rank %d", r);
        if (pids[r] == 0) {
            int result = work(r, ranks, user);
            fflush(NULL);
            _exit(result);
        }
    }
}

int end_ranks(int ranks, const int *pids, int killed)
{
    int failed = 0;
    for (int r = 0; r < ranks; r++) {
        int how;
        if (waitpid(pids[r], &how, 0) != pids[r])
            die("rank %d was not to be waited for", r);
        failed += r != killed && (!WIFEXITED(how) || WEXITSTATUS(how));
    }
    return failed;
}
