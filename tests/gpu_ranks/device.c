/* An op's tensors on a GPU, and what a rank's run of it must leave there. */
#include "device.h"

#include "values.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xCD };

void rank_meets(const Rank *rank)
{
    if (rank->together)
        pthread_barrier_wait(rank->together);
}

iso_group *rank_group(const Rank *rank, double timeout, size_t bytes, size_t two_shot)
{
    return join_island(rank->module, rank->where, rank->rank, rank->ranks, timeout, bytes, two_shot,
                       rank->island ? rank->rank / rank->island : 0);
}

static DevicePtr address(const void *data)
{
    return (DevicePtr)(uintptr_t)data;
}

static bool has_rows(const Device *d, int tensor)
{
    const MfTensor *t = &d->op->tensors[tensor];
    return !d->rank->module->manifest->atoms[t->axes[0].atom[0]].size;
}

static void allocate(Device *d)
{
    for (int i = 0; i < d->n; i++) {
        must(iso_op_tensor(d->base, ISO_PHASE_RUN, d->most, i, &d->tensor[i], NULL),
             "iso_op_tensor");
        d->bytes[i] = tensor_bytes(&d->tensor[i]);
        d->tensor[i].data = (void *)(uintptr_t)gpu_alloc(d->bytes[i]);
        if (i >= d->params) {
            d->expected[i] = gpu_alloc(d->bytes[i]);
            d->masked[i] = gpu_alloc(d->bytes[i]);
        }
    }
}

static void want_workspace(Device *d, int64_t rows)
{
    const Manifest *manifest = d->rank->module->manifest;
    for (int l = 0; l < manifest->n_layouts; l++) {
        size_t need;
        must(iso_op_workspace(op_of(d->rank->module, d->op->name, manifest->layouts[l].name, 0),
                              rows, 0, &need),
             "iso_op_workspace");
        d->workspace_bytes = need > d->workspace_bytes ? need : d->workspace_bytes;
    }
}

/* Enough for every layout at the counts that are run: all small ones, then powers of two. */
static void make_workspace(Device *d)
{
    for (int64_t rows = 1; rows < d->most; rows += rows < 130 ? 1 : rows)
        want_workspace(d, rows);
    for (int64_t rows = 1024; rows < d->most; rows *= 2)
        want_workspace(d, rows);
    want_workspace(d, d->most);
    d->workspace = gpu_alloc(d->workspace_bytes);
    gpu_set(d->workspace, 0, d->workspace_bytes);
}

static void run_base(Device *d)
{
    iso_tensor tensors[TEST_TENSORS];
    iso_run run = {.rows = d->most,
                   .workspace = (void *)(uintptr_t)d->workspace,
                   .workspace_bytes = d->workspace_bytes,
                   .stream = gpu_stream()};
    memcpy(tensors, d->tensor, sizeof tensors);
    for (int i = d->params; i < d->n; i++)
        tensors[i].data = (void *)(uintptr_t)d->expected[i];
    must(iso_op_run(d->base, tensors, d->n, &run), "the op on one rank");
    gpu_sync();
}

static void prepare(Device *d, Rank *rank, iso_group *group, const char *op, int64_t most)
{
    memset(d, 0, sizeof *d);
    d->rank = rank;
    d->group = group;
    d->most = most;
    must(iso_op_get(rank->module, op, NULL, &d->base), op);
    d->op = d->base->op;
    d->params = d->op->n_params;
    d->n = d->params + d->op->n_results;
    d->host = (Whole){.op = d->base, .n = d->n, .params = d->params, .rows = most};
    allocate(d);
    make_workspace(d);
}

static void *host_bytes(size_t bytes)
{
    void *data = malloc(bytes + 1);
    if (!data)
        die("no memory for %zu bytes", bytes);
    return data;
}

/* The host keeps them: they say whose a slot is. */
static void load_integers(Device *d, int i)
{
    d->host.tensor[i] = d->tensor[i];
    d->host.tensor[i].data = host_bytes(d->bytes[i]);
    fill_integers(d->base, i, &d->host.tensor[i]);
    gpu_write(address(d->tensor[i].data), d->host.tensor[i].data, d->bytes[i]);
}

void device_prepare(Device *d, Rank *rank, iso_group *group, const char *op, int64_t most)
{
    prepare(d, rank, group, op, most);
    for (int i = 0; i < d->params; i++) {
        int64_t rows = d->tensor[i].n_axes > 1 ? d->tensor[i].shape[0] : 1;
        if (d->tensor[i].dtype == ISO_I32) {
            load_integers(d, i);
            continue;
        }
        gpu_fill_bf16(address(d->tensor[i].data), rows, (int64_t)d->bytes[i] / 2 / rows,
                      has_rows(d, i) ? VALUES_ADVERSARIAL : VALUES_NORMAL, (unsigned)i * 7 + 1, 0);
    }
    run_base(d);
    rank_meets(rank);
}

void device_load(Device *d, const Whole *whole)
{
    for (int i = 0; i < d->n; i++)
        gpu_write(i < d->params ? address(d->tensor[i].data) : d->expected[i],
                  i < d->params ? whole->tensor[i].data : whole->expected[i], d->bytes[i]);
}

void device_release(Device *d)
{
    gpu_sync();
    rank_meets(d->rank);
    for (int i = 0; i < d->n; i++) {
        free(d->host.tensor[i].data);
        if (d->own[i])
            gpu_free(d->own[i]);
        gpu_free(address(d->tensor[i].data));
        if (i >= d->params) {
            gpu_free(d->expected[i]);
            gpu_free(d->masked[i]);
        }
    }
    gpu_free(d->workspace);
    rank_meets(d->rank);
}

/* ---- runs ---- */

/* Slots of a tensor that others own are poisoned where it is copied to; false if it has none. */
static bool copy_own(Device *d, const iso_op *op, int64_t rows, int i, const iso_tensor *part,
                     DevicePtr from, DevicePtr *to)
{
    int64_t origin[ISO_MAX_AXES];
    iso_tensor held = *part;
    held.data = NULL;
    must(iso_op_held(op, rows, i, &(iso_tensor){0}, origin), "iso_op_held");
    if (!mask_slots(&d->host, op, i, origin[0], &held))
        return false;
    char *whole = host_bytes(d->bytes[i]);
    gpu_read(whole, from, d->bytes[i]);
    held.data = whole + ((char *)part->data - (char *)d->tensor[i].data);
    mask_slots(&d->host, op, i, origin[0], &held);
    *to = *to ? *to : gpu_alloc(d->bytes[i]);
    gpu_write(*to, whole, d->bytes[i]);
    free(whole);
    return true;
}

void device_views(Device *d, const iso_op *op, int64_t rows, iso_tensor *tensors,
                  iso_run *run)
{
    for (int i = 0; i < d->n; i++) {
        int64_t origin[ISO_MAX_AXES], offset = 0;
        must(iso_op_held(op, rows, i, &tensors[i], origin), "iso_op_held");
        for (int a = 0; a < tensors[i].n_axes; a++) {
            tensors[i].stride[a] = d->tensor[i].stride[a];
            offset += origin[a] * tensors[i].stride[a];
        }
        offset *= tensors[i].dtype == ISO_F32 || tensors[i].dtype == ISO_I32 ? 4 : 2;
        tensors[i].data = (char *)d->tensor[i].data + offset;
        if (i < d->params &&
            copy_own(d, op, rows, i, &tensors[i], address(d->tensor[i].data), &d->own[i]))
            tensors[i].data = (char *)(uintptr_t)d->own[i] + offset;
    }
    *run = (iso_run){.rows = rows,
                     .workspace = (void *)(uintptr_t)d->workspace,
                     .workspace_bytes = d->workspace_bytes,
                     .stream = gpu_stream()};
}

void device_mask(Device *d, const iso_op *op, int64_t rows, const iso_tensor *tensors)
{
    for (int i = d->params; i < d->n; i++) {
        Box box = {{0}, {0}};
        iso_tensor from = tensors[i], to = tensors[i];
        DevicePtr offset = address(tensors[i].data) - address(d->tensor[i].data);
        for (int a = 0; a < tensors[i].n_axes; a++)
            box.hi[a] = tensors[i].shape[a];
        from.data = (void *)(uintptr_t)(d->expected[i] + offset);
        to.data = (void *)(uintptr_t)(d->masked[i] + offset);
        gpu_set(d->masked[i], POISON, d->bytes[i]);
        CopyList list = {.plane = d->group->plane, .stream = gpu_stream()};
        must(box_copy(&list, &d->op->tensors[i], &from, &box, &to, &box), "box_copy");
        must(copies_make(&list), "copies_make");
        copy_own(d, op, rows, i, &tensors[i], d->masked[i], &d->masked[i]);
    }
}

void device_poison(const Device *d)
{
    for (int i = d->params; i < d->n; i++)
        gpu_set(address(d->tensor[i].data), POISON, d->bytes[i]);
}

void device_check(Device *d, const iso_op *op, int64_t rows)
{
    iso_tensor tensors[TEST_TENSORS];
    iso_run run;
    device_views(d, op, rows, tensors, &run);
    device_mask(d, op, rows, tensors);
    device_poison(d);
    must(iso_op_run_group(d->group, op, tensors, d->n, &run), "iso_op_run_group");
    gpu_sync();
    must(iso_group_status(d->group), "iso_group_status");
    d->rank->runs++;
    for (int i = d->params; i < d->n; i++) {
        uint64_t first;
        uint64_t differ =
            gpu_compare(address(d->tensor[i].data), d->masked[i], d->bytes[i], &first);
        d->rank->compared += (uint64_t)tensor_bytes(&tensors[i]) / 2;
        d->rank->differ += differ;
        if (differ)
            printf("  DIFFERS: op %s, layout %s, rank %d, %lld rows: %llu halves, first %llu\n",
                   d->op->name, op->layout->name, op->rank, (long long)rows,
                   (unsigned long long)differ, (unsigned long long)first);
    }
}
