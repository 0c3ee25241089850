/* Join programs as texts, the form in which kernels run them. */
#include "plan.h"

#include <string.h>

/* Leaves below each value that nothing consumes, bottom first. */
static int final_counts(Arena *arena, const JoinProgram *program, int **counts)
{
    int *stack = arena_array(arena, int, program->n_roots + 1), height = 0;
    const JoinOp *op = program->ops;
    for (int i = 0; i < program->n_roots; i++) {
        stack[height++] = 1;
        for (int j = 0; j < program->n_ops[i]; j++, op++) {
            if (op->kind != NODE_JOIN)
                continue;
            height--;
            stack[height - 1] += stack[height];
        }
    }
    *counts = stack;
    return height;
}

/* Whether the text ends with two of a letter; then they are gone. */
static bool take_two(Text *text, const char *two)
{
    bool ends = text->n >= 2 && !memcmp(text->s + text->n - 2, two, 2);
    text->n -= ends ? 2 : 0;
    return ends;
}

static void op_letters(Text *text, const JoinOp *op, int fused)
{
    if (op->kind == NODE_JOIN) {
        if (fused >= 2 && take_two(text, "LL"))
            text_add(text, STR("P"));
        else if (fused >= 4 && take_two(text, "PP"))
            text_add(text, STR("Q"));
        else
            text_add(text, STR("+"));
    }
    if (op->type == DT_BF16)
        text_add(text, STR("b"));
    if (op->type == DT_F16)
        text_add(text, STR("h"));
}

Str postfix_text(Arena *arena, const JoinProgram *program, bool roots, int fused)
{
    Text text = {.arena = arena};
    int *counts, root = 0, done = 0;
    final_counts(arena, program, &counts);
    const JoinOp *op = program->ops;
    for (int i = 0; i < program->n_roots; i++) {
        text_add(&text, STR("L"));
        for (int j = 0; j < program->n_ops[i]; j++)
            op_letters(&text, op++, fused);
        if (roots && i + 1 - done == counts[root]) {
            text_add(&text, STR("R"));
            done += counts[root++];
        }
    }
    return text_str(&text);
}

int postfix_depth(Str text)
{
    int height = 0, most = 0;
    for (int i = 0; i < text.n; i++) {
        char c = text.s[i];
        height += (c == 'L' || c == 'P' || c == 'Q') - (c == '+' || c == 'R');
        most = height > most ? height : most;
    }
    return most;
}

Str postfix_units(Arena *arena, Str text, int fused, int *n)
{
    char letter = fused == 4 ? 'Q' : fused == 2 ? 'P' : 'L';
    Str units = str_format(arena, "%.*s", STR_FMT(text));
    *n = 0;
    for (int i = 0; i < units.n; i++) {
        if (units.s[i] != 'L' && units.s[i] != 'P' && units.s[i] != 'Q')
            continue;
        if (units.s[i] != letter)
            *n = MAX_LEAVES + 1;
        ((char *)units.s)[i] = 'L';
        ++*n;
    }
    return units;
}
