/* Names as macros: a header that C, C++ and CUDA take. */
#include "header_write.h"

#include <ctype.h>

static Str upper(Arena *arena, Str name)
{
    Str s = str_copy(arena, name);
    for (int i = 0; i < s.n; i++)
        ((char *)s.s)[i] = (char)(isalnum((unsigned char)s.s[i]) ? toupper((unsigned char)s.s[i])
                                                                 : '_');
    return s;
}

static void write_kernels(const Emitted *emitted, Text *out)
{
    text_printf(out, "/* X(name, threads, bytes of dynamic shared memory) */\n");
    text_printf(out, "#define ISO_KERNEL_LIST(X)");
    for (int i = 0; i < emitted->n_kernels; i++) {
        const EmittedKernel *k = &emitted->kernels[i];
        text_printf(out, " \\\n    X(%.*s, %d, %lld)", STR_FMT(k->name), k->threads,
                    (long long)k->shared_bytes);
    }
    text_printf(out, "\n\n");
}

void header_write(const Dag *dag, const Emitted *emitted, Text *out)
{
    Str guard = upper(out->arena, dag->contract->name);
    Str print = digest_hex(out->arena, &dag->fingerprint);
    text_printf(out, "/* Written by isoc %s from contract %.*s version %d. */\n", ISOC_VERSION,
                STR_FMT(dag->contract->name), dag->contract->version);
    text_printf(out, "#ifndef ISO_%.*s_H\n#define ISO_%.*s_H\n\n", STR_FMT(guard), STR_FMT(guard));
    text_printf(out, "#define ISO_%.*s_FINGERPRINT \\\n    \"%.*s\"\n\n", STR_FMT(guard),
                STR_FMT(print));
    text_printf(out, "/* X(op, fingerprint) */\n#define ISO_OP_LIST(X)");
    for (int i = 0; i < dag->n_ops; i++)
        text_printf(out, " \\\n    X(%.*s, \"%.*s\")", STR_FMT(dag->ops[i].op->name),
                    STR_FMT(digest_hex(out->arena, &dag->ops[i].fingerprint)));
    text_printf(out, "\n\n");
    write_kernels(emitted, out);
    text_printf(out, "#endif\n");
}
