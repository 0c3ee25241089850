/* What the rank tests share: whole tensors, a rank's view of them, and ranks as processes.
 * Ownership: a Whole owns its tensors' memory. A test that cannot run ends the program. */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include "group/group.h"

enum { TEST_TENSORS = 16 };

/* An op's tensors as one rank has them, with the results that one rank computes. */
typedef struct Whole {
    const iso_op *op; /* of one rank */
    int n, params;
    int64_t rows;
    iso_tensor tensor[TEST_TENSORS];
    void *expected[TEST_TENSORS]; /* of results */
} Whole;

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void must(iso_status status, const char *what);
size_t tensor_bytes(const iso_tensor *tensor);

/* Parameters with small random bf16 values, or left to the caller; expected by iso_op_run. */
void whole_open(Whole *whole, const iso_module *module, const char *op, int64_t rows);
void whole_run(Whole *whole);
void whole_close(Whole *whole);
/* Indices, counts and seeds of an i32 parameter; a few are none. */
void fill_integers(const iso_op *op, int tensor, const iso_tensor *to);

/* Elements of the rank's results that are not the expected ones, bit for bit. */
int64_t rank_differs(const Whole *whole, const iso_op *op, const iso_tensor *tensors);

/* Poisons the slots of a rank's part of a result that others own; its first row is `row`. False if
 * the result has none; with held->data NULL that is all it says. */
bool mask_slots(const Whole *whole, const iso_op *op, int tensor, int64_t row,
                const iso_tensor *held);

iso_group *join_group(const iso_module *module, const char *where, int rank, int ranks,
                      double timeout, size_t bytes, size_t two_shot);
iso_group *join_island(const iso_module *module, const char *where, int rank, int ranks,
                       double timeout, size_t bytes, size_t two_shot, int island);
/* One op over the group, on the CPU. */
iso_status run_op(iso_group *group, const Whole *whole, const iso_op *op, int64_t *differ);
const iso_op *op_of(const iso_module *module, const char *name, const char *layout, int rank);

/* Row (a, b) of the probe has units everywhere but +M in leaf a and -M in leaf b: what joins one of
 * them before they meet is lost, so the row's sum counts the leaves outside the least subtree with
 * both. A leaf is one tensor-core group of 16. */
typedef struct Probe {
    const char *op; /* of order.iso */
    int leaves;
    bool pairwise;
} Probe;

enum { N_PROBES = 3 };
extern const Probe probes[N_PROBES];
int64_t probe_rows(const Probe *probe);
void fill_probe(const Probe *probe, Whole *whole);
/* From the tree's definition alone. */
void expect_probe(const Probe *probe, Whole *whole);

/* Runs `work` in a process per rank; returns when all have ended. `pids` may be NULL. The result is
 * the number of ranks whose work did not return 0. */
typedef int (*RankWork)(int rank, int ranks, void *user);
void start_ranks(int ranks, RankWork work, void *user, int *pids);
int end_ranks(int ranks, const int *pids, int killed);

#endif
