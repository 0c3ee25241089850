/* Checks of `top`: its scores, its settings, and the slots that it fills. */
#include "check_impl.h"

#include <string.h>

static const Value refused = {TYPE_REFUSED, 0};

typedef struct Choosing {
    Scope *scope;
    Checker *c;
    AstExpr *e;
    AstBlock *block;
    Top *out;
    bool sound;
} Choosing;

/* ---- settings -------------------------------------------------------------------------------- */

static void bad_value(Choosing *t, const AstSetting *s, const char *usage)
{
    Diag *diag = fault(t->c, DIAG_BLOCK_SETTING, s->span, "'%.*s' does not fit",
                       STR_FMT(source_text(t->c, s->span)));
    diag_note(t->c->diags, diag, "write %s", usage);
    t->sound = false;
}

static void set_over(Choosing *t, const AstSetting *s)
{
    int id = s->words.n == 1 && !s->numbers.n ? axis_of_name(t->c, s->words.v[0]) : -2;
    const Axis *axis = id >= 0 ? &t->c->contract->axes[id] : NULL;
    if (axis && axis->size && axis->atom >= 0 && axis->coordinate_of < 0) {
        t->out->axis = id;
        t->out->atom = axis->atom;
        return;
    }
    t->sound = false;
    if (id != -1)
        bad_value(t, s, "over AXIS, an axis of fixed size without factors: over experts");
}

static void set_count(Choosing *t, const AstSetting *s, const char *usage, i64 *count)
{
    const char *what = str_format(t->c->arena, "'%.*s'", STR_FMT(s->key.text)).s;
    if (s->words.n + s->numbers.n != 1) {
        bad_value(t, s, usage);
        return;
    }
    Number number = s->words.n ? (Number){s->words.v[0].text, true, s->words.v[0].span}
                               : s->numbers.v[0];
    t->sound &= number_int(t->c, &number, 1, INT32_MAX, DIAG_BLOCK_SETTING, what, count);
}

static void set_groups(Choosing *t, const AstSetting *s)
{
    set_count(t, s, "groups G, the number of groups", &t->out->groups);
}

static void set_keep(Choosing *t, const AstSetting *s)
{
    set_count(t, s, "keep M, the number of groups that are kept", &t->out->keep);
}

static void set_group_sum(Choosing *t, const AstSetting *s)
{
    set_count(t, s, "group_sum N: a group's score is the sum of its N first", &t->out->group_sum);
}

static void set_order(Choosing *t, const AstSetting *s)
{
    bool one = s->words.n == 1 && !s->numbers.n;
    if (one && str_is(s->words.v[0].text, "index"))
        t->out->by_index = true;
    else if (!one || !str_is(s->words.v[0].text, "score"))
        bad_value(t, s, "order score, or order index");
}

static const struct {
    const char *key;
    void (*set)(Choosing *t, const AstSetting *s);
} settings[] = {
    {"over", set_over},           {"order", set_order}, {"groups", set_groups},
    {"keep", set_keep}, {"group_sum", set_group_sum},
};

enum { SETTINGS = sizeof settings / sizeof settings[0], DEMANDED = 2, IN_GROUPS = 3 };

static const AstSetting *setting_of(const Choosing *t, const char *key)
{
    for (int i = 0; i < t->block->settings.n; i++)
        if (str_is(t->block->settings.v[i].key.text, key))
            return &t->block->settings.v[i];
    return NULL;
}

static void read_setting(Choosing *t, const AstSetting *s)
{
    Guess guess = guess_of(s->key.text);
    const AstSetting *first = setting_of(t, str_copy(t->c->arena, s->key.text).s);
    if (first != s) {
        Diag *diag = fault(t->c, DIAG_BLOCK_SETTING, s->key.span, "'%.*s' is set twice",
                           STR_FMT(s->key.text));
        diag_label(t->c->diags, diag, first->key.span, "it is set here already");
        t->sound = false;
        return;
    }
    for (int i = 0; i < SETTINGS; i++) {
        guess_add(&guess, str_of(settings[i].key));
        if (str_is(s->key.text, settings[i].key)) {
            settings[i].set(t, s);
            return;
        }
    }
    Diag *diag = fault(t->c, DIAG_BLOCK_SETTING, s->key.span, "unknown setting '%.*s'",
                       STR_FMT(s->key.text));
    guess_tell(t->c, diag, s->key.span, &guess);
    diag_note(t->c->diags, diag, "the settings are over, order, groups, keep and group_sum");
    t->sound = false;
}

static void missing(Choosing *t, const char *key, const char *note)
{
    Diag *diag = fault(t->c, DIAG_BLOCK_SETTING, t->block->form.span, "'%s' is missing", key);
    diag_note(t->c->diags, diag, "%s", note);
    t->sound = false;
}

static void check_settings(Choosing *t)
{
    static const char *const notes[SETTINGS] = {
        "name the axis whose indices are ranked: over experts;",
        "say how a token's slots are ordered: order score; or order index;",
        "say how many groups of equal length the axis has: groups 8;",
        "say how many groups are kept: keep 4;",
        "say how many of a group's first its score sums, 1 being the greatest alone: group_sum 2;"};
    *t->out = (Top){.axis = -1, .atom = -1, .tokens = -1, .picks = -1, .groups = 1, .keep = 1,
                    .group_sum = 1};
    for (int i = 0; i < t->block->settings.n; i++)
        read_setting(t, &t->block->settings.v[i]);
    bool grouped = false;
    for (int i = 0; i < IN_GROUPS; i++)
        grouped = grouped || setting_of(t, settings[DEMANDED + i].key);
    for (int i = 0; i < (grouped ? SETTINGS : DEMANDED); i++)
        if (!setting_of(t, settings[i].key))
            missing(t, settings[i].key, notes[i]);
}

/* ---- the slots ------------------------------------------------------------------------------- */

static bool is_packed(const Axis *axis)
{
    return axis->free && axis->n_factors == 2;
}

/* The result that is set has the tokens and the slots. */
static void check_target(Choosing *t)
{
    int at = t->scope->state->target[t->scope->statement];
    const Symbol *symbol = at >= 0 ? &t->scope->state->symbols.v[at] : NULL;
    const Axis *axes = t->c->contract->axes;
    const Tensor *result = symbol && symbol->kind == SYMBOL_RESULT
                               ? &t->scope->op->results[symbol->index] : NULL;
    if (!symbol || (result && symbol->type == TYPE_REFUSED)) {
        t->sound = false; /* told where it is declared */
        return;
    }
    if (result && result->index_of == t->out->axis + 1 && result->n_axes == 2 &&
        is_packed(&axes[result->axes[0]]) &&
        axes[result->axes[1]].sparse_of == t->out->axis + 1) {
        t->out->picks = axes[result->axes[1]].atom;
        t->out->k = axes[result->axes[1]].size;
        t->out->tokens = axes[result->axes[0]].atom;
        return;
    }
    t->sound = false;
    if (t->out->axis < 0)
        return;
    Str of = axes[t->out->axis].name.text;
    Diag *diag = fault(t->c, DIAG_INDEX_TENSOR, t->block->targets.v[0].span,
                       "'%.*s' is no result that holds indices of '%.*s' at a token's slots",
                       STR_FMT(symbol->name.text), STR_FMT(of));
    diag_note(t->c->diags, diag, "`top` sets a result that has a sparse axis: axis picks = 8 of "
                                 "%.*s; -> chosen: %.*s[tokens, picks]", STR_FMT(of), STR_FMT(of));
}

static void misfit(Choosing *t, const char *key, const char *way, const char *message, i64 a, i64 b)
{
    const AstSetting *s = setting_of(t, key);
    Diag *d = fault(t->c, DIAG_BLOCK_SETTING, s ? s->span : t->block->form.span, message,
                    (long long)a, (long long)b);
    diag_note(t->c->diags, d, "%s", way);
    t->sound = false;
}

/* What the settings say together, all known to be counts. */
static void check_counts(Choosing *t)
{
    const Top *top = t->out;
    i64 n = t->c->contract->axes[top->axis].size, size = n / top->groups;
    if (n % top->groups)
        misfit(t, "groups", "write a number that divides them",
               "%lld groups do not divide %lld indices equally", top->groups, n);
    else if (top->keep > top->groups)
        misfit(t, "keep", "write a number up to that of the groups", "%lld groups are kept of %lld",
               top->keep, top->groups);
    else if (top->group_sum > size)
        misfit(t, "group_sum", "write a number up to a group's length; 1 is its greatest score",
               "a group's score sums its %lld first, and a group has %lld", top->group_sum, size);
    else if (top->keep * size < top->k)
        misfit(t, "keep", "keep more groups, or give the sparse axis fewer slots",
               "the groups that are kept have %lld indices, and a token has %lld slots",
               top->keep * size, top->k);
}

/* ---- operands -------------------------------------------------------------------------------- */

static void check_scores(Choosing *t)
{
    AstExpr *e = t->e->args.v[0];
    Value scores = check_value(t->scope, e);
    want_type(t->scope, e, &scores, DT_F32, "a score");
    if (scores.type < 0 || t->out->tokens < 0) {
        t->sound = false;
        return;
    }
    u64 want = bit(t->out->atom) | bit(t->out->tokens);
    if (effective_mask(t->c->contract, scores.mask) == want)
        return;
    Diag *diag = fault(t->c, DIAG_BLOCK_AXES, e->span, "the scores have %.*s, not the tokens and "
                       "the axis that is ranked", STR_FMT(mask_text(t->c, scores.mask)));
    diag_note(t->c->diags, diag, "a row is a token: f32[tokens, experts]");
    t->sound = false;
}

static void check_operand(Choosing *t)
{
    if (t->e->args.n == 1) {
        check_scores(t);
        return;
    }
    Diag *diag = fault(t->c, DIAG_BLOCK_OPERAND, t->block->form.span,
                       "top takes one operand, not %d", t->e->args.n);
    diag_note(t->c->diags, diag, "what is ranked, a bias of the selection included: top chosen = "
                                 "s + bias { ... }");
    t->sound = false;
}

/* ---- the statement --------------------------------------------------------------------------- */

static void check_targets(Choosing *t)
{
    if (t->block->targets.n == 1)
        return;
    Diag *diag = fault(t->c, DIAG_BLOCK_TARGETS, t->block->targets.v[1].span,
                       "top gives indices, and this is a second name");
    diag_note(t->c->diags, diag, "scores of what is chosen are read at it: p = s[experts chosen];");
    t->sound = false;
}

Value check_top(Scope *scope, AstExpr *e)
{
    AstBlock *block = e->block;
    if (e->part == 0) {
        Top *out = arena_new_of(scope->c->arena, Top);
        Choosing t = {scope, scope->c, e, block, out, true};
        check_targets(&t);
        check_settings(&t);
        check_target(&t);
        if (t.sound)
            check_counts(&t);
        check_operand(&t);
        block->top = t.sound ? out : NULL;
    }
    if (!block->top) {
        scope->c->failed = true;
        return refused;
    }
    return (Value){DT_F32, bit(block->top->tokens) | bit(block->top->picks)};
}
