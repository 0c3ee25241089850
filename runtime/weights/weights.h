/* A checkpoint's weights by name, whatever they are stored in: safetensors, one file or shards with
 * their index; GGUF, dequantised; or numbers made from a seed.
 * Ownership: a Weights maps its files until weights_close; what is read is copied.
 * Threads: an open Weights may be read by several at once. */
#ifndef ISO_WEIGHTS_H
#define ISO_WEIGHTS_H

#include "error.h"

#include <stdbool.h>

typedef struct Weights Weights;

/* A weight as a model takes it: its elements in row-major order are the checkpoint's. A stored
 * value of another type is rounded to nearest, ties to even, once; a quantised one is computed in
 * f32 first. */
typedef struct WeightTensor {
    const char *name;
    iso_dtype dtype;
    int n_axes;
    int64_t size[ISO_MAX_AXES];   /* elements */
    int64_t stored[ISO_MAX_AXES]; /* elements in memory, at least as many: those beyond are +0 where
                                     the checkpoint does not have them */
    bool exact;                   /* the checkpoint's axes must be these, not others of as many
                                     elements */
    int64_t fan_in;               /* of seeded weights: terms of a sum; 0: none sums it */
} WeightTensor;

/* A folder with model.safetensors, or with model.safetensors.index.json and its shards; a file
 * *.safetensors or *.gguf; or "seed:N", N a decimal integer: numbers of about unit variance over
 * fan_in, of about 1 in weights of norms, and a thousand times that in three rows of one down_proj,
 * so that a few channels of the residual stream are massive. GGUF's names are taken as Hugging
 * Face's, a stack of experts as theirs one by one, and its rows of q and k put back in Hugging
 * Face's order. Of NAME_blocks and NAME_scales (MXFP4) a tensor NAME is there, as transformers
 * dequantises it.
 * ISO_FILE, ISO_OUT_OF_MEMORY, or ISO_BAD_WEIGHT where a file is not what its format says. */
iso_status weights_open(Weights **weights, const char *path);
void weights_close(Weights *weights);

/* Whether the checkpoint has this tensor: ISO_BAD_WEIGHT with what is there instead. */
iso_status weights_check(const Weights *weights, const WeightTensor *tensor);
/* The elements from `origin`, `extent` of them along each axis, in row-major order without gaps. */
iso_status weights_read(const Weights *weights, const WeightTensor *tensor, const int64_t *origin,
                        const int64_t *extent, void *to);

enum { WEIGHTS_CHUNK = 1 << 20 }; /* bytes */

/* One digest for one content, however it is stored or cut: SHA-256 over the tensors' digests in
 * the order of their names; a tensor's is SHA-256 over "NAME DTYPE SIZE SIZE ...\n" and the SHA-256
 * of each chunk of its elements, row-major and little-endian. Tensors have distinct names. */
iso_status weights_digest(const Weights *weights, const WeightTensor *tensors, int n,
                          uint8_t digest[32]);

/* Runs job(user, i) for every i below n, on as many threads as there are processors, to 16. */
typedef void WeightsJob(void *user, int64_t i);
void weights_share_out(int64_t n, WeightsJob *job, void *user);

#endif
