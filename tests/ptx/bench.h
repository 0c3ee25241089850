/* A contract compiled, and one of its kernels on the PTX machine with other PTX than its own.
 * Ownership: the bench owns everything; it lives as long as the program. */
#ifndef ISOC_TEST_PTX_BENCH_H
#define ISOC_TEST_PTX_BENCH_H

#include "prove/verify_ptx_impl.h"

#include "pipeline.h"
#include "ptx/inst.h"

typedef struct Bench {
    Pipeline pipeline;
    PtxModule module, functions;
    PtxKernel *kernel; /* in the module, replaced by each trial */
    Str before, body;  /* the module's head, the kernel's own text */
    int first_line;    /* of the kernel's text in the module's */
    VerifyPtxInput input;
    PtxWorker worker;
    PtxJobs jobs;      /* of the kernel: rows as they are, and uneven in several ways */
    u8 *covered;       /* instructions that some of the jobs run */
    u8 **of_job;       /* those of each of the jobs, which stand in order of what they cost */
    int only;          /* an instruction: jobs that do not run it are left out; -1: none are */
    Arena *arena;
} Bench;

typedef enum Verdict { INVALID, FOUND, UNLIKE, SURVIVES } Verdict;

void bench_fail(const char *what) __attribute__((noreturn));
/* Exits where the contract does not compile. small: launches as small as they can be. */
Bench *bench_open(const char *contract, bool small);
/* The first kernel whose name holds this; its own PTX must be right. every: also one tensor or
 * rank's roots uneven at a time. */
void bench_choose(Bench *bench, const char *kernel, bool every);
/* A module's text with the kernel alone, in which `text` stands for the line. */
Str bench_text(const Bench *bench, Str line, Str text, Arena *arena);
/* What differs from the bench's kernel is bench->only. */
Verdict bench_judge(Bench *bench, Str ptx, PtxOutcome *outcome, Arena *arena);
/* The kernel as the bench has it. */
Verdict bench_run(Bench *bench, PtxOutcome *outcome, Arena *arena);
void bench_close(Bench *bench);

#endif
