/* The manifest of a cubin, read into structs; the format is compiler/cubin/manifest_write.h's.
 * Ownership: a Manifest owns all it points to; strings are borrowed from its JSON tree. */
#ifndef ISO_MANIFEST_H
#define ISO_MANIFEST_H

#include "../../compiler/device/iso_rope.cuh"
#include "error.h"

enum { MF_MAX_DIMS = 6, MF_MAX_ATOMS = 64, MF_MAX_LEAVES = 64, MF_MAX_GROUPS = 4, MF_MAX_PARTS = 4,
       MF_MAX_OPERANDS = 6, MF_MAX_RESULTS = 3, MF_MAX_SOURCES = 16 };

typedef enum MfCoordinate { MF_NONE, MF_POSITION, MF_SEQUENCE } MfCoordinate;

typedef struct MfAtom {
    const char *name;
    int64_t size; /* 0: free */
    int64_t stored;
    MfCoordinate coordinate; /* of each token: an axis of a table, of any length */
    int slots_of;            /* atom whose elements a token's slots are; -1: none */
} MfAtom;

/* A run of atoms, row-major: an axis of a tensor or a dimension of a kernel. */
typedef struct MfAtoms {
    int n;
    int *atom;
} MfAtoms;

typedef struct MfTensor {
    const char *name;
    iso_dtype dtype;
    int n_axes;
    MfAtoms axes[ISO_MAX_AXES];
} MfTensor;

typedef struct MfOp {
    const char *name;
    uint8_t fingerprint[32];
    int n_params, n_results;
    MfTensor *tensors; /* parameters, then results */
} MfOp;

typedef enum MfFamily {
    MF_MAP, MF_ROW, MF_GEMM, MF_JOIN, MF_ATTEND, MF_DRAW, MF_TOP, MF_ORDER /* of a kernel only */
} MfFamily;

typedef struct MfKernel {
    const char *name;
    MfFamily family;
    int threads;
    int shared_bytes;
    bool waits; /* by itself, for what was launched before */
    int calls;  /* that one launch has room for */
} MfKernel;

typedef struct MfBinding {
    int tensor;
    int n_fixes;
    struct MfFix {
        int atom;
        int64_t at;
    } *fixes;
    int n_dims;
    bool has[MF_MAX_DIMS];
    bool coordinate; /* indexed by a coordinate of each token */
    int lookup;      /* the binding that says each token's index of atom `looked_up`; -1: none */
    int looked_up;
} MfBinding;

typedef struct MfGroup {
    MfAtoms cols;
    int n_products;
    int b[MF_MAX_PARTS]; /* bindings */
    bool b_k_inner[MF_MAX_PARTS];
    int n_operands, n_results;
    int operand[MF_MAX_OPERANDS], result[MF_MAX_RESULTS]; /* bindings, as the epilogue's views */
} MfGroup;

typedef struct MfGemm {
    bool wgmma;
    int tile_m, tile_n, tile_k, stages;
    bool across_ctas;
    int a; /* binding */
    bool a_k_inner;
    MfAtoms rows, k;
    bool roots_out;
    int n_roots;
    int fold_roots, fold_values; /* of a row, where columns are reduced: a tile of columns each */
    int n_leaves;
    int far;     /* values of a CTA that wait in workspace */
    int cluster; /* CTAs */
    int high;    /* row tiles of a cluster, one for each CTA; else they have column tiles: 1 */
    bool grouped;
    int experts; /* grouped: the atom of which the rows have indices */
    int chosen;  /* grouped: binding of these */
    int order;   /* grouped: the kernel that sorts rows by them */
    bool runs_on; /* grouped: blocks of k go on over the borders of leaves */
    int64_t leaf_lo[MF_MAX_LEAVES], leaf_hi[MF_MAX_LEAVES];
    int n_groups;
    MfGroup group[MF_MAX_GROUPS];
} MfGemm;

/* Dimensions of its spec: tokens, heads of keys, group, elements of a key, of a value. */
typedef enum MfAttendKernel {
    MF_ATTEND_MMA, MF_ATTEND_DECODE, MF_ATTEND_WGMMA,
    MF_ATTEND_PARTS, MF_ATTEND_JOIN /* where ranks have some splits of the keys each */
} MfAttendKernel;

typedef struct MfAttend {
    MfAttendKernel kernel;
    int queries, keys, values, sinks, value, lse; /* bindings; -1: none */
    int rows;        /* of one CTA */
    int resident;    /* CTAs that a multiprocessor has room for */
    bool causal;     /* else lengths must be given */
    int split;       /* keys that are joined apart */
    int window;      /* PARTS: keys that a row sees at most; 0: any */
} MfAttend;

typedef struct MfSpec {
    int kernel;
    int op;
    MfFamily family;
    int n_dims;
    MfAtoms dims[MF_MAX_DIMS];
    int n_bindings;
    MfBinding *bindings;
    MfGemm gemm;            /* GEMM; for JOIN its groups alone are used */
    MfAttend attend;
    bool row_roots_out;
    int row_roots, values;  /* values per root */
    int row_threads;        /* of one row; 1: a thread each */
    int row_columns;        /* ROW, JOIN of ROW: 0, or how many of the last dimension but one a
                               thread has at a time, the last being a token's slots */
    int row_cluster;        /* CTAs of one row */
    bool join_of_row;       /* JOIN */
    int n_sources;
    int *roots_of_source;
} MfSpec;

typedef struct MfPart {
    int rows_index, rows_count;
    int keys_index, keys_count; /* splits of index modulo count: see iso_keys.turns */
    int64_t lo[MF_MAX_ATOMS], hi[MF_MAX_ATOMS]; /* of fixed atoms */
} MfPart;

typedef struct MfVariant {
    int64_t rows_min, rows_max;
    int *specs; /* per rank; -1: the rank is idle */
} MfVariant;

typedef struct MfRanks {
    int n;
    int *rank;
} MfRanks;

typedef struct MfLayoutOp {
    int op;
    int join; /* spec, of family JOIN or ATTEND; -1: none */
    int n_variants;
    MfVariant *variants;
    MfPart *parts;      /* per rank */
    MfPart *join_parts; /* per rank, or NULL */
    MfRanks *sources;   /* per rank, whose roots it joins, or NULL */
    MfPart **held;      /* per tensor, per rank; NULL where it is held where it is needed, or
                           where the manifest does not say */
} MfLayoutOp;

typedef struct MfLayout {
    const char *name;
    int ranks;
    int n_meshes;
    struct MfMesh {
        const char *name;
        int degree;
    } *meshes;
    int n_ops;
    MfLayoutOp *ops;
} MfLayout;

typedef struct MfSource {
    const char *name, *text;
} MfSource;

/* ---- the model: LANGUAGE.md, clause 13 ----
 * A value is set once: by an input, a table, a cache or a statement. Values of a repeat's body are
 * another in each turn. One with a `carry` is, from the second turn of the repeat that sets the
 * carry on, what that was at the end of the turn before; after the repeat the carry is used. */
typedef struct MfValue {
    MfTensor tensor; /* with the name that the model gives it */
    int index_of;    /* the elements are indices, i32, of this atom; -1: they are values */
    int carry;       /* value, or -1 */
} MfValue;

/* cos and sin of every position that there is, [position, rot]. */
typedef struct MfTable {
    int cos, sin; /* values */
    IsoRope rope;
} MfTable;

/* `as` holds `of` for every token that there has been, by sequence and position; its rows are
 * written where statement `before` would run. */
typedef struct MfCache {
    int of, as; /* values */
    int before; /* statement */
    int repeat; /* a cache for each of its turns; -1: one */
} MfCache;

typedef struct MfWeight {
    const char *name; /* in the checkpoint; "{layer}" or "{4*layer+3}", whatever the word: of the
                         turn's index */
    bool stacked;     /* the name has "{*}": a tensor of the checkpoint for each index of axis 0 */
    MfTensor tensor;  /* its axes row-major are the checkpoint's tensor, or stack of them */
    int64_t fan_in;   /* elements that an op sums for one result; 0: none */
    int n_order;      /* 0: the checkpoint's tensor has the axes so; else which each of its is */
    int order[ISO_MAX_AXES];
} MfWeight;

typedef struct MfRepeat {
    int count;
    int first, end; /* statements [first, end) are its body */
} MfRepeat;

typedef struct MfArgument {
    bool weight;
    int index; /* of weights or values */
} MfArgument;

typedef struct MfStatement {
    int op;
    int repeat; /* -1: none */
    int n_arguments, n_results; /* as many as the op's parameters and results, in their order */
    MfArgument *arguments;
    int *results; /* values */
} MfStatement;

typedef struct MfOutput {
    const char *name;
    int value;
} MfOutput;

typedef struct MfModel {
    const char *name;
    int n_values, n_inputs, n_tables, n_caches, n_weights, n_repeats, n_statements, n_outputs;
    MfValue *values;
    int *inputs; /* values */
    MfTable *tables;
    MfCache *caches;
    MfWeight *weights;
    MfRepeat *repeats;
    MfStatement *statements;
    MfOutput *outputs;
} MfModel;

typedef struct Manifest {
    const char *contract;
    int version;
    const char *arch;
    uint8_t fingerprint[32];
    uint8_t cubin[32];
    int n_sources;
    MfSource *sources;
    int n_atoms;
    MfAtom *atoms;
    int n_ops;
    MfOp *ops;
    int n_kernels;
    MfKernel *kernels;
    int n_specs;
    MfSpec *specs;
    int n_layouts;
    MfLayout *layouts;
    MfModel *model; /* NULL: none */
    void *memory;   /* private */
} Manifest;

/* "bf16", and bytes of one element; "?" and 0 for what is no element type. */
const char *manifest_dtype_name(iso_dtype dtype);
int manifest_dtype_bytes(iso_dtype dtype);

/* ISO_NOT_ISO with the offending member's path, ISO_VERSION_MISMATCH, ISO_OUT_OF_MEMORY. Every
 * index is checked, so that later stages may trust them. */
iso_status manifest_read(const char *json, size_t size, Manifest **manifest);
void manifest_free(Manifest *manifest);

/* The checkpoint's name of a weight in one turn of its repeat. False if `size` is too small. */
bool manifest_weight_name(const MfWeight *weight, int turn, char *name, size_t size);
/* The same of one tensor of a stack. */
bool manifest_stacked_name(const MfWeight *weight, int turn, int64_t index, char *name,
                           size_t size);

#endif
