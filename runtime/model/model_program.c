/* Programs: a model's statements written out for every turn, what each asked output needs, and the
 * times of values. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing out ---- */

typedef struct Unroll {
    Program *program;
    int *slot_of; /* what each value is at this point */
    int *next;
    int arguments, results;
} Unroll;

static int turns_of(const MfModel *model, int repeat)
{
    return repeat < 0 ? 1 : model->repeats[repeat].count;
}

static int add_slot(Unroll *u, int value, int turn, SlotSource source, int from, int result)
{
    Program *p = u->program;
    p->slots[p->n_slots] = (Slot){.value = value,
                                  .turn = turn,
                                  .source = source,
                                  .from = from,
                                  .result = result,
                                  .first = p->n_calls,
                                  .last = p->n_calls};
    return u->slot_of[value] = p->n_slots++;
}

/* The caches whose rows are written before a statement. */
static void add_caches(Unroll *u, int before, int repeat, int turn)
{
    Program *p = u->program;
    for (int i = 0; i < p->model->n_caches; i++) {
        const MfCache *cache = &p->model->caches[i];
        if (cache->before != before || cache->repeat != repeat)
            continue;
        int of = u->slot_of[cache->of];
        p->calls[p->n_calls] =
            (ModelCall){.statement = -1, .turn = turn, .cache = p->n_caches, .of = of};
        p->slots[of].last = p->n_calls;
        int slot = add_slot(u, cache->as, turn, SLOT_CACHE, p->n_caches, 0);
        p->caches[p->n_caches++] = (CacheTurn){i, turn, slot};
        p->n_calls++;
    }
}

static void add_argument(Unroll *u, const MfArgument *from, int parameter, int statement, int turn)
{
    Program *p = u->program;
    CallArgument *to = &p->all_arguments[u->arguments++];
    to->weight = from->weight;
    if (from->weight) {
        to->index = p->n_uses;
        p->uses[p->n_uses++] = (WeightUse){from->index, turn, statement, parameter, -1};
        return;
    }
    to->index = u->slot_of[from->index];
    p->slots[to->index].last = p->n_calls;
}

static void add_statement(Unroll *u, int statement, int turn)
{
    Program *p = u->program;
    const MfStatement *s = &p->model->statements[statement];
    ModelCall *call = &p->calls[p->n_calls];
    *call = (ModelCall){.statement = statement,
                        .turn = turn,
                        .cache = -1,
                        .arguments = p->all_arguments + u->arguments,
                        .results = p->all_results + u->results};
    for (int i = 0; i < s->n_arguments; i++)
        add_argument(u, &s->arguments[i], i, statement, turn);
    for (int i = 0; i < s->n_results; i++)
        p->all_results[u->results++] =
            add_slot(u, s->results[i], turn, SLOT_OP, p->n_calls, i);
    p->n_calls++;
}

/* From a repeat's second turn on, a value that it carries is what the turn before left. */
static void carry(Unroll *u, const MfRepeat *repeat)
{
    const MfModel *model = u->program->model;
    memcpy(u->next, u->slot_of, (size_t)model->n_values * sizeof(int));
    for (int i = repeat->first; i < repeat->end; i++)
        for (int k = 0; k < model->statements[i].n_results; k++)
            for (int v = 0; v < model->n_values; v++)
                if (model->values[v].carry == model->statements[i].results[k])
                    u->next[v] = u->slot_of[model->statements[i].results[k]];
    memcpy(u->slot_of, u->next, (size_t)model->n_values * sizeof(int));
}

static void add_repeat(Unroll *u, int index)
{
    const MfRepeat *repeat = &u->program->model->repeats[index];
    for (int turn = 0; turn < repeat->count; turn++) {
        for (int i = repeat->first; i < repeat->end; i++) {
            add_caches(u, i, index, turn);
            add_statement(u, i, turn);
        }
        add_caches(u, repeat->end, index, turn);
        if (turn + 1 < repeat->count)
            carry(u, repeat);
    }
}

static void write_out(Unroll *u)
{
    const MfModel *model = u->program->model;
    for (int i = 0; i < model->n_inputs; i++)
        add_slot(u, model->inputs[i], -1, SLOT_INPUT, i, 0);
    for (int i = 0; i < model->n_tables; i++) {
        add_slot(u, model->tables[i].cos, -1, SLOT_TABLE, i, 0);
        add_slot(u, model->tables[i].sin, -1, SLOT_TABLE, i, 1);
    }
    for (int i = 0; i <= model->n_statements;) {
        add_caches(u, i, -1, -1);
        if (i == model->n_statements)
            break;
        int repeat = model->statements[i].repeat;
        if (repeat < 0)
            add_statement(u, i++, -1);
        else
            add_repeat(u, repeat), i = model->repeats[repeat].end;
    }
}

/* ---- times ---- */

static bool reads_cache(const Program *p, const ModelCall *call)
{
    if (call->statement < 0)
        return true;
    for (int i = 0; i < p->model->statements[call->statement].n_arguments; i++)
        if (!call->arguments[i].weight &&
            p->slots[call->arguments[i].index].source == SLOT_CACHE)
            return true;
    return false;
}

/* What comes after the last repeat, and after the last cache: rows stand for themselves there. */
static void find_tail(Program *p)
{
    p->tail = p->n_calls;
    while (p->tail > 0 && p->calls[p->tail - 1].turn < 0 &&
           !reads_cache(p, &p->calls[p->tail - 1]))
        p->tail--;
    if (p->tail == 0)
        p->tail = p->n_calls;
}

/* A packed pass reads a cache's new rows where they were made. */
static void find_times(Program *p)
{
    for (int i = 0; i < p->n_caches; i++) {
        const Slot *as = &p->slots[p->caches[i].slot];
        Slot *of = &p->slots[p->calls[as->first].of];
        of->last = as->last > of->last ? as->last : of->last;
    }
    for (int i = 0; i < p->model->n_outputs; i++)
        p->slots[p->outputs[i]].last = p->n_calls;
    for (int i = 0; i < p->n_slots; i++) {
        Slot *slot = &p->slots[i];
        slot->crosses = slot->source == SLOT_OP && slot->first < p->tail && slot->last >= p->tail &&
                        p->tail < p->n_calls;
    }
}

/* ---- opening ---- */

static void *take(Program *p, int *taken, size_t n, size_t size)
{
    return p->memory[(*taken)++] = calloc(n + 1, size);
}

static iso_status make_room(Program *p)
{
    const MfModel *m = p->model;
    size_t calls = 0, slots = (size_t)m->n_inputs + 2 * (size_t)m->n_tables, caches = 0;
    size_t arguments = 0, results = 0;
    for (int i = 0; i < m->n_statements; i++) {
        size_t turns = (size_t)turns_of(m, m->statements[i].repeat);
        calls += turns;
        arguments += turns * (size_t)m->statements[i].n_arguments;
        results += turns * (size_t)m->statements[i].n_results;
    }
    for (int i = 0; i < m->n_caches; i++)
        caches += (size_t)turns_of(m, m->caches[i].repeat);
    int taken = 0;
    p->calls = take(p, &taken, calls + caches, sizeof(ModelCall));
    p->slots = take(p, &taken, slots + results + caches, sizeof(Slot));
    p->caches = take(p, &taken, caches, sizeof(CacheTurn));
    p->uses = take(p, &taken, arguments, sizeof(WeightUse));
    p->outputs = take(p, &taken, (size_t)m->n_outputs, sizeof(int));
    p->all_arguments = take(p, &taken, arguments, sizeof(CallArgument));
    p->all_results = take(p, &taken, results, sizeof(int));
    for (int i = 0; i < taken; i++)
        if (!p->memory[i])
            return iso_fail(ISO_OUT_OF_MEMORY, "no memory for the model's %zu calls", calls);
    return ISO_OK;
}

iso_status program_open(Program *p, const Manifest *manifest)
{
    memset(p, 0, sizeof *p);
    p->manifest = manifest;
    p->model = manifest->model;
    if (!p->model)
        return iso_fail(ISO_NO_MODEL, "contract %s has no model block", manifest->contract);
    Unroll u = {.program = p};
    size_t values = (size_t)p->model->n_values + 1;
    iso_status status = make_room(p);
    u.slot_of = calloc(values, sizeof(int));
    u.next = calloc(values, sizeof(int));
    if (!status && (!u.slot_of || !u.next))
        status = iso_fail(ISO_OUT_OF_MEMORY, "no memory for the model");
    if (!status) {
        write_out(&u);
        for (int i = 0; i < p->model->n_outputs; i++)
            p->outputs[i] = u.slot_of[p->model->outputs[i].value];
        find_tail(p);
        find_times(p);
    }
    free(u.slot_of);
    free(u.next);
    return status;
}

void program_close(Program *p)
{
    for (size_t i = 0; i < sizeof p->memory / sizeof p->memory[0]; i++)
        free(p->memory[i]);
    memset(p, 0, sizeof *p);
}

/* ---- what outputs need ---- */

/* The call that makes a slot, for a cache's the one that writes it; -1: none. */
static int maker_of(const Program *p, int slot)
{
    const Slot *s = &p->slots[slot];
    if (s->source == SLOT_OP)
        return s->from;
    return s->source == SLOT_CACHE ? s->first : -1;
}

static void need(const Program *p, int slot, bool *calls)
{
    int maker = maker_of(p, slot);
    if (maker >= 0)
        calls[maker] = true;
}

void program_needs(const Program *p, const bool *outputs, bool caches, bool *calls)
{
    memset(calls, 0, (size_t)p->n_calls * sizeof *calls);
    for (int i = 0; i < p->model->n_outputs; i++)
        if (outputs[i])
            need(p, p->outputs[i], calls);
    for (int i = p->n_calls - 1; i >= 0; i--) {
        const ModelCall *call = &p->calls[i];
        calls[i] = calls[i] || (caches && call->cache >= 0);
        if (!calls[i])
            continue;
        if (call->cache >= 0)
            need(p, call->of, calls);
        for (int k = 0; call->cache < 0 && k < p->model->statements[call->statement].n_arguments;
             k++)
            if (!call->arguments[k].weight)
                need(p, call->arguments[k].index, calls);
    }
}

/* ---- memory ---- */

enum { ALIGNMENT = 256 };

static bool meet(const Interval *a, const Interval *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The lowest place where the interval meets none of those already placed. */
static size_t place(const Interval *intervals, int n, const Interval *at)
{
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            size_t lo = *intervals[i].offset, hi = lo + intervals[i].bytes;
            if (meet(&intervals[i], at) && offset < hi && lo < offset + at->bytes)
                offset = hi, moved = true;
        }
    }
    return offset;
}

size_t plan_intervals(Interval *intervals, int n)
{
    size_t most = 0;
    for (int i = 0; i < n; i++) {
        intervals[i].bytes = (intervals[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        *intervals[i].offset = place(intervals, i, &intervals[i]);
        size_t end = *intervals[i].offset + intervals[i].bytes;
        most = end > most ? end : most;
    }
    return most;
}
