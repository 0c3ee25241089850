/* A module on the CPU whose contract has a row op, two maps and a product, an
 * op's tensors with room to spare, and the check that a call is refused.
 * Ownership: open_box's caller closes it; everything lies in the box. */
#ifndef TEST_BOX_H
#define TEST_BOX_H

#include "artefact.h"

#include "module.h"

#include "device/iso_num.cuh"

static const char every_family[] =
    "contract every_family version 3;\n"
    "numerics sm_90;\n"
    "axis tokens = sequence * position ragged;\n"
    "axis hidden = 64, ffn = 256;\n"
    "axis heads = kv_heads 4 * group 2, head_dim = half 2 * rot 8;\n"
    "tree eighth = split 8 { mma } pairwise f32;\n"
    "op norm(x: bf16[tokens, hidden], w: bf16[hidden]) -> y: bf16[tokens, hidden] {\n"
    "    ss = sum(hidden by lanes 32 by 2 { chain } pairwise f32) f32(x) * f32(x);\n"
    "    y = bf16(f32(x) * (1.0 / sqrt(ss / len(hidden) + 1e-6))) * w;\n"
    "}\n"
    "op rope(q: bf16[tokens, heads, head_dim], cos, sin: bf16[position, rot])\n"
    "   -> y: bf16[tokens, heads, head_dim] {\n"
    "    y[half 0] = q[half 0] * cos - q[half 1] * sin;\n"
    "    y[half 1] = q[half 1] * cos + q[half 0] * sin;\n"
    "}\n"
    "op shift(x: bf16[tokens, hidden], b: bf16[sequence, hidden]) -> y: bf16[tokens, hidden] {\n"
    "    y = x + b;\n"
    "}\n"
    "op down(h: bf16[tokens, ffn], w: bf16[hidden, ffn], res: bf16[tokens, hidden])\n"
    "   -> y: bf16[tokens, hidden] { y = bf16(sum(ffn by eighth) h * w) + res; }\n"
    "layout one { }\n"
    "layout four { tp 4 cuts kv_heads, ffn else tokens; }\n"
    "schedule down when tokens <= 16 { kernel stream; leaves across ctas; }\n";

enum { ROWS = 6, MOST_TENSORS = 4, MOST_ELEMENTS = 64 * 256 };

typedef struct Box {
    Artefact artefact;
    iso_module *module;
    unsigned short data[MOST_TENSORS][MOST_ELEMENTS];
    iso_tensor tensors[MOST_TENSORS];
    int n;
    iso_run run;
} Box;

static inline Box *open_text(const char *text)
{
    Box *box = calloc(1, sizeof *box);
    iso_config config = {.size = sizeof config, .device = ISO_CPU, .cpu_threads = 1};
    ck_assert_ptr_nonnull(box);
    artefact_open(&box->artefact, text);
    Str bytes = box->artefact.bytes;
    iso_status status =
        iso_module_load_data(&box->module, bytes.s, (size_t)bytes.n, &config);
    ck_assert_msg(status == ISO_OK, "%s", iso_last_error());
    return box;
}

static inline Box *open_box(void)
{
    return open_text(every_family);
}

static inline void close_box(Box *box)
{
    iso_module_unload(box->module);
    artefact_close(&box->artefact);
    free(box);
}

static inline const iso_op *op_of(const Box *box, const char *name, const char *layout, int rank)
{
    iso_layout at = {.name = layout, .rank = rank};
    const iso_op *op;
    iso_status status = iso_op_get(box->module, name, &at, &op);
    ck_assert_msg(status == ISO_OK, "%s", iso_last_error());
    return op;
}

static inline unsigned short small(unsigned seed)
{
    return iso_bf16_of_f32((float)(int)(seed * 2654435761u >> 27) - 16.0f);
}

/* Contiguous tensors of the rank's own shapes; table axes get `length`. */
static inline void bind(Box *box, const iso_op *op, iso_phase phase, int64_t rows, int64_t length)
{
    int params, results;
    ck_assert(iso_op_tensors(op, &params, &results) == ISO_OK);
    box->n = params + results;
    box->run = (iso_run){.rows = rows};
    for (int i = 0; i < box->n; i++) {
        iso_tensor *t = &box->tensors[i];
        ck_assert(iso_op_tensor(op, phase, rows, i, t, NULL) == ISO_OK);
        for (int a = 0; a < t->n_axes; a++)
            t->shape[a] = t->shape[a] ? t->shape[a] : length;
        t->data = box->data[i];
        for (unsigned k = 0; k < MOST_ELEMENTS; k++)
            box->data[i][k] = i < params ? small(k * 7 + (unsigned)i) : 0xCDCD;
    }
}

static inline iso_status call(const Box *box, const iso_op *op)
{
    return iso_op_run(op, box->tensors, box->n, &box->run);
}

#define REFUSED(status, want, part)                                                                \
    do {                                                                                           \
        iso_status got_ = (status);                                                                \
        ck_assert_msg(got_ == (want), "got \"%s\": %s", iso_status_string(got_),                   \
                      iso_last_error());                                                           \
        ck_assert_msg(strstr(iso_last_error(), part) != NULL, "\"%s\" lacks \"%s\"",               \
                      iso_last_error(), part);                                                     \
    } while (0)

#endif
