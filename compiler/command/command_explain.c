/* `isoc explain` and `isoc diff`: what a contract's numerics are, and how two differ. */
#include "commands.h"
#include "explain/diff.h"
#include "explain/explain.h"

#include <stdio.h>

static const OpDag *find_op(Pipeline *p, const char *name)
{
    Str wanted = str_of(name), nearest = {0};
    int best = 4;
    for (int i = 0; i < p->dag.n_ops; i++) {
        Str own = p->dag.ops[i].op->name;
        int distance = str_distance(own, wanted);
        if (str_eq(own, wanted))
            return &p->dag.ops[i];
        if (distance < best) {
            best = distance;
            nearest = own;
        }
    }
    Diag *d = diag_add(&p->diags, DIAG_NO_SUCH_OP, (Span){0}, "contract %.*s has no op `%s`",
                       STR_FMT(p->contract.name), name);
    if (nearest.n)
        diag_note(&p->diags, d, "did you mean `%.*s`?", STR_FMT(nearest));
    p->outcome = OUTCOME_USAGE;
    return NULL;
}

/* The op under the layout that --layout names: whether kernels can follow it is another matter. */
static bool apply_layout(Pipeline *p, const OpDag *op, OpLayout *at)
{
    const Layout *layout;
    if (!pipeline_layout(p, &layout))
        return false;
    if (layout_apply(&p->contract, op, layout, at, p->out, &p->diags))
        return true;
    p->outcome = OUTCOME_CONTRACT;
    return false;
}

static bool explain_model(Pipeline *p)
{
    Text text = {.arena = p->out};
    dag_model_text(&p->dag, true, &text);
    printf("%.*s", STR_FMT(text_str(&text)));
    return true;
}

static bool explain(Pipeline *p, const Options *o)
{
    OpLayout at;
    const Model *model = p->contract.model;
    if (model && str_is(model->name.text, o->operand[1]) &&
        !contract_op(&p->contract, model->name.text))
        return explain_model(p);
    const OpDag *op = find_op(p, o->operand[1]);
    if (!op || (o->layout && !apply_layout(p, op, &at)))
        return false;
    Text text = {.arena = p->out};
    if (!explain_op(&p->dag, op, o->layout ? &at : NULL, &text, p->out))
        return false;
    printf("%.*s", STR_FMT(text_str(&text)));
    return true;
}

int command_explain(const Options *o)
{
    Pipeline p;
    bool ok = command_run(o, o->operand[0], STAGE_DAG, &p);
    if (!p.front)
        return command_no_memory();
    jmp_buf oom;
    arena_on_oom(p.out, &oom);
    arena_on_oom(p.front, &oom);
    if (setjmp(oom))
        p.outcome = OUTCOME_MEMORY;
    else if (ok)
        explain(&p, o);
    command_messages(o, &p);
    int code = p.outcome;
    pipeline_close(&p);
    return code == OUTCOME_MEMORY ? command_no_memory() : code;
}

/* ---- diff ------------------------------------------------------------------------------------ */

static int diff_pipelines(const Options *o, Pipeline *a, Pipeline *b)
{
    jmp_buf oom;
    int different = 0;
    Text text = {.arena = a->out};
    arena_on_oom(a->out, &oom);
    if (setjmp(oom) || !diff_contracts(&a->dag, &b->dag, &text, a->out, &different))
        return command_no_memory();
    arena_on_oom(a->out, NULL);
    printf("%.*s", STR_FMT(text_str(&text)));
    if (o->verbose)
        printf("%d ops differ\n", different);
    return different ? OUTCOME_DIFFER : OUTCOME_OK;
}

/* 0 when both files are contracts, whatever they say. */
static int open_both(const Options *o, Pipeline *a, Pipeline *b)
{
    Pipeline *const both[] = {a, b};
    int code = OUTCOME_OK;
    for (int i = 0; i < 2; i++) {
        bool ok = command_run(o, o->operand[i], STAGE_DAG, both[i]);
        if (!both[i]->front)
            return command_no_memory();
        command_messages(o, both[i]);
        if (!ok && code == OUTCOME_OK)
            code = both[i]->outcome;
    }
    return code;
}

int command_diff(const Options *o)
{
    Pipeline a = {0}, b = {0};
    int code = open_both(o, &a, &b);
    if (code == OUTCOME_OK)
        code = diff_pipelines(o, &a, &b);
    pipeline_close(&a);
    pipeline_close(&b);
    return code;
}
