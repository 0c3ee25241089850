/* Fields of a config, and faults told at them; private to what reads a config.
 * Ownership: the JSON is its opener's; texts live in the config's arena. */
#ifndef ISOC_IMPORT_CONFIG_H
#define ISOC_IMPORT_CONFIG_H

#include "import_impl.h"

#include <jansson.h>

enum { SIZE_MOST = 1 << 24, LAYERS_MOST = 1000 };
#define NUMBER_MOST 1e30 /* of what f32 holds with room for products */

typedef struct Config {
    json_t *root;
    int file;
    Arena *arena;
    Diags *diags;
    ImportModel *model;
    bool failed;
} Config;

/* An error at a field, which says why it is one; the caller notes a way out. */
Diag *config_refuse(Config *c, const char *field, const char *why);
void config_fault(Config *c, const char *field, const char *why, const char *way);

/* NULL where it is null or not there. */
json_t *config_get(const Config *c, const char *field);
/* A positive integer; `otherwise`, if that is above 0, where it is not there. */
i64 config_size(Config *c, const char *field, i64 most, i64 otherwise);
bool config_bool(Config *c, const char *field, bool otherwise);
/* A number above 0 and below NUMBER_MOST. */
double config_positive(Config *c, const char *field);

/* Refuses each field that the family has not, or has with another value. (import_fields.c) */
void config_check_fields(Config *c);
/* The mixture of experts, if the family has one. (import_experts.c) */
void config_read_experts(Config *c);
/* Tables of rotary embedding. (import_rope.c) */
void config_read_rope(Config *c);

#endif
