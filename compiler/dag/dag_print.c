/* The graph for people: names of axes and tensors, one numbered line a node. */
#include <string.h>

#include "dag_impl.h"

static Str atom_name(const Contract *contract, int atom)
{
    return contract->axes[contract->atom_axis[atom]].name.text;
}

static void print_mask(const Contract *contract, u64 mask, Text *out)
{
    bool any = false;
    text_printf(out, "[");
    for (int i = 0; i < contract->n_atoms; i++)
        if (mask & (u64)1 << i) {
            text_printf(out, "%s%.*s", any ? ", " : "", STR_FMT(atom_name(contract, i)));
            any = true;
        }
    text_printf(out, "]");
}

void dag_print_fixes(const Contract *contract, const Op *op, const Fix *fixes, int n, Text *out)
{
    for (int i = 0; i < n; i++) {
        text_printf(out, "%s%.*s ", i ? ", " : "[", STR_FMT(atom_name(contract, fixes[i].atom)));
        if (fixes[i].at < 0)
            text_add(out, fix_tensor(op, &fixes[i])->name.text);
        else
            text_printf(out, "%lld", (long long)fixes[i].at);
    }
    text_printf(out, n ? "]" : "");
}

static void print_reduce(const Contract *contract, const Op *op, const DagNode *node, Text *out)
{
    int n;
    const int *summed = dag_summed(node, &n);
    text_printf(out, "%s over [", monoid_name(node->monoid));
    for (int i = 0; i < n; i++)
        text_printf(out, "%s%.*s", i ? ", " : "", STR_FMT(atom_name(contract, summed[i])));
    text_printf(out, node->n_fixes ? "] at " : "] by ");
    dag_print_fixes(contract, op, node->fixes, node->n_fixes, out);
    text_printf(out, node->n_fixes ? " by " : "");
    tree_print(node->tree, out);
}

static void print_attend(const Contract *contract, const Op *op, const DagNode *node, Text *out)
{
    text_printf(out, "attend%s", node->lse ? " lse" : "");
    dag_print_fixes(contract, op, node->fixes, node->n_fixes, out);
    text_printf(out, " over [");
    for (int i = 0; i < node->attend->n_over; i++)
        text_printf(out, "%s%.*s", i ? ", " : "",
                    STR_FMT(atom_name(contract, node->attend->over[i])));
    text_printf(out, "] ");
    dag_print_attend(node->attend, out);
}

static void print_node(const Contract *contract, const Op *op, const DagNode *node, Text *out)
{
    switch (node->kind) {
    case DAG_INPUT:
        text_printf(out, "%.*s", STR_FMT(op->params[node->param].name.text));
        dag_print_fixes(contract, op, node->fixes, node->n_fixes, out);
        break;
    case DAG_CONST:
        text_printf(out, "constant ");
        dag_print_constant(node->type, node->bits, out);
        break;
    case DAG_ONLY:
        text_printf(out, "only ");
        dag_print_fixes(contract, op, node->fixes, node->n_fixes, out);
        break;
    case DAG_FN:
        text_printf(out, "%s", dag_fn_name(node->fn));
        break;
    case DAG_REDUCE:
        print_reduce(contract, op, node, out);
        break;
    case DAG_ATTEND:
        print_attend(contract, op, node, out);
        break;
    case DAG_DRAW:
        text_printf(out, "draw over %.*s", STR_FMT(atom_name(contract, node->draw->atom)));
        dag_print_draw(op, node->draw, out);
        break;
    case DAG_TOP:
        text_printf(out, "top over %.*s", STR_FMT(atom_name(contract, node->top->atom)));
        dag_print_top(node->top, out);
        break;
    default:
        text_printf(out, "%s", dag_kind_name(node->kind));
        break;
    }
    for (int i = 0; i < node->n_args; i++)
        text_printf(out, " %%%d", node->args[i]->number);
    text_printf(out, ": %s", dtype_name(node->type));
    print_mask(contract, node->mask, out);
}

void dag_print_constant(DType type, u32 bits, Text *out)
{
    text_printf(out, "%.9g (0x%0*x)", (double)dag_constant_value(type, bits),
                2 * dtype_bytes(type), bits);
}

float dag_constant_value(DType type, u32 bits)
{
    float value;
    u32 wide = type == DT_BF16 ? bits << 16 : bits;
    if (type == DT_F16) {
        u32 sign = (bits & 0x8000) << 16, magnitude = bits & 0x7FFF;
        if (magnitude >= 0x7C00)
            wide = sign | 0x7F800000 | (magnitude & 0x3FF) << 13;
        else if (magnitude >= 0x400)
            wide = sign | ((magnitude << 13) + ((127 - 15) << 23));
        else {
            value = (float)magnitude * 0x1p-24f;
            return sign ? -value : value;
        }
    }
    memcpy(&value, &wide, sizeof value);
    return value;
}

void dag_print(const Dag *dag, const OpDag *op, Text *out)
{
    const Contract *contract = dag->contract;
    text_printf(out, "op %.*s\n", STR_FMT(op->op->name));
    for (int i = 0; i < op->nodes.n; i++) {
        text_printf(out, "  %%%d = ", i);
        print_node(contract, op->op, op->nodes.v[i], out);
        text_printf(out, "\n");
    }
    for (int i = 0; i < op->pieces.n; i++) {
        const DagPiece *piece = &op->pieces.v[i];
        text_printf(out, "  %.*s", STR_FMT(op->op->results[piece->result].name.text));
        dag_print_fixes(contract, op->op, piece->fixes, piece->n_fixes, out);
        text_printf(out, " = %%%d\n", piece->value->number);
    }
    text_printf(out, "  fingerprint %.*s\n", STR_FMT(digest_hex(out->arena, &op->fingerprint)));
}
