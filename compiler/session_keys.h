/* Where the keys and values of `attend` lie, as the executor is told it: row by row.
 * Ownership: tables live in the arena given. */
#ifndef ISOC_SESSION_KEYS_H
#define ISOC_SESSION_KEYS_H

#include "exec/exec.h"
#include "isoc.h"

/* Sets `place` of the parameters that are keys or values, for rows [lo, hi), whose positions and
 * sequences the job has already, and lengths. False where something is missing. */
bool session_keys(const isoc_keys *keys, const ExecJob *job, i64 lo, i64 hi, ExecTensor *params,
                  Arena *arena);

#endif
