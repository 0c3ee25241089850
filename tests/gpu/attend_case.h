/* What --attend compares on: batches of rows of some requests, where their keys lie, and values,
 * some of which are NaN or Inf.
 * Ownership: a Place's table is the caller's to free, as is the memory of tensors. */
#ifndef TEST_ATTEND_CASE_H
#define TEST_ATTEND_CASE_H

#include "case.h"

enum { REQUESTS = 12, MOST_ROWS = 192, LONGEST = 4097, AROUND = 128 };

typedef enum Mode { BY_STRIDES, PACKED, IN_PAGES } Mode;

/* Where keys lie. */
typedef struct Place {
    Mode mode;
    int page, pages, stride, total;
    int32_t starts[REQUESTS], *table;
    const char *name;
} Place;

typedef struct Rows {
    const char *name;
    int n;
    int32_t position[MOST_ROWS], sequence[MOST_ROWS], lengths[REQUESTS];
} Rows;

typedef struct Rig {
    const iso_module *module;
    iso_module *cpu;
    const iso_op *op, *on_cpu;
    int n, params, schedules;
    iso_tensor host[MAX_TENSORS], device[MAX_TENSORS]; /* results of the host: the executor's */
    DevicePtr positions, sequences, lengths, starts, table, workspace;
    size_t workspace_bytes;
    uint64_t runs, compared, differ;
} Rig;

/* Keys of each request. */
extern const int attend_lengths[REQUESTS];

/* The last row of each request; its last five; a chunk across a border of splits, among others in
 * no order; the last of a long request, which have more splits than the roots have room for. */
void attend_decode_rows(Rows *rows);
void attend_verify_rows(Rows *rows);
void attend_chunk_rows(Rows *rows);
void attend_late_rows(Rows *rows);

/* `page`: of IN_PAGES. */
void attend_make_place(Place *place, Mode mode, int page, const char *name);

const MfSpec *attend_first_spec(const Rig *b);
/* Which axis of a tensor has the coordinate; -1: none. */
int attend_axis(const Rig *b, int tensor, MfCoordinate kind);
/* Keys or values, as the place has them. */
void attend_shape_stored(const Rig *b, const Place *place, int index, iso_tensor *t);
int64_t attend_elements(const iso_tensor *t);
size_t attend_bytes(const iso_tensor *t);

/* Element `i` of a key, counted over the axes that are not stored, from the tensor's first. */
int64_t attend_inner_offset(const iso_tensor *t, int sequence, int position, int64_t i);
/* What is nobody's is NaN and Inf. */
void attend_fill_stored(const Rig *b, const Place *place, int index, iso_tensor *t);
void attend_fill_plain(iso_tensor *t, int index);

#endif
