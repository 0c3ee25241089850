/* Checks of block forms: `attend`, its settings, and the axes of its operands. */
#include "check_impl.h"

#include "device/iso_num.cuh"
#include "base/literal.h"

static const Value refused = {TYPE_REFUSED, 0};

enum { BLOCK_MAX = 1 << 16, SPLIT_MAX = 1 << 24, BLOCK_UNIT = 16 };

typedef struct Attending {
    Scope *scope;
    Checker *c;
    AstExpr *e;
    AstBlock *block;
    Attend *out;
    bool sound;
} Attending;

/* ---- settings -------------------------------------------------------------------------------- */

static void bad_value(Attending *a, const AstSetting *s, const char *usage)
{
    Diag *d = fault(a->c, DIAG_BLOCK_SETTING, s->span, "'%.*s' does not fit",
                    STR_FMT(source_text(a->c, s->span)));
    diag_note(a->c->diags, d, "write %s", usage);
    a->sound = false;
}

/* The one number of a setting, or the param that stands for it. */
static bool one_number(Attending *a, const AstSetting *s, const char *usage, Number *number)
{
    if (s->words.n == 0 && s->numbers.n == 1)
        *number = s->numbers.v[0];
    else if (s->words.n == 1 && s->numbers.n == 0)
        *number = (Number){s->words.v[0].text, true, s->words.v[0].span};
    else
        bad_value(a, s, usage);
    return number->text.n > 0;
}

static void set_count(Attending *a, const AstSetting *s, i64 most, const char *usage, i64 *out)
{
    Number number = {0};
    if (one_number(a, s, usage, &number))
        a->sound &= number_int(a->c, &number, 1, most, DIAG_BLOCK_SETTING,
                               str_format(a->c->arena, "'%.*s'", STR_FMT(s->key.text)).s, out);
}

static void set_constant(Attending *a, const AstSetting *s, const char *usage, u32 *bits)
{
    Number number = {0};
    Str text;
    if (!one_number(a, s, usage, &number))
        return;
    if (!number_text(a->c, &number, &text) || !literal_bits(text, DT_F32, bits))
        a->sound = false;
    else if (*bits == 0 || *bits == 0x7f800000)
        bad_value(a, s, "a positive number that f32 can hold");
}

static void set_block(Attending *a, const AstSetting *s)
{
    set_count(a, s, BLOCK_MAX, "block KEYS, as in block 128", &a->out->block);
    if (a->out->block % BLOCK_UNIT)
        bad_value(a, s, "a multiple of 16: row sums have four lanes of four parts");
}

static void set_split(Attending *a, const AstSetting *s)
{
    set_count(a, s, SPLIT_MAX, "split KEYS, as in split 1024", &a->out->split);
}

static void set_window(Attending *a, const AstSetting *s)
{
    set_count(a, s, INT32_MAX, "window KEYS, as in window 4096", &a->out->window);
}

static void set_scale_log2(Attending *a, const AstSetting *s)
{
    set_constant(a, s, "scale_log2 NUMBER: the scale times the base-2 logarithm of e",
                 &a->out->scale);
}

static void set_scale(Attending *a, const AstSetting *s)
{
    set_constant(a, s, "scale NUMBER: the scale divided by the cap", &a->out->scale);
}

static void set_cap(Attending *a, const AstSetting *s)
{
    set_constant(a, s, "cap_log2 NUMBER: the cap times the base-2 logarithm of e", &a->out->cap);
    a->out->capped = true;
}

static bool is_word(const AstSetting *s, const char *word)
{
    return s->words.n == 1 && s->numbers.n == 0 && str_is(s->words.v[0].text, word);
}

static void set_exp(Attending *a, const AstSetting *s)
{
    if (is_word(s, "exp2.d3"))
        a->out->exp2 = FN_EXP2_D3;
    else if (is_word(s, "exp2.d6"))
        a->out->exp2 = FN_EXP2_D6;
    else if (is_word(s, "ex2"))
        a->out->exp2 = FN_EX2;
    else if (is_word(s, "exp2"))
        a->out->exp2 = FN_EXP2;
    else
        bad_value(a, s, "exp exp2.d6, exp exp2.d3, exp ex2 or exp exp2");
}

static void set_maxima(Attending *a, const AstSetting *s)
{
    a->out->rounded = is_word(s, "rounded");
    if (!a->out->rounded && !is_word(s, "exact"))
        bad_value(a, s, "maxima exact, or maxima rounded");
}

static void set_mask(Attending *a, const AstSetting *s)
{
    if (is_word(s, "none"))
        a->out->causal = false;
    else if (!is_word(s, "causal"))
        bad_value(a, s, "mask causal, or mask none");
}

static void set_weights(Attending *a, const AstSetting *s)
{
    if (s->words.n == 1 && s->numbers.n == 0)
        a->sound &= type_of_name(a->c, s->words.v[0], &a->out->weights);
    else
        bad_value(a, s, "weights TYPE, as in weights bf16");
}

/* The axes are looked up when the operands' are known. */
static void set_over(Attending *a, const AstSetting *s)
{
    if (s->numbers.n)
        bad_value(a, s, "over AXES, as in over head_dim");
}

static const struct {
    const char *key;
    void (*set)(Attending *a, const AstSetting *s);
} settings[] = {
    {"over", set_over},       {"scale_log2", set_scale_log2}, {"scale", set_scale},
    {"cap_log2", set_cap},    {"exp", set_exp},               {"weights", set_weights},
    {"block", set_block},     {"split", set_split},           {"mask", set_mask},
    {"window", set_window},   {"maxima", set_maxima},
};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

static const AstSetting *setting(const Attending *a, const char *key)
{
    const AstSettings *all = &a->block->settings;
    for (int i = 0; i < all->n; i++)
        if (str_is(all->v[i].key.text, key))
            return &all->v[i];
    return NULL;
}

static void read_setting(Attending *a, const AstSetting *s)
{
    Guess guess = guess_of(s->key.text);
    for (int i = 0; i < SETTINGS; i++) {
        guess_add(&guess, str_of(settings[i].key));
        if (!str_is(s->key.text, settings[i].key))
            continue;
        const AstSetting *first = setting(a, settings[i].key);
        if (first != s) {
            Diag *d = fault(a->c, DIAG_BLOCK_SETTING, s->key.span, "'%.*s' is set twice",
                            STR_FMT(s->key.text));
            diag_label(a->c->diags, d, first->key.span, "it is set here already");
            a->sound = false;
            return;
        }
        settings[i].set(a, s);
        return;
    }
    Diag *d = fault(a->c, DIAG_BLOCK_SETTING, s->key.span, "unknown setting '%.*s'",
                    STR_FMT(s->key.text));
    guess_tell(a->c, d, s->key.span, &guess);
    diag_note(a->c->diags, d, "the settings are over, scale_log2, exp, maxima, weights, block, "
                              "split, mask, window, and scale with cap_log2");
    a->sound = false;
}

static void missing(Attending *a, const char *key, const char *why)
{
    Diag *d = fault(a->c, DIAG_BLOCK_SETTING, a->block->form.span, "'%s' is missing", key);
    diag_note(a->c->diags, d, "%s", why);
    a->sound = false;
}

static void clash(Attending *a, const AstSetting *s, const char *why)
{
    Diag *d = fault(a->c, DIAG_BLOCK_SETTING, s->key.span, "'%.*s' does not go with the others",
                    STR_FMT(s->key.text));
    diag_note(a->c->diags, d, "%s", why);
    a->sound = false;
}

static void check_together(Attending *a)
{
    const Attend *out = a->out;
    if (!setting(a, "over"))
        missing(a, "over", "name the axes that the score sums: over head_dim;");
    if (out->capped && !setting(a, "scale"))
        missing(a, "scale", "beside cap_log2 the score is scaled by scale divided by the cap, and "
                            "the capped score by cap_log2");
    if (!out->capped && !setting(a, "scale_log2"))
        missing(a, "scale_log2", "1 / sqrt(len(head_dim)) times the base-2 logarithm of e: scores "
                                 "are exponents of 2");
    if (out->capped && setting(a, "scale_log2"))
        clash(a, setting(a, "scale_log2"), "a capped score is scaled by scale, then by cap_log2");
    if (!out->capped && setting(a, "scale"))
        clash(a, setting(a, "scale"), "scale is for capped scores; without cap_log2 write "
                                      "scale_log2");
    if (out->rounded && out->exp2 == FN_EXP2)
        clash(a, setting(a, "maxima"), "rounded maxima are for exp2.d6, exp2.d3 and ex2");
    if (out->window && !out->causal)
        clash(a, setting(a, "window"), "a window ends at the row's own position: mask causal");
    if (a->sound && out->split % out->block)
        clash(a, setting(a, "split") ? setting(a, "split") : setting(a, "block"),
              "a split is made of whole blocks; it has 1024 keys unless it is set");
}

static u32 inverse_of(u32 bits)
{
    return iso_f32_bits(iso_div(1.0f, iso_bits_f32(bits)));
}

static void check_settings(Attending *a)
{
    *a->out = (Attend){.block = 128, .split = 1024, .exp2 = FN_EXP2_D6, .causal = true,
                       .weights = DT_F32};
    for (int i = 0; i < a->block->settings.n; i++)
        read_setting(a, &a->block->settings.v[i]);
    check_together(a);
    if (a->out->rounded)
        a->out->inverse = inverse_of(a->out->capped ? a->out->cap : a->out->scale);
}

/* ---- operands -------------------------------------------------------------------------------- */

static const char *const roles[] = {"queries", "keys", "values", "sinks"};

static bool operand_fault(Attending *a, int i, const char *what, const char *way)
{
    const AstExpr *e = a->e->args.v[i];
    Diag *d = fault(a->c, DIAG_BLOCK_OPERAND, e->span, "the %s '%.*s' %s", roles[i],
                    STR_FMT(source_text(a->c, e->span)), what);
    diag_note(a->c->diags, d, "%s", way);
    return a->sound = false;
}

static bool axes_fault(Attending *a, Span span, u64 mask, const char *what, const char *way)
{
    Diag *d = fault(a->c, DIAG_BLOCK_AXES, span, "%.*s %s", STR_FMT(mask_text(a->c, mask)), what);
    diag_note(a->c->diags, d, "%s", way);
    return a->sound = false;
}

static const Axis *axis_of(const Attending *a, int atom)
{
    return &a->c->contract->axes[a->c->contract->atom_axis[atom]];
}

/* The packed atom of a mask, or -1. */
static int packed_atom(const Attending *a, u64 mask)
{
    for (int i = 0; i < a->c->contract->n_atoms; i++)
        if ((mask & bit(i)) && axis_of(a, i)->free && axis_of(a, i)->n_factors == 2)
            return i;
    return -1;
}

static bool check_queries(Attending *a, const Value *q)
{
    Attend *out = a->out;
    u64 mask = effective_mask(a->c->contract, q->mask);
    out->tokens = packed_atom(a, mask);
    if (out->tokens < 0)
        return operand_fault(a, 0, "have no axis of packed tokens",
                             "a row finds its keys by its sequence and position: axis tokens = "
                             "sequence * position ragged");
    const Axis *tokens = axis_of(a, out->tokens);
    out->sequence = a->c->contract->axes[tokens->factors[0]].atom;
    out->position = a->c->contract->axes[tokens->factors[1]].atom;
    out->rows = mask;
    for (int i = 0; i < a->c->contract->n_atoms; i++)
        if ((mask & bit(i)) && axis_of(a, i)->free && i != out->tokens)
            return axes_fault(a, a->e->args.v[0]->span, bit(i), "is free beside the tokens",
                              "queries have one free axis, the tokens");
    return true;
}

/* A parameter by sequence and position, so that every key is there and nothing computes it anew. */
static bool check_stored(Attending *a, int i, const Value *value)
{
    const AstExpr *e = a->e->args.v[i];
    u64 keys = bit(a->out->sequence) | bit(a->out->position);
    if (e->ref < 0)
        return operand_fault(a, i, "are computed in this op",
                             "keys and values are parameters: another op computes and stores them");
    if (e->index.n)
        return operand_fault(a, i, "are held at an index", "pass the whole parameter");
    if ((value->mask & keys) == keys)
        return true;
    return operand_fault(a, i, "are not indexed by the sequence and the position of a key",
                         "declare them as bf16[sequence, position, kv_heads, head_dim]; how they "
                         "are stored, packed or in pages, is the caller's");
}

static bool check_type(Attending *a, int i, const Value *value)
{
    if (class_takes(a->c->contract->numerics, value->type))
        return true;
    Diag *d = fault(a->c, DIAG_MMA_TYPE, a->e->args.v[i]->span,
                    "the class '%.*s' has no mma of %s", STR_FMT(a->c->ast->numerics.text),
                    dtype_name((DType)value->type));
    diag_note(a->c->diags, d, "queries, keys and values have a 16-bit type of the class");
    return a->sound = false;
}

static void add_over(Attending *a, const Axis *axis)
{
    if (axis->atom >= 0) {
        a->out->over[a->out->n_over++] = axis->atom;
        return;
    }
    for (int f = 0; f < axis->n_factors; f++)
        add_over(a, &a->c->contract->axes[axis->factors[f]]);
}

static bool check_over(Attending *a, const Value *q, const Value *k, u64 *over)
{
    const AstSetting *s = setting(a, "over");
    *over = 0;
    for (int i = 0; i < s->words.n; i++) {
        int id = axis_of_name(a->c, s->words.v[i]);
        u64 mask = id < 0 ? 0 : axis_mask(a->c->contract, id);
        if (id < 0)
            return a->sound = false;
        if (mask & *over)
            return axes_fault(a, s->words.v[i].span, mask, "is summed twice",
                              "name each axis once");
        if ((mask & ~(q->mask & k->mask)) || packed_atom(a, mask) >= 0 ||
            effective_mask(a->c->contract, mask) != mask)
            return axes_fault(a, s->words.v[i].span, mask,
                              "is no axis of a row of both the queries and the keys",
                              "the score sums products of queries and keys");
        *over |= mask;
        add_over(a, &a->c->contract->axes[id]);
    }
    return true;
}

static bool check_axes(Attending *a, const Value *values)
{
    const Value *q = &values[0], *k = &values[1], *v = &values[2];
    Attend *out = a->out;
    u64 keys = bit(out->sequence) | bit(out->position), over;
    if (!check_over(a, q, k, &over))
        return false;
    out->rows &= ~over;
    out->batch = k->mask & ~keys & ~over;
    out->values = v->mask & ~keys & ~out->rows;
    if (out->batch & ~out->rows)
        return axes_fault(a, a->e->args.v[1]->span, out->batch & ~out->rows,
                          "is an axis of the keys and not of the queries",
                          "every row has one key at a position: add the axis to `over`, or remove "
                          "it");
    for (int i = 0; i < a->c->contract->n_atoms; i++)
        if ((out->values & bit(i)) &&
            (axis_of(a, i)->free || axis_of(a, i)->coordinate_of >= 0))
            return axes_fault(a, a->e->args.v[2]->span, bit(i), "is free beside the keys",
                              "values have two free axes, the sequence and the position");
    return true;
}

static bool check_sinks(Attending *a, Value *sinks)
{
    want_type(a->scope, a->e->args.v[3], sinks, DT_F32, "a sink");
    if (sinks->type == TYPE_REFUSED)
        return a->sound = false;
    u64 over = effective_mask(a->c->contract, sinks->mask) & ~a->out->rows;
    if (over)
        return axes_fault(a, a->e->args.v[3]->span, over, "is no axis of a row",
                          "a sink is one number of a row: f32[heads]");
    return true;
}

static bool check_weights(Attending *a, const Value *q, const Value *k, const Value *v)
{
    const AstSetting *s = setting(a, "weights");
    if (q->type != k->type)
        return operand_fault(a, 1, "have another type than the queries",
                             "tensor cores multiply operands of one type");
    if (!s)
        a->out->weights = (DType)v->type;
    if ((int)a->out->weights == v->type)
        return true;
    bad_value(a, s, str_format(a->c->arena, "weights %s, the type of the values: tensor cores "
                               "multiply operands of one type", dtype_name((DType)v->type)).s);
    return false;
}

static void check_operands(Attending *a)
{
    enum { MOST = 4 };
    Value values[MOST];
    AstExprs *args = &a->e->args;
    bool known = args->n == 3 || args->n == MOST;
    if (!known) {
        Diag *d = fault(a->c, DIAG_BLOCK_OPERAND, a->block->form.span,
                        "attend takes three operands or four, not %d", args->n);
        diag_note(a->c->diags, d, "queries, keys, values and, where there are some, sinks: "
                                  "attend a, lse = q, k, v { ... }");
        a->sound = false;
    }
    for (int i = 0; i < args->n; i++) {
        Value value = check_value(a->scope, args->v[i]);
        known &= value.type >= 0;
        if (i < MOST)
            values[i] = value;
        if (i < MOST && args->v[i]->kind != EXPR_NAME)
            known = operand_fault(a, i, "are no name", "give the value a name first");
    }
    if (!known || !a->sound) {
        a->sound = false;
        return;
    }
    bool sound = check_queries(a, &values[0]);
    for (int i = 1; sound && i < 3; i++)
        sound &= check_stored(a, i, &values[i]);
    for (int i = 0; sound && i < 3; i++)
        sound &= check_type(a, i, &values[i]);
    if (sound && check_weights(a, &values[0], &values[1], &values[2]) && check_axes(a, values) &&
        args->n == MOST)
        check_sinks(a, &values[3]);
}

/* ---- the statement --------------------------------------------------------------------------- */

static void check_targets(Attending *a)
{
    if (a->block->targets.n <= 2)
        return;
    Diag *d = fault(a->c, DIAG_BLOCK_TARGETS, a->block->targets.v[2].span,
                    "attend gives two values, and this is a third name");
    diag_note(a->c->diags, d, "the attention's value, and the natural logarithm of the sum of the "
                              "weights");
    a->sound = false;
}

Value check_block(Scope *scope, AstExpr *e)
{
    AstBlock *block = e->block;
    if (str_is(block->form.text, "draw"))
        return check_draw(scope, e);
    if (str_is(block->form.text, "top"))
        return check_top(scope, e);
    if (e->part == 0) {
        Attend *out = arena_new_of(scope->c->arena, Attend);
        Attending a = {scope, scope->c, e, block, out, true};
        check_targets(&a);
        check_settings(&a);
        check_operands(&a);
        block->attend = a.sound ? out : NULL;
    }
    const Attend *attend = block->attend;
    if (!attend) {
        scope->c->failed = true;
        return refused;
    }
    return (Value){DT_F32, attend->rows | (e->part ? 0 : attend->values)};
}
