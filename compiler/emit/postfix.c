/* Join programs as texts, the form in which kernels run them. */
#include "emit_impl.h"

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

static void op_letters(Text *text, const JoinOp *op, bool pairs)
{
    if (op->kind == NODE_JOIN) {
        if (pairs && text->n >= 2 && !memcmp(text->s + text->n - 2, "LL", 2)) {
            text->n -= 2;
            text_add(text, STR("P"));
        } else {
            text_add(text, STR("+"));
        }
    }
    if (op->type == DT_BF16)
        text_add(text, STR("b"));
    if (op->type == DT_F16)
        text_add(text, STR("h"));
}

Str postfix_text(Arena *arena, const JoinProgram *program, bool roots, bool pairs)
{
    Text text = {.arena = arena};
    int *counts, root = 0, done = 0;
    final_counts(arena, program, &counts);
    const JoinOp *op = program->ops;
    for (int i = 0; i < program->n_roots; i++) {
        text_add(&text, STR("L"));
        for (int j = 0; j < program->n_ops[i]; j++)
            op_letters(&text, op++, pairs);
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
        height += (c == 'L' || c == 'P') - (c == '+' || c == 'R');
        most = height > most ? height : most;
    }
    return most;
}
