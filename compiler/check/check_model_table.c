/* The settings of a model's tables: rotary embedding. Clause 13.5. */
#include "check_model_impl.h"

#include "base/literal.h"

typedef struct Roping {
    Checker *c;
    const AstModelStatement *step;
    IsoRope *rope;
    bool sound;
} Roping;

enum { DEFAULT = 1 << ISO_ROPE_DEFAULT, LINEAR = 1 << ISO_ROPE_LINEAR,
       LLAMA3 = 1 << ISO_ROPE_LLAMA3, YARN = 1 << ISO_ROPE_YARN };

static const char *const scalings[] = {"default", "linear", "llama3", "yarn"};

/* Numbers: where they go, which scalings have and which need them, and what they must exceed. */
static const struct RopeNumber {
    const char *key;
    size_t at;
    int has, needs;
    double above;
} numbers[] = {
    {"theta", offsetof(IsoRope, theta), DEFAULT | LINEAR | LLAMA3 | YARN,
     DEFAULT | LINEAR | LLAMA3 | YARN, 1.0},
    {"factor", offsetof(IsoRope, factor), LINEAR | LLAMA3 | YARN, LINEAR | LLAMA3 | YARN, 0.0},
    {"low", offsetof(IsoRope, low), LLAMA3, LLAMA3, 0.0},
    {"high", offsetof(IsoRope, high), LLAMA3, LLAMA3, 0.0},
    {"original", offsetof(IsoRope, original), LLAMA3 | YARN, LLAMA3 | YARN, 0.0},
    {"beta_fast", offsetof(IsoRope, beta_fast), YARN, 0, 0.0},
    {"beta_slow", offsetof(IsoRope, beta_slow), YARN, 0, 0.0},
    {"attention_factor", offsetof(IsoRope, attention_factor), YARN, 0, 0.0},
};

enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static void bad(Roping *r, Span span, const char *note, const char *format, Str text)
{
    Diag *d = fault(r->c, DIAG_MODEL_TABLE, span, format, STR_FMT(text));
    diag_note(r->c->diags, d, "%s", note);
    r->sound = false;
}

static const AstSetting *setting(const Roping *r, const char *key)
{
    for (int i = 0; i < r->step->settings.n; i++)
        if (str_is(r->step->settings.v[i].key.text, key))
            return &r->step->settings.v[i];
    return NULL;
}

/* One word, or one number or the param that stands for it. */
static bool is_single(const AstSetting *s)
{
    return s->words.n + s->numbers.n == 1;
}

static void set_number(Roping *r, const AstSetting *s, int which)
{
    Str text;
    u64 bits;
    u32 narrow;
    double value = 0.0;
    if (!is_single(s)) {
        bad(r, s->span, "write one number", "'%.*s' takes one number", s->key.text);
        return;
    }
    Number number = s->numbers.n ? s->numbers.v[0]
                                 : (Number){s->words.v[0].text, true, s->words.v[0].span};
    if (!number_text(r->c, &number, &text)) {
        r->sound = false;
        return;
    }
    if (literal_f64(text, &bits))
        value = iso_bits_f64(bits);
    bool held = literal_bits(text, DT_F32, &narrow) && narrow && narrow < 0x7f800000;
    if (!held || !(value > numbers[which].above))
        bad(r, s->span, which ? "write a positive number that f32 can hold"
                              : "write a number above 1 that f32 can hold",
            "'%.*s' does not fit", source_text(r->c, s->span));
    *(double *)((char *)r->rope + numbers[which].at) = value;
}

static void set_scaling(Roping *r)
{
    const AstSetting *s = setting(r, "scaling");
    if (!s)
        return;
    for (int i = 0; i < 4; i++)
        if (is_single(s) && s->words.n && str_is(s->words.v[0].text, scalings[i])) {
            r->rope->scaling = (IsoRopeScaling)i;
            return;
        }
    bad(r, s->span, "the scalings are default, linear, llama3 and yarn", "'%.*s' does not fit",
        source_text(r->c, s->span));
}

static void set_truncate(Roping *r, const AstSetting *s)
{
    bool word = is_single(s) && s->words.n;
    if (word && (str_is(s->words.v[0].text, "yes") || str_is(s->words.v[0].text, "no")))
        r->rope->truncate = str_is(s->words.v[0].text, "yes");
    else
        bad(r, s->span, "write truncate yes, or truncate no", "'%.*s' does not fit",
            source_text(r->c, s->span));
}

static void read_setting(Roping *r, const AstSetting *s)
{
    Guess guess = guess_of(s->key.text);
    guess_add(&guess, STR("scaling"));
    guess_add(&guess, STR("truncate"));
    const AstSetting *first = setting(r, str_copy(r->c->arena, s->key.text).s);
    int scaling = 1 << r->rope->scaling, which = 0;
    for (; which < NUMBERS && !str_is(s->key.text, numbers[which].key); which++)
        guess_add(&guess, str_of(numbers[which].key));
    bool truncate = str_is(s->key.text, "truncate");
    if (first != s) {
        Diag *d = fault(r->c, DIAG_MODEL_TABLE, s->key.span, "'%.*s' is set twice",
                        STR_FMT(s->key.text));
        diag_label(r->c->diags, d, first->key.span, "it is set here already");
        r->sound = false;
    } else if (which == NUMBERS && !truncate && !str_is(s->key.text, "scaling")) {
        Diag *d = fault(r->c, DIAG_MODEL_TABLE, s->key.span, "unknown setting '%.*s'",
                        STR_FMT(s->key.text));
        guess_tell(r->c, d, s->key.span, &guess);
        diag_note(r->c->diags, d, "the settings are theta, scaling, factor, low, high, original, "
                                  "beta_fast, beta_slow, attention_factor and truncate");
        r->sound = false;
    } else if (!((which < NUMBERS ? numbers[which].has : truncate ? YARN : scaling) & scaling)) {
        bad(r, s->key.span, "each scaling has settings of its own", "'%.*s' does not go with this "
            "scaling", s->key.text);
    } else if (which < NUMBERS) {
        set_number(r, s, which);
    } else if (truncate) {
        set_truncate(r, s);
    }
}

bool check_rope(Checker *c, const AstModelStatement *step, IsoRope *rope)
{
    Roping r = {c, step, rope, true};
    if (!str_is(step->name.text, "rope")) {
        bad(&r, step->name.span, "write rope { theta 10000; }", "unknown table '%.*s'",
            step->name.text);
        return false;
    }
    set_scaling(&r);
    if (rope->scaling == ISO_ROPE_YARN) {
        rope->beta_fast = 32.0;
        rope->beta_slow = 1.0;
        rope->truncate = 1;
    }
    for (int i = 0; i < step->settings.n; i++)
        read_setting(&r, &step->settings.v[i]);
    for (int i = 0; i < NUMBERS; i++)
        if ((numbers[i].needs >> rope->scaling & 1) && !setting(&r, numbers[i].key))
            bad(&r, step->name.span, "this scaling cannot do without it", "'%.*s' is missing",
                str_of(numbers[i].key));
    if (r.sound && rope->scaling == ISO_ROPE_LLAMA3 && rope->high <= rope->low)
        bad(&r, setting(&r, "high")->span, "write a number above that of 'low'",
            "'%.*s' does not fit", source_text(c, setting(&r, "high")->span));
    return r.sound;
}
