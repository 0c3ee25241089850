/* Writes text with every sampler and scores it with every trainer, over one cache of weights each.
 *
 *     rollout FILE.cubin --weights W [--device cpu|cuda] [--samplers S,S,...] [--trainers L,L,...]
 *
 * A sampler is LAYOUT:PAGE:CHUNK[:prefix][:draftN]: pages of so many positions, prompts in chunks
 * of so many rows (0: whole), pages of prompts that begin alike reused, N drafted tokens verified
 * in a step (drafts are what the first sampler said, spoilt here and there; for the first, what
 * the sequence itself said before). --sampler-file gives samplers another contract, which is
 * refused where its fingerprint is another; --force runs it all the same. --faults N puts faults
 * of one bit into samplers and asks the traces where they are.
 *
 * Exit codes: 0 no bit differs, 2 usage, 3 anything else, 4 some bit differs or is refused. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: rollout FILE.cubin --weights W [--device cpu|cuda] [--samplers LAYOUT:PAGE:CHUNK"
    "[:prefix][:draftN],...]\n"
    "               [--trainers LAYOUT,...] [--requests N] [--prompt N] [--answer N] [--shared N]\n"
    "               [--at-once N] [--rows N] [--pass N] [--pages N] [--kept N]\n"
    "               [--graph-rows N] [--timeout SECONDS] [--log]\n"
    "               [--sampler-file FILE.cubin [--force]] [--faults N]\n";

typedef struct Number {
    const char *name;
    int *value;
} Number;

static int read_numbers(Options *o, const char *name, const char *value)
{
    Number numbers[] = {{"--requests", &o->requests}, {"--prompt", &o->prompt},
                        {"--answer", &o->answer},     {"--shared", &o->shared},
                        {"--rows", &o->rows},         {"--pass", &o->pass},
                        {"--pages", &o->pages},       {"--kept", &o->kept},
                        {"--faults", &o->faults},     {"--graph-rows", &o->graph_rows},
                        {"--at-once", &o->at_once},   {"--timeout", &o->timeout}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!strcmp(name, numbers[i].name)) {
            *numbers[i].value = atoi(value);
            return 1;
        }
    return 0;
}

static int read_words(Options *o, const char *name, const char *value)
{
    struct {
        const char *name, **value;
    } words[] = {{"--weights", &o->weights},
                 {"--samplers", &o->samplers},
                 {"--trainers", &o->trainers},
                 {"--sampler-file", &o->sampler_file},
                 {"--device", &o->device}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(name, words[i].name)) {
            *words[i].value = value;
            return 1;
        }
    return 0;
}

/* How long ranks wait for one another: on GPUs they differ by little. */
enum { CPU_SECONDS = 60, CUDA_SECONDS = 30 };

static bool read_options(Options *o, int argc, char **argv)
{
    if (argc < 2)
        return false;
    o->file = argv[1];
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--force"))
            o->force = true;
        else if (!strcmp(argv[i], "--log"))
            o->log = true;
        else if (i + 1 < argc &&
                 (read_words(o, argv[i], argv[i + 1]) || read_numbers(o, argv[i], argv[i + 1])))
            i++;
        else
            return false;
    }
    if (o->timeout <= 0)
        o->timeout = strcmp(o->device, "cuda") ? CPU_SECONDS : CUDA_SECONDS;
    if (o->at_once > o->requests)
        o->at_once = o->requests;
    return o->weights && o->at_once > 0 && o->requests > 0 && o->answer > 0 && o->prompt > 0 &&
           o->rows > 0 && o->pages > 0;
}

static const iso_module *load(const Options *o, const char *file)
{
    iso_module *module;
    iso_config config = {.size = sizeof config,
                         .device = strcmp(o->device, "cuda") ? ISO_CPU : ISO_CUDA,
                         .cpu_threads = 1};
    must(iso_module_load(&module, file, &config), file);
    return module;
}

/* What a user does before anything runs: two sides that would not agree do not start. */
static bool same_contract(const Options *o, const iso_module *trainer, const iso_module *sampler)
{
    uint8_t digest[32];
    must(iso_module_fingerprint(trainer, digest), "iso_module_fingerprint");
    iso_status status = iso_module_expect(sampler, digest);
    if (!status)
        return true;
    printf("refused: %s: %s\n", iso_status_string(status), iso_last_error());
    return o->force;
}

int main(int argc, char **argv)
{
    Options o = {.device = "cpu", .samplers = "tp1:16:0", .trainers = "tp1", .requests = 4,
                 .at_once = 64, .prompt = 24, .answer = 12, .rows = 64, .pass = 256, .pages = 64,
                 .kept = 8};
    if (!read_options(&o, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    const iso_module *trainer = load(&o, o.file);
    const iso_module *sampler = o.sampler_file ? load(&o, o.sampler_file) : trainer;
    if (!same_contract(&o, trainer, sampler))
        return 4;
    int64_t differ = compare_all(&o, trainer, sampler);
    if (sampler != trainer)
        show_difference(&o, trainer, sampler);
    if (o.faults)
        differ += find_faults(&o, trainer);
    if (sampler != trainer)
        iso_module_unload((iso_module *)sampler);
    iso_module_unload((iso_module *)trainer);
    return differ ? 4 : 0;
}
