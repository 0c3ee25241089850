/* Checks of a tensor's declaration: its type, its axes, and what holds indices. */
#include "check_impl.h"

void add_atoms(const Contract *contract, Tensor *tensor, int axis)
{
    const Axis *a = &contract->axes[axis];
    if (a->atom >= 0) {
        tensor->atoms[tensor->n_atoms++] = a->atom;
        tensor->mask |= bit(a->atom);
        return;
    }
    for (int f = 0; f < a->n_factors; f++)
        add_atoms(contract, tensor, a->factors[f]);
}

static void refuse_overlap(Checker *c, const AstTensor *ast, Name axis)
{
    Diag *d = fault(c, DIAG_AXIS_OVERLAP, axis.span, "'%.*s' has the axis '%.*s' twice",
                    STR_FMT(ast->name.text), STR_FMT(axis.text));
    diag_note(c->diags, d, "a product axis stands for its factors, and a token has one position; "
                           "a second axis of the same size is declared under its own name");
}

/* A coordinate beside its ragged axis says nothing; in a result nothing says where it ends. */
static bool check_coordinate(Checker *c, const AstTensor *ast, Name name, int axis, bool result)
{
    if (c->contract->axes[axis].coordinate_of < 0 || !result)
        return true;
    Diag *d = fault(c, DIAG_COORDINATE_RESULT, name.span,
                    "result '%.*s' has the axis '%.*s', which the tokens determine",
                    STR_FMT(ast->name.text), STR_FMT(name.text));
    Name ragged = c->contract->axes[c->contract->axes[axis].coordinate_of].name;
    diag_note(c->diags, d, "write '%.*s': only parameters, as tables, are indexed by coordinates",
              STR_FMT(ragged.text));
    return false;
}

/* Twice the same atom, or a packed atom and one of its coordinates. Two coordinates go together. */
static bool overlaps(const Contract *contract, u64 mask, u64 own)
{
    return (mask & own) || (effective_mask(contract, own) & mask) ||
           (effective_mask(contract, mask) & own);
}

/* As a Tensor's index_of: where the type is an axis's name, or i32. */
static int index_type(const Checker *c, const AstTensor *ast, bool result)
{
    for (int i = 0; i < c->contract->n_axes; i++)
        if (str_eq(c->contract->axes[i].name.text, ast->type.text))
            return i + 1;
    return !result && str_is(ast->type.text, "i32") ? INTEGERS : 0;
}

/* One index for each token, or one for each of a token's slots: then a row still depends on nothing
 * but itself. */
static bool has_index_axes(const Contract *contract, const Tensor *tensor)
{
    const Axis *first = tensor->n_axes ? &contract->axes[tensor->axes[0]] : NULL;
    if (!first || !first->free || !first->n_factors)
        return false;
    return tensor->n_axes == 1 ||
           (tensor->n_axes == 2 && tensor->index_of > 0 &&
            contract->axes[tensor->axes[1]].sparse_of == tensor->index_of);
}

/* A plain free axis looks like tokens to who wrote it. */
static void note_plain_axis(const Checker *c, Diag *d, const Tensor *tensor)
{
    const Axis *first = tensor->n_axes ? &c->contract->axes[tensor->axes[0]] : NULL;
    if (first && first->free && !first->n_factors)
        diag_note(c->diags, d, "'%.*s' is plain, so that nothing says of which sequence an element "
                               "is; tokens are packed: axis %.*s = sequence * position ragged;",
                  STR_FMT(first->name.text), STR_FMT(first->name.text));
}

static bool check_index_tensor(Checker *c, const AstTensor *ast, const Tensor *tensor)
{
    bool tokens = has_index_axes(c->contract, tensor);
    if (tensor->index_of == INTEGERS) {
        if (tokens)
            return true;
        Diag *d = fault(c, DIAG_INDEX_TENSOR, ast->span,
                        "'%.*s' holds integers, and has other axes than the tokens",
                        STR_FMT(ast->name.text));
        note_plain_axis(c, d, tensor);
        diag_note(c->diags, d, "a parameter may hold one for each token: seed: i32[tokens]");
        return false;
    }
    const Axis *of = &c->contract->axes[tensor->index_of - 1];
    if (of->size && of->atom >= 0 && of->coordinate_of < 0 && tokens)
        return true;
    Diag *d = fault(c, DIAG_INDEX_TENSOR, ast->span, tokens
                        ? "'%.*s' holds indices of '%.*s', which has factors or no fixed size"
                        : "'%.*s' holds indices of '%.*s', and has other axes than the tokens",
                    STR_FMT(ast->name.text), STR_FMT(of->name.text));
    note_plain_axis(c, d, tensor);
    diag_note(c->diags, d, "a tensor may hold one index for each token, of an axis of fixed "
                           "size: ids: vocab[tokens]; or one for each of its slots of a sparse "
                           "axis: axis picks = 8 of experts, chosen: experts[tokens, picks]");
    return false;
}

bool build_tensor(Checker *c, const AstTensor *ast, bool result, Tensor *tensor)
{
    int of = index_type(c, ast, result);
    bool sound = of || type_of_name(c, ast->type, &tensor->type);
    tensor->index_of = of;
    if (of)
        tensor->type = DT_F32; /* as wide */
    tensor->name = ast->name;
    if (ast->axes.n > MAX_TENSOR_AXES) {
        Diag *d = fault(c, DIAG_TOO_MANY_AXES, ast->span, "'%.*s' has %d axes, more than %d",
                        STR_FMT(ast->name.text), ast->axes.n, MAX_TENSOR_AXES);
        diag_note(c->diags, d, "a product axis counts once: heads instead of kv_heads, group");
        return false;
    }
    for (int i = 0; i < ast->axes.n; i++) {
        Name name = ast->axes.v[i];
        int axis = axis_of_name(c, name);
        if (axis < 0 || !check_coordinate(c, ast, name, axis, result)) {
            sound = false;
            continue;
        }
        u64 mask = axis_mask(c->contract, axis);
        if (overlaps(c->contract, mask, tensor->mask)) {
            refuse_overlap(c, ast, name);
            sound = false;
            continue;
        }
        tensor->axes[tensor->n_axes++] = axis;
        add_atoms(c->contract, tensor, axis);
    }
    if (sound && tensor->index_of)
        sound = check_index_tensor(c, ast, tensor);
    return sound;
}
