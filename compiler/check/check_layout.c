/* Checks of layouts and schedules as far as names and numbers go; whether an op can be cut so is
 * layout.c's to say. */
#include "check_impl.h"

#include <string.h>

enum { DEGREE_MAX = 65536, TILE_MAX = 4096, STAGES_MAX = 64 };

/* ---- meshes ---------------------------------------------------------------------------------- */

void check_layout_once(Checker *c, int index)
{
    Name name = c->ast->layouts.v[index].name;
    for (int i = 0; i < index; i++) {
        const Name *other = &c->ast->layouts.v[i].name;
        if (!str_eq(other->text, name.text))
            continue;
        Diag *d = fault(c, DIAG_LAYOUT_TWICE, name.span, "layout '%.*s' is declared twice",
                        STR_FMT(name.text));
        diag_label(c->diags, d, other->span, "it is declared here already");
        diag_note(c->diags, d, "engines ask for layouts by name; give the second another one");
        return;
    }
}

static int mesh_of(const AstMeshes *meshes, int n, Str name)
{
    for (int i = 0; i < n; i++)
        if (str_eq(meshes->v[i].name.text, name))
            return i;
    return -1;
}

static void unknown_mesh(Checker *c, Name name, const AstMeshes *meshes, const char *why)
{
    Guess guess = guess_of(name.text);
    for (int i = 0; i < meshes->n; i++)
        guess_add(&guess, meshes->v[i].name.text);
    Diag *d = fault(c, DIAG_UNKNOWN_MESH, name.span, "no mesh '%.*s' %s", STR_FMT(name.text), why);
    guess_tell(c, d, name.span, &guess);
    if (!guess.best.n)
        diag_note(c->diags, d, "declare it first: %.*s 2 cuts ...;", STR_FMT(name.text));
}

/* The keys of `attend` are cut along the positions. */
static bool is_position(const Contract *contract, int axis)
{
    const Axis *ragged = &contract->axes[contract->axes[axis].coordinate_of];
    return ragged->factors[ragged->n_factors - 1] == axis;
}

/* An axis that ranks can share out: a sequence is not, its tokens are, and the keys by position. */
static int cut_axis(Checker *c, Name name, bool keys)
{
    int id = axis_of_name(c, name);
    if (id >= 0 && c->contract->axes[id].sparse_of) {
        Name all = c->contract->axes[c->contract->axes[id].sparse_of - 1].name;
        Diag *d = fault(c, DIAG_BAD_CUT, name.span,
                        "'%.*s' cannot be cut: each token has other elements of '%.*s'",
                        STR_FMT(name.text), STR_FMT(all.text));
        diag_note(c->diags, d, "cut '%.*s' itself: a rank then has the slots that stand at its "
                               "part of it", STR_FMT(all.text));
        return -1;
    }
    if (id < 0 || c->contract->axes[id].coordinate_of < 0 ||
        (keys && is_position(c->contract, id)))
        return id;
    Name ragged = c->contract->axes[c->contract->axes[id].coordinate_of].name;
    Diag *d = fault(c, DIAG_BAD_CUT, name.span, "'%.*s' cannot be cut: it says where a token is",
                    STR_FMT(name.text));
    diag_note(c->diags, d, "cut the tokens themselves: '%.*s'%s", STR_FMT(ragged.text),
              keys ? "" : "; what is cut of `attend` by positions is listed behind `cuts`");
    return -1;
}

static void check_cuts(Checker *c, const AstMesh *ast, Mesh *mesh)
{
    mesh->else_axis = ast->has_else ? cut_axis(c, ast->else_axis, false) : -1;
    mesh->cuts = arena_array(c->arena, Cut, ast->cuts.n + 1);
    for (int i = 0; i < ast->cuts.n; i++) {
        const AstCut *cut = &ast->cuts.v[i];
        int id = cut_axis(c, cut->axis, true);
        if (id < 0)
            continue;
        if (cut->replicating && !c->contract->axes[id].size) {
            Diag *d = fault(c, DIAG_BAD_CUT, cut->axis.span,
                            "'%.*s' cannot be replicated: any number of ranks cuts its rows",
                            STR_FMT(cut->axis.text));
            diag_note(c->diags, d, "leave out 'replicating'");
            continue;
        }
        for (int k = 0; k < mesh->n_cuts; k++)
            if (mesh->cuts[k].axis == id) {
                Diag *d = fault(c, DIAG_BAD_CUT, cut->axis.span, "'%.*s' is listed twice",
                                STR_FMT(cut->axis.text));
                diag_note(c->diags, d, "the first listed axis that an op has is cut");
            }
        mesh->cuts[mesh->n_cuts++] = (Cut){id, cut->replicating};
    }
}

static void check_degree(Checker *c, const AstMesh *ast, Mesh *mesh)
{
    i64 degree;
    mesh->degree = 1;
    if (!ast->has_degree) {
        Diag *d = fault(c, DIAG_BAD_DEGREE, ast->name.span, "mesh '%.*s' has no degree",
                        STR_FMT(ast->name.text));
        diag_note(c->diags, d, "write how many ranks it has: %.*s 2 cuts ...;",
                  STR_FMT(ast->name.text));
    } else if (number_int(c, &ast->degree, 1, DEGREE_MAX, DIAG_BAD_DEGREE, "a mesh's degree",
                          &degree)) {
        mesh->degree = (int)degree;
    }
}

static void check_factors(Checker *c, const AstLayout *layout, int at, Mesh *mesh)
{
    const AstMesh *ast = &layout->meshes.v[at];
    mesh->degree = 1;
    mesh->product = arena_array(c->arena, int, ast->product.n);
    for (int i = 0; i < ast->product.n; i++) {
        Name name = ast->product.v[i];
        int factor = mesh_of(&layout->meshes, at, name.text);
        bool again = false;
        for (int k = 0; k < mesh->n_product; k++)
            again |= mesh->product[k] == factor;
        if (factor < 0 || layout->meshes.v[factor].product.n) {
            unknown_mesh(c, name, &layout->meshes, "with a degree stands before this product");
        } else if (again) {
            Diag *d = fault(c, DIAG_UNKNOWN_MESH, name.span, "mesh '%.*s' is a factor twice",
                            STR_FMT(name.text));
            diag_note(c->diags, d, "a product has each mesh once");
        } else {
            mesh->product[mesh->n_product++] = factor;
        }
    }
}

static bool is_once(Checker *c, const AstMeshes *meshes, int at)
{
    Name name = meshes->v[at].name;
    int other = mesh_of(meshes, at, name.text);
    if (other < 0)
        return true;
    Diag *d = fault(c, DIAG_MESH_TWICE, name.span, "mesh '%.*s' is declared twice",
                    STR_FMT(name.text));
    diag_label(c->diags, d, meshes->v[other].name.span, "it is declared here already");
    diag_note(c->diags, d, "list all axes that it cuts in one declaration");
    return false;
}

/* A mesh may serve through a product alone. */
static bool is_idle(const AstLayout *layout, int at)
{
    const AstMesh *mesh = &layout->meshes.v[at];
    if (mesh->cuts.n || mesh->has_else)
        return false;
    for (int i = 0; i < layout->meshes.n; i++)
        for (int k = 0; k < layout->meshes.v[i].product.n; k++)
            if (str_eq(layout->meshes.v[i].product.v[k].text, mesh->name.text))
                return false;
    for (int i = 0; i < layout->overrides.n; i++)
        if (mesh_of(&layout->overrides.v[i].meshes, layout->overrides.v[i].meshes.n,
                    mesh->name.text) >= 0)
            return false;
    return true;
}

static void check_mesh(Checker *c, const AstLayout *layout, int at, Mesh *mesh)
{
    const AstMesh *ast = &layout->meshes.v[at];
    mesh->name = ast->name;
    is_once(c, &layout->meshes, at);
    if (ast->product.n)
        check_factors(c, layout, at, mesh);
    else
        check_degree(c, ast, mesh);
    check_cuts(c, ast, mesh);
    if (!is_idle(layout, at))
        return;
    Diag *d = fault(c, DIAG_MESH_IDLE, ast->span, "mesh '%.*s' cuts nothing",
                    STR_FMT(ast->name.text));
    diag_note(c->diags, d, "its ranks would all do the same work: say what it cuts, or remove it");
}

static bool few_meshes(Checker *c, const AstMeshes *meshes)
{
    if (meshes->n <= MAX_MESHES)
        return true;
    Diag *d = fault(c, DIAG_TOO_MANY_MESHES, meshes->v[MAX_MESHES].name.span,
                    "more than %d meshes", MAX_MESHES);
    diag_note(c->diags, d, "meshes that cut the same axes can be one mesh");
    return false;
}

void check_layout_meshes(Checker *c, int index)
{
    const AstLayout *ast = &c->ast->layouts.v[index];
    Layout *layout = &c->contract->layouts[index];
    *layout = (Layout){.name = ast->name, .ast = ast};
    if (!few_meshes(c, &ast->meshes))
        return;
    layout->n_meshes = ast->meshes.n;
    layout->meshes = arena_array(c->arena, Mesh, ast->meshes.n + 1);
    for (int i = 0; i < ast->meshes.n; i++)
        check_mesh(c, ast, i, &layout->meshes[i]);
}

static void check_override_mesh(Checker *c, const AstLayout *layout, const AstOverride *override,
                                int at, Mesh *mesh)
{
    const AstMesh *ast = &override->meshes.v[at];
    int base = mesh_of(&layout->meshes, layout->meshes.n, ast->name.text);
    if (base < 0) {
        unknown_mesh(c, ast->name, &layout->meshes, "in this layout");
        return;
    }
    is_once(c, &override->meshes, at);
    if (ast->has_degree || ast->product.n) {
        Diag *d = fault(c, DIAG_BAD_DEGREE, ast->span, "an override keeps the degree of '%.*s'",
                        STR_FMT(ast->name.text));
        diag_label(c->diags, d, layout->meshes.v[base].name.span, "the mesh is declared here");
        diag_note(c->diags, d, "write only what it cuts: %.*s cuts ...;", STR_FMT(ast->name.text));
    }
    *mesh = c->contract->layouts[layout - c->ast->layouts.v].meshes[base];
    mesh->n_cuts = 0;
    check_cuts(c, ast, mesh);
}

void check_layout_overrides(Checker *c, int index)
{
    const AstLayout *ast = &c->ast->layouts.v[index];
    Layout *layout = &c->contract->layouts[index];
    layout->overrides = arena_array(c->arena, struct LayoutOverride, ast->overrides.n + 1);
    for (int i = 0; i < ast->overrides.n; i++) {
        const AstOverride *override = &ast->overrides.v[i];
        const Op *op = op_of_name(c, override->op);
        if (!op || !few_meshes(c, &override->meshes))
            continue;
        struct LayoutOverride *o = &layout->overrides[layout->n_overrides++];
        o->op = (int)(op - c->contract->ops);
        for (int k = 0; k + 1 < layout->n_overrides; k++)
            if (layout->overrides[k].op == o->op) {
                Diag *d = fault(c, DIAG_MESH_TWICE, override->op.span,
                                "op '%.*s' is overridden twice", STR_FMT(override->op.text));
                diag_note(c->diags, d, "put all its meshes into one block");
            }
        o->n_meshes = override->meshes.n;
        o->meshes = arena_array(c->arena, Mesh, o->n_meshes + 1);
        for (int k = 0; k < o->n_meshes; k++)
            check_override_mesh(c, ast, override, k, &o->meshes[k]);
    }
}

/* ---- schedules: when ------------------------------------------------------------------------- */

static void set_bounds(const AstSchedule *ast, i64 bound, Schedule *s)
{
    if (str_is(ast->when_op, "<="))
        s->rows_max = bound;
    else if (str_is(ast->when_op, "<"))
        s->rows_max = bound - 1;
    else if (str_is(ast->when_op, ">="))
        s->rows_min = bound;
    else
        s->rows_min = bound + 1;
}

static void check_condition(Checker *c, const AstSchedule *ast, const Op *op, Schedule *s)
{
    i64 bound;
    int axis = axis_of_name(c, ast->when_axis);
    if (number_int(c, &ast->when_bound, 1, INT32_MAX, DIAG_BAD_WHEN, "a count of rows", &bound))
        set_bounds(ast, bound, s);
    if (axis < 0)
        return;
    const Axis *a = &c->contract->axes[axis];
    if (!a->free) {
        Diag *d = fault(c, DIAG_BAD_WHEN, ast->when_axis.span,
                        "the size of '%.*s' is fixed: a schedule is chosen by a free axis",
                        STR_FMT(ast->when_axis.text));
        diag_label(c->diags, d, a->name.span, "it has %lld elements", (long long)a->size);
        diag_note(c->diags, d, "compare the axis whose length the launch knows, as in "
                               "when tokens <= 64");
    } else if (op && !(op->space & bit(a->atom)) &&
               has_passed(c, CHECK_OP_TENSORS, (int)(op - c->contract->ops))) {
        Diag *d = fault(c, DIAG_BAD_WHEN, ast->when_axis.span, "op '%.*s' has no axis '%.*s'",
                        STR_FMT(op->name), STR_FMT(ast->when_axis.text));
        diag_note(c->diags, d, "leave out the condition, or name a free axis of the op");
    }
}

void check_schedule_when(Checker *c, int index)
{
    const AstSchedule *ast = &c->ast->schedules.v[index];
    Schedule *s = &c->contract->schedules[index];
    const Op *op = op_of_name(c, ast->op);
    *s = (Schedule){.op = op ? (int)(op - c->contract->ops) : 0, .rows_max = INT64_MAX,
                    .span = ast->span};
    if (ast->has_when)
        check_condition(c, ast, op, s);
}

void check_schedule_reached(Checker *c, int index)
{
    const Schedule *s = &c->contract->schedules[index];
    for (int i = 0; i < index; i++) {
        const Schedule *before = &c->contract->schedules[i];
        if (!has_passed(c, CHECK_SCHEDULE_WHEN, i) || before->op != s->op ||
            before->rows_min > s->rows_min || before->rows_max < s->rows_max)
            continue;
        Diag *d = diag_add(c->diags, DIAG_SHADOWED_SCHEDULE, c->ast->schedules.v[index].op.span,
                           "this schedule is never used: an earlier one matches all its rows");
        diag_label(c->diags, d, c->ast->schedules.v[i].op.span, "this one comes first");
        diag_note(c->diags, d, "the first that matches is taken: put the general one last");
        return;
    }
}

/* ---- schedules: settings --------------------------------------------------------------------- */

static bool words_are(const AstSetting *s, const char *a, const char *b)
{
    return s->numbers.n == 0 && s->words.n == (b ? 2 : 1) && str_is(s->words.v[0].text, a) &&
           (!b || str_is(s->words.v[1].text, b));
}

static void bad_setting(Checker *c, const AstSetting *s, const char *forms)
{
    Diag *d = fault(c, DIAG_BAD_SETTING, s->span, "'%.*s' is set to something else here",
                    STR_FMT(s->key.text));
    diag_note(c->diags, d, "it is written %s", forms);
}

static void set_tile(Checker *c, const AstSetting *s, Schedule *out)
{
    i64 size[3] = {0};
    if (s->words.n || s->numbers.n != 3) {
        bad_setting(c, s, "tile ROWS x COLUMNS x DEPTH, as in tile 128 x 192 x 64");
        return;
    }
    for (int i = 0; i < 3; i++)
        number_int(c, &s->numbers.v[i], 1, TILE_MAX, DIAG_BAD_SETTING, "a tile's size", &size[i]);
    out->tile_m = (int)size[0];
    out->tile_n = (int)size[1];
    out->tile_k = (int)size[2];
}

static void set_stages(Checker *c, const AstSetting *s, Schedule *out)
{
    i64 stages = 0;
    Number number = {0};
    if (s->words.n == 1 && s->numbers.n == 0)
        number = (Number){s->words.v[0].text, true, s->words.v[0].span};
    else if (s->words.n == 0 && s->numbers.n == 1)
        number = s->numbers.v[0];
    else
        bad_setting(c, s, "stages COUNT, as in stages 4");
    if (number.text.n &&
        number_int(c, &number, 1, STAGES_MAX, DIAG_BAD_SETTING, "the number of stages", &stages))
        out->stages = (int)stages;
}

static void set_leaves(Checker *c, const AstSetting *s, Schedule *out)
{
    if (words_are(s, "across", "ctas"))
        out->leaves = LEAVES_ACROSS_CTAS;
    else if (words_are(s, "in", "registers"))
        out->leaves = LEAVES_IN_REGISTERS;
    else
        bad_setting(c, s, "leaves across ctas, or leaves in registers");
}

static void set_kernel(Checker *c, const AstSetting *s, Schedule *out)
{
    if (words_are(s, "wgmma", NULL))
        out->kernel = KERNEL_WGMMA;
    else if (words_are(s, "stream", NULL))
        out->kernel = KERNEL_STREAM;
    else
        bad_setting(c, s, "kernel wgmma, or kernel stream");
}

static const struct {
    const char *key;
    void (*set)(Checker *c, const AstSetting *s, Schedule *out);
} settings[] = {
    {"tile", set_tile}, {"stages", set_stages}, {"leaves", set_leaves}, {"kernel", set_kernel},
};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

static int setting_of(Checker *c, Name key)
{
    Guess guess = guess_of(key.text);
    for (int i = 0; i < SETTINGS; i++) {
        if (str_is(key.text, settings[i].key))
            return i;
        guess_add(&guess, str_of(settings[i].key));
    }
    Diag *d = fault(c, DIAG_UNKNOWN_SETTING, key.span, "unknown setting '%.*s'", STR_FMT(key.text));
    guess_tell(c, d, key.span, &guess);
    diag_note(c->diags, d, "the settings are tile, stages, leaves and kernel");
    return -1;
}

void check_schedule_settings(Checker *c, int index)
{
    const AstSchedule *ast = &c->ast->schedules.v[index];
    const AstSetting *seen[SETTINGS] = {0};
    for (int i = 0; i < ast->settings.n; i++) {
        const AstSetting *s = &ast->settings.v[i];
        int k = setting_of(c, s->key);
        if (k < 0)
            continue;
        if (seen[k]) {
            Diag *d = fault(c, DIAG_BAD_SETTING, s->key.span, "'%.*s' is set twice",
                            STR_FMT(s->key.text));
            diag_label(c->diags, d, seen[k]->key.span, "it is set here already");
            diag_note(c->diags, d, "remove one of the two");
            continue;
        }
        seen[k] = s;
        settings[k].set(c, s, &c->contract->schedules[index]);
    }
}
