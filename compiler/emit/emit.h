/* Kernel text: writes what the plan decided, on top of the device library.
 * Ownership: texts live in the arena given. */
#ifndef ISOC_EMIT_H
#define ISOC_EMIT_H

#include "plan/plan.h"

/* Arithmetic of one row-element or output pair, counted on the DAG: compared with PTX. */
typedef struct Census {
    int add, mul, fma, div, sqrt, mma_steps;
} Census;

typedef struct EmittedKernel {
    Str name;          /* iso_<family>_<16 hex digits of its text> */
    Str text;          /* the function with its constants, without the program's head */
    const Kernel *kernel;
    Str arguments;     /* its structs of device/iso_abi.cuh: "IsoGemmArgs, IsoGemmMaps" */
    Str device_files;  /* names of the device headers it includes, one a line */
    int threads;
    i64 shared_bytes;
    Census census;
} EmittedKernel;

typedef struct Emitted {
    int n_kernels;            /* distinct programs */
    EmittedKernel *kernels;
    int *program_of_kernel;   /* Plan.kernels index -> kernels index */
    int order;                /* kernels index of what sorts the rows of grouped products; -1 */
    Str program;              /* the whole CUDA text */
} Emitted;

/* What the epilogue of a product's or join's column group touches, as indices of bindings, in the
 * order of IsoGemmGroup.operand and .result. */
typedef struct GroupBindings {
    int n_operands, operand[MAX_OPERANDS];
    int n_results, result[MAX_RESULTS];
} GroupBindings;

/* False if it touches more than a group has room for (plans never do), or if memory is short. */
bool emit_group_bindings(const Kernel *kernel, const GemmGroup *group, GroupBindings *out);

/* The same of a product whose columns are reduced. */
void emit_fold_bindings(const Kernel *kernel, GroupBindings *out);

/* `provenance`: lines that head the program as a comment (isoc version, contract, digest). */
bool emit_program(const Plan *plan, Str provenance, Emitted *out, Arena *arena, Diags *diags);

#endif
