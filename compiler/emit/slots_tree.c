/* What a tree over places asks of a row's slots: its operations with their parts, or that all parts
 * are alike; and both as text. */
#include "slots_impl.h"

static bool ops_alike(const JoinOp *op, int n, bool joins, AlikeTree *out, bool first)
{
    int rounds = n - joins;
    DType type = rounds > 0 ? op[0].type : joins ? op[n - 1].type : DT_F32;
    if (rounds < 0 || rounds > 1 || (rounds && op[0].kind != NODE_ROUND) ||
        (joins && (op[n - 1].kind != NODE_JOIN || op[n - 1].type != type)))
        return false;
    bool same = first || out->type == type;
    out->type = type;
    return same;
}

bool slots_alike(const RowTree *tree, AlikeTree *out)
{
    const JoinProgram *program = &tree->program;
    const JoinOp *op = program->ops;
    *out = (AlikeTree){.each = program->n_roots > 1 && program->depth == program->n_roots,
                       .length = tree->parts[0].len};
    for (int p = 0; p < tree->n_parts; p++) {
        bool joins = p > 0 && !out->each;
        if (tree->parts[p].start != p * out->length || tree->parts[p].len != out->length ||
            !ops_alike(op, program->n_ops[p], joins, out, p == 0))
            return false;
        op += program->n_ops[p];
    }
    return true;
}

void slots_write_alike(KernelText *k, const AlikeTree *tree, int index)
{
    Writer *w = &k->head;
    writer_open(w, "struct Tree%d", index);
    writer_line(w, "static constexpr int kind = %s, length = %lld, type = %s;",
                tree->each ? "ISO_SLOTS_EACH" : "ISO_SLOTS_LEFT", (long long)tree->length,
                row_type(tree->type));
    writer_close(w, ";");
}

static char join_letter(const JoinOp *op)
{
    static const char joins[DT_COUNT] = {[DT_F32] = '+', [DT_BF16] = 'B', [DT_F16] = 'H'};
    static const char rounds[DT_COUNT] = {[DT_BF16] = 'b', [DT_F16] = 'h'};
    return op->kind == NODE_JOIN ? joins[op->type] : rounds[op->type];
}

void slots_tree(const JoinProgram *program, bool roots_out, SlotTree *out)
{
    u32 *stack = out->root;
    const JoinOp *op = program->ops;
    *out = (SlotTree){.depth = program->depth};
    for (int p = 0; p < program->n_roots; p++) {
        stack[out->n_roots++] = 1u << p;
        for (int i = 0; i < program->n_ops[p]; i++, op++) {
            u32 right = stack[out->n_roots - 1];
            if (op->kind == NODE_JOIN)
                out->n_roots--;
            out->op[out->n++] = (SlotOp){join_letter(op), 0, stack[out->n_roots - 1], right};
            if (op->kind == NODE_JOIN)
                stack[out->n_roots - 1] |= right;
        }
    }
    for (int r = 0; r < out->n_roots && roots_out; r++)
        out->op[out->n++] = (SlotOp){'R', r, stack[r], stack[r]};
}

/* The tree's struct: the part of a place, and what its operations are. */
void slots_write_tree(KernelText *k, const RowTree *tree, const SlotTree *ops, int index)
{
    Writer *w = &k->head;
    Text letters = {.arena = k->arena}, roots = {.arena = k->arena};
    bool plain = true;
    for (int i = 0; i < ops->n; i++) {
        text_printf(&letters, "%c", ops->op[i].letter);
        text_printf(&roots, "%d, ", ops->op[i].root);
        plain = plain && ops->op[i].letter == '+';
    }
    writer_line(w, "__constant__ constexpr char letters%d[] = \"%.*s\";", index,
                STR_FMT(text_str(&letters)));
    writer_line(w, "__constant__ constexpr int roots%d[] = {%.*s0};", index,
                STR_FMT(text_str(&roots)));
    writer_open(w, "struct Tree%d", index);
    writer_line(w, "static constexpr int kind = ISO_SLOTS_LISTED, type = ISO_F32;");
    writer_line(w, "static constexpr bool plain = %s;", plain ? "true" : "false");
    writer_line(w, "ISO_FN const char *text() { return letters%d; }", index);
    writer_line(w, "ISO_FN const int *root() { return roots%d; }", index);
    writer_open(w, "ISO_FN int part(int place)");
    writer_line(w, "int part = 0;");
    for (int p = 1; p < tree->n_parts; p++)
        writer_line(w, "part += place >= %lld;", (long long)tree->parts[p].start);
    writer_line(w, "return part;");
    writer_close(w, "");
    writer_close(w, ";");
    writer_line(&k->body, "IsoSlotOps follow%d = {0u, 0u};", index);
    for (int i = 0; i < ops->n; i++) {
        writer_line(&k->body, "follow%d.left = lane == %d ? 0x%xu : follow%d.left;", index, i,
                    ops->op[i].left, index);
        writer_line(&k->body, "follow%d.right = lane == %d ? 0x%xu : follow%d.right;", index, i,
                    ops->op[i].right, index);
    }
}
