/* The certificate as JSON, and its table for people. */
#include "proof.h"

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_string(Text *out, Str s)
{
    text_printf(out, "\"");
    for (int i = 0; i < s.n; i++) {
        u8 c = (u8)s.s[i];
        if (c == '"' || c == '\\')
            text_printf(out, "\\%c", c);
        else if (c < 0x20)
            text_printf(out, "\\u%04x", c);
        else
            text_add(out, (Str){s.s + i, 1});
    }
    text_printf(out, "\"");
}

static void json_field(Text *out, const char *key, Str value)
{
    text_printf(out, "\"%s\": ", key);
    json_string(out, value);
}

static bool has_terms(const Obligation *obligation)
{
    static const Digest zero = {{0}};
    return !digest_eq(&obligation->contract, &zero);
}

static void json_obligation(const Obligation *obligation, Text *out)
{
    text_printf(out, "{");
    json_field(out, "op", obligation->op);
    text_printf(out, ", ");
    json_field(out, "layout", obligation->layout);
    text_printf(out, ", ");
    json_field(out, "schedule", obligation->schedule);
    text_printf(out, ", ");
    json_field(out, "what", obligation->what);
    text_printf(out, ", \"holds\": %s, ", obligation->holds ? "true" : "false");
    json_field(out, "detail", obligation->detail);
    if (has_terms(obligation)) {
        text_printf(out, ", ");
        json_field(out, "contract", digest_hex(out->arena, &obligation->contract));
        text_printf(out, ", ");
        json_field(out, "plan", digest_hex(out->arena, &obligation->plan));
    }
    text_printf(out, "}");
}

void proof_json(const Dag *dag, const Certificate *certificate, Text *out)
{
    text_printf(out, "{\"certificate\": 1, \"level\": 1, ");
    json_field(out, "name", dag->contract->name);
    text_printf(out, ", \"version\": %d, ", dag->contract->version);
    json_field(out, "fingerprint", digest_hex(out->arena, &dag->fingerprint));
    text_printf(out, ", \"failed\": %d,\n\"obligations\": [", certificate->failed);
    for (int i = 0; i < certificate->obligations.n; i++) {
        text_printf(out, "%s\n", i ? "," : "");
        json_obligation(&certificate->obligations.v[i], out);
    }
    text_printf(out, "],\n\"side_conditions\": [");
    for (int i = 0; i < certificate->side_conditions.n; i++) {
        text_printf(out, "%s\n", i ? "," : "");
        json_string(out, certificate->side_conditions.v[i]);
    }
    text_printf(out, "]}\n");
}

/* ---- table ----------------------------------------------------------------------------------- */

enum { COLUMNS = 7 };

typedef struct Line {
    Str column[COLUMNS]; /* layout, ranks, ops, cut, moves, roots, proof */
} Line;

enum { LAYOUT, RANKS, OPS, CUT }; /* columns from CUT on tell lines of one layout apart */

static Str cut_text(const Contract *contract, const OpLayout *at, Arena *arena)
{
    Text text = {.arena = arena};
    for (int m = 0; m < at->n_meshes; m++) {
        bool told = at->cut.axis[m] < 0 || at->degree[m] == 1;
        for (int i = 0; i < m; i++)
            told |= at->degree[i] > 1 && at->cut.axis[i] == at->cut.axis[m];
        if (!told)
            text_printf(&text, "%s%.*s", text.n ? ", " : "",
                        STR_FMT(contract->axes[at->cut.axis[m]].name.text));
    }
    if (!text.n)
        text_printf(&text, at->ranks > 1 ? "replicated" : "whole");
    return text_str(&text);
}

static void add_moves(const Tensor *tensors, const Move *moves, int n, Text *text)
{
    for (int i = 0; i < n; i++)
        if (moves[i] != MOVE_NONE)
            text_printf(text, "%s%s of %.*s", text->n ? ", " : "", move_name(moves[i]),
                        STR_FMT(tensors[i].name.text));
}

static Str moves_text(const PlanOp *op, Arena *arena)
{
    const Op *own = op->op->op;
    Text text = {.arena = arena};
    add_moves(own->params, op->at.param_move, own->n_params, &text);
    add_moves(own->results, op->at.result_move, own->n_results, &text);
    if (!text.n)
        text_printf(&text, "nothing");
    return text_str(&text);
}

static Str roots_text(const Plan *plan, const PlanOp *op, Arena *arena)
{
    int most = 0;
    if (op->join_kernel < 0)
        return STR("-");
    const Join *join = &plan->kernels.v[op->join_kernel]->join;
    for (int i = 0; i < join->n_sources; i++)
        if (join->roots_of_rank[i] > most)
            most = join->roots_of_rank[i];
    return str_format(arena, "%d", most);
}

static Str proof_text(const Certificate *certificate, const PlanOp *op, Arena *arena)
{
    int held = 0, all = 0;
    Str layout = op->at.layout ? op->at.layout->name.text : STR("");
    for (int i = 0; i < certificate->obligations.n; i++) {
        const Obligation *obligation = &certificate->obligations.v[i];
        if (!str_eq(obligation->op, op->op->op->name) || !str_eq(obligation->layout, layout))
            continue;
        all++;
        held += obligation->holds;
    }
    return held == all ? str_format(arena, "ok (%d)", all)
                       : str_format(arena, "FAILED (%d of %d)", all - held, all);
}

static bool same_line(const Line *a, const Line *b)
{
    for (int i = CUT; i < COLUMNS; i++)
        if (!str_eq(a->column[i], b->column[i]))
            return false;
    return true;
}

static Line line_of(const Plan *plan, const Certificate *certificate, const PlanOp *op,
                    Arena *arena)
{
    return (Line){{STR(""), STR(""), op->op->op->name,
                   cut_text(plan->dag->contract, &op->at, arena), moves_text(op, arena),
                   roots_text(plan, op, arena), proof_text(certificate, op, arena)}};
}

/* Ops of one layout that read alike share a line, which stands where the first of them does. */
static int layout_lines(const Plan *plan, const Certificate *certificate, int first, Line *lines,
                        int *n_lines, Arena *arena)
{
    int i = first, from = *n_lines;
    for (; i < plan->ops.n && plan->ops.v[i].at.layout == plan->ops.v[first].at.layout; i++) {
        Line line = line_of(plan, certificate, &plan->ops.v[i], arena);
        int at = from;
        while (at < *n_lines && !same_line(&lines[at], &line))
            at++;
        if (at == *n_lines)
            lines[(*n_lines)++] = line;
        else
            lines[at].column[OPS] = str_format(arena, "%.*s %.*s", STR_FMT(lines[at].column[OPS]),
                                               STR_FMT(line.column[OPS]));
    }
    const OpLayout *at = &plan->ops.v[first].at;
    lines[from].column[LAYOUT] = at->layout ? at->layout->name.text : STR("(none)");
    lines[from].column[RANKS] = str_format(arena, "%d", at->ranks);
    return i;
}

/* The words of a list that fit into a line, at least one; the rest stays. */
static Str take_words(Str *rest)
{
    enum { WIDEST = 48 };
    int n = 0;
    for (int i = 1; i <= rest->n && (i <= WIDEST || !n); i++)
        if (i == rest->n || rest->s[i] == ' ')
            n = i;
    Str taken = {rest->s, n};
    int gone = n < rest->n ? n + 1 : n;
    *rest = (Str){rest->s + gone, rest->n - gone};
    return taken;
}

static int column_width(Str text, int column)
{
    int width = 0;
    while (text.n) {
        int n = column == OPS ? take_words(&text).n : text.n;
        width = n > width ? n : width;
        text = column == OPS ? text : STR("");
    }
    return width;
}

static void print_line(Line line, const int *width, Text *out)
{
    Str ops = line.column[OPS];
    line.column[OPS] = take_words(&ops);
    for (int c = 0; c + 1 < COLUMNS; c++)
        text_printf(out, "%-*.*s  ", width[c], STR_FMT(line.column[c]));
    text_printf(out, "%.*s\n", STR_FMT(line.column[COLUMNS - 1]));
    while (ops.n) {
        Str more = take_words(&ops);
        text_printf(out, "%*s%.*s\n", width[LAYOUT] + width[RANKS] + 4, "", STR_FMT(more));
    }
}

static void print_lines(const Line *lines, int n, Text *out)
{
    int width[COLUMNS] = {0};
    for (int i = 0; i < n; i++)
        for (int c = 0; c < COLUMNS; c++) {
            int wide = column_width(lines[i].column[c], c);
            width[c] = wide > width[c] ? wide : width[c];
        }
    for (int i = 0; i < n; i++)
        print_line(lines[i], width, out);
}

void proof_table(const Plan *plan, const Certificate *certificate, Text *out)
{
    Line *lines = arena_array(out->arena, Line, plan->ops.n + 1);
    int n = 1;
    lines[0] = (Line){{STR("layout"), STR("ranks"), STR("ops"), STR("cut along"), STR("moves"),
                       STR("roots"), STR("proof")}};
    for (int i = 0; i < plan->ops.n;)
        i = layout_lines(plan, certificate, i, lines, &n, out->arena);
    print_lines(lines, n, out);
    text_printf(out, "%d obligations, %d failed\n", certificate->obligations.n,
                certificate->failed);
}
