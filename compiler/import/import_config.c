/* Fields of a config by name and type. */
#include "import_config.h"

#include <stdlib.h>
#include <string.h>

/* ---- faults ---------------------------------------------------------------------------------- */

/* Where `"field"` stands as a key; no place if it stands nowhere. */
static Span place_of(const Config *c, const char *field)
{
    Str text = c->diags->sources->files.v[c->file].text;
    int n = (int)strlen(field);
    for (int i = 0; i + n + 2 <= text.n; i++) {
        int end = i + n + 2;
        if (text.s[i] != '"' || text.s[end - 1] != '"' || memcmp(text.s + i + 1, field, (size_t)n))
            continue;
        while (end < text.n && strchr(" \t\r\n", text.s[end]))
            end++;
        if (end < text.n && text.s[end] == ':')
            return (Span){c->file, i, i + n + 2};
    }
    return (Span){c->file, 0, 0};
}

Diag *config_refuse(Config *c, const char *field, const char *why)
{
    c->failed = true;
    return diag_add(c->diags, DIAG_IMPORT_FIELD, place_of(c, field), "\"%s\" %s", field, why);
}

void config_fault(Config *c, const char *field, const char *why, const char *way)
{
    diag_note(c->diags, config_refuse(c, field, why), "%s", way);
}

/* ---- fields ---------------------------------------------------------------------------------- */

json_t *config_get(const Config *c, const char *field)
{
    json_t *value = json_object_get(c->root, field);
    return json_is_null(value) ? NULL : value;
}

i64 config_size(Config *c, const char *field, i64 most, i64 otherwise)
{
    json_t *value = config_get(c, field);
    i64 n = json_integer_value(value);
    if (!value && otherwise > 0)
        return otherwise;
    if (!value || !json_is_integer(value) || n < 1 || n > most) {
        config_fault(c, field, value ? "is no positive integer in range" : "is missing",
                     "the contract's sizes come from it");
        return 1;
    }
    return n;
}

Str import_number(Arena *arena, double value)
{
    for (int digits = 6; digits < 17; digits++) {
        Str text = str_format(arena, "%.*g", digits, value);
        if (strtod(text.s, NULL) == value)
            return text;
    }
    return str_format(arena, "%.17g", value);
}

bool config_bool(Config *c, const char *field, bool otherwise)
{
    json_t *value = config_get(c, field);
    if (value && !json_is_boolean(value))
        config_fault(c, field, "is neither true nor false", "write one of the two");
    return value ? json_is_true(value) : otherwise;
}

double config_positive(Config *c, const char *field)
{
    json_t *value = config_get(c, field);
    double n = json_number_value(value);
    if (n > 0 && n < NUMBER_MOST)
        return n;
    config_fault(c, field, value ? "is no positive number in range" : "is missing",
                 "the contract's numbers come from it");
    return 1;
}
