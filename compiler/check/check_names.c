/* Checks of the contract's head, params and axes. */
#include "check_impl.h"

enum { SIZE_MAX_VALUE = 0x7fffffff };

/* ---- numbers --------------------------------------------------------------------------------- */

static const AstParam *param_of(const Ast *ast, Str name, bool *declared)
{
    *declared = false;
    for (int i = 0; i < ast->params.n; i++)
        if (str_eq(ast->params.v[i].name.text, name)) {
            *declared = true;
            if (ast->params.v[i].has_value)
                return &ast->params.v[i];
        }
    return NULL;
}

Str number_value(const Ast *ast, const Number *number)
{
    bool declared;
    const AstParam *param = number->is_param ? param_of(ast, number->text, &declared) : NULL;
    return param ? param->value.text : number->text;
}

bool number_text(Checker *c, const Number *number, Str *text)
{
    *text = number->text;
    if (!number->is_param)
        return true;
    bool declared;
    const AstParam *param = param_of(c->ast, number->text, &declared);
    if (param) {
        *text = param->value.text;
        return true;
    }
    c->failed = true;
    if (declared)
        return false;
    Diag *d = fault(c, DIAG_UNKNOWN_PARAM, number->span,
                    "unknown param '%.*s': a number or the name of a param stands here",
                    STR_FMT(number->text));
    Guess guess = guess_of(number->text);
    for (int i = 0; i < c->ast->params.n; i++)
        guess_add(&guess, c->ast->params.v[i].name.text);
    guess_tell(c, d, number->span, &guess);
    if (!guess.best.n)
        diag_note(c->diags, d, "define it: param %.*s = ...;", STR_FMT(number->text));
    return false;
}

static bool integer_of(Str text, i64 hi, i64 *value)
{
    *value = 0;
    for (int i = 0; i < text.n; i++) {
        if (text.s[i] < '0' || text.s[i] > '9')
            return false;
        if (*value <= hi)
            *value = *value * 10 + (text.s[i] - '0');
    }
    return true;
}

bool number_int(Checker *c, const Number *number, i64 lo, i64 hi, DiagId id, const char *what,
                i64 *value)
{
    Str text;
    if (!number_text(c, number, &text))
        return false;
    bool integer = integer_of(text, hi, value);
    if (integer && *value >= lo && *value <= hi)
        return true;
    Diag *d = integer ? fault(c, id, number->span, "%s must be from %lld to %lld, not %.*s", what,
                              (long long)lo, (long long)hi, STR_FMT(text))
                      : fault(c, id, number->span, "%s must be an integer, not %.*s", what,
                              STR_FMT(text));
    bool declared;
    if (number->is_param)
        diag_label(c->diags, d, param_of(c->ast, number->text, &declared)->value.span,
                   "'%.*s' is defined here", STR_FMT(number->text));
    return false;
}

bool type_of_name(Checker *c, Name name, DType *type)
{
    Guess guess = guess_of(name.text);
    for (int t = 0; t < DT_COUNT; t++) {
        if (str_is(name.text, dtype_name((DType)t))) {
            *type = (DType)t;
            return true;
        }
        guess_add(&guess, str_of(dtype_name((DType)t)));
    }
    Diag *d = fault(c, DIAG_UNKNOWN_TYPE, name.span,
                    "unknown element type '%.*s': the types are bf16, f16 and f32",
                    STR_FMT(name.text));
    guess_tell(c, d, name.span, &guess);
    return false;
}

/* ---- the head -------------------------------------------------------------------------------- */

void check_contract_named(Checker *c, int index)
{
    (void)index;
    i64 version;
    if (!c->ast->has_contract) {
        Diag *d = fault(c, DIAG_NO_CONTRACT, (Span){0}, "the file has no 'contract' line");
        diag_note(c->diags, d, "name the contract and its version: contract my_model version 1;");
        diag_note(c->diags, d, "a file of declarations that others include is not compiled itself");
        return;
    }
    if (number_int(c, &c->ast->version, 1, SIZE_MAX_VALUE, DIAG_BAD_VERSION,
                   "a contract's version", &version))
        c->contract->version = (int)version;
}

static const FdpaClass *class_of_name(Str name)
{
    char arch[32];
    if (name.n >= (int)sizeof arch)
        return NULL;
    for (int i = 0; i <= name.n; i++)
        arch[i] = i < name.n ? name.s[i] : 0;
    const FdpaClass *class = fdpa_class(arch, FDPA_BF16);
    return class ? class : fdpa_class(arch, FDPA_F16);
}

static void list_classes(Text *out, Guess *guess)
{
    size_t n;
    const FdpaClass *all = fdpa_classes(&n);
    for (size_t i = 0; i < n; i++) {
        Str name = str_of(all[i].name);
        if (!class_of_name(name) || (i > 0 && str_is(name, all[i - 1].name)))
            continue;
        text_printf(out, "%s%.*s", out->n ? ", " : "", STR_FMT(name));
        guess_add(guess, name);
    }
}

void check_numerics(Checker *c, int index)
{
    (void)index;
    Name name = c->ast->numerics;
    Guess guess = guess_of(name.text);
    Text known = {.arena = c->arena};
    list_classes(&known, &guess);
    if (!c->ast->has_numerics) {
        Diag *d = fault(c, DIAG_NO_NUMERICS, (Span){0}, "the file has no 'numerics' line");
        diag_note(c->diags, d, "say whose tensor-core arithmetic the bits are: numerics sm_90; "
                  "the classes are %.*s", STR_FMT(text_str(&known)));
        return;
    }
    c->contract->numerics = class_of_name(name.text);
    if (c->contract->numerics)
        return;
    Diag *d = fault(c, DIAG_UNKNOWN_NUMERICS, name.span, "unknown numerics class '%.*s'",
                    STR_FMT(name.text));
    guess_tell(c, d, name.span, &guess);
    diag_note(c->diags, d, "the classes are %.*s", STR_FMT(text_str(&known)));
}

/* ---- params ---------------------------------------------------------------------------------- */

void check_param_once(Checker *c, int index)
{
    const AstParam *p = &c->ast->params.v[index];
    for (int i = 0; i < index && p->has_value; i++) {
        const AstParam *other = &c->ast->params.v[i];
        if (!other->has_value || !str_eq(other->name.text, p->name.text))
            continue;
        Diag *d = fault(c, DIAG_PARAM_TWICE, p->name.span, "param '%.*s' is defined twice",
                        STR_FMT(p->name.text));
        diag_label(c->diags, d, other->name.span, "it is defined here already");
        diag_note(c->diags, d, "keep one definition; 'param %.*s;' without a value only demands it",
                  STR_FMT(p->name.text));
        return;
    }
}

void check_param_defined(Checker *c, int index)
{
    const AstParam *p = &c->ast->params.v[index];
    bool declared;
    if (param_of(c->ast, p->name.text, &declared))
        return;
    Diag *d = fault(c, DIAG_PARAM_UNDEFINED, p->name.span,
                    "param '%.*s' is demanded here and defined nowhere", STR_FMT(p->name.text));
    diag_note(c->diags, d, "the contract's file defines it: param %.*s = ...;",
              STR_FMT(p->name.text));
}

/* ---- axes ------------------------------------------------------------------------------------ */

/* The place where a name was declared as an axis or factor before (axis, factor), if it was. */
static const Name *earlier_axis(const Ast *ast, Str name, int axis, int factor)
{
    for (int i = 0; i <= axis; i++) {
        const AstAxis *a = &ast->axes.v[i];
        if (i == axis && factor < 0)
            return NULL;
        if (str_eq(a->name.text, name))
            return &a->name;
        for (int f = 0; f < a->factors.n && (i < axis || f < factor); f++)
            if (str_eq(a->factors.v[f].name.text, name))
                return &a->factors.v[f].name;
    }
    return NULL;
}

static void once(Checker *c, Name name, int axis, int factor)
{
    const Name *other = earlier_axis(c->ast, name.text, axis, factor);
    if (!other)
        return;
    Diag *d = fault(c, DIAG_AXIS_TWICE, name.span, "axis '%.*s' is declared twice",
                    STR_FMT(name.text));
    diag_label(c->diags, d, other->span, "it is declared here already");
    diag_note(c->diags, d, "factors are axes of their own: every one has its own name");
}

void check_axis_once(Checker *c, int index)
{
    const AstAxis *axis = &c->ast->axes.v[index];
    once(c, axis->name, index, -1);
    for (int f = 0; f < axis->factors.n; f++)
        once(c, axis->factors.v[f].name, index, f);
}

static void check_ragged(Checker *c, const AstAxis *axis)
{
    for (int f = 0; f < axis->factors.n; f++)
        if (axis->factors.v[f].has_size) {
            Diag *d = fault(c, DIAG_FACTOR_SIZE, axis->factors.v[f].size.span,
                            "a factor of the ragged axis '%.*s' has no size: only the launch knows",
                            STR_FMT(axis->name.text));
            diag_note(c->diags, d, "write axis %.*s = sequence * position ragged;",
                      STR_FMT(axis->name.text));
        }
    if (axis->product && axis->factors.n != 2) {
        Diag *d = fault(c, DIAG_RAGGED_FACTORS, axis->name.span,
                        "the ragged axis '%.*s' has %d factors: it is a sequence and a position",
                        STR_FMT(axis->name.text), axis->factors.n);
        diag_note(c->diags, d, "write axis %.*s = sequence * position ragged;",
                  STR_FMT(axis->name.text));
    }
}

static void check_product(Checker *c, const AstAxis *axis)
{
    i64 size, whole = 1;
    for (int f = 0; f < axis->factors.n; f++) {
        const AstFactor *factor = &axis->factors.v[f];
        if (!factor->has_size) {
            Diag *d = fault(c, DIAG_FACTOR_SIZE, factor->name.span, "factor '%.*s' has no size",
                            STR_FMT(factor->name.text));
            diag_note(c->diags, d, "write its size after its name: heads = kv_heads 8 * group 4; "
                                   "only the factors of a ragged axis have none");
        } else if (number_int(c, &factor->size, 1, SIZE_MAX_VALUE, DIAG_BAD_SIZE, "a factor's size",
                              &size) &&
                   whole <= SIZE_MAX_VALUE)
            whole *= size;
    }
    if (whole > SIZE_MAX_VALUE)
        fault(c, DIAG_BAD_SIZE, axis->name.span, "axis '%.*s' has more than %d elements",
              STR_FMT(axis->name.text), SIZE_MAX_VALUE);
}

void check_axis_sizes(Checker *c, int index)
{
    const AstAxis *axis = &c->ast->axes.v[index];
    i64 size, stored;
    if (axis->ragged) {
        check_ragged(c, axis);
        return;
    }
    if (axis->product) {
        check_product(c, axis);
        return;
    }
    bool known = number_int(c, &axis->size, 1, SIZE_MAX_VALUE, DIAG_BAD_SIZE, "an axis's size",
                            &size);
    if (!axis->padded ||
        !number_int(c, &axis->stored, 1, SIZE_MAX_VALUE, DIAG_BAD_SIZE, "a stored size", &stored) ||
        !known || stored >= size)
        return;
    Diag *d = fault(c, DIAG_BAD_PADDING, axis->stored.span,
                    "'%.*s' has %lld elements and is stored in %lld: less than it has",
                    STR_FMT(axis->name.text), (long long)size, (long long)stored);
    diag_note(c->diags, d, "the size comes first, then what is stored: axis vocab = 100278 in "
                           "100352;");
}

static int new_axis(Checker *c, Name name, bool atomic)
{
    Contract *contract = c->contract;
    int id = contract->n_axes++;
    contract->axes[id] = (Axis){.name = name, .coordinate_of = -1, .parent = -1, .atom = -1};
    if (!atomic)
        return id;
    if (contract->n_atoms == MAX_ATOMS) {
        Diag *d = fault(c, DIAG_TOO_MANY_AXES, name.span, "more than %d axes", MAX_ATOMS);
        diag_note(c->diags, d, "a product axis counts as its factors; leave out what no op uses");
        contract->axes[id].atom = 0;
        return id;
    }
    contract->axes[id].atom = contract->n_atoms;
    contract->atom_axis[contract->n_atoms++] = id;
    return id;
}

static void build_factors(Checker *c, const AstAxis *axis, int id)
{
    Contract *contract = c->contract;
    int *factors = arena_array(c->arena, int, axis->factors.n);
    i64 whole = 1, size = 0;
    for (int f = 0; f < axis->factors.n; f++) {
        factors[f] = new_axis(c, axis->factors.v[f].name, true);
        Axis *factor = &contract->axes[factors[f]];
        if (axis->ragged) {
            factor->coordinate_of = id;
            continue;
        }
        number_int(c, &axis->factors.v[f].size, 1, SIZE_MAX_VALUE, DIAG_BAD_SIZE, "a size", &size);
        factor->parent = id;
        factor->size = factor->stored = size;
        whole *= size;
    }
    contract->axes[id].n_factors = axis->factors.n;
    contract->axes[id].factors = factors;
    if (!axis->ragged)
        contract->axes[id].size = contract->axes[id].stored = whole;
}

void build_axis(Checker *c, int index)
{
    const AstAxis *axis = &c->ast->axes.v[index];
    int id = new_axis(c, axis->name, axis->ragged || !axis->product);
    Axis *built = &c->contract->axes[id];
    built->free = axis->ragged;
    if (axis->product) {
        build_factors(c, axis, id);
    } else if (!axis->ragged) {
        number_int(c, &axis->size, 1, SIZE_MAX_VALUE, DIAG_BAD_SIZE, "a size", &built->size);
        built->stored = built->size;
        if (axis->padded)
            number_int(c, &axis->stored, 1, SIZE_MAX_VALUE, DIAG_BAD_SIZE, "a size",
                       &built->stored);
    }
}

static bool is_sparse(const Ast *ast, Name name)
{
    for (int i = 0; i < ast->axes.n; i++)
        if (str_eq(ast->axes.v[i].name.text, name.text))
            return ast->axes.v[i].sparse;
    return false;
}

/* Once every axis is known: the one that a sparse axis has elements of may come after it. */
void check_sparse_axis(Checker *c, int index)
{
    const AstAxis *axis = &c->ast->axes.v[index];
    int own = axis->sparse ? axis_of_name(c, axis->name) : -1, of;
    if (own < 0 || (of = axis_of_name(c, axis->of)) < 0)
        return;
    Axis *sparse = &c->contract->axes[own];
    const Axis *all = &c->contract->axes[of];
    sparse->sparse_of = of + 1;
    if (all->free || all->n_factors || all->coordinate_of >= 0 || is_sparse(c->ast, all->name)) {
        Diag *d = fault(c, DIAG_SPARSE_AXIS, axis->of.span,
                        "'%.*s' cannot have elements of '%.*s', which %s",
                        STR_FMT(axis->name.text), STR_FMT(all->name.text),
                        is_sparse(c->ast, all->name)   ? "is such an axis itself"
                        : all->free || !all->size ? "has no fixed size" : "has factors");
        diag_note(c->diags, d, "an axis of fixed size without factors has them: axis experts = "
                               "128, picks = 8 of experts;");
    } else if (sparse->size > all->size) {
        Diag *d = fault(c, DIAG_SPARSE_AXIS, axis->size.span,
                        "'%.*s' has %lld different elements of '%.*s', which has %lld",
                        STR_FMT(axis->name.text), (long long)sparse->size,
                        STR_FMT(all->name.text), (long long)all->size);
        diag_note(c->diags, d, "a token has each element once at most");
    }
}

static bool is_declared_axis(const Ast *ast, Str name, Guess *guess)
{
    for (int i = 0; i < ast->axes.n; i++) {
        const AstAxis *a = &ast->axes.v[i];
        if (str_eq(a->name.text, name))
            return true;
        guess_add(guess, a->name.text);
        for (int f = 0; f < a->factors.n; f++) {
            if (str_eq(a->factors.v[f].name.text, name))
                return true;
            guess_add(guess, a->factors.v[f].name.text);
        }
    }
    return false;
}

int axis_of_name(Checker *c, Name name)
{
    for (int i = 0; i < c->contract->n_axes; i++)
        if (str_eq(c->contract->axes[i].name.text, name.text))
            return i;
    c->failed = true;
    Guess guess = guess_of(name.text);
    if (is_declared_axis(c->ast, name.text, &guess))
        return -2;
    Diag *d = fault(c, DIAG_UNKNOWN_AXIS, name.span, "unknown axis '%.*s'", STR_FMT(name.text));
    guess_tell(c, d, name.span, &guess);
    if (!guess.best.n)
        diag_note(c->diags, d, "declare it before its use or after: axis %.*s = ...;",
                  STR_FMT(name.text));
    return -1;
}

u64 axis_mask(const Contract *contract, int axis)
{
    const Axis *a = &contract->axes[axis];
    u64 mask = 0;
    if (a->atom >= 0)
        return bit(a->atom);
    for (int f = 0; f < a->n_factors; f++)
        mask |= bit(contract->axes[a->factors[f]].atom);
    return mask;
}

u64 effective_mask(const Contract *contract, u64 mask)
{
    u64 effective = mask;
    for (int a = 0; a < contract->n_atoms; a++) {
        int ragged = contract->axes[contract->atom_axis[a]].coordinate_of;
        if (ragged >= 0 && (mask & bit(a)))
            effective = (effective & ~bit(a)) | bit(contract->axes[ragged].atom);
    }
    return effective;
}

/* A product whose factors are all there is called by its own name. */
Str mask_text(Checker *c, u64 mask)
{
    Text out = {.arena = c->arena};
    const Contract *contract = c->contract;
    for (int i = 0; i < contract->n_axes; i++) {
        const Axis *a = &contract->axes[i];
        u64 own = axis_mask(contract, i);
        bool within = a->parent >= 0 && !(axis_mask(contract, a->parent) & ~mask);
        if (own == 0 || (own & ~mask) || within)
            continue;
        text_printf(&out, "%s'%.*s'", out.n ? ", " : "", STR_FMT(a->name.text));
    }
    return text_str(&out);
}
