/* Any bytes as a contract: no crash, no leak, no endless loop; what is accepted prints to a text
 * that is accepted and prints to itself, and has a meaning and, if it is small, a plan. Input: the
 * main file; after a line `%%`, a file that every include gets. */
#include <stdlib.h>
#include <string.h>

#include "front/parse.h"
#include "plan/plan.h"

typedef struct Input {
    Str main, other;
} Input;

static bool read_input(void *self, Arena *arena, Str from, Str name, Str *resolved, Str *text,
                       Str *reason)
{
    const Input *input = self;
    (void)arena;
    (void)reason;
    *resolved = name;
    *text = from.n == 0 ? input->main : input->other;
    return true;
}

static void trap(bool holds)
{
    if (!holds)
        abort();
}

static bool parse_text(Arena *arena, const Input *input, Sources *sources, Diags *diags, Ast *ast)
{
    *sources = (Sources){.arena = arena, .reader = {read_input, (void *)(uintptr_t)input}};
    diags_init(diags, arena, sources);
    return parse_contract(sources, STR("main.iso"), ast, arena, diags);
}

static Str printed(Arena *arena, const Ast *ast)
{
    Text out = {.arena = arena};
    ast_print(ast, &out);
    return text_str(&out);
}

static void check_printing(Arena *arena, const Ast *ast)
{
    Sources sources;
    Diags diags;
    Ast again;
    Input input = {printed(arena, ast), STR("")};
    trap(parse_text(arena, &input, &sources, &diags, &again));
    trap(str_eq(printed(arena, &again), input.main));
}

/* Trees are expanded and ranks enumerated: sizes decide the time. */
static bool is_small(const Contract *contract)
{
    for (int i = 0; i < contract->n_axes; i++)
        if (contract->axes[i].size > 20000)
            return false;
    for (int i = 0; i < contract->n_layouts; i++) {
        i64 ranks = 1;
        for (int m = 0; m < contract->layouts[i].n_meshes && ranks <= 64; m++)
            ranks *= contract->layouts[i].meshes[m].degree;
        if (ranks > 64)
            return false;
    }
    return contract->n_layouts <= 4 && contract->n_ops <= 8;
}

static void check_plan(Arena *arena, const Dag *dag, Diags *diags)
{
    Plan plan;
    int errors = diags->errors;
    if (plan_build(dag, NULL, &plan, arena, diags)) {
        Text out = {.arena = arena};
        plan_print(&plan, &out);
        plan_json(&plan, &out);
    } else {
        trap(diags->errors > errors);
    }
}

static void check_meaning(Arena *arena, const Ast *ast, Diags *diags)
{
    Contract contract;
    Dag dag;
    bool sound = check_contract(ast, &contract, arena, diags);
    trap(sound || diags->errors > 0);
    if (!sound || !dag_build(&contract, &dag, arena, diags))
        return;
    for (int i = 0; i < dag.n_ops; i++) {
        Text out = {.arena = arena};
        dag_canonical(&dag, &dag.ops[i], &out);
        dag_print(&dag, &dag.ops[i], &out);
    }
    if (is_small(&contract))
        check_plan(arena, &dag, diags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Str text = {(const char *)data, (int)size};
    Input input = {text, STR("")};
    for (int i = 0; i + 3 < text.n; i++)
        if (!memcmp(text.s + i, "\n%%\n", 4)) {
            input.main.n = i + 1;
            input.other = (Str){text.s + i + 4, text.n - i - 4};
            break;
        }
    Arena *arena = arena_new();
    Sources sources;
    Diags diags;
    Ast ast;
    bool parsed = parse_text(arena, &input, &sources, &diags, &ast);
    trap(parsed || diags.errors > 0);
    if (parsed) {
        check_printing(arena, &ast);
        check_meaning(arena, &ast, &diags);
    }
    Text out = {.arena = arena};
    diags_render_text(&diags, &out, true);
    diags_render_json(&diags, &out);
    arena_free(arena);
    return 0;
}
