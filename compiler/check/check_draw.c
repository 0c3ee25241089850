/* Checks of `draw`: its operands, its settings, and the rows that it draws for. */
#include "check_impl.h"

#include "base/literal.h"

#include <string.h>

static const Value refused = {TYPE_REFUSED, 0};

typedef struct Drawing {
    Scope *scope;
    Checker *c;
    AstExpr *e;
    AstBlock *block;
    Draw *out;
    bool sound;
} Drawing;

/* ---- parameters of rows ---------------------------------------------------------------------- */

static bool is_of_tokens(const Drawing *d, u64 mask)
{
    int atom = mask ? __builtin_ctzll(mask) : 0;
    const Axis *axis = &d->c->contract->axes[d->c->contract->atom_axis[atom]];
    return mask == bit(atom) && axis->free && axis->n_factors == 2;
}

/* A parameter with the tokens alone, of integers or of f32: its number; -1 if the name is none. */
static int row_param(Drawing *d, Name name, bool integers, bool *known)
{
    int at = symbol_of(&d->scope->state->symbols, name.text);
    Symbol *symbol = at >= 0 ? &d->scope->state->symbols.v[at] : NULL;
    *known = symbol != NULL;
    if (!symbol)
        return -1;
    symbol->used = true;
    if (symbol->type == TYPE_REFUSED)
        d->c->failed = true; /* told where it is declared */
    else if (symbol->kind == SYMBOL_PARAM && is_of_tokens(d, symbol->mask) &&
             (integers ? symbol->index_of == INTEGERS : !symbol->index_of) &&
             symbol->type == DT_F32)
        return symbol->index;
    d->sound = false;
    if (symbol->type == TYPE_REFUSED)
        return -1;
    Diag *diag = fault(d->c, DIAG_BLOCK_OPERAND, name.span, "'%.*s' is no parameter %s[tokens]",
                       STR_FMT(name.text), integers ? "i32" : "f32");
    diag_label(d->c->diags, diag, symbol->name.span, "it is declared here");
    diag_note(d->c->diags, diag, "what a row brings is one number for each token");
    return -1;
}

/* ---- settings -------------------------------------------------------------------------------- */

static void bad_value(Drawing *d, const AstSetting *s, const char *usage)
{
    Diag *diag = fault(d->c, DIAG_BLOCK_SETTING, s->span, "'%.*s' does not fit",
                       STR_FMT(source_text(d->c, s->span)));
    diag_note(d->c->diags, diag, "write %s", usage);
    d->sound = false;
}

static void set_over(Drawing *d, const AstSetting *s)
{
    const char *usage = "over AXIS, an axis of fixed size without factors: over vocab";
    int id = s->words.n == 1 && !s->numbers.n ? axis_of_name(d->c, s->words.v[0]) : -2;
    const Axis *axis = id >= 0 ? &d->c->contract->axes[id] : NULL;
    if (axis && axis->size && axis->atom >= 0 && axis->coordinate_of < 0) {
        d->out->axis = id;
        d->out->atom = axis->atom;
        return;
    }
    d->sound = false;
    if (id != -1)
        bad_value(d, s, usage);
}

static void set_temperature(Drawing *d, const AstSetting *s)
{
    bool known = false;
    if (s->words.n == 1 && !s->numbers.n)
        d->out->temperature = row_param(d, s->words.v[0], false, &known);
    if (!known)
        bad_value(d, s, "temperature NAME, a parameter f32[tokens]");
}

/* A row's own, or one number for all. */
static bool set_limit(Drawing *d, const AstSetting *s, bool integers, const char *usage,
                      DrawLimit *limit, Number *number)
{
    bool known = false;
    limit->set = true;
    if (s->words.n + s->numbers.n != 1) {
        bad_value(d, s, usage);
        return false;
    }
    if (s->words.n)
        limit->param = row_param(d, s->words.v[0], integers, &known);
    if (known)
        return false;
    *number = s->words.n ? (Number){s->words.v[0].text, true, s->words.v[0].span}
                         : s->numbers.v[0];
    return true;
}

static void set_top_k(Drawing *d, const AstSetting *s)
{
    Number number = {0};
    i64 k = 0;
    if (!set_limit(d, s, true, "top_k K, a number from 1 or a parameter i32[tokens]",
                   &d->out->top_k, &number))
        return;
    d->sound &= number_int(d->c, &number, 1, INT32_MAX, DIAG_BLOCK_SETTING, "'top_k'", &k);
    d->out->top_k.bits = (u32)k;
}

static void set_share(Drawing *d, const AstSetting *s, const char *usage, DrawLimit *limit)
{
    Number number = {0};
    Str text;
    float value;
    if (!set_limit(d, s, false, usage, limit, &number))
        return;
    if (!number_text(d->c, &number, &text) || !literal_bits(text, DT_F32, &limit->bits)) {
        d->sound = false;
        return;
    }
    memcpy(&value, &limit->bits, sizeof value);
    if (value > 1.0f)
        bad_value(d, s, usage);
}

static void set_top_p(Drawing *d, const AstSetting *s)
{
    set_share(d, s, "top_p P, a number to 1 or a parameter f32[tokens]", &d->out->top_p);
}

static void set_min_p(Drawing *d, const AstSetting *s)
{
    set_share(d, s, "min_p M, a number to 1 or a parameter f32[tokens]", &d->out->min_p);
}

static const struct {
    const char *key;
    void (*set)(Drawing *d, const AstSetting *s);
} settings[] = {
    {"over", set_over},   {"temperature", set_temperature}, {"top_k", set_top_k},
    {"top_p", set_top_p}, {"min_p", set_min_p},
};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

static void read_setting(Drawing *d, int at)
{
    const AstSetting *s = &d->block->settings.v[at];
    Guess guess = guess_of(s->key.text);
    for (int i = 0; i < at; i++)
        if (str_eq(d->block->settings.v[i].key.text, s->key.text)) {
            Diag *diag = fault(d->c, DIAG_BLOCK_SETTING, s->key.span, "'%.*s' is set twice",
                               STR_FMT(s->key.text));
            diag_label(d->c->diags, diag, d->block->settings.v[i].key.span,
                       "it is set here already");
            d->sound = false;
            return;
        }
    for (int i = 0; i < SETTINGS; i++) {
        guess_add(&guess, str_of(settings[i].key));
        if (str_is(s->key.text, settings[i].key)) {
            settings[i].set(d, s);
            return;
        }
    }
    Diag *diag = fault(d->c, DIAG_BLOCK_SETTING, s->key.span, "unknown setting '%.*s'",
                       STR_FMT(s->key.text));
    guess_tell(d->c, diag, s->key.span, &guess);
    diag_note(d->c->diags, diag, "the settings are over, temperature, top_k, top_p and min_p");
    d->sound = false;
}

static void check_settings(Drawing *d)
{
    const DrawLimit none = {.param = -1};
    *d->out = (Draw){.axis = -1, .atom = -1, .tokens = -1, .seed = -1, .stream = -1,
                     .temperature = -1, .top_k = none, .top_p = none, .min_p = none};
    for (int i = 0; i < d->block->settings.n; i++)
        read_setting(d, i);
    for (int i = 0; i < d->block->settings.n; i++)
        if (str_is(d->block->settings.v[i].key.text, "over"))
            return;
    Diag *diag = fault(d->c, DIAG_BLOCK_SETTING, d->block->form.span, "'over' is missing");
    diag_note(d->c->diags, diag, "name the axis that is drawn from: over vocab;");
    d->sound = false;
}

/* ---- operands -------------------------------------------------------------------------------- */

static int integer_operand(Drawing *d, int i)
{
    const AstExpr *e = d->e->args.v[i];
    bool known = e->kind == EXPR_NAME && !e->index.n;
    int param = known ? row_param(d, e->name, true, &known) : -1;
    if (known)
        return param;
    Diag *diag = fault(d->c, DIAG_BLOCK_OPERAND, e->span, "the %s '%.*s' is no parameter "
                       "i32[tokens]", i == 1 ? "seed" : "stream",
                       STR_FMT(source_text(d->c, e->span)));
    diag_note(d->c->diags, diag, "each request has a seed: draw token = z, seed { over vocab; }");
    d->sound = false;
    return -1;
}

static void check_scores(Drawing *d)
{
    AstExpr *e = d->e->args.v[0];
    Value scores = check_value(d->scope, e);
    want_type(d->scope, e, &scores, DT_F32, "a score");
    if (scores.type < 0 || d->out->atom < 0) {
        d->sound = false;
        return;
    }
    u64 rows = effective_mask(d->c->contract, scores.mask) & ~bit(d->out->atom);
    if ((scores.mask & bit(d->out->atom)) && is_of_tokens(d, rows)) {
        d->out->tokens = __builtin_ctzll(rows);
        return;
    }
    Diag *diag = fault(d->c, DIAG_BLOCK_AXES, e->span, "the scores have %.*s, not the tokens and "
                       "the axis that is drawn from", STR_FMT(mask_text(d->c, scores.mask)));
    diag_note(d->c->diags, diag, "a row is a token: f32[tokens, vocab]");
    d->sound = false;
}

static void check_operands(Drawing *d)
{
    int n = d->e->args.n;
    if (n != 2 && n != 3) {
        Diag *diag = fault(d->c, DIAG_BLOCK_OPERAND, d->block->form.span,
                           "draw takes two operands or three, not %d", n);
        diag_note(d->c->diags, diag, "scores, seeds and, where a request draws several times, "
                                     "streams: draw token = z, seed, stream { ... }");
        d->sound = false;
        return;
    }
    check_scores(d);
    d->out->seed = integer_operand(d, 1);
    if (n == 3)
        d->out->stream = integer_operand(d, 2);
}

/* ---- the statement --------------------------------------------------------------------------- */

static void check_targets(Drawing *d)
{
    if (d->block->targets.n == 1)
        return;
    Diag *diag = fault(d->c, DIAG_BLOCK_TARGETS, d->block->targets.v[1].span,
                       "draw gives one index, and this is a second name");
    diag_note(d->c->diags, diag, "its log-probability is an op of its own, which a trainer runs "
                                 "too: z[vocab token] - lse");
    d->sound = false;
}

Value check_draw(Scope *scope, AstExpr *e)
{
    AstBlock *block = e->block;
    if (e->part == 0) {
        Draw *out = arena_new_of(scope->c->arena, Draw);
        Drawing d = {scope, scope->c, e, block, out, true};
        check_targets(&d);
        check_settings(&d);
        check_operands(&d);
        block->draw = d.sound ? out : NULL;
    }
    if (!block->draw) {
        scope->c->failed = true;
        return refused;
    }
    return (Value){DT_F32, bit(block->draw->tokens)};
}
