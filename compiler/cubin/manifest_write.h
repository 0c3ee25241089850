/* The manifest: all that a launcher needs to know about a cubin, as JSON inside it.
 * Ownership: the text lives in the arena given.
 *
 * Format 2 (keys sorted, no insignificant white space except one newline at the end; a reader
 * refuses another format number; bytes may not change without a new number):
 *
 * { "format": 2, "isoc": "0.1.0", "arch": "sm_90a",
 *   "nvrtc": [13, 0], "options": ["--fmad=false", ...],
 *   "cubin_sha256": hex of the cubin's bytes before the section was appended,
 *   "cuda_sha256", "ptx_sha256": of the kernel text and of its PTX,
 *   "contract": { "name", "version", "fingerprint": hex, "numerics": "sm_90" },
 *   "sources": [ { "name", "text" } ],                 the contract's files, the main one first
 *   "atoms": [ { "name", "size", "stored",             size 0: free, known at launch
 *                "coordinate": "none|position|sequence",   of each token, by which tables of
 *                                                      any length are indexed
 *                "slots_of": atom } ],                 only of a sparse axis: a part of a tensor
 *                                                      has those of its slots that stand in the
 *                                                      part's range of that atom
 *   "ops": [ { "name", "fingerprint",
 *              "params": [T], "results": [T] } ],      T = { "name", "dtype": "bf16|f16|f32|i32",
 *                                                            "axes": [ { "name", "atoms": [i] } ] }
 *   "kernels": [ K ],      distinct programs: K = { "name",
 *                          "family": "gemm|row|map|join|attend|draw|top|order",
 *                          "threads", "shared_bytes" (dynamic), "registers",
 *                          "waits": true: by itself, for what was launched before; not in
 *                          older ones, of which products wait,
 *                          "calls": that one launch has room for (absent: 1),
 *                          "arguments": struct of device/iso_abi.cuh, "device_files": [..],
 *                          "census": { "add", "mul", "fma", "div", "sqrt", "mma_steps" } }
 *   "specs": [ S ],        Plan.kernels: what a launch binds to a program:
 *       S = { "kernel": i, "op": i, "family",
 *             "dims": [ [atom, ..] ],                  outer to inner
 *             "bindings": [ { "tensor": i,             parameters, then results
 *                             "fixes": [ [atom, index] ],
 *                             "has": [bool per dim],
 *                             "coordinate": bool,      indexed by a coordinate of each token
 *                                                      along the dimension of the tokens
 *                             "lookup": [atom, binding] } ],   only where there is one: read, for
 *                                                      each token, at the index of the atom that
 *                                                      an earlier binding says, +0
 *                                                      outside; or the binding itself: it tells
 *                                                      which index of the last dim is kept
 *             "gemm": { "kernel": "wgmma|stream", "tile": [m, n, k], "stages",
 *                       "leaves_across_ctas": bool, "a": binding, "a_k_inner": bool,
 *                       "rows": [atom], "k": [atom], "roots_out": bool, "roots": n,
 *                       "leaves": [[lo, hi]],          elements of k, relative to the rank's part
 *                       "far": values that wait in workspace,
 *                       "cluster": CTAs of one,
 *                       "shares_b": bool,              its CTAs load columns together, not rows
 *                       "fold": [roots, values], only where columns are reduced: roots of a
 *                             row, each the values of one tile of columns,
 *                       "chosen": [atom, binding], "order": kernel,   grouped products only: which
 *                                                      of the atom's indices rows (token, slot)
 *                                                      have, and what sorts rows by them;
 *                                                      a's dims are (tokens, slots, k)
 *                       "groups": [ { "cols": [atom],
 *                                     "products": [ { "b": binding, "b_k_inner": bool } ],
 *                                     "operands": [binding], "results": [binding] } ] },
 *                                                      what its epilogue touches, in the order of
 *                                                      IsoGemmGroup (emit_group_bindings)
 *             "row":  { "reduces": n, "roots_out": bool, "roots": n, "values": per root,
 *                       "row_threads": of one row,
 *                       "columns": 0, or how many a thread has at a time (absent: 0),
 *                       "cluster": CTAs of one row, where they are more than one },
 *             "join": { "of": "gemm|row",
 *                       "reduces": n, "roots_of_rank": [n], "values": per root,
 *                       "rows": [atom], "groups": [as in gemm],
 *                       "chosen": [as in gemm] },
 *             "attend": { "queries", "keys", "values", "sinks", "value", "lse": binding or -1,
 *                       "kernel": "mma|decode|wgmma|parts|join",   the last two where ranks have
 *                                                      some splits of the keys each
 *                       "sources": n,                  of a join: ranks that have splits
 *                       "window": keys,                of parts, where there is one
 *                       "rows": of one CTA, "resident": CTAs of a multiprocessor, "split": keys,
 *                       "causal": bool } }             false: lengths must be given
 *   "layouts": [ { "name", "ranks", "meshes": [ { "name", "degree" } ],
 *       "ops": [ { "op": i, "join": spec or -1,
 *                  "moves": { "params": ["all-gather", ..], "results": [..] },
 *                  "held": [ null or [ P per rank ] ], per tensor, parameters first: where the
 *                                                      ranks hold what moves; null: nothing does
 *                  "variants": [ { "rows": [min, max], "schedule": "table|contract",
 *                                  "specs": [per rank] } ],
 *                  "parts": [ P per rank ],            what the rank computes (RUN, PART)
 *                  "join_parts": [ P per rank ],       what it finishes (JOIN); absent without
 *                  "sources": [ [rank, ..] per rank ]  whose roots it joins, in the order of their
 *              } ] } ]                                 elements; absent without a join
 *       P = { "rows": [i, n],                          rows [floor(T i / n), floor(T (i + 1) / n))
 *             "keys": [i, n],                          only where n > 1: splits of i modulo n
 *             "atoms": { "<atom>": [lo, hi] } }        only where not the whole atom
 *   "model": null, or M (absent: null),                clause 13
 *   "certificate": the object of proof_json }
 *
 *       M = { "name",
 *             "values": [ T with "index_of": atom,       whose indices the elements are, i32; or -1
 *                                "carry": value ],       what it is in a repeat's next turn; or -1
 *             "inputs": [value],
 *             "tables": [ { "kind": "rope", "values": [cos, sin],
 *                           "settings": { "dim": n, "scaling": "default|linear|llama3|yarn",
 *                                         "truncate": bool, "theta", "factor", "low", "high",
 *                                         "original", "beta_fast", "beta_slow",
 *                                         "attention_factor": 16 hex digits of an f64 } } ],
 *             "caches": [ { "of": value, "as": value, "before": statement that it stands before,
 *                           "repeat": i or -1 } ],
 *             "weights": [ { "name", "tensor": T,        in the checkpoint, "{4*layer+3}" a turn,
 *                                                      "{*}" the index along the first axis, a
 *                                                      tensor without that for each;
 *                            "fan_in": elements that an op sums for one result, or 0,
 *                            "order": [axis] } ],       which of T's axes each of the checkpoint's
 *                                                      is, where they are in another order
 *             "repeats": [ { "count", "first", "end" } ],        statements [first, end)
 *             "statements": [ { "op": i, "repeat": i or -1, "results": [value],
 *                               "arguments": [ { "value": i } or { "weight": i } ] } ],
 *             "outputs": [ { "name", "value" } ] }
 *       Every value is set by an input, a table, a cache or one statement, before its use.
 *
 * "operands" and "results" are what the group's epilogue reads and writes, in the order of the
 * views in IsoGemmGroup. In a gemm, a binding's "has" counts (rows, cols) of its group, and for
 * operands a and b (rows, k) and (cols, k). A contract without layouts has one, named "",
 * of one rank. */
#ifndef ISOC_MANIFEST_WRITE_H
#define ISOC_MANIFEST_WRITE_H

#include "emit/emit.h"
#include "proof/proof.h"

enum { MANIFEST_FORMAT = 2 };

/* What the toolchain said; fields that are unknown (no cubin was made) are NULL or 0. */
typedef struct ManifestBuild {
    Str arch;
    int nvrtc_major, nvrtc_minor;
    int n_options;
    const Str *options;
    const Digest *cubin, *cuda, *ptx;
    const int *registers; /* per Emitted.kernels */
} ManifestBuild;

/* False when memory is short. */
bool manifest_write(const Sources *sources, const Plan *plan, const Emitted *emitted,
                    const Certificate *certificate, const ManifestBuild *build, Text *out);

#endif
