/* Terms of tree nodes: what a proof compares. */
#include <string.h>

#include "dag.h"

/* A text being hashed holds its parts with their lengths fixed or written, so that none can be
 * mistaken for another. */
typedef struct TermText {
    u8 byte[128];
    size_t n;
} TermText;

static void term_add(TermText *text, const void *data, size_t size)
{
    memcpy(text->byte + text->n, data, size);
    text->n += size;
}

static TermText term_text(char tag, int a, int b)
{
    TermText text = {.n = 0};
    const u8 head[3] = {(u8)tag, (u8)a, (u8)b};
    term_add(&text, head, sizeof head);
    return text;
}

/* The runs are hashed as a chain, whatever their number; adjacent runs are one. */
static Digest term_runs(const Run *runs, int n)
{
    Digest chain = {{0}};
    for (int i = 0; i < n;) {
        Run run = runs[i++];
        while (i < n && runs[i].start == run.start + run.len)
            run.len += runs[i++].len;
        u8 bytes[16];
        for (int k = 0; k < 8; k++) {
            bytes[k] = (u8)((u64)run.start >> (8 * k));
            bytes[8 + k] = (u8)((u64)run.len >> (8 * k));
        }
        TermText text = term_text('r', 0, 0);
        term_add(&text, chain.byte, 32);
        term_add(&text, bytes, 16);
        chain = sha256(text.byte, text.n);
    }
    return chain;
}

Digest term_leaf(const DagNode *reduce, TreeForm form, const Run *runs, int n_runs)
{
    Digest elements = term_runs(runs, n_runs);
    TermText text = term_text('l', (int)reduce->monoid, (int)form);
    term_add(&text, elements.byte, 32);
    for (int i = 0; i < reduce->n_atoms; i++) {
        Digest before = sha256(text.byte, text.n);
        text = term_text('x', reduce->atoms[i], i);
        term_add(&text, before.byte, 32);
    }
    if (reduce->n_fixes) { /* what says where slots stand */
        const Run by = {~reduce->fixes[0].at, 1};
        Digest before = sha256(text.byte, text.n), places = term_runs(&by, 1);
        text = term_text('p', reduce->slots, reduce->fixes[0].atom);
        term_add(&text, before.byte, 32);
        term_add(&text, places.byte, 32);
    }
    for (int i = 0; i < reduce->n_args; i++) {
        Digest args = sha256(text.byte, text.n);
        text = term_text('a', 0, 0);
        term_add(&text, args.byte, 32);
        term_add(&text, reduce->args[i]->id.byte, 32);
    }
    return sha256(text.byte, text.n);
}

Digest term_join(Monoid monoid, DType type, const Digest *left, const Digest *right)
{
    TermText text = term_text('j', (int)monoid, (int)type);
    term_add(&text, left->byte, 32);
    term_add(&text, right->byte, 32);
    return sha256(text.byte, text.n);
}

Digest term_round(DType type, const Digest *child)
{
    TermText text = term_text('d', (int)type, 0);
    term_add(&text, child->byte, 32);
    return sha256(text.byte, text.n);
}

/* Left spines are walked in stretches: a `left` join may be half a million nodes deep, and there is
 * no arena here to keep a stack in. */
Digest term_of(const DagNode *reduce, const TreeNode *node)
{
    enum { STRETCH = 256 };
    const TreeNode *spine[STRETCH];
    int n = 0;
    while (node->kind != NODE_LEAF && n < STRETCH) {
        spine[n++] = node;
        node = node->left;
    }
    Digest value = node->kind == NODE_LEAF
                       ? term_leaf(reduce, node->leaf, node->runs, node->n_runs)
                       : term_of(reduce, node);
    while (n-- > 0) {
        if (spine[n]->kind == NODE_ROUND) {
            value = term_round(spine[n]->type, &value);
        } else {
            Digest right = term_of(reduce, spine[n]->right);
            value = term_join(reduce->monoid, spine[n]->type, &value, &right);
        }
    }
    return value;
}
