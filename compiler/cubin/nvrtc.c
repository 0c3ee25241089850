/* NVRTC at run time: finding it, calling it, and judging what it says. */
#include "nvrtc.h"

#include "cubin.h"
#include "base/device_text.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *Program;

struct Nvrtc {
    void *library;
    char path[512];
    int major, minor;
    const char *(*error_string)(int);
    int (*version)(int *, int *);
    int (*create)(Program *, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*destroy)(Program *);
    int (*compile)(Program, int, const char *const *);
    int (*ptx_size)(Program, size_t *);
    int (*ptx)(Program, char *);
    int (*cubin_size)(Program, size_t *);
    int (*cubin)(Program, char *);
    int (*log_size)(Program, size_t *);
    int (*log)(Program, char *);
};

/* ---- finding it ------------------------------------------------------------------------------ */

/* One library for the process: unloading it is not supported by NVRTC. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static struct Nvrtc opened;

enum { NEWEST_MAJOR = 13, OLDEST_MAJOR = 12 };

static bool bind_symbols(struct Nvrtc *n, void *library)
{
    const struct {
        void *slot;
        const char *name;
    } symbols[] = {
        {&n->error_string, "nvrtcGetErrorString"},
        {&n->version, "nvrtcVersion"},
        {&n->create, "nvrtcCreateProgram"},
        {&n->destroy, "nvrtcDestroyProgram"},
        {&n->compile, "nvrtcCompileProgram"},
        {&n->ptx_size, "nvrtcGetPTXSize"},
        {&n->ptx, "nvrtcGetPTX"},
        {&n->cubin_size, "nvrtcGetCUBINSize"},
        {&n->cubin, "nvrtcGetCUBIN"},
        {&n->log_size, "nvrtcGetProgramLogSize"},
        {&n->log, "nvrtcGetProgramLog"},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *f = dlsym(library, symbols[i].name);
        if (!f)
            return false;
        memcpy(symbols[i].slot, &f, sizeof f); /* ISO C has no cast from object to function */
    }
    n->library = library;
    return n->version(&n->major, &n->minor) == 0;
}

/* NVRTC opens its builtins by name: loaded first from beside it, they are found wherever it is. */
static void open_builtins(const char *folder)
{
    static const char *const versions[] = {"13.0", "13.1", "13.2", "13.3", "12.9", "12.8", "12.6"};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/libnvrtc-builtins.so.%s", folder, versions[i]);
        if (access(path, R_OK) == 0 && dlopen(path, RTLD_NOW | RTLD_GLOBAL))
            return;
    }
}

static bool try_file(struct Nvrtc *n, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash) {
        char folder[512];
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        if (access(path, R_OK) != 0)
            return false;
        open_builtins(folder);
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    if (!bind_symbols(n, library)) {
        dlclose(library);
        return false;
    }
    snprintf(n->path, sizeof n->path, "%s", path);
    return true;
}

/* Not in an arena: nothing may jump out while the lock is held. */
typedef struct Tried {
    char s[2048];
    size_t n;
} Tried;

static bool try_folder(struct Nvrtc *n, Tried *tried, const char *folder)
{
    if (!folder || !*folder)
        return false;
    int more = snprintf(tried->s + tried->n, sizeof tried->s - tried->n, "%s, ", folder);
    if (more > 0 && tried->n + (size_t)more < sizeof tried->s)
        tried->n += (size_t)more;
    for (int major = NEWEST_MAJOR; major >= OLDEST_MAJOR; major--) {
        char path[600];
        snprintf(path, sizeof path, "%s/libnvrtc.so.%d", folder, major);
        if (try_file(n, path))
            return true;
    }
    return false;
}

/* build/isoc finds build/nvrtc, and an installed bin/isoc finds bin/nvrtc. */
static void beside_program(char *folder, size_t size)
{
    char self[400];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    *folder = 0;
    if (length <= 0)
        return;
    self[length] = 0;
    char *slash = strrchr(self, '/');
    if (slash)
        snprintf(folder, size, "%.*s/nvrtc", (int)(slash - self), self);
}

static bool try_wheel(struct Nvrtc *n, Tried *tried)
{
    static const char *const wheels[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"};
    const char *venv = getenv("VIRTUAL_ENV");
    if (!venv)
        return false;
    for (int minor = 8; minor <= 15; minor++)
        for (size_t i = 0; i < sizeof wheels / sizeof wheels[0]; i++) {
            char folder[500];
            snprintf(folder, sizeof folder, "%s/lib/python3.%d/site-packages/%s", venv, minor,
                     wheels[i]);
            if (access(folder, R_OK) == 0 && try_folder(n, tried, folder))
                return true;
        }
    return false;
}

static bool find(struct Nvrtc *n, Tried *tried)
{
    const char *given = getenv("ISOC_NVRTC"), *home = getenv("CUDA_HOME");
    char folder[500];
    if (given && *given) /* said outright: nothing else is looked at */
        return try_folder(n, tried, given) || try_file(n, given);
    if (home && *home) {
        snprintf(folder, sizeof folder, "%s/lib64", home);
        if (try_folder(n, tried, folder))
            return true;
    }
    if (try_folder(n, tried, "/usr/local/cuda/lib64"))
        return true;
    beside_program(folder, sizeof folder);
    if (try_folder(n, tried, folder) || try_wheel(n, tried))
        return true;
    return try_file(n, "libnvrtc.so.13") || try_file(n, "libnvrtc.so.12");
}

const Nvrtc *nvrtc_open(Diags *diags)
{
    Tried tried = {.n = 0};
    pthread_mutex_lock(&opening);
    bool ok = opened.library || find(&opened, &tried);
    pthread_mutex_unlock(&opening);
    if (ok)
        return &opened;
    Diag *d = diag_add(diags, DIAG_NVRTC_MISSING, (Span){0}, "NVRTC was not found");
    diag_note(diags, d, "looked in %.*sand where the loader looks", (int)tried.n, tried.s);
    diag_note(diags, d, "install the CUDA Toolkit, run `make deps`, or set ISOC_NVRTC to the "
                        "folder that holds libnvrtc.so.13");
    return NULL;
}

Str nvrtc_version(const Nvrtc *nvrtc, Arena *arena)
{
    return str_format(arena, "%d.%d", nvrtc->major, nvrtc->minor);
}

void nvrtc_numbers(const Nvrtc *nvrtc, int *major, int *minor)
{
    *major = nvrtc->major;
    *minor = nvrtc->minor;
}

Str nvrtc_path(const Nvrtc *nvrtc)
{
    return str_of(nvrtc->path);
}

/* ---- calling it ------------------------------------------------------------------------------ */

enum { MAX_HEADERS = 64, MAX_FLAGS = 16 };

static const char *const fixed_flags[] = {
    "--std=c++17",       "--fmad=false",      "--ftz=false",        "--prec-div=true",
    "--prec-sqrt=true",  "--split-compile=2", "--ptxas-options=-v",
};

static int flags_of(Arena *arena, Str arch, const char **flags)
{
    int n = 0;
    flags[n++] = str_format(arena, "--gpu-architecture=%.*s", STR_FMT(arch)).s;
    for (size_t i = 0; i < sizeof fixed_flags / sizeof fixed_flags[0]; i++)
        flags[n++] = fixed_flags[i];
    return n;
}

Str nvrtc_options(Arena *arena, Str arch)
{
    const char *flags[MAX_FLAGS];
    int n = flags_of(arena, arch, flags);
    Text text = {.arena = arena};
    for (int i = 0; i < n; i++)
        text_printf(&text, "%s\n", flags[i]);
    return text_str(&text);
}

static Str fetch(Program program, int (*size)(Program, size_t *), int (*get)(Program, char *),
                 Arena *arena)
{
    size_t n = 0;
    if (size(program, &n) != 0 || n == 0 || n > INT32_MAX)
        return STR("");
    char *bytes = arena_alloc(arena, n + 1);
    return get(program, bytes) == 0 ? (Str){bytes, (int)n} : STR("");
}

static Str without_zero(Str s)
{
    while (s.n > 0 && s.s[s.n - 1] == 0)
        s.n--;
    return s;
}

static bool next_line(Str *rest, Str *line)
{
    if (rest->n <= 0)
        return false;
    const char *end = memchr(rest->s, '\n', (size_t)rest->n);
    int n = end ? (int)(end - rest->s) : rest->n;
    *line = (Str){rest->s, n};
    n += end != NULL;
    *rest = (Str){rest->s + n, rest->n - n};
    return true;
}

static bool contains(Str s, const char *what)
{
    int n = (int)strlen(what);
    for (int i = 0; i + n <= s.n; i++)
        if (memcmp(s.s + i, what, (size_t)n) == 0)
            return true;
    return false;
}

static void report_failure(const Nvrtc *nvrtc, int result, Str log, Diags *diags)
{
    enum { ENOUGH = 8 };
    Diag *d = diag_add(diags, DIAG_NVRTC_FAILED, (Span){0}, "NVRTC refused the kernels' text (%s)",
                       nvrtc->error_string(result));
    Str line;
    for (int shown = 0; shown < ENOUGH && next_line(&log, &line);)
        if (contains(line, "error")) {
            diag_note(diags, d, "%.*s", STR_FMT(line));
            shown++;
        }
    diag_note(diags, d, "this is a defect of isoc; `--emit=cuda` shows the text");
}

static int compile_program(const Nvrtc *nvrtc, Program program, Str arch, Binary *out, Arena *arena)
{
    const char *flags[MAX_FLAGS];
    int n = flags_of(arena, arch, flags);
    int result = nvrtc->compile(program, n, flags);
    out->log = without_zero(fetch(program, nvrtc->log_size, nvrtc->log, arena));
    if (result == 0) {
        out->cubin = fetch(program, nvrtc->cubin_size, nvrtc->cubin, arena);
        out->ptx = without_zero(fetch(program, nvrtc->ptx_size, nvrtc->ptx, arena));
    }
    return result;
}

static int create_program(const Nvrtc *nvrtc, Str text, Program *program)
{
    const char *sources[MAX_HEADERS], *names[MAX_HEADERS];
    int n = 0;
    for (const DeviceText *t = device_texts; t->name && n < MAX_HEADERS; t++, n++) {
        sources[n] = t->text;
        names[n] = t->name;
    }
    return nvrtc->create(program, text.s, "kernels.cu", n, sources, names);
}

/* ---- what it says ---------------------------------------------------------------------------- */

/* "... 16 bytes spill stores, 20 bytes spill loads": the number before a phrase, or 0. */
static i64 number_before(Str line, const char *phrase)
{
    int n = (int)strlen(phrase);
    for (int i = 0; i + n <= line.n; i++)
        if (memcmp(line.s + i, phrase, (size_t)n) == 0) {
            int j = i;
            while (j > 0 && line.s[j - 1] >= '0' && line.s[j - 1] <= '9')
                j--;
            return j < i ? strtoll(line.s + j, NULL, 10) : 0;
        }
    return 0;
}

/* The last quoted or final word of the line: where ptxas puts the kernel's name. */
static Str kernel_in(Str line)
{
    int hi = line.n - 1;
    while (hi >= 0 && line.s[hi] != '\'')
        hi--;
    int lo = hi - 1;
    while (lo >= 0 && line.s[lo] != '\'')
        lo--;
    if (hi > 0 && lo >= 0)
        return (Str){line.s + lo + 1, hi - lo - 1};
    for (lo = line.n; lo > 0 && line.s[lo - 1] != ' ';)
        lo--;
    return (Str){line.s + lo, line.n - lo};
}

static void judge_line(Str line, Str kernel, Diags *diags)
{
    static const char *const serialised[] = {"C7510", "C7511", "C7512", "C7513", "C7514", "C7515"};
    i64 stores = number_before(line, " bytes spill stores");
    i64 loads = number_before(line, " bytes spill loads");
    if (stores || loads)
        diag_add(diags, DIAG_KERNEL_SPILLS, (Span){0},
                 "kernel %.*s spills registers: %lld bytes stored, %lld loaded", STR_FMT(kernel),
                 (long long)stores, (long long)loads);
    for (size_t i = 0; i < sizeof serialised / sizeof serialised[0]; i++)
        if (contains(line, serialised[i])) {
            Diag *d = diag_add(diags, DIAG_WGMMA_SERIALISED, (Span){0},
                               "kernel %.*s: ptxas serialises its wgmma instructions",
                               STR_FMT(kernel_in(line)));
            diag_note(diags, d, "%.*s", STR_FMT(line));
        }
    if (contains(line, "C7504") || contains(line, "C7508")) {
        Diag *d = diag_add(diags, DIAG_SETMAXNREG_IGNORED, (Span){0},
                           "kernel %.*s: ptxas ignores setmaxnreg", STR_FMT(kernel_in(line)));
        diag_note(diags, d, "%.*s", STR_FMT(line));
    }
}

bool nvrtc_judge_log(Str log, Diags *diags)
{
    int before = diags->errors;
    Str line, kernel = STR("?");
    while (next_line(&log, &line)) {
        if (contains(line, "Function properties for "))
            kernel = kernel_in(line);
        judge_line(line, kernel, diags);
    }
    return diags->errors == before;
}

/* ---- what the kernels use -------------------------------------------------------------------- */

enum { INFO_REGISTERS = 0x2f04, INFO_FRAME = 0x1104, SYMBOL = 24 };

static bool symbol_name(const Cubin *cubin, u32 index, Str *name)
{
    Section symbols, names;
    if (!cubin_find(cubin, ".symtab", &symbols) || !symbols.in_file ||
        cubin_section(cubin, symbols.link, &names) || !names.in_file ||
        (u64)index * SYMBOL + SYMBOL > symbols.size)
        return false;
    u64 at = load32(cubin->bytes.s + symbols.offset + (u64)index * SYMBOL);
    if (at >= names.size)
        return false;
    const char *s = cubin->bytes.s + names.offset + at;
    const char *end = memchr(s, 0, (size_t)(names.size - at));
    *name = (Str){s, end ? (int)(end - s) : 0};
    return end != NULL;
}

static KernelUse *use_of(Binary *binary, Str name, Arena *arena)
{
    for (int i = 0; i < binary->kernels.n; i++)
        if (str_eq(binary->kernels.v[i].name, name))
            return &binary->kernels.v[i];
    KernelUse use = {.name = str_copy(arena, name)};
    vec_push(arena, &binary->kernels, use);
    return &binary->kernels.v[binary->kernels.n - 1];
}

static i64 size_of(const Cubin *cubin, const char *prefix, Str name, Arena *arena)
{
    Section s;
    Str section = str_format(arena, "%s%.*s", prefix, STR_FMT(name));
    return cubin_find(cubin, section.s, &s) ? (i64)s.size : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const KernelUse *)a)->name.s, ((const KernelUse *)b)->name.s);
}

/* .nv.info is a list of {format 4, attribute, size, payload}; the ones read here hold
 * {symbol, value}. */
void binary_read_uses(Binary *binary, Arena *arena)
{
    Cubin cubin;
    Section info;
    if (cubin_open(binary->cubin, &cubin) || !cubin_find(&cubin, ".nv.info", &info) ||
        !info.in_file)
        return;
    const char *at = binary->cubin.s + info.offset, *end = at + info.size;
    while (end - at >= 4) {
        u16 kind = load16(at);
        i64 size = (kind & 0xff) == 4 ? load16(at + 2) : 0;
        at += 4;
        if (size > end - at)
            return;
        Str name;
        if ((kind == INFO_REGISTERS || kind == INFO_FRAME) && size == 8 &&
            symbol_name(&cubin, load32(at), &name) && name.s[0] != '$') { /* not a subroutine */
            KernelUse *use = use_of(binary, name, arena);
            *(kind == INFO_REGISTERS ? &use->registers : &use->stack) = (int)load32(at + 4);
        }
        at += size;
    }
    for (int i = 0; i < binary->kernels.n; i++) {
        KernelUse *use = &binary->kernels.v[i];
        use->shared = size_of(&cubin, ".nv.shared.", use->name, arena);
        use->constant = size_of(&cubin, ".nv.constant0.", use->name, arena);
    }
    if (binary->kernels.n)
        qsort(binary->kernels.v, (size_t)binary->kernels.n, sizeof(KernelUse), by_name);
}

bool nvrtc_compile(const Nvrtc *nvrtc, Str program, Str arch, Binary *out, Arena *arena,
                   Diags *diags)
{
    *out = (Binary){0};
    Program handle = NULL;
    Str text = str_copy(arena, program); /* zero-terminated */
    int result = create_program(nvrtc, text, &handle);
    if (result == 0) {
        result = compile_program(nvrtc, handle, arch, out, arena);
        nvrtc->destroy(&handle);
    }
    if (result != 0 || out->cubin.n == 0) {
        report_failure(nvrtc, result, out->log, diags);
        return false;
    }
    binary_read_uses(out, arena);
    return nvrtc_judge_log(out->log, diags);
}
