/* The certificate of `isoc prove`: what was proved of which bytes, and whether a cubin is those.
 * Ownership: nothing is kept. */
#ifndef ISOC_CERTIFICATE_H
#define ISOC_CERTIFICATE_H

#include "pipeline.h"
#include "verify_ptx.h"

/* What stands behind a proof and is not proved by it; NULL ends it. */
extern const char *const certificate_trusted[];

/* Writes the certificate of the artefact's cubin; `launches`: an object each, as JSON. NULL, or why
 * it is not written. */
const char *certificate_write(const char *path, Pipeline *pipeline, Str artifact,
                              const VerifyPtxResult *result, const Text *launches);

/* What a cubin is by its own account. */
typedef struct CertificateOf {
    Str artifact;       /* the file, checked */
    Str cuda, ptx;      /* digests in its manifest */
    Str contract;       /* the fingerprint, computed from its sources */
} CertificateOf;

/* Prints a line for each of contract, CUDA text, PTX and cubin. True if all four are those that the
 * certificate is of, and it leaves nothing unproved. */
bool certificate_check(const char *path, const CertificateOf *of, Arena *arena);

#endif
