/* Scalar functions on terms: the operations of each one's own PTX, compiled alone. It is run once
 * on a leaf, and what it did is done again for every argument. */
#include "verify_terms_impl.h"

#include "device/iso_short.cuh"
#include "ptx/shadow.h"
#include "ptx/tests.h"

static const char *const c_names[] = {
#define X(id, name, arity, function) #function,
#include "base/scalar.def"
#undef X
};

typedef struct ShortForm {
    const char *name;
    float (*form)(float), (*function)(float);
} ShortForm;

static const ShortForm short_forms[FN_COUNT] = {
#define X(id, form, function) [FN_##id] = {#form, form, function},
#include "base/short.def"
#undef X
};

static void function_text(Text *text, const char *function)
{
    text_printf(text, "extern \"C\" __global__ void ref_%s(const float *x, float *y)\n"
                      "{\n    *y = %s(*x);\n}\n", function, function);
}

Str verify_terms_program(Arena *arena)
{
    Text text = {.arena = arena};
    text_printf(&text, "#include \"iso_short.cuh\"\n");
#define X(id, name, arity, function)                                                               \
    if (arity == 1)                                                                                \
        function_text(&text, #function);
#include "base/scalar.def"
#undef X
#define X(id, form, function) function_text(&text, #form);
#include "base/short.def"
#undef X
    function_text(&text, "iso_short_weight");
    return text_str(&text);
}

/* ---- recording --------------------------------------------------------------------------------
 */

typedef struct Step {
    const PtxInst *inst;
    int n;
    int from[PTX_TRACE_ARGS]; /* the step that gave it, -1: the function's argument, -2: `fixed` */
    u64 fixed[PTX_TRACE_ARGS];
} Step;

struct TermsFunction {
    VEC(Step) steps;
    int result; /* the step that gave it */
    u64 *value; /* of each step, the argument's first */
};

/* The last step that gave the term. */
static int giver(const PtxTrace *trace, int before, u64 term)
{
    for (int i = before - 1; i >= 0; i--)
        if (trace->nodes.v[i].term == term)
            return i;
    return term == trace->argument ? -1 : -2;
}

static TermsFunction *compiled(Terms *t, const PtxTrace *trace, u64 result)
{
    TermsFunction *f = arena_new_of(t->arena, TermsFunction);
    for (int i = 0; i < trace->nodes.n; i++) {
        const PtxTraceNode *node = &trace->nodes.v[i];
        Step step = {.inst = node->inst, .n = node->n};
        for (int k = 0; k < node->n; k++) {
            step.from[k] = giver(trace, i, node->args[k]);
            step.fixed[k] = node->args[k];
        }
        vec_push(t->arena, &f->steps, step);
    }
    f->result = giver(trace, trace->nodes.n, result);
    f->value = arena_array(t->arena, u64, f->steps.n + 1);
    return f;
}

/* NULL: it does something that is no operation on values. */
static TermsFunction *record(Terms *t, const char *function, u64 number)
{
    _Alignas(16) float x = 1.0f, y = 0.0f;
    PtxTrace trace = {.arena = t->arena, .argument = ptx_term_leaf(UINT64_MAX, number)};
    u64 in[2] = {trace.argument, TERM_WHOLE}, out[2] = {0};
    PtxMemory memory = {.arena = t->arena};
    PtxRegion from = {.name = "x", .base = (u8 *)&x, .size = 4, .shadow = in};
    PtxRegion to = {.name = "y", .base = (u8 *)&y, .size = 4, .writable = true, .shadow = out};
    ptx_memory_add(&memory, &from);
    ptx_memory_add(&memory, &to);
    void *a = &x, *b = &y;
    const void *params[] = {&a, &b};
    Str name = str_format(t->arena, "ref_%s", function);
    PtxLaunch launch = {.kernel = ptx_find(t->setup.functions, name), .grid = {1, 1, 1},
                        .block = {1, 1, 1}, .params = params, .memory = &memory,
                        .numerics = t->setup.numerics, .terms = true, .trace = &trace};
    PtxReport report = {.arena = t->arena};
    if (!launch.kernel || !ptx_run(&launch, &report))
        return NULL;
    TermsFunction *f = compiled(t, &trace, out[0]);
    return f->result >= 0 ? f : NULL;
}

/* ---- doing it again ---------------------------------------------------------------------------
 */

static u64 apply(TermsFunction *f, u64 argument)
{
    u64 *value = f->value + 1;
    f->value[0] = argument;
    for (int i = 0; i < f->steps.n; i++) {
        const Step *s = &f->steps.v[i];
        u64 args[PTX_TRACE_ARGS];
        for (int k = 0; k < s->n; k++)
            args[k] = s->from[k] == -2 ? s->fixed[k] : value[s->from[k]];
        value[i] = ptx_shadow_operation(s->inst, args, s->n);
    }
    return value[f->result];
}

/* They never give -0, nor a NaN with a sign: found so for every f32 (tests/ptx/README.md). */
static bool has_no_sign(FnId fn)
{
    return fn == FN_EXP2 || fn == FN_EXP2_D3 || fn == FN_EXP2_D6;
}

u64 terms_function(Terms *t, FnId fn, const u64 *args)
{
    if (fn == FN_SQRT)
        return ptx_term_f32(PTX_SQRT, args, 1);
    if (fn == FN_EX2)
        return ptx_term_f32(PTX_EX2, args, 1);
    if (fn == FN_MINIMUM || fn == FN_MAXIMUM)
        return ptx_term_f32(fn == FN_MINIMUM ? PTX_MIN : PTX_MAX, args, 2);
    if (!t->function[fn])
        t->function[fn] = record(t, c_names[fn], fn);
    if (!t->function[fn])
        return TERM_POISON;
    u64 term = apply(t->function[fn], args[0]);
    if (t->setup.tests && has_no_sign(fn)) {
        ptx_tests_know(t->setup.tests, term, TERM_NO_SIGN);
        term |= TERM_NO_SIGN;
    }
    return term;
}

/* ---- short forms ------------------------------------------------------------------------------
 */

/* Every argument that there is, once. */
static bool holds(const ShortForm *s)
{
    for (u32 b = 0; b < 65536; b++) {
        float x = iso_f32_of_bf16((IsoU16)b);
        if (iso_bf16_of_f32(s->form(x)) != iso_bf16_of_f32(s->function(x)))
            return false;
    }
    return true;
}

u64 terms_short_form(Terms *t, FnId fn, u64 argument)
{
    if (!t->short_form[fn] && holds(&short_forms[fn]))
        t->short_form[fn] = record(t, short_forms[fn].name, (u64)FN_COUNT + fn);
    return t->short_form[fn] ? apply(t->short_form[fn], argument) : TERM_POISON;
}

u64 terms_short_weight(Terms *t, u64 distance)
{
    if (!t->weight)
        t->weight = record(t, "iso_short_weight", 2 * (u64)FN_COUNT);
    return t->weight ? apply(t->weight, distance) : TERM_POISON;
}
