/* Diagnostics are collected as data, then rendered: as text like clang's, or as JSON.
 * Ownership: a Diags and all its texts live in one arena. */
#ifndef ISOC_DIAG_H
#define ISOC_DIAG_H

#include "base/source.h"

/* diag.def: X(number, ID, severity, clause, title, explanation). Numbers are permanent. */
typedef enum DiagId {
#define X(number, id, severity, clause, title, explanation) DIAG_##id,
#include "diag.def"
#undef X
    DIAG_COUNT
} DiagId;

typedef enum Severity { SEV_ERROR, SEV_WARNING } Severity;

typedef struct DiagLabel {
    Span span;
    Str text;
} DiagLabel;

typedef struct Diag {
    DiagId id;
    Severity severity;
    Span span; /* the caret; hi == 0: the message concerns no place */
    Str message;
    VEC(DiagLabel) labels; /* secondary places, each with its sentence */
    VEC(Str) notes;
    Span fix_span; /* fix-it: replace this by fix_text; hi == 0: none */
    Str fix_text;
} Diag;

typedef struct Diags {
    Arena *arena;
    const Sources *sources;
    VEC(Diag *) list;
    int errors;
    bool warnings_as_errors;
    u64 enabled[(DIAG_COUNT + 63) / 64]; /* warnings switched on; diags_init sets the default */
} Diags;

void diags_init(Diags *diags, Arena *arena, const Sources *sources);
/* Never NULL; a disabled warning is built but not listed. */
Diag *diag_add(Diags *diags, DiagId id, Span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void diag_label(Diags *diags, Diag *diag, Span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void diag_note(Diags *diags, Diag *diag, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void diag_fix(Diags *diags, Diag *diag, Span span, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "ISO1203" */
Str diag_code(Arena *arena, DiagId id);
/* The clause of grammar/LANGUAGE.md that the message rests on. */
const char *diag_clause(DiagId id);
/* "roots, unused, ..." */
Str diag_options(Arena *arena);
/* By a warning's option: "roots" for -Wroots, -Wno-roots. False when no warning has that name. */
bool diag_enable(Diags *diags, Str option, bool on);
/* The row of a code, "ISO1203"; false where there is none. */
bool diag_lookup(Str code, DiagId *id);
/* Title, clause and explanation, for --explain. */
Str diag_explanation(Arena *arena, DiagId id);

/* The messages by file and line; `list` has room for diags->list.n. Returns their number. */
int diags_sorted(const Diags *diags, const Diag **list);
void diags_render_text(const Diags *diags, Text *out, bool colour);
void diags_render_json(const Diags *diags, Text *out); /* LANGUAGE.md, 12.3 */

#endif
