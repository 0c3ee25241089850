/* CUDA text to cubin and PTX by NVRTC, which is opened at run time and never linked.
 * Ownership: results live in the arena given; the library stays open for the process. */
#ifndef ISOC_NVRTC_H
#define ISOC_NVRTC_H

#include "front/diag.h"

typedef struct Nvrtc Nvrtc;

/* Opens the library: $ISOC_NVRTC (file or folder), $CUDA_HOME, /usr/local/cuda, a `nvrtc` folder
 * beside the program, the Python wheel's folder, then the loader's own search. NULL with a
 * diagnostic that names what was tried. */
const Nvrtc *nvrtc_open(Diags *diags);
/* "13.0", and as numbers; where it was found. */
Str nvrtc_version(const Nvrtc *nvrtc, Arena *arena);
void nvrtc_numbers(const Nvrtc *nvrtc, int *major, int *minor);
Str nvrtc_path(const Nvrtc *nvrtc);

/* The fixed flags, one a line: part of every cache key and of the manifest. */
Str nvrtc_options(Arena *arena, Str arch);

/* What ptxas gave one kernel, read from the cubin. */
typedef struct KernelUse {
    Str name;
    int registers;
    int stack;        /* bytes of local memory per thread */
    i64 shared;       /* static bytes */
    i64 constant;     /* bytes of the parameter bank */
} KernelUse;

typedef struct Binary {
    Str cubin;
    Str ptx;
    Str log;
    VEC(KernelUse) kernels; /* in order of name */
} Binary;

/* `program` may include the embedded device files by name. A spill, a serialised wgmma or an
 * ignored setmaxnreg is an error: the kernel would be right but not what was planned. */
bool nvrtc_compile(const Nvrtc *nvrtc, Str program, Str arch, Binary *out, Arena *arena,
                   Diags *diags);

/* Fills `kernels` from the cubin: what nvrtc_compile does, for one that comes from the cache. */
void binary_read_uses(Binary *binary, Arena *arena);

/* For tests: the advisories of a log, as diagnostics; true if there was none. */
bool nvrtc_judge_log(Str log, Diags *diags);

#endif
