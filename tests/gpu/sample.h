/* Sampled rows and columns of a device result against the CPU executor.
 * Ownership: everything is the caller's; host copies are freed inside. */
#ifndef TEST_SAMPLE_H
#define TEST_SAMPLE_H

#include "gpu.h"

#include "module.h"

typedef struct Sample {
    const iso_module *module; /* the device's */
    const MfOp *op;
    const char *layout;       /* of one rank */
    int kind;
    int64_t rows;
    int threads;
    int most_rows;             /* that are sampled */
    const DevicePtr *expected; /* per tensor: the results on the device */
    const iso_tensor *whole;   /* per tensor: shapes */
} Sample;

typedef struct SampleReport {
    uint64_t compared, differ;
    char what[160]; /* which rows and columns */
} SampleReport;

enum { SAMPLE_TABLE = 1000 }; /* rows of a table that tokens index by position or sequence */
/* The coordinate of a row of the base, less than that. */
int32_t sample_coordinate(bool sequence, int64_t row);

/* The seed of a parameter's values. */
unsigned sample_seed(int tensor);

/* False if the executor refused. */
bool sample_check(isoc_session *session, const Sample *sample, SampleReport *report);

#endif
