/* What an opened module holds; shared by the files of libiso, not public.
 * Ownership: iso_module owns everything here. */
#ifndef ISO_MODULE_H
#define ISO_MODULE_H

#include "launch/driver.h"
#include "isoc.h"
#include "manifest/manifest.h"

struct iso_op {
    const iso_module *module;
    const MfLayout *layout;
    const MfLayoutOp *at;
    const MfOp *op;
    int rank;
};

struct iso_module {
    Manifest *manifest;
    char *json; /* its text */
    size_t json_bytes;
    iso_device device;
    int cpu_threads;
    iso_op *ops; /* every (layout, op, rank), in that order */
    int n_ops;
    /* ISO_CUDA */
    const Driver *driver;
    CuModule cubin;
    CuFunction *functions; /* per manifest kernel */
    int multiprocessors;
    int row_tiles;    /* of a product, that have CTAs of their own; 0: as many as a grid takes */
    int decode_roots; /* that a workspace of attention has; 0: as many as are fast */
    CuModule cache_module;  /* NULL where no op attends */
    CuFunction cache_write;
    /* ISO_CPU */
    isoc_session *session;
};

/* ---- loading (module.c) ---------------------------------------------------------------------- */

/* Loads a cubin's manifest on a device that the caller made: a driver's table and a module of its
 * own that is loaded already. The module is unloaded with *module. */
iso_status module_load_on(iso_module **module, const void *data, size_t size, const Driver *driver,
                          CuModule loaded);

/* ---- shapes (shape.c) ------------------------------------------------------------------------ */

/* The rows [lo, hi) of the free atom that a part has. */
void part_rows_of(const MfPart *part, int64_t rows, int64_t *lo, int64_t *hi);
/* Whether a launch says how many elements the axis has: of rows, or of a table by a coordinate. */
bool axis_is_free(const Manifest *manifest, const MfAtoms *atoms);
bool axis_is_table(const Manifest *manifest, const MfAtoms *axis);
/* Elements of an atom, or of a run of atoms, in a part; 0 for coordinates, whose tables may have
 * any length. */
int64_t part_atom_size(const Manifest *manifest, const MfPart *part, int atom, int64_t rows);
int64_t part_size(const Manifest *manifest, const MfPart *part, const MfAtoms *atoms, int64_t rows);
const MfPart *op_part(const iso_op *op, iso_phase phase);
/* The spec that a run binds: of the schedule asked for, else of the first that takes the rows. NULL
 * where the rank is idle: its part of the op is empty. */
const MfSpec *op_spec(const iso_op *op, iso_phase phase, int64_t rows, int schedule);
/* The same for a run, whose hints count too. */
const MfSpec *run_spec(const iso_op *op, iso_phase phase, const iso_run *run);
/* Whether its columns are reduced by this rank alone: a run does both phases. */
bool op_joins_alone(const iso_op *op);
/* Whether a kernel reads or writes the tensor: others may have data NULL. */
bool spec_uses(const MfSpec *spec, int tensor);
/* Checks count, dtypes, shapes and strides of what the caller passes; alignment of data. */
iso_status op_check_tensors(const iso_op *op, iso_phase phase, const MfSpec *spec,
                            const iso_tensor *tensors, int n, int64_t rows);

/* An operand as a kernel addresses it: first element, and one stride per dimension (0: absent). */
typedef struct View {
    void *data;
    int64_t stride[MF_MAX_DIMS];
} View;

/* dims: the kernel's own, or (rows, cols) of a gemm group. ISO_BAD_TENSOR where a tensor's strides
 * do not collapse to one per dimension. */
iso_status view_bind(const iso_op *op, iso_phase phase, const MfBinding *binding,
                     const MfAtoms *const *dims, int n_dims, const iso_tensor *tensors,
                     int64_t rows, View *view);

/* The stride of the atom that a binding with a lookup is read at. */
int64_t lookup_stride(const iso_op *op, iso_phase phase, const MfBinding *binding,
                      const iso_tensor *tensors, int64_t rows);

/* ---- running (launch_*.c, cpu.c) ------------------------------------------------------------- */

/* Bytes, as iso_op_roots_of_keys and iso_op_workspace tell them. */
size_t roots_bytes(const iso_op *op, int64_t rows, int64_t keys);
bool op_shares_keys(const iso_op *op);
size_t workspace_bytes(const iso_op *op, int64_t rows, int schedule);
/* Where in its workspace an op that joins alone has its roots. */
size_t roots_place(const iso_op *op, int64_t rows, int schedule);

/* Rows [lo, lo + n) of those that a join finishes. */
typedef struct Window {
    int64_t lo, n;
} Window;

typedef struct Launch Launch;
struct Launch {
    const iso_op *op;
    iso_phase phase;
    const MfSpec *spec;
    const iso_tensor *tensors;
    const iso_run *run;
    void *roots;                /* PART */
    const void *const *sources; /* JOIN: per rank of the layout */
    const Window *window;       /* JOIN: NULL for all */
    bool early;                 /* JOIN: may take its places before it may begin */
    const Launch *beside; /* RUN: a call of the same program, in the same launch; or NULL */
    /* A grouped product's rows lie, its results go, in the order of their experts; the workspace
     * has that order already. */
    bool sorted_in, sorted_out, ordered;
};

typedef struct OpCall {
    const iso_op *op;
    const iso_tensor *tensors;
    int n;
    const iso_run *run;
} OpCall;

/* Whether one launch has room for a call of each, at so many rows. */
bool op_pairs(const iso_op *a, const iso_op *b, int64_t rows);
/* iso_op_run of both, in one launch; neither may write what the other reads or writes. */
iso_status op_run_pair(const OpCall calls[2]);

/* Whether what grouped product `a` gives may lie in the order of its rows' experts where `b` alone
 * gathers its rows from it, by the same indices, with the same workspace. */
bool op_chains(const iso_op *a, const iso_op *b, int64_t rows);
/* The parameters of a grouped product that its rows and their experts are; false: it is none. */
bool op_gathers(const iso_op *op, int64_t rows, int *from, int *chosen);
/* iso_op_run of both, one after the other; the result of the first is left in that order. */
iso_status op_run_chain(const OpCall calls[2]);
/* iso_op_run of a grouped product whose rows lie, whose results go, in that order; ordered: the
 * workspace has it from a run before. */
iso_status op_run_sorted(const OpCall *call, bool in, bool out, bool ordered);

/* iso_op_join, and for some of the rows: those of a product whose rows are the tokens. */
iso_status op_join_window(const iso_op *op, const void *const *roots, int ranks,
                          const iso_tensor *tensors, int n, const iso_run *run,
                          const Window *window, bool early);

/* Attention's spec for a batch of which the run's hints are known, in place of the one chosen by
 * rows. */
const MfSpec *attend_spec(const iso_op *op, const MfSpec *by_rows, const iso_run *run);

/* Of specs of grouped products: whether their results, and the rows that they gather, may lie in
 * the order of the experts, and whether that is another's too. */
bool group_gives_sorted(const MfSpec *spec);
bool group_takes_sorted(const MfSpec *spec);
bool group_same_order(const iso_op *a, const MfSpec *x, const iso_op *b, const MfSpec *y);

iso_status launch_cuda(const Launch *launch);
iso_status launch_cpu(const Launch *launch);

#endif
