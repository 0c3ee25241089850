/* What the program is asked, and the two things it shows: that no bit differs, and where one does.
 * Ownership: nothing is kept. */
#ifndef ROLLOUT_REPORT_H
#define ROLLOUT_REPORT_H

#include "rollout.h"

typedef struct Options {
    const char *file, *weights, *device, *samplers, *trainers, *sampler_file;
    int requests, prompt, answer, shared; /* longest prompts and answers */
    int rows, pass;                       /* of a sampler's step, of a trainer's */
    int pages, at_once, kept, faults, graph_rows, timeout;
    bool force, log;
    bool has_digest; /* of the weights, from the first engine on */
    uint8_t digest[32];
} Options;

/* The next of a list "A,B,C", in `item`; NULL at the end. */
const char *next_item(const char *list, char *item, size_t size);
void read_sampler(const char *text, SamplerConfig *config, char *layout, size_t size);
int vocabulary(const iso_module *module);

Side open_sampler(Options *o, const iso_module *module, const SamplerConfig *config);
Side open_trainer(Options *o, const iso_module *module, const char *layout);

/* Every sampler with every trainer; how many numbers differ. (compare.c) */
int64_t compare_all(Options *o, const iso_module *trainer, const iso_module *sampler);
/* Where the values of two contracts first part. (faults.c) */
void show_difference(Options *o, const iso_module *a, const iso_module *b);
/* Faults of one bit, each found by two traces; how many were not. (faults.c) */
int find_faults(Options *o, const iso_module *module);

#endif
