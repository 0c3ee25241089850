/* Ranks as processes on the CPU, over shared memory: bits against one rank, the order of every join
 * read back, and what the others learn when one dies, hangs or has loaded something else.
 *
 * usage: ranks bits CUBIN [ROWS...] | order CUBIN | faults CUBIN OTHER_CUBIN */
#include "group/group_plan.h"
#include "ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder_url[64];
static const char *where = folder_url; /* NULL: $MASTER_ADDR and $MASTER_PORT */

static void nap(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- bits ------------------------------------------------------------------------------------ */

enum { MOST_CASES = 64, BYTES = 1 << 20 };

typedef struct Bits {
    const iso_module *module;
    const MfLayout *layout;
    int n;
    Whole *whole; /* one per op and row count */
} Bits;

/* Every case with one-shot joins, with two-shot ones, and by the default; then amid ranks whose
 * memory cannot be read: all the others, or all but a neighbour. */
static int bits_rank(int rank, int ranks, void *user)
{
    static const struct {
        size_t two_shot;
        int island; /* ranks of one; 0: all */
    } ways[] = {{SIZE_MAX, 0}, {1, 0}, {0, 0}, {SIZE_MAX, 1}, {1, 2}};
    const Bits *bits = user;
    int bad = 0;
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        iso_group *group = join_island(bits->module, where, rank, ranks, 120, BYTES,
                                       ways[way].two_shot,
                                       ways[way].island ? rank / ways[way].island : 0);
        for (int i = 0; i < bits->n; i++) {
            const Whole *whole = &bits->whole[i];
            int64_t differ;
            const iso_op *op =
                op_of(bits->module, whole->op->op->name, bits->layout->name, rank);
            must(run_op(group, whole, op, &differ), "iso_op_run_group");
            if (differ && ++bad)
                printf("  DIFFERS: op %s, layout %s, rank %d, %lld rows: %lld elements\n",
                       whole->op->op->name, bits->layout->name, rank, (long long)whole->rows,
                       (long long)differ);
        }
        iso_group_destroy(group);
    }
    return bad != 0;
}

static bool fits(const Whole *whole, const iso_module *module)
{
    for (int l = 0; l < module->manifest->n_layouts; l++) {
        size_t bytes;
        must(iso_group_bytes(op_of(module, whole->op->op->name, module->manifest->layouts[l].name,
                                   0),
                             whole->rows, &bytes),
             "iso_group_bytes");
        if (bytes > BYTES)
            return false;
    }
    return true;
}

static int two_shots(const Bits *bits)
{
    int n = 0;
    for (int i = 0; i < bits->n; i++) {
        GroupPlan plan;
        const Whole *whole = &bits->whole[i];
        must(group_plan(op_of(bits->module, whole->op->op->name, bits->layout->name, 0),
                        whole->rows, 1, &plan),
             "group_plan");
        n += plan.two_shot;
    }
    return n;
}

/* A model's own lm_head takes 100 times as long as its gate_up, which is cut in the same way. */
static bool is_long(const iso_module *module, const char *name)
{
    const iso_op *op;
    iso_tensor weights;
    must(iso_op_get(module, name, NULL, &op), name);
    must(iso_op_tensor(op, ISO_PHASE_RUN, 1, op->op->n_params - 1, &weights, NULL), name);
    return tensor_bytes(&weights) > 32 << 20;
}

static int run_bits(const iso_module *module, int n_rows, char **rows)
{
    const Manifest *manifest = module->manifest;
    Bits bits = {.module = module, .whole = calloc(MOST_CASES, sizeof(Whole))};
    int failed = 0, layouts = 0, shared = 0, pids[GROUP_RANKS];
    for (int o = 0; o < manifest->n_ops; o++)
        for (int m = 0; m < n_rows && bits.n < MOST_CASES; m++) {
            Whole *whole = &bits.whole[bits.n];
            if (is_long(module, manifest->ops[o].name))
                continue;
            whole_open(whole, module, manifest->ops[o].name, atoll(rows[m]));
            if (!fits(whole, module))
                die("op %s moves more than %d bytes", manifest->ops[o].name, BYTES);
            whole_run(whole);
            bits.n++;
        }
    for (int l = 0; l < manifest->n_layouts; l++) {
        bits.layout = &manifest->layouts[l];
        if (bits.layout->ranks == 1)
            continue;
        layouts++;
        shared += two_shots(&bits);
        start_ranks(bits.layout->ranks, bits_rank, &bits, pids);
        int bad = end_ranks(bits.layout->ranks, pids, -1);
        failed += bad;
        if (bad)
            printf("  layout %s: %d of %d ranks failed\n", bits.layout->name, bad,
                   bits.layout->ranks);
    }
    printf("ranks: %s: %d cases in %d layouts, %d joins two-shot too: %s\n", manifest->contract,
           bits.n, layouts, shared, failed ? "FAILED" : "bits equal to one rank");
    for (int i = 0; i < bits.n; i++)
        whole_close(&bits.whole[i]);
    free(bits.whole);
    return failed != 0 || layouts == 0;
}

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct Order {
    const iso_module *module;
    const char *op, *layout;
    Whole whole;
} Order;

static int order_rank(int rank, int ranks, void *user)
{
    const Order *order = user;
    int64_t differ;
    iso_group *group = join_group(order->module, where, rank, ranks, 120, BYTES, 0);
    must(run_op(group, &order->whole, op_of(order->module, order->op, order->layout, rank),
                &differ), "iso_op_run_group");
    iso_group_destroy(group);
    if (differ)
        printf("  ORDER: op %s, layout %s, rank %d: %lld sums are not the tree's\n", order->op,
               order->layout, rank, (long long)differ);
    return differ != 0;
}

static int run_order(const iso_module *module)
{
    int failed = 0, trees = 0, pids[GROUP_RANKS];
    for (int o = 0; o < N_PROBES; o++) {
        Order order = {.module = module, .op = probes[o].op};
        whole_open(&order.whole, module, order.op, probe_rows(&probes[o]));
        fill_probe(&probes[o], &order.whole);
        expect_probe(&probes[o], &order.whole);
        for (int l = 0; l < module->manifest->n_layouts; l++) {
            int needs;
            order.layout = module->manifest->layouts[l].name;
            must(iso_op_needs_join(op_of(module, order.op, order.layout, 0), &needs), order.op);
            if (!needs)
                continue;
            int ranks = module->manifest->layouts[l].ranks;
            trees++;
            start_ranks(ranks, order_rank, &order, pids);
            failed += end_ranks(ranks, pids, -1);
        }
        whole_close(&order.whole);
    }
    printf("ranks: %d trees over 2 to 16 ranks read back: %s\n", trees,
           failed ? "FAILED" : "each is the contract's");
    return failed != 0 || trees == 0;
}

/* ---- faults ---------------------------------------------------------------------------------- */

typedef struct Faults {
    const iso_module *module, *other;
    Whole whole, second;
    const char *bootstrap;
    double timeout;
    int wrong; /* the rank that does otherwise */
} Faults;

/* Each rank says by its exit whether it learnt the status that names the rank and the op. */
static int learnt(iso_status have, iso_status want, int rank, const char *op)
{
    char name[32];
    snprintf(name, sizeof name, "rank %d ", rank);
    if (have == want && strstr(iso_last_error(), name) && strstr(iso_last_error(), op))
        return 0;
    printf("  FAULT: wanted status %d of %s, got %d: %s\n", want, name, have, iso_last_error());
    return 1;
}

static iso_status run_until_failure(iso_group *group, const Faults *f, int rank)
{
    const iso_op *op = op_of(f->module, f->whole.op->op->name, "tp4", rank);
    iso_status status = ISO_OK;
    while (!status) {
        int64_t differ;
        status = run_op(group, &f->whole, op, &differ);
        if (differ)
            die("a wrong number at rank %d", rank);
    }
    return status;
}

static int killed_rank(int rank, int ranks, void *user)
{
    const Faults *f = user;
    iso_group *group = join_group(f->module, f->bootstrap, rank, ranks, f->timeout, BYTES, 0);
    int bad = learnt(run_until_failure(group, f, rank), ISO_RANK_LOST, f->wrong, "residual");
    bad |= learnt(iso_group_status(group), ISO_RANK_LOST, f->wrong, "residual");
    iso_group_destroy(group);
    return bad;
}

static int hung_rank(int rank, int ranks, void *user)
{
    const Faults *f = user;
    iso_group *group = join_group(f->module, f->bootstrap, rank, ranks, f->timeout, BYTES, 0);
    int bad = learnt(run_until_failure(group, f, rank), ISO_RANK_TIMEOUT, f->wrong, "residual");
    iso_group_destroy(group);
    return bad;
}

static int disordered_rank(int rank, int ranks, void *user)
{
    const Faults *f = user;
    int64_t differ;
    iso_group *group = join_group(f->module, f->bootstrap, rank, ranks, f->timeout, BYTES, 0);
    const Whole *whole = rank == f->wrong ? &f->second : &f->whole;
    iso_status status =
        run_op(group, whole, op_of(f->module, whole->op->op->name, "tp4", rank), &differ);
    iso_group_destroy(group);
    return rank == f->wrong ? status != ISO_DISORDER
                            : learnt(status, ISO_DISORDER, f->wrong, "residual");
}

static int mismatched_rank(int rank, int ranks, void *user)
{
    const Faults *f = user;
    iso_group *group;
    uint8_t weights[32] = {7};
    iso_group_config config = {.size = sizeof config,
                               .rank = rank,
                               .ranks = ranks,
                               .bootstrap = f->bootstrap,
                               .timeout = f->timeout,
                               .bytes = BYTES,
                               .weights = weights};
    weights[3] = !f->other && rank == f->wrong;
    iso_status status = iso_group_create(
        &group, rank == f->wrong && f->other ? f->other : f->module, &config);
    return learnt(status, f->other ? ISO_FINGERPRINT : ISO_WEIGHTS, f->wrong, "");
}

/* The rank that should come does not. */
static int absent_rank(int rank, int ranks, void *user)
{
    const Faults *f = user;
    iso_group *group;
    iso_group_config config = {.size = sizeof config,
                               .rank = rank,
                               .ranks = ranks,
                               .bootstrap = f->bootstrap,
                               .timeout = f->timeout,
                               .bytes = BYTES};
    if (rank == f->wrong)
        return 0;
    return learnt(iso_group_create(&group, f->module, &config), ISO_RANK_TIMEOUT, f->wrong, "");
}

/* Something else connects to where the ranks meet: one stream of garbage, one of silence. The last
 * process is the stranger; the ranks meet all the same. */
static int strange_rank(int rank, int ranks, void *user)
{
    const Faults *f = user;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char garbage[64];
    if (rank < ranks - 1) {
        nap(rank ? 300 : 0);
        iso_group_destroy(join_group(f->module, f->bootstrap, rank, ranks - 1, 60, BYTES, 0));
        return 0;
    }
    snprintf(at.sun_path, sizeof at.sun_path, "%s/iso-group", f->bootstrap + strlen("file:"));
    memset(garbage, 0xA5, sizeof garbage);
    int streams[2] = {socket(AF_UNIX, SOCK_STREAM, 0), socket(AF_UNIX, SOCK_STREAM, 0)};
    for (int i = 0; i < 2; i++)
        for (int tries = 0; connect(streams[i], (struct sockaddr *)&at, sizeof at); tries++) {
            if (tries == 1000)
                die("the stranger found nobody");
            nap(5);
        }
    if (send(streams[0], garbage, sizeof garbage, MSG_NOSIGNAL) < 0)
        die("the stranger could not speak");
    nap(3000);
    return 0;
}

enum { FAULT_RANKS = 4, KILLS = 10 };

/* Each rank in turn, rank 0 with the meeting point included, at moments from the first meeting to
 * well into the run. */
static int run_kills(Faults *f, int signal, RankWork work)
{
    int failed = 0, pids[GROUP_RANKS];
    srand(20240);
    for (int i = 0; i < (signal == SIGKILL ? KILLS : 2); i++) {
        f->wrong = i % FAULT_RANKS;
        start_ranks(FAULT_RANKS, work, f, pids);
        nap(400 + rand() % 400);
        kill(pids[f->wrong], signal);
        if (signal == SIGSTOP) {
            nap((int)(f->timeout * 1000) * 3);
            kill(pids[f->wrong], SIGKILL);
        }
        failed += end_ranks(FAULT_RANKS, pids, f->wrong);
    }
    return failed;
}

static int run_once(Faults *f, const char *what, int wrong, RankWork work)
{
    int pids[GROUP_RANKS];
    f->wrong = wrong;
    start_ranks(FAULT_RANKS, work, f, pids);
    int failed = end_ranks(FAULT_RANKS, pids, -1);
    printf("ranks: %s: %s\n", what, failed ? "FAILED" : "each rank learns who");
    return failed != 0;
}

static int run_faults(const iso_module *module, const iso_module *other)
{
    Faults f = {.module = module, .bootstrap = where, .timeout = 60};
    int failed = 0;
    whole_open(&f.whole, module, "residual", 3);
    whole_run(&f.whole);
    whole_open(&f.second, module, "twelve", 3);
    whole_run(&f.second);
    int bad = run_kills(&f, SIGKILL, killed_rank);
    printf("ranks: %d ranks killed in mid-run: %s\n", KILLS,
           bad ? "FAILED" : "the others learn which, every time");
    failed |= bad != 0;
    f.timeout = 2;
    bad = run_kills(&f, SIGSTOP, hung_rank);
    printf("ranks: ranks that hang: %s\n", bad ? "FAILED" : "the others time out and name them");
    failed |= bad != 0;
    failed |= run_once(&f, "a rank that does not come", 2, absent_rank);
    int pids[GROUP_RANKS];
    start_ranks(FAULT_RANKS, strange_rank, &f, pids);
    bad = end_ranks(FAULT_RANKS, pids, -1);
    printf("ranks: strangers where ranks meet: %s\n", bad ? "FAILED" : "the ranks meet");
    failed |= bad != 0;
    f.timeout = 60;
    failed |= run_once(&f, "a rank with other weights", 3, mismatched_rank);
    f.other = other;
    failed |= run_once(&f, "a rank with another contract", 1, mismatched_rank);
    failed |= run_once(&f, "a rank that runs another op", 1, disordered_rank);
    whole_close(&f.whole);
    whole_close(&f.second);
    return failed;
}

/* ---- main ------------------------------------------------------------------------------------ */

static iso_module *load(const char *path)
{
    iso_module *module;
    iso_config config = {.size = sizeof config, .device = ISO_CPU, .cpu_threads = 1};
    must(iso_module_load(&module, path, &config), path);
    return module;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/iso-ranks-XXXXXX";
    if (argc < 3 || !mkdtemp(folder))
        die("usage: %s bits CUBIN [ROWS...] | order CUBIN | faults CUBIN OTHER_CUBIN", argv[0]);
    snprintf(folder_url, sizeof folder_url, "file:%s", folder);
    if (getenv("MASTER_ADDR"))
        where = NULL;
    iso_module *module = load(argv[2]), *other = NULL;
    if (argc > 3 && !strcmp(argv[1], "faults"))
        other = load(argv[3]);
    int failed = 2;
    if (!strcmp(argv[1], "bits"))
        failed = run_bits(module, argc - 3, argv + 3);
    else if (!strcmp(argv[1], "order"))
        failed = run_order(module);
    else if (!strcmp(argv[1], "faults") && other)
        failed = run_faults(module, other);
    iso_module_unload(other);
    iso_module_unload(module);
    rmdir(folder);
    return failed;
}
