/* Mechanical mutation of a kernel's PTX; the proof on terms must refuse each mutant, or the mutant
 * survives.
 *
 *   mutate CONTRACT KERNELS [-j JOBS] [-o RESULTS] [-e EVERY] [-once] [-idle] [-list SURVIVORS]
 *
 * KERNELS: OP, OP/NUMBER or OP/joinNUMBER, with commas between;
 * NUMBER: of the op's kernels, or of its joins, in order of the manifest's launches. RESULTS gets
 * a line per mutant as it is judged; what it has already is not judged again. -e: every so many,
 * from a place that is the same each time. -once: of mutants that are alike (mutants.h) the first
 * and the last. -idle: says only which instructions no launch runs. -list: survivors must be on it
 * (survivors.h). */
#include "beside.h"
#include "survivors.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct Options {
    const char *contract, *kernel, *results, *list;
    int jobs, every;
    bool once, idle;
} Options;

static const char *const verdicts[] = {
    [INVALID] = "invalid", [FOUND] = "finding", [UNLIKE] = "term", [SURVIVES] = "survives",
};
enum { IDLE = SURVIVES + 1, VERDICTS };

typedef struct Mutation {
    Bench *bench;
    const Options *options;
    Mutants all;
    int *repeats; /* alike ones that stand behind each that is tried; 0: it is not tried */
    u64 text;     /* hash of the kernel's text */
    bool *done;
    Arena *arena;
} Mutation;

/* ---- which ----------------------------------------------------------------------------------- */

/* Of all but names of static variables and of labels, which the other kernels' texts are part of,
 * and the parameters' sizes. */
static u64 hash_of(Str s)
{
    u64 hash = 0xcbf29ce484222325u;
    const char *from = memchr(s.s, '{', (size_t)s.n);
    for (int i = from ? (int)(from - s.s) : 0; i < s.n; i++) {
        bool name = s.s[i] == '$' || (s.s[i] == '_' && i + 1 < s.n && s.s[i + 1] == 'Z');
        while (name && i < s.n && (isalnum((unsigned char)s.s[i]) || strchr("_$", s.s[i])))
            i++;
        hash = (hash ^ (u8)s.s[i]) * 0x100000001b3u;
    }
    return hash;
}

/* The name of an op's kernel by its number; those of its joins by "join" and a number. */
static Str kernel_of(const Bench *b, const char *asked)
{
    const Manifest *m = b->worker.module->manifest;
    const char *slash = strchr(asked, '/');
    Str op = slash ? (Str){asked, (int)(slash - asked)} : str_of(asked), found = STR("");
    bool join = slash && strncmp(slash, "/join", 5) == 0;
    int left = slash ? atoi(slash + (join ? 5 : 1)) : 0;
    PtxJobs jobs = {0};
    verify_ptx_jobs(m, STR(""), &jobs, b->arena);
    for (int i = 0; i < jobs.n; i++) {
        const MfSpec *spec = &m->specs[jobs.v[i].spec];
        Str name = str_of(m->kernels[spec->kernel].name);
        if (jobs.v[i].uneven || !str_is(op, m->ops[spec->op].name) || str_eq(name, found) ||
            join != (jobs.v[i].phase == ISO_PHASE_JOIN))
            continue;
        found = name;
        if (left-- == 0)
            return name;
    }
    bench_fail("no such kernel");
}

/* The instruction that stands on this line of the kernel's text; -1: none. */
static int instruction_at(const Bench *b, int number)
{
    int i = b->kernel->code.n - 1;
    while (i >= 0 && b->kernel->code.v[i].line != b->first_line + number - 1)
        i--;
    return i;
}

/* Whether it runs at all. */
static bool runs(const Bench *b, int number)
{
    int i = instruction_at(b, number);
    return i < 0 || b->covered[i];
}

/* A mutant among those that are like it. */
typedef struct Alike {
    u64 key;
    int i;
} Alike;

static int compare_alike(const void *a, const void *b)
{
    const Alike *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->i - y->i;
}

/* Of alike ones the first and the last are tried; idle ones are no others' likes. */
static void choose_once(Mutation *m)
{
    int n = m->all.n;
    Alike *sorted = arena_array(m->arena, Alike, n + 1);
    for (int i = 0; i < n; i++)
        sorted[i] = (Alike){m->all.v[i].alike ^ (u64)runs(m->bench, m->all.v[i].number), i};
    qsort(sorted, (size_t)n, sizeof *sorted, compare_alike);
    for (int first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && sorted[end].key == sorted[first].key;)
            end++;
        m->repeats[sorted[first].i] = end - first;
        if (end - first > 1) {
            m->repeats[sorted[first].i]--;
            m->repeats[sorted[end - 1].i] = 1;
        }
    }
}

static void choose(Mutation *m)
{
    m->repeats = arena_array(m->arena, int, m->all.n + 1);
    m->done = arena_array(m->arena, bool, m->all.n + 1);
    for (int i = 0; !m->options->once && i < m->all.n; i++)
        m->repeats[i] = 1;
    if (m->options->once)
        choose_once(m);
    for (int i = 0; i < m->all.n; i++)
        if ((i * 7 + 3) % m->options->every)
            m->repeats[i] = 0;
}

/* ---- results --------------------------------------------------------------------------------- */

/* "hash index verdict word milliseconds repeats line kind: was -> is" */
static void write_result(const Mutation *m, int i, const char *verdict, const char *word, double ms)
{
    const Mutant *mutant = &m->all.v[i];
    Text out = {.arena = arena_new()};
    text_printf(&out, "%016" PRIx64 " %d %s %s %.0f %d line %d %.*s\n", m->text, i, verdict, word,
                ms, m->repeats[i], mutant->number, STR_FMT(mutant->shape));
    Str line = text_str(&out);
    FILE *file = m->options->results ? fopen(m->options->results, "a") : stdout;
    if (!file || fwrite(line.s, 1, (size_t)line.n, file) != (size_t)line.n)
        bench_fail("the results cannot be written");
    if (file != stdout)
        fclose(file);
    arena_free(out.arena);
}

typedef struct Result {
    u64 text;
    int i, repeats, line;
    char verdict[16], word[16];
    double ms;
} Result;

static bool read_result(const char *line, Result *r)
{
    return sscanf(line, "%" SCNx64 " %d %15s %15s %lf %d line %d", &r->text, &r->i, r->verdict,
                  r->word, &r->ms, &r->repeats, &r->line) == 7;
}

typedef struct Tally {
    int n[VERDICTS], counts[VERDICTS]; /* mutants tried; with those that they stand for */
    int unlisted;
    double ms;
} Tally;

static void count_result(const Mutation *m, const Result *r, Survivors *list, Tally *t)
{
    int v = IDLE;
    for (int k = 0; k < IDLE; k++)
        if (strcmp(r->verdict, verdicts[k]) == 0)
            v = k;
    t->n[v]++;
    t->counts[v] += r->repeats;
    t->ms += r->ms;
    if (v < SURVIVES || !list)
        return;
    const Mutant *mutant = &m->all.v[r->i];
    const char *kernel = m->options->kernel;
    if (v == SURVIVES ? survivors_have(list, kernel, m->text, mutant->number, mutant->shape)
                      : survivors_explain(list, kernel, m->text, mutant->number))
        return;
    t->unlisted++;
    printf("  not on the list: line %d %.*s (%s)\n", mutant->number, STR_FMT(mutant->shape),
           v == SURVIVES ? r->word : "idle");
}

/* The results of this text: what is done, and its tally. */
static void read_results(Mutation *m, Survivors *list, Tally *tally)
{
    char line[1024];
    FILE *file = m->options->results ? fopen(m->options->results, "r") : NULL;
    Result r;
    while (file && fgets(line, sizeof line, file))
        if (read_result(line, &r) && r.text == m->text && r.i < m->all.n && m->repeats[r.i] &&
            !m->done[r.i]) {
            m->done[r.i] = true;
            if (tally)
                count_result(m, &r, list, tally);
        }
    if (file)
        fclose(file);
}

/* ---- trying ---------------------------------------------------------------------------------- */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static const char *reason(const Mutation *m, int i, Beside beside, Str text, Arena *arena)
{
    switch (beside) {
    case BESIDE_UNKNOWN: return beside_reason(m->bench, &m->all.v[i], text, arena);
    case BESIDE_UNSEEN: return "unseen";
    default: return "same";
    }
}

static void try_one(const Mutation *m, int i, Beside beside)
{
    const Mutant *mutant = &m->all.v[i];
    if (!runs(m->bench, mutant->number)) {
        write_result(m, i, "idle", "-", 0);
        return;
    }
    if (beside == BESIDE_ALIKE) {
        write_result(m, i, verdicts[SURVIVES], "same", 0);
        return;
    }
    double start = now_ms();
    Arena *arena = arena_new();
    PtxOutcome outcome;
    Str text = bench_text(m->bench, mutant->line, mutant->text, arena);
    m->bench->only = instruction_at(m->bench, mutant->number);
    Verdict verdict = bench_judge(m->bench, text, &outcome, arena);
    const char *word = verdict == SURVIVES ? reason(m, i, beside, text, arena) : "-";
    write_result(m, i, verdicts[verdict], word, now_ms() - start);
    arena_free(arena);
}

/* Each of several processes takes its share of what is left. */
static void try_share(const Mutation *m, int share)
{
    bool *mine = arena_array(m->arena, bool, m->all.n + 1);
    for (int i = 0, n = 0; i < m->all.n; i++)
        mine[i] = m->repeats[i] && !m->done[i] && n++ % m->options->jobs == share;
    const Beside *beside = beside_all(m->bench, &m->all, mine, m->arena);
    for (int i = 0; i < m->all.n; i++)
        if (mine[i])
            try_one(m, i, beside[i]);
}

static bool try_all(const Mutation *m)
{
    bool good = true;
    for (int share = 1; share < m->options->jobs; share++) {
        pid_t child = fork();
        if (child < 0)
            bench_fail("no process");
        if (child == 0) {
            try_share(m, share);
            _exit(0);
        }
    }
    try_share(m, 0);
    for (int status; wait(&status) > 0;)
        good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return good;
}

/* ---- all ------------------------------------------------------------------------------------- */

static Options read_options(int argc, char **argv)
{
    Options o = {.contract = argv[1], .kernel = argv[2], .jobs = 1, .every = 1};
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "-once") == 0) {
            o.once = true;
            continue;
        }
        if (strcmp(argv[i], "-idle") == 0) {
            o.idle = true;
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "-j") == 0)
            o.jobs = atoi(value);
        else if (strcmp(argv[i - 1], "-e") == 0)
            o.every = atoi(value);
        else if (strcmp(argv[i - 1], "-o") == 0)
            o.results = value;
        else if (strcmp(argv[i - 1], "-list") == 0)
            o.list = value;
        else
            bench_fail("an unknown option");
    }
    if (o.jobs < 1 || o.every < 1)
        bench_fail("-j and -e take numbers from 1 on");
    return o;
}

static int covered(const Bench *b)
{
    int n = 0;
    for (int i = 0; i < b->kernel->code.n; i++)
        n += b->covered[i];
    return n;
}

static void print_idle(const Mutation *m)
{
    for (int i = 0; i < m->all.n; i++) {
        const Mutant *mutant = &m->all.v[i];
        if (strcmp(mutant->kind, "drop") == 0 && !runs(m->bench, mutant->number))
            printf("line %d: %.*s\n", mutant->number, STR_FMT(mutant->line));
    }
}

static void print_tally(const Mutation *m, const Tally *t)
{
    printf("%s %.*s %016" PRIx64 ": %d of %d instructions run in %d launches\n",
           m->options->kernel, STR_FMT(m->bench->kernel->name), m->text, covered(m->bench),
           m->bench->kernel->code.n, m->bench->jobs.n);
    printf("  %d mutants, %d tried for them, %.1f CPU s: ", m->all.n,
           t->n[INVALID] + t->n[FOUND] + t->n[UNLIKE] + t->n[SURVIVES] + t->n[IDLE], t->ms / 1e3);
    printf("%d (%d) idle, %d (%d) not PTX, %d (%d) by a finding, %d (%d) by a term, "
           "%d (%d) survive\n",
           t->n[IDLE], t->counts[IDLE], t->n[INVALID], t->counts[INVALID], t->n[FOUND],
           t->counts[FOUND], t->n[UNLIKE], t->counts[UNLIKE], t->n[SURVIVES], t->counts[SURVIVES]);
}

/* True where all went well and, of a text that the list knows, all survivors are on it. */
static bool mutate(Bench *bench, const Options *options, Survivors *list)
{
    Mutation m = {.bench = bench, .options = options, .arena = arena_new()};
    bench_choose(bench, kernel_of(bench, options->kernel).s, true);
    m.text = hash_of(bench->body);
    mutants_of(bench->body, &m.all, m.arena);
    choose(&m);
    read_results(&m, NULL, NULL);
    if (options->idle)
        print_idle(&m);
    bool good = options->idle || try_all(&m), known = list != NULL;
    Tally tally = {0};
    memset(m.done, 0, (size_t)m.all.n);
    read_results(&m, list, &tally);
    print_tally(&m, &tally);
    if (list && !survivors_know(list, options->kernel, m.text)) {
        printf("  the list is of another text of this kernel\n");
        known = false;
    }
    fflush(stdout);
    arena_free(m.arena);
    return good && !(known && tally.unlisted);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        bench_fail("mutate CONTRACT KERNELS [-j JOBS] [-o RESULTS] [-e EVERY] [-once] [-idle] "
                   "[-list SURVIVORS]");
    Options options = read_options(argc, argv);
    Arena *arena = arena_new();
    Bench *bench = bench_open(options.contract, true);
    Survivors *list = options.list ? survivors_open(options.list, arena) : NULL;
    char own[] = "/tmp/isoc-mutants-XXXXXX";
    bool good = true;
    if (!options.results) {
        int file = mkstemp(own);
        if (file < 0)
            bench_fail("no file for the results");
        close(file);
        options.results = own;
    }
    for (char *at = argv[2], *end; at; at = end) {
        end = strchr(at, ',');
        if (end)
            *end++ = 0;
        options.kernel = at;
        good &= mutate(bench, &options, list);
    }
    if (options.results == own)
        unlink(own);
    bench_close(bench);
    arena_free(arena);
    return good ? 0 : 1;
}
