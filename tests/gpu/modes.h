/* The suite's modes beside the suite itself; each prints what it finds and returns an exit code.
 * Nothing here is owned. */
#ifndef TEST_MODES_H
#define TEST_MODES_H

#include "case.h"

/* The products of one chain against cuBLAS, opened from `folder`: bits equal or not, for each shape
 * and row count. Reports; fails only where cuBLAS itself does. */
int cublas_compare(const iso_module *module, const char *folder);

/* Every wrong call and damaged file gives its status and sentence, and the device stays usable. */
int refuse_all(const iso_module *module, const char *path);

/* Attention against the CPU executor: every schedule, place of keys and kind of batch.
 * only: an op's name, or NULL. */
int attend_check(const iso_module *module, iso_module *cpu, const char *only);

/* Draws and ops that read at indices, against the CPU executor; then how long they take. */
int draw_check(const iso_module *module, iso_module *cpu, const char *only, bool times);

/* Different experts for each token, seed 7; the i-th of a shuffle has the weight 1, or Zipf's. */
void group_route(int32_t *chosen, int64_t tokens, int picks, int experts, bool zipf);

/* How long a grouped product takes: at 8192 tokens and 64, uniform and Zipf's routing; for one rank
 * of every layout. */
void group_times(Case *c);

/* Grouped products of which one takes what the other gives, run as a model runs them, in the order
 * of their experts, against each by itself; then how long they take. */
void chain_check(const iso_module *module, Totals *totals, bool times);

/* Routing, products at slots' experts and sums of slots in every layout, against the CPU executor;
 * then how long they take. */
int route_check(const iso_module *module, iso_module *cpu, const char *only, bool times);

/* KERNEL DEFECT [RUNS] */
int seeded_run(int argc, char **argv);

#endif
