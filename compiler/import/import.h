/* A contract from a Hugging Face config.json: the families of contracts/include, put together as
 * the config says.
 * Ownership: texts live in the arena given. */
#ifndef ISOC_IMPORT_H
#define ISOC_IMPORT_H

#include "front/diag.h"

typedef enum ImportPart {
    IMPORT_WHOLE, /* from token ids to log-probabilities, with its `model` */
    IMPORT_MOE,   /* the ops of a layer's mixture of experts */
} ImportPart;

/* Writes a contract that includes nothing. False after a fault, which is told at the config's own
 * field: `file` is the config's number in the sources of the diags. */
bool import_config(int file, ImportPart part, Text *out, Arena *arena, Diags *diags);

#endif
