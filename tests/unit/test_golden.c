/* Files under tests/golden and tests/reject, whole texts compared. A golden file is accepted: its
 * canonical syntax is in .ast, its warnings in .warn; warn-* files are planned too. A reject file,
 * named by the clause it breaks, is refused, at the latest by the plan, with the text in .err.
 * GOLDEN_UPDATE=1 writes what is found instead. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "front.h"
#include "golden.h"
#include "plan/plan.h"

typedef struct Trial {
    Front f;
    Contract contract;
    Dag dag;
    Plan plan;
    bool parsed, sound;
} Trial;

static bool read_disk(void *self, Arena *arena, Str from, Str name, Str *resolved, Str *text,
                      Str *reason)
{
    const char *dir = self;
    int cut = from.n;
    while (cut > 0 && from.s[cut - 1] != '/')
        cut--;
    *resolved = str_format(arena, "%.*s%.*s", cut, from.s, STR_FMT(name));
    FILE *file = fopen(str_format(arena, "%s/%s", dir, resolved->s).s, "rb");
    if (!file) {
        *reason = STR("no such file");
        return false;
    }
    enum { LARGEST = 1 << 16 };
    char *bytes = arena_alloc(arena, LARGEST);
    *text = (Str){bytes, (int)fread(bytes, 1, LARGEST, file)};
    fclose(file);
    return true;
}

static void run_file(Trial *r, const char *dir, const char *name, bool planned)
{
    front_open(&r->f, "");
    r->f.sources.reader = (SourceReader){read_disk, (void *)(uintptr_t)dir};
    r->parsed = parse_contract(&r->f.sources, str_of(name), &r->f.ast, r->f.arena, &r->f.diags);
    r->sound = r->parsed && check_contract(&r->f.ast, &r->contract, r->f.arena, &r->f.diags);
    if (planned && r->sound)
        r->sound = dag_build(&r->contract, &r->dag, r->f.arena, &r->f.diags) &&
                   plan_build(&r->dag, NULL, &r->plan, r->f.arena, &r->f.diags);
}

/* x.iso -> dir/x.suffix */
static const char *beside(Trial *r, const char *dir, const char *name, const char *suffix)
{
    return str_format(r->f.arena, "%s/%.*s.%s", dir, (int)strlen(name) - 4, name, suffix).s;
}

static int each_file(const char *dir, void (*visit)(const char *dir, const char *name))
{
    int n = 0;
    DIR *d = opendir(dir);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 4, ".iso"))
            continue;
        visit(dir, entry->d_name);
        n++;
    }
    closedir(d);
    return n;
}

static Str printed(const Ast *ast, Arena *arena)
{
    Text out = {.arena = arena};
    ast_print(ast, &out);
    return text_str(&out);
}

static void check_golden(const char *dir, const char *name)
{
    Trial r;
    Front again;
    bool warns = strncmp(name, "warn-", 5) == 0;
    run_file(&r, dir, name, warns);
    ck_assert_msg(r.sound, "%s is refused:\n%s", name, front_text(&r.f));
    Str text = printed(&r.f.ast, r.f.arena);
    golden_compare(beside(&r, dir, name, "ast"), text, r.f.arena);
    ck_assert_msg(!warns == !r.f.diags.list.n, "%s gives %d messages", name, r.f.diags.list.n);
    if (warns)
        golden_compare(beside(&r, dir, name, "warn"), str_of(front_text(&r.f)), r.f.arena);
    front_open(&again, text.s);
    ck_assert_msg(front_parse(&again), "%s, printed, is refused:\n%s", name, front_text(&again));
    ck_assert_str_eq(printed(&again.ast, again.arena).s, text.s);
    front_close(&again);
    front_close(&r.f);
}

static bool met[DIAG_COUNT];

static void check_reject(const char *dir, const char *name)
{
    Trial r;
    run_file(&r, dir, name, true);
    ck_assert_msg(!r.sound, "%s is accepted", name);
    ck_assert_msg(r.f.diags.errors > 0, "%s is refused without a word", name);
    golden_compare(beside(&r, dir, name, "err"), str_of(front_text(&r.f)), r.f.arena);
    for (int i = 0; i < r.f.diags.list.n; i++)
        met[r.f.diags.list.v[i]->id] = true;
    front_close(&r.f);
}

START_TEST(golden_files)
{
    ck_assert_int_gt(each_file("tests/golden", check_golden), 0);
}
END_TEST

/* What no file of the folder can hold: 4 MiB, a chain of includes, and warnings: golden. */
static bool is_met_elsewhere(DiagId id)
{
    return id == DIAG_FILE_TOO_LARGE || id == DIAG_INCLUDE_DEEP || id == DIAG_UNUSED ||
           id == DIAG_SHADOWED_SCHEDULE || id == DIAG_ROOTS;
}

START_TEST(reject_files)
{
    ck_assert_int_gt(each_file("tests/reject", check_reject), 0);
    static const struct {
        int number;
        const char *name;
    } registry[] = {
#define X(number, id, severity, clause, title, explanation) {number, #id},
#include "front/diag.def"
#undef X
    };
    for (int i = 0; i < DIAG_COUNT; i++) {
        int n = registry[i].number;
        bool ours = n < 4900 || (n >= 5100 && n < 6000); /* not the tools' */
        ck_assert_msg(!ours || met[i] || is_met_elsewhere((DiagId)i),
                      "no file of tests/reject meets ISO%04d %s", n, registry[i].name);
    }
}
END_TEST

static bool contains(Str text, Str part)
{
    for (int i = 0; i + part.n <= text.n; i++)
        if (!memcmp(text.s + i, part.s, (size_t)part.n))
            return true;
    return false;
}

/* The document lists every message, and has every clause that one cites. */
START_TEST(language_and_registry_agree)
{
    Arena *arena = arena_new();
    Str text, resolved, reason;
    ck_assert(read_disk((void *)(uintptr_t) "grammar", arena, STR(""), STR("LANGUAGE.md"),
                        &resolved, &text, &reason));
    static const struct {
        int number;
        Severity severity;
        const char *clause, *title;
    } registry[] = {
#define X(number, id, severity, clause, title, explanation) {number, severity, clause, title},
#include "front/diag.def"
#undef X
    };
    for (int i = 0; i < DIAG_COUNT; i++) {
        Str row = str_format(arena, "| ISO%d | %s | %s%s |", registry[i].number,
                             registry[i].clause, registry[i].title,
                             registry[i].severity == SEV_WARNING ? " (warning)" : "");
        ck_assert_msg(contains(text, row), "grammar/LANGUAGE.md, clause 12, lacks\n%s", row.s);
        Str clause = str_format(arena, "\n**%s ", registry[i].clause);
        ck_assert_msg(!registry[i].clause[0] || contains(text, clause), "ISO%d cites clause %s",
                      registry[i].number, registry[i].clause);
    }
    arena_free(arena);
}
END_TEST

Suite *golden_suite(void)
{
    Suite *suite = suite_create("golden");
    TCase *tc = tcase_create("golden");
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, golden_files);
    tcase_add_test(tc, reject_files);
    tcase_add_test(tc, language_and_registry_agree);
    suite_add_tcase(suite, tc);
    return suite;
}
