/* What the families' launchers share. Nothing here is owned. */
#ifndef ISO_LAUNCH_H
#define ISO_LAUNCH_H

#include "module.h"

#include "../../compiler/device/iso_abi.cuh"

typedef struct Grid {
    unsigned x, y, z, threads;
    size_t shared_bytes;
} Grid;

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Launches the spec's kernel with `args` (pointers to its parameters). */
iso_status launch_kernel(const Launch *launch, const Grid *grid, void **args);
/* The same of another kernel of the manifest. */
iso_status launch_program(const Launch *launch, int program, const Grid *grid, void **args);

iso_status launch_gemm(const Launch *launch);
iso_status launch_group(const Launch *launch);
/* Of a join: which rows are its rank's. */
iso_status group_join(const Launch *launch, IsoJoinArgs *args);
iso_status launch_join(const Launch *launch);
iso_status launch_row(const Launch *launch);
iso_status launch_map(const Launch *launch);
iso_status launch_draw(const Launch *launch);
iso_status launch_top(const Launch *launch);
iso_status launch_attend(const Launch *launch);

/* A workspace begins with a region of counters, of one size whatever the launch, so that no
 * launch's partial values ever lie where another's counters are; each launch leaves its counters
 * zero. A launch that needs more clears all of its own beforehand. */
size_t counter_region(size_t need);
iso_status counters_ready(const Launch *launch, size_t need);

/* Bytes of scratch of one spec at a global row count. */
size_t gemm_workspace(const iso_op *op, const MfSpec *spec, int64_t rows);
size_t group_workspace(const iso_op *op, const MfSpec *spec, int64_t rows);
size_t attend_workspace(const iso_op *op, const MfSpec *spec, int64_t rows);
/* Of these, the first that must be zeros. */
size_t attend_counters(const iso_op *op, const MfSpec *spec, int64_t rows);

/* Bytes of a rank's roots, where ranks share the keys. */
size_t attend_roots(const iso_op *op, const MfSpec *spec, int64_t rows, int64_t keys);

/* The tensor's axis of sequences, or of positions; -1: none. */
int attend_stored_axis(const Launch *launch, int tensor, MfCoordinate kind);
/* Attention by wgmma: whether tensor maps can say where the operands lie, and these. */
bool attend_maps_fit(const Launch *launch, const IsoAttendArgs *args);
iso_status attend_maps(const Launch *launch, IsoAttendArgs *args, int64_t depth, int64_t width,
                       IsoAttendMaps *maps);

/* An operand of a product: its address and the stride between its rows, or between its k. */
typedef struct Operand {
    void *data;
    int64_t stride;
    int64_t rows;
    bool k_inner;
    bool f16;
} Operand;

iso_status gemm_operand(const Launch *launch, int binding, bool k_inner, const MfAtoms *rows,
                        Operand *operand);
/* experts > 0: one dimension more, of so many, `expert_stride` elements apart. */
iso_status gemm_map(const Launch *launch, const Operand *operand, int box_rows, int64_t experts,
                    int64_t expert_stride, IsoTensorMap *out);
void gemm_roots(const Launch *launch, IsoGemmArgs *args);
void gemm_leaves(const MfGemm *gemm, IsoGemmArgs *args);
/* Of one rank's part. */
int64_t gemm_rows(const iso_op *op, iso_phase phase, const MfGemm *gemm, int64_t rows);
int64_t gemm_column_tiles(const iso_op *op, iso_phase phase, const MfGemm *gemm, int64_t rows);

/* The groups' sizes and epilogue views, the same for a product and for the join of its roots. */
iso_status groups_bind(const Launch *launch, bool views, IsoGemmGroup *groups);
/* Columns of all groups, and products of the widest. */
int64_t groups_columns(const iso_op *op, iso_phase phase, const MfGemm *gemm, int64_t rows);
int groups_parts(const MfGemm *gemm);

#endif
