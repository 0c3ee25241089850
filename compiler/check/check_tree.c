/* Checks of trees, and trees as the later stages have them: names resolved, counts as numbers. */
#include "check_impl.h"

enum { COUNT_MAX = 0x7fffffff };

static const AstTreeDecl *decl_of(const Ast *ast, Str name)
{
    for (int i = 0; i < ast->trees.n; i++)
        if (str_eq(ast->trees.v[i].name.text, name))
            return &ast->trees.v[i];
    return NULL;
}

/* ---- soundness ------------------------------------------------------------------------------- */

static void unknown_tree(Checker *c, Name name)
{
    Diag *d = fault(c, DIAG_UNKNOWN_TREE, name.span, "unknown tree '%.*s'", STR_FMT(name.text));
    Guess guess = guess_of(name.text);
    for (int i = 0; i < c->ast->trees.n; i++)
        guess_add(&guess, c->ast->trees.v[i].name.text);
    guess_tell(c, d, name.span, &guess);
    if (!guess.best.n)
        diag_note(c->diags, d, "declare it, tree %.*s = ...;, or write a form: mma, chain, "
                  "chain add, split, every, lanes, round", STR_FMT(name.text));
}

static void check_counts(Checker *c, const AstTree *tree)
{
    i64 value;
    if (tree->form == TREE_SPLIT && tree->parts.n > PARTS_WRITTEN_MAX) {
        Diag *d = fault(c, DIAG_BAD_PART, tree->span, "%d written parts, more than %d",
                        tree->parts.n, PARTS_WRITTEN_MAX);
        diag_note(c->diags, d, "split the axis twice: split [a, b, ...] { split N { ... } ... }");
    } else if (tree->form == TREE_SPLIT && tree->parts.n) {
        for (int i = 0; i < tree->parts.n; i++)
            number_int(c, &tree->parts.v[i], 1, COUNT_MAX, DIAG_BAD_PART, "a part's length",
                       &value);
    } else if (tree->form == TREE_SPLIT) {
        number_int(c, &tree->count, 1, COUNT_MAX, DIAG_BAD_PART, "the number of parts", &value);
    } else if (tree->form == TREE_EVERY) {
        number_int(c, &tree->count, 1, COUNT_MAX, DIAG_BAD_PART, "a part's length", &value);
    } else if (tree->form == TREE_LANES) {
        number_int(c, &tree->count, 1, COUNT_MAX, DIAG_BAD_PART, "the number of lanes", &value);
        number_int(c, &tree->run, 1, COUNT_MAX, DIAG_BAD_PART, "a lane's run", &value);
    }
}

/* Levels with names written out; 0 for a circle, which is told where it is declared. */
static int levels_of(const Ast *ast, const AstTree *tree)
{
    int levels = 0, hops = 0;
    while (tree) {
        levels++;
        const AstTreeDecl *decl = tree->form == TREE_NAME ? decl_of(ast, tree->name.text) : NULL;
        if (decl && ++hops > ast->trees.n)
            return 0;
        tree = decl ? decl->tree : tree->child;
    }
    return levels;
}

static void check_depth(Checker *c, const AstTree *tree)
{
    const AstTree *last = tree;
    if (levels_of(c->ast, tree) <= TREE_DEPTH_MAX)
        return;
    while (last->child)
        last = last->child;
    if (last->form == TREE_NAME &&
        levels_of(c->ast, decl_of(c->ast, last->name.text)->tree) > TREE_DEPTH_MAX) {
        c->failed = true; /* told at that declaration */
        return;
    }
    Diag *d = fault(c, DIAG_TOO_DEEP, tree->span, "this tree is more than %d forms deep",
                    TREE_DEPTH_MAX);
    diag_note(c->diags, d, "a deep order of few elements is written as parts: split [a, b, ...]");
}

/* A name's tree is sound if its declaration is; faults are told there. */
static void check_reference(Checker *c, Name name)
{
    const AstTreeDecl *decl = decl_of(c->ast, name.text);
    if (!decl)
        unknown_tree(c, name);
    else if (c->status[CHECK_TREE_KNOWN]) /* in an op; trees themselves are told one by one */
        c->failed |= !has_passed(c, CHECK_TREE_KNOWN, (int)(decl - c->ast->trees.v));
}

static void check_nodes(Checker *c, const AstTree *tree)
{
    DType type;
    check_depth(c, tree);
    for (; tree; tree = tree->child) {
        check_counts(c, tree);
        if (tree->type.text.n)
            type_of_name(c, tree->type, &type);
        if (tree->form == TREE_NAME)
            check_reference(c, tree->name);
    }
}

bool tree_is_sound(Checker *c, const AstTree *tree)
{
    bool failed = c->failed;
    c->failed = false;
    check_nodes(c, tree);
    bool sound = !c->failed;
    c->failed |= failed;
    return sound;
}

void check_tree_once(Checker *c, int index)
{
    Name name = c->ast->trees.v[index].name;
    const AstTreeDecl *first = decl_of(c->ast, name.text);
    if (first == &c->ast->trees.v[index])
        return;
    Diag *d = fault(c, DIAG_TREE_TWICE, name.span, "tree '%.*s' is declared twice",
                    STR_FMT(name.text));
    diag_label(c->diags, d, first->name.span, "it is declared here already");
    diag_note(c->diags, d, "a tree has one declaration; give the second another name");
}

/* Whether following names from the declaration leads back to it. */
static bool is_circular(const Ast *ast, int index)
{
    const AstTree *tree = ast->trees.v[index].tree;
    for (int hops = 0; hops <= ast->trees.n;) {
        while (tree->child)
            tree = tree->child;
        const AstTreeDecl *decl = tree->form == TREE_NAME ? decl_of(ast, tree->name.text) : NULL;
        if (!decl)
            return false;
        if (decl == &ast->trees.v[index])
            return true;
        tree = decl->tree;
        hops++;
    }
    return false;
}

void check_tree(Checker *c, int index)
{
    const AstTreeDecl *decl = &c->ast->trees.v[index];
    if (is_circular(c->ast, index)) {
        Diag *d = fault(c, DIAG_TREE_RECURSIVE, decl->name.span, "tree '%.*s' is made of itself",
                        STR_FMT(decl->name.text));
        diag_note(c->diags, d, "a tree ends in mma, chain or chain add");
        return;
    }
    check_nodes(c, decl->tree);
}

/* Whether all names below lead to sound trees. */
static bool is_resolved(const Checker *c, const AstTree *tree)
{
    for (int hops = 0; tree && hops <= c->ast->trees.n;) {
        if (tree->form != TREE_NAME) {
            tree = tree->child;
            continue;
        }
        const AstTreeDecl *decl = decl_of(c->ast, tree->name.text);
        if (!decl || !has_passed(c, CHECK_TREE_SOUND, (int)(decl - c->ast->trees.v)))
            return false;
        tree = decl->tree;
        hops++;
    }
    return tree == NULL;
}

void build_tree(Checker *c, int index)
{
    const AstTreeDecl *decl = &c->ast->trees.v[index];
    Contract *contract = c->contract;
    if (!is_resolved(c, decl->tree)) {
        c->failed = true;
        return;
    }
    contract->trees[contract->n_trees++] =
        (struct NamedTree){decl->name, contract_tree(contract, decl->tree, c->arena)};
}

/* ---- resolution ------------------------------------------------------------------------------ */

static i64 integer_value(const Ast *ast, const Number *number)
{
    Str text = number_value(ast, number);
    i64 value = 0;
    for (int i = 0; i < text.n; i++)
        value = value * 10 + (text.s[i] - '0');
    return value;
}

static DType type_value(Name name)
{
    int type = 0;
    while (type < DT_COUNT - 1 && !str_is(name.text, dtype_name((DType)type)))
        type++;
    return (DType)type;
}

static const i64 *part_values(const Ast *ast, const Numbers *parts, Arena *arena)
{
    i64 *values = arena_array(arena, i64, parts->n + 1);
    for (int i = 0; i < parts->n; i++)
        values[i] = integer_value(ast, &parts->v[i]);
    return values;
}

const Tree *contract_tree(const Contract *contract, const AstTree *tree, Arena *arena)
{
    for (int i = 0; tree->form == TREE_NAME && i < contract->n_trees; i++)
        if (str_eq(contract->trees[i].name.text, tree->name.text))
            return contract->trees[i].tree;
    if (tree->form == TREE_NAME)
        return contract_tree(contract, decl_of(contract->ast, tree->name.text)->tree, arena);
    const Ast *ast = contract->ast;
    Tree *built = arena_new_of(arena, Tree);
    *built = (Tree){.form = tree->form, .join = tree->join};
    built->n_parts = tree->parts.n;
    built->count = tree->parts.n ? tree->parts.n : integer_value(ast, &tree->count);
    built->parts = tree->parts.n ? part_values(ast, &tree->parts, arena) : NULL;
    built->run = integer_value(ast, &tree->run);
    if (tree->type.text.n)
        built->type = type_value(tree->type);
    if (tree->child)
        built->child = contract_tree(contract, tree->child, arena);
    return built;
}
