/* Rotary embedding: a config's settings as those of the contract's tables. */
#include "import_config.h"

#include <string.h>

/* ---- rotary embedding ------------------------------------------------------------------------ */

typedef struct RopeField {
    const char *theirs, *ours;
    int scalings; /* bits of the names below */
} RopeField;

enum { LINEAR = 2, LLAMA3 = 4, YARN = 8 };

static const RopeField rope_fields[] = {
    {"factor", "factor", LINEAR | LLAMA3 | YARN},
    {"low_freq_factor", "low", LLAMA3},
    {"high_freq_factor", "high", LLAMA3},
    {"original_max_position_embeddings", "original", LLAMA3 | YARN},
    {"beta_fast", "beta_fast", YARN},
    {"beta_slow", "beta_slow", YARN},
    {"attention_factor", "attention_factor", YARN},
};

static int scaling_of(Config *c, json_t *settings)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn"};
    json_t *type = json_object_get(settings, "rope_type");
    const char *name = json_string_value(type ? type : json_object_get(settings, "type"));
    for (int i = 0; i < 4; i++)
        if (!name || !strcmp(name, names[i]))
            return i;
    config_fault(c, type ? "rope_type" : "type", "is a scaling that has no written tables",
                 "default, linear, llama3 and yarn have; others are passed as inputs of the ops");
    return 0;
}

static void rope_field(Config *c, const char *name, json_t *value, int scaling, Text *out)
{
    static const char *const passed[] = {"rope_type", "type", "rope_theta", "truncate"};
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++)
        if (!strcmp(name, passed[i]))
            return;
    bool partial = c->model->family == IMPORT_GLM4_MOE; /* read by read_turning */
    if (!strcmp(name, "partial_rotary_factor") && (partial || json_number_value(value) == 1.0))
        return;
    for (size_t i = 0; i < sizeof rope_fields / sizeof rope_fields[0]; i++)
        if (!strcmp(name, rope_fields[i].theirs) && (rope_fields[i].scalings >> scaling & 1)) {
            double n = json_number_value(value); /* 0 of what is none */
            if (!(n > 0 && n < NUMBER_MOST))
                config_fault(c, name, "is no positive number", "frequencies come from it");
            text_printf(out, " %s %.*s;", rope_fields[i].ours,
                        STR_FMT(import_number(c->arena, n)));
            return;
        }
    config_fault(c, name, "is no setting of this rotary embedding",
                 "each scaling has its own; remove what it does not use");
}

static void rope_scaling(Config *c, json_t *settings, int scaling, Text *out)
{
    static const char *const names[] = {"", "linear", "llama3", "yarn"};
    const char *name;
    json_t *value;
    if (scaling)
        text_printf(out, " scaling %s;", names[scaling]);
    json_object_foreach(settings, name, value)
    {
        if (!json_is_null(value))
            rope_field(c, name, value, scaling, out);
    }
    json_t *truncate = json_object_get(settings, "truncate");
    if (truncate && scaling == 3)
        text_printf(out, " truncate %s;", json_is_true(truncate) ? "yes" : "no");
    if (scaling == 3 && !json_object_get(settings, "original_max_position_embeddings"))
        text_printf(out, " original %lld;", (long long)c->model->positions);
}

/* "theta 10000;" and what the scaling adds; the base may stand inside or beside. */
static Str rope_text(Config *c, json_t *settings, bool scaled)
{
    Text out = {.arena = c->arena};
    json_t *inside = json_object_get(settings, "rope_theta"), *beside = config_get(c, "rope_theta");
    if (inside && beside && json_number_value(inside) != json_number_value(beside))
        config_fault(c, "rope_theta", "has two values", "keep the one that the model has");
    json_t *theta = inside ? inside : beside;
    double base = theta ? json_number_value(theta) : 10000.0;
    if (!(base > 1.0 && base < NUMBER_MOST))
        config_fault(c, "rope_theta", "is no number above 1, or too large",
                     "it is the base of frequencies");
    text_printf(&out, "theta %.*s;", STR_FMT(import_number(c->arena, base)));
    if (scaled && settings)
        rope_scaling(c, settings, scaling_of(c, settings), &out);
    return text_str(&out);
}

/* Settings by kind of layer stand alone. */
static void check_kinds(Config *c, json_t *settings)
{
    const char *name;
    json_t *value;
    json_object_foreach(settings, name, value)
    {
        if (strcmp(name, "full_attention") && strcmp(name, "sliding_attention"))
            config_fault(c, name, "stands beside settings for kinds of layers",
                         "move it into \"full_attention\" or \"sliding_attention\"");
    }
}

/* GLM turns the first half of a head, unless the config says all of it. */
static void read_turning(Config *c, json_t *settings)
{
    json_t *inside = json_object_get(settings, "partial_rotary_factor");
    json_t *factor = inside ? inside : config_get(c, "partial_rotary_factor");
    double part = factor ? json_number_value(factor) : 0.5;
    if (c->model->family != IMPORT_GLM4_MOE)
        return;
    c->model->half_turns = part == 0.5;
    if (part != 0.5 && part != 1.0)
        config_fault(c, "partial_rotary_factor", "is neither 0.5 nor 1",
                     "rotary embedding turns the first half of a head, or all of it");
    if (part == 0.5 && c->model->head_dim % 4)
        config_fault(c, "head_dim", "is no multiple of 4",
                     "rotary embedding turns halves of half of a head");
}

/* One table for all layers, one for each kind of layer, or, in OLMo 3, a scaling of full ones. */
void config_read_rope(Config *c)
{
    ImportModel *m = c->model;
    json_t *old = config_get(c, "rope_scaling"), *new = config_get(c, "rope_parameters");
    json_t *settings = new ? new : old;
    if (old && new && !json_equal(old, new))
        config_fault(c, "rope_scaling", "contradicts \"rope_parameters\"", "keep one of them");
    if (settings && !json_is_object(settings))
        config_fault(c, new ? "rope_parameters" : "rope_scaling", "is no object",
                     "it holds the settings of a scaling, or is null");
    read_turning(c, settings);
    json_t *full = json_object_get(settings, "full_attention");
    json_t *sliding = json_object_get(settings, "sliding_attention");
    if (full || sliding) {
        check_kinds(c, settings);
        m->rope = rope_text(c, full, true);
        m->sliding_rope = rope_text(c, sliding, true);
    } else {
        m->rope = rope_text(c, settings, true);
        m->sliding_rope = m->family == IMPORT_OLMO3 ? rope_text(c, settings, false) : m->rope;
    }
    if (str_eq(m->rope, m->sliding_rope))
        m->sliding_rope = (Str){0};
}

