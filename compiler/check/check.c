/* The checker: a table of checks run over their subjects, and what all of them use. */
#include "check_impl.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    Subject subject;
    void (*run)(Checker *c, int index);
    u64 prerequisites;
} checks[] = {
#define AFTER(id) ((u64)1 << CHECK_##id)
#define X(id, clause, subject, function, prerequisites) {subject, function, prerequisites},
#include "check.def"
#undef X
#undef AFTER
};

_Static_assert(CHECK_COUNT <= 64, "prerequisites are a mask");

static int subject_count(const Ast *ast, Subject subject)
{
    const int counts[SUBJECT_COUNT] = {
        [OF_CONTRACT] = 1,          [OF_PARAM] = ast->params.n, [OF_AXIS] = ast->axes.n,
        [OF_TREE] = ast->trees.n,   [OF_OP] = ast->ops.n,       [OF_LAYOUT] = ast->layouts.n,
        [OF_SCHEDULE] = ast->schedules.n,
        [OF_MODEL] = ast->has_model,
    };
    return counts[subject];
}

bool has_passed(const Checker *c, CheckId id, int subject)
{
    return c->status[id][subject] == PASSED;
}

static bool is_ready(const Checker *c, CheckId id, int subject)
{
    for (int p = 0; p < CHECK_COUNT; p++)
        if ((checks[id].prerequisites & bit(p)) && !has_passed(c, (CheckId)p, subject))
            return false;
    return true;
}

static void run_check(Checker *c, CheckId id)
{
    int n = subject_count(c->ast, checks[id].subject);
    c->status[id] = arena_array(c->arena, CheckStatus, n + 1);
    for (int i = 0; i < n; i++) {
        if (!is_ready(c, id, i)) {
            c->status[id][i] = PREREQ;
            continue;
        }
        c->failed = false;
        checks[id].run(c, i);
        c->status[id][i] = c->failed ? FAILED : PASSED;
    }
}

static void allot(Checker *c)
{
    const Ast *ast = c->ast;
    Contract *contract = c->contract;
    int n_axes = 0;
    for (int i = 0; i < ast->axes.n; i++)
        n_axes += 1 + ast->axes.v[i].factors.n;
    *contract = (Contract){.name = ast->contract.text, .ast = ast};
    contract->axes = arena_array(c->arena, Axis, n_axes + 1);
    contract->trees = arena_array(c->arena, struct NamedTree, ast->trees.n + 1);
    contract->ops = arena_array(c->arena, Op, ast->ops.n + 1);
    contract->n_ops = ast->ops.n;
    contract->layouts = arena_array(c->arena, Layout, ast->layouts.n + 1);
    contract->n_layouts = ast->layouts.n;
    contract->schedules = arena_array(c->arena, Schedule, ast->schedules.n + 1);
    contract->n_schedules = ast->schedules.n;
    c->ops = arena_array(c->arena, OpState, ast->ops.n + 1);
}

/* Lists are searched one by one: what no contract of a model needs is refused at once. */
static bool is_few(Checker *c, const char *what, int n, int most)
{
    if (n <= most)
        return true;
    Diag *d = fault(c, DIAG_TOO_MANY, (Span){0}, "%d %s, more than the %d that a contract may have",
                    n, what, most);
    diag_note(c->diags, d, "make two contracts of it: an engine can load both");
    return false;
}

static bool is_small(Checker *c)
{
    const Ast *ast = c->ast;
    bool small = is_few(c, "params", ast->params.n, ITEMS_MAX);
    small &= is_few(c, "ops", ast->ops.n, ITEMS_MAX);
    small &= is_few(c, "schedules", ast->schedules.n, ITEMS_MAX);
    small &= is_few(c, "axes", ast->axes.n, DECLS_MAX);
    small &= is_few(c, "trees", ast->trees.n, DECLS_MAX);
    return small & is_few(c, "layouts", ast->layouts.n, DECLS_MAX);
}

bool check_contract(const Ast *ast, Contract *contract, Arena *arena, Diags *diags)
{
    Checker c = {.ast = ast, .contract = contract, .arena = arena, .diags = diags};
    bool sound = true;
    if (!is_small(&c))
        return false;
    allot(&c);
    for (int id = 0; id < CHECK_COUNT; id++)
        run_check(&c, (CheckId)id);
    for (int id = 0; id < CHECK_COUNT; id++)
        for (int i = 0; i < subject_count(ast, checks[id].subject); i++)
            sound &= c.status[id][i] == PASSED;
    return sound;
}

/* ---- faults and guesses ---------------------------------------------------------------------- */

Diag *fault(Checker *c, DiagId id, Span span, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->failed = true;
    if (!c->quiet)
        return diag_add(c->diags, id, span, "%s", text);
    return arena_new_of(c->arena, Diag);
}

Guess guess_of(Str want)
{
    return (Guess){.want = want};
}

/* Edits count, and a common start tells two names of equal distance apart. */
void guess_add(Guess *guess, Str name)
{
    int distance = str_distance(guess->want, name), same = 0;
    while (same < name.n && same < guess->want.n && name.s[same] == guess->want.s[same])
        same++;
    if (distance == 0 || distance > guess->want.n / 3 + 1 || distance >= name.n)
        return;
    int rank = distance * 256 - same;
    if (guess->best.n && rank >= guess->rank)
        return;
    guess->rank = rank;
    guess->best = name;
}

void guess_tell(Checker *c, Diag *diag, Span span, const Guess *guess)
{
    if (guess->best.n == 0)
        return;
    diag_note(c->diags, diag, "did you mean '%.*s'?", STR_FMT(guess->best));
    diag_fix(c->diags, diag, span, "%.*s", STR_FMT(guess->best));
}

Str source_text(const Checker *c, Span span)
{
    return (Str){c->diags->sources->files.v[span.file].text.s + span.lo, span.hi - span.lo};
}

/* ---- the contract's lookups ------------------------------------------------------------------ */

const Op *contract_op(const Contract *contract, Str name)
{
    for (int i = 0; i < contract->n_ops; i++)
        if (str_eq(contract->ops[i].name, name))
            return &contract->ops[i];
    return NULL;
}

const Layout *contract_layout(const Contract *contract, Str name)
{
    for (int i = 0; i < contract->n_layouts; i++)
        if (str_eq(contract->layouts[i].name.text, name))
            return &contract->layouts[i];
    return NULL;
}

const Tensor *fix_tensor(const Op *op, const Fix *fix)
{
    i64 number = ~fix->at;
    return fix_is_result(fix) ? &op->results[number - FIX_RESULT] : &op->params[number];
}

int op_slots(const Op *op, int atom)
{
    for (int i = 0; i < op->n_params; i++)
        if (op->params[i].index_of > 0 && op->params[i].n_atoms == 2 &&
            op->params[i].atoms[1] == atom)
            return i;
    return -1;
}

Str weight_name(Arena *arena, const ModelWeight *weight)
{
    Str name = weight->name.text;
    for (int i = 0; weight->stack.n && i + weight->stack.n + 2 <= name.n; i++)
        if (name.s[i] == '{' && name.s[i + 1 + weight->stack.n] == '}' &&
            str_eq((Str){name.s + i + 1, weight->stack.n}, weight->stack))
            return str_format(arena, "%.*s{*}%.*s", i, name.s, name.n - i - weight->stack.n - 2,
                              name.s + i + weight->stack.n + 2);
    return name;
}

i64 atom_size(const Contract *contract, int atom, i64 free_length)
{
    const Axis *axis = &contract->axes[contract->atom_axis[atom]];
    return axis->free ? free_length : axis->size;
}
