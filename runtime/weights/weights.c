/* Opening a checkpoint, finding its tensors, and copying parts of them out. */
#include "weights_impl.h"

#include "../../compiler/device/iso_num.cuh"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRIES_MOST = 1 << 20, PATH_ROOM = 4096, RUN = 4096 };

/* ---- entries --------------------------------------------------------------------------------- */

WeightEntry *weights_add(Weights *weights, const char *name, size_t name_size)
{
    if (weights->n_entries == weights->room) {
        int room = weights->room ? 2 * weights->room : 64;
        WeightEntry *entries = room > ENTRIES_MOST
                                   ? NULL
                                   : realloc(weights->entries, (size_t)room * sizeof *entries);
        if (!entries) {
            iso_fail(ISO_OUT_OF_MEMORY, "no memory for %d tensors' names", room);
            return NULL;
        }
        weights->entries = entries;
        weights->room = room;
    }
    char *copy = malloc(name_size + 1);
    if (!copy) {
        iso_fail(ISO_OUT_OF_MEMORY, "no memory for a tensor's name");
        return NULL;
    }
    memcpy(copy, name, name_size);
    copy[name_size] = 0;
    WeightEntry *entry = &weights->entries[weights->n_entries++];
    *entry = (WeightEntry){.name = copy};
    return entry;
}

bool weight_elements(WeightEntry *entry)
{
    entry->elements = 1;
    for (int i = 0; i < entry->n_axes; i++) {
        int64_t size = entry->size[i];
        if (size < 0 || (size && entry->elements > INT64_MAX / 64 / size))
            return false;
        entry->elements *= size;
    }
    int block = weight_block_elements(entry->type);
    int64_t inner = entry->n_axes ? entry->size[entry->n_axes - 1] : 1;
    return inner % block == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const WeightEntry *)a)->name, ((const WeightEntry *)b)->name);
}

static iso_status sort_entries(Weights *weights, const char *label)
{
    if (weights->n_entries)
        qsort(weights->entries, (size_t)weights->n_entries, sizeof *weights->entries, by_name);
    for (int i = 1; i < weights->n_entries; i++)
        if (!strcmp(weights->entries[i].name, weights->entries[i - 1].name))
            return iso_fail(ISO_BAD_WEIGHT, "%s: two tensors are named %s", label,
                            weights->entries[i].name);
    return ISO_OK;
}

const WeightEntry *weights_find(const Weights *weights, const char *name)
{
    WeightEntry key = {.name = (char *)name};
    return weights->n_entries ? bsearch(&key, weights->entries, (size_t)weights->n_entries,
                                        sizeof key, by_name)
                              : NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

static iso_status map_file(Weights *weights, const char *path, WeightFile *file)
{
    struct stat info;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &info) || !S_ISREG(info.st_mode)) {
        iso_status status = iso_fail(ISO_FILE, "%s: %s", path,
                                     fd < 0 ? strerror(errno) : "not a regular file");
        if (fd >= 0)
            close(fd);
        return status;
    }
    *file = (WeightFile){.size = (size_t)info.st_size, .mapped = true};
    file->data = file->size ? mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (file->data == MAP_FAILED)
        return iso_fail(ISO_FILE, "%s: %s", path, file->size ? strerror(errno) : "it is empty");
    WeightFile *files = realloc(weights->files, (size_t)(weights->n_files + 1) * sizeof *files);
    if (!files) {
        munmap(file->data, file->size);
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for %s", path);
    }
    weights->files = files;
    files[weights->n_files++] = *file;
    return ISO_OK;
}

static iso_status read_bytes(Weights *weights, const void *data, size_t size, const char *label)
{
    if (size >= 4 && !memcmp(data, "GGUF", 4))
        return weights_read_gguf(weights, data, size, label);
    return weights_read_safetensors(weights, data, size, label);
}

static iso_status read_file(Weights *weights, const char *path)
{
    WeightFile file;
    iso_status status = map_file(weights, path, &file);
    return status ? status : read_bytes(weights, file.data, file.size, path);
}

/* Every shard that the index names, once; what each holds, its own header says. */
static iso_status read_shards(Weights *weights, const char *folder, const char *index)
{
    json_error_t error;
    json_t *root = json_load_file(index, JSON_REJECT_DUPLICATES, &error), *seen = json_object();
    json_t *map = json_object_get(root, "weight_map"), *value;
    const char *name;
    iso_status status = ISO_OK;
    if (!root)
        status = iso_fail(ISO_BAD_WEIGHT, "%s: line %d: %s", index, error.line, error.text);
    else if (!json_is_object(map) || !seen)
        status = iso_fail(ISO_BAD_WEIGHT, "%s: no \"weight_map\"", index);
    json_object_foreach(map, name, value)
    {
        char path[PATH_ROOM];
        const char *shard = json_string_value(value);
        if (status)
            break;
        if (!shard || strchr(shard, '/') || !*shard)
            status = iso_fail(ISO_BAD_WEIGHT, "%s: %s is in no file beside it", index, name);
        else if (!json_object_get(seen, shard)) {
            json_object_set_new(seen, shard, json_true());
            snprintf(path, sizeof path, "%s/%s", folder, shard);
            status = read_file(weights, path);
        }
    }
    json_decref(seen);
    json_decref(root);
    return status;
}

static iso_status read_path(Weights *weights, const char *path)
{
    struct stat info;
    char inside[PATH_ROOM];
    if (stat(path, &info))
        return iso_fail(ISO_FILE, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return read_file(weights, path);
    if (strlen(path) + 64 > sizeof inside)
        return iso_fail(ISO_FILE, "%s: the path is too long", path);
    snprintf(inside, sizeof inside, "%s/model.safetensors.index.json", path);
    if (!access(inside, F_OK))
        return read_shards(weights, path, inside);
    snprintf(inside, sizeof inside, "%s/model.safetensors", path);
    if (!access(inside, F_OK))
        return read_file(weights, inside);
    return iso_fail(ISO_FILE, "%s: neither model.safetensors nor model.safetensors.index.json is "
                              "in it", path);
}

static iso_status read_seed(Weights *weights, const char *text)
{
    uint64_t seed = 0;
    int digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9' && digits < 18; digits++)
        seed = seed * 10 + (uint64_t)(text[digits] - '0');
    if (!digits || text[digits])
        return iso_fail(ISO_INVALID_ARGUMENT, "seed:%s: write seed: and a number of at most 18 "
                                              "digits", text);
    weights->seeded = true;
    weights->seed = seed;
    return ISO_OK;
}

static iso_status finish(Weights **weights, Weights *w, iso_status status, const char *label)
{
    if (!status)
        status = sort_entries(w, label);
    if (!status)
        status = weights_pair_fp4(w, label);
    if (!status)
        status = sort_entries(w, label);
    if (status)
        weights_close(w);
    *weights = status ? NULL : w;
    return status;
}

iso_status weights_open(Weights **weights, const char *path)
{
    *weights = NULL;
    Weights *w = calloc(1, sizeof *w);
    if (!w)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for weights");
    bool seeded = !strncmp(path, "seed:", 5);
    return finish(weights, w, seeded ? read_seed(w, path + 5) : read_path(w, path), path);
}

iso_status weights_open_bytes(Weights **weights, const void *data, size_t size, const char *label)
{
    *weights = NULL;
    Weights *w = calloc(1, sizeof *w);
    if (!w)
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for weights");
    return finish(weights, w, read_bytes(w, data, size, label), label);
}

void weights_close(Weights *weights)
{
    if (!weights)
        return;
    for (int i = 0; i < weights->n_entries; i++)
        free(weights->entries[i].name);
    for (int i = 0; i < weights->n_files; i++)
        munmap(weights->files[i].data, weights->files[i].size);
    free(weights->entries);
    free(weights->files);
    free(weights);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int64_t product(const int64_t *size, int n)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++)
        all *= size[i];
    return all;
}

static void sizes_text(const int64_t *size, int n, char *text, size_t room)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < n && at + 24 < room; i++)
        at += (size_t)snprintf(text + at, room - at, i ? " x %lld" : "%lld", (long long)size[i]);
}

/* A checkpoint may have the elements alone, or those that memory has beyond them too. */
static bool has_padding(const WeightEntry *entry, const WeightTensor *tensor)
{
    return entry->elements != product(tensor->size, tensor->n_axes);
}

static bool has_axes(const WeightEntry *entry, const WeightTensor *tensor)
{
    bool same = entry->n_axes == tensor->n_axes;
    for (int i = 0; i < tensor->n_axes && same; i++)
        same = entry->size[i] == tensor->size[i] || entry->size[i] == tensor->stored[i];
    return same || !tensor->exact;
}

iso_status weights_check(const Weights *weights, const WeightTensor *tensor)
{
    if (weights->seeded)
        return ISO_OK;
    const WeightEntry *entry = weights_find(weights, tensor->name);
    char own[128], want[128];
    if (!entry)
        return iso_fail(ISO_BAD_WEIGHT, "the checkpoint has no %s", tensor->name);
    if (has_axes(entry, tensor) &&
        (!has_padding(entry, tensor) ||
         entry->elements == product(tensor->stored, tensor->n_axes)))
        return ISO_OK;
    sizes_text(entry->size, entry->n_axes, own, sizeof own);
    sizes_text(tensor->size, tensor->n_axes, want, sizeof want);
    return iso_fail(ISO_BAD_WEIGHT, "%s: the checkpoint has %s of it, the contract takes %s",
                    tensor->name, own, want);
}

/* Where a row of a head stands among rows whose halves are interleaved. */
static int64_t permuted(const WeightEntry *entry, int64_t index, int64_t columns)
{
    int64_t row = index / columns, per_head = entry->size[0] / entry->heads;
    int64_t head = row / per_head, in_head = row % per_head;
    int64_t half = in_head / (per_head / 2), pair = in_head % (per_head / 2);
    return (head * per_head + 2 * pair + half) * columns + index % columns;
}

/* Elements [first, first + n), which lie in one row of the checkpoint. */
static void decode_run(const WeightEntry *entry, int64_t first, int64_t n, float *to)
{
    if (entry->type == WT_MXFP4) {
        weight_decode_fp4(entry, first, n, to);
        return;
    }
    int64_t columns = entry->n_axes > 1 ? entry->elements / entry->size[0] : 1;
    while (entry->heads && n > 0) {
        int64_t left = columns - first % columns, count = left < n ? left : n;
        weight_decode(entry->type, entry->data, permuted(entry, first, columns), count, to);
        first += count;
        to += count;
        n -= count;
    }
    if (n > 0)
        weight_decode(entry->type, entry->data, first, n, to);
}

static void store(iso_dtype dtype, const float *from, int64_t n, unsigned char *to)
{
    if (dtype == ISO_F32) {
        memcpy(to, from, 4 * (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t half = dtype == ISO_BF16 ? iso_bf16_of_f32(from[i]) : iso_f16_of_f32(from[i]);
        memcpy(to + 2 * i, &half, 2);
    }
}

static int bytes_of(iso_dtype dtype)
{
    return dtype == ISO_F32 ? 4 : 2;
}

/* A run of the tensor's elements, by its index in what the checkpoint stores. */
static void read_run(const Weights *weights, const WeightEntry *entry, const WeightTensor *tensor,
                     int64_t first, int64_t n, unsigned char *to)
{
    static const WeightType plain[] = {[ISO_BF16] = WT_BF16, [ISO_F16] = WT_F16,
                                       [ISO_F32] = WT_F32};
    int bytes = bytes_of(tensor->dtype);
    if (entry && entry->type == plain[tensor->dtype] && !entry->heads) {
        memcpy(to, entry->data + first * bytes, (size_t)(n * bytes));
        return;
    }
    while (n > 0) {
        float run[RUN];
        int64_t count = n < RUN ? n : RUN;
        if (entry)
            decode_run(entry, first, count, run);
        else
            weights_seeded(weights->seed, tensor, first, count, run);
        store(tensor->dtype, run, count, to);
        first += count;
        to += count * bytes;
        n -= count;
    }
}

/* One row of the part along the last axis: what lies beyond the elements that there are is +0. */
static void read_row(const Weights *weights, const WeightEntry *entry, const WeightTensor *tensor,
                     const int64_t *at, int64_t n, unsigned char *to)
{
    bool padded = entry && has_padding(entry, tensor);
    const int64_t *size = padded ? tensor->stored : tensor->size;
    int last = tensor->n_axes - 1, bytes = bytes_of(tensor->dtype);
    int64_t index = 0, live = size[last] - at[last] < n ? size[last] - at[last] : n;
    for (int i = 0; i <= last; i++) {
        index = index * size[i] + at[i];
        if (at[i] >= size[i])
            live = 0;
    }
    if (live > 0)
        read_run(weights, entry, tensor, index, live, to);
    live = live > 0 ? live : 0;
    memset(to + live * bytes, 0, (size_t)((n - live) * bytes));
}

static bool next_row(const WeightTensor *tensor, const int64_t *origin, const int64_t *extent,
                     int64_t *at)
{
    for (int i = tensor->n_axes - 2; i >= 0; i--) {
        if (++at[i] < origin[i] + extent[i])
            return true;
        at[i] = origin[i];
    }
    return false;
}

iso_status weights_read(const Weights *weights, const WeightTensor *tensor, const int64_t *origin,
                        const int64_t *extent, void *to)
{
    iso_status status = weights_check(weights, tensor);
    if (status)
        return status;
    const WeightEntry *entry = weights->seeded ? NULL : weights_find(weights, tensor->name);
    int64_t at[ISO_MAX_AXES];
    if (tensor->n_axes == 0) {
        read_run(weights, entry, tensor, 0, 1, to);
        return ISO_OK;
    }
    for (int i = 0; i < tensor->n_axes; i++) {
        at[i] = origin[i];
        if (extent[i] <= 0)
            return ISO_OK;
    }
    int last = tensor->n_axes - 1;
    unsigned char *row = to;
    do {
        read_row(weights, entry, tensor, at, extent[last], row);
        row += extent[last] * bytes_of(tensor->dtype);
    } while (next_row(tensor, origin, extent, at));
    return ISO_OK;
}

/* ---- the digest ------------------------------------------------------------------------------ */

typedef struct Hashing {
    EVP_MD_CTX *outer, *inner;
    unsigned char *chunk;
    int filled;
} Hashing;

static void close_chunk(Hashing *h)
{
    unsigned char digest[32];
    if (h->filled == 0)
        return;
    EVP_DigestInit_ex(h->inner, EVP_sha256(), NULL);
    EVP_DigestUpdate(h->inner, h->chunk, (size_t)h->filled);
    EVP_DigestFinal_ex(h->inner, digest, NULL);
    EVP_DigestUpdate(h->outer, digest, sizeof digest);
    h->filled = 0;
}

static void digest_header(Hashing *h, const WeightTensor *tensor)
{
    static const char *const names[] = {[ISO_BF16] = "bf16", [ISO_F16] = "f16",
                                        [ISO_F32] = "f32"};
    EVP_DigestUpdate(h->outer, tensor->name, strlen(tensor->name));
    EVP_DigestUpdate(h->outer, " ", 1);
    EVP_DigestUpdate(h->outer, names[tensor->dtype], strlen(names[tensor->dtype]));
    for (int i = 0; i < tensor->n_axes; i++) {
        char size[24];
        int n = snprintf(size, sizeof size, " %lld", (long long)tensor->size[i]);
        EVP_DigestUpdate(h->outer, size, (size_t)n);
    }
    EVP_DigestUpdate(h->outer, "\n", 1);
}

/* In pieces of one row of the last axis at most, so that any shape streams through one chunk. */
static void digest_elements(Hashing *h, const Weights *weights, const WeightTensor *tensor)
{
    const WeightEntry *entry = weights->seeded ? NULL : weights_find(weights, tensor->name);
    int64_t origin[ISO_MAX_AXES] = {0}, at[ISO_MAX_AXES] = {0};
    int bytes = bytes_of(tensor->dtype), last = tensor->n_axes - 1;
    int64_t columns = last < 0 ? 1 : tensor->size[last];
    for (int i = 0; i <= last; i++)
        if (tensor->size[i] == 0)
            return;
    do {
        for (int64_t done = 0; done < columns;) {
            int64_t room = (WEIGHTS_CHUNK - h->filled) / bytes;
            int64_t n = columns - done < room ? columns - done : room;
            if (last < 0) {
                read_run(weights, entry, tensor, 0, 1, h->chunk + h->filled);
            } else {
                at[last] = done;
                read_row(weights, entry, tensor, at, n, h->chunk + h->filled);
            }
            done += n;
            h->filled += (int)n * bytes;
            if (h->filled == WEIGHTS_CHUNK)
                close_chunk(h);
        }
    } while (next_row(tensor, origin, tensor->size, at));
    close_chunk(h);
}

static int tensor_by_name(const void *a, const void *b)
{
    return strcmp((*(const WeightTensor *const *)a)->name, (*(const WeightTensor *const *)b)->name);
}

/* The tensors' own digests, each on some thread. */
typedef struct Digests {
    const Weights *weights;
    const WeightTensor **sorted;
    unsigned char (*digest)[32];
    atomic_bool no_memory;
} Digests;

static void digest_tensor(void *user, int64_t i)
{
    Digests *all = user;
    Hashing h = {EVP_MD_CTX_new(), EVP_MD_CTX_new(), malloc(WEIGHTS_CHUNK), 0};
    if (!h.outer || !h.inner || !h.chunk) {
        all->no_memory = true;
    } else {
        EVP_DigestInit_ex(h.outer, EVP_sha256(), NULL);
        digest_header(&h, all->sorted[i]);
        digest_elements(&h, all->weights, all->sorted[i]);
        EVP_DigestFinal_ex(h.outer, all->digest[i], NULL);
    }
    EVP_MD_CTX_free(h.outer);
    EVP_MD_CTX_free(h.inner);
    free(h.chunk);
}

static iso_status digest_sorted(Digests *all, int n, uint8_t digest[32])
{
    iso_status status = ISO_OK;
    for (int i = 0; i < n && !status; i++)
        status = weights_check(all->weights, all->sorted[i]);
    if (status)
        return status;
    weights_share_out(n, digest_tensor, all);
    if (all->no_memory ||
        !EVP_Digest(all->digest, 32 * (size_t)n, digest, NULL, EVP_sha256(), NULL))
        return iso_fail(ISO_OUT_OF_MEMORY, "no memory for a digest");
    return ISO_OK;
}

iso_status weights_digest(const Weights *weights, const WeightTensor *tensors, int n,
                          uint8_t digest[32])
{
    Digests all = {.weights = weights,
                   .sorted = malloc(((size_t)n + 1) * sizeof(WeightTensor *)),
                   .digest = malloc(((size_t)n + 1) * sizeof *all.digest)};
    iso_status status = ISO_OK;
    if (!all.sorted || !all.digest) {
        status = iso_fail(ISO_OUT_OF_MEMORY, "no memory for a digest");
    } else {
        for (int i = 0; i < n; i++)
            all.sorted[i] = &tensors[i];
        qsort(all.sorted, (size_t)n, sizeof *all.sorted, tensor_by_name);
        status = digest_sorted(&all, n, digest);
    }
    free(all.sorted);
    free(all.digest);
    return status;
}
