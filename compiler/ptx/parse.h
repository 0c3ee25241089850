/* What the parser's files share: the text's cursor and the kernel under construction.
 * Ownership: all belongs to the arena in the state. */
#ifndef ISOC_PTX_PARSE_H
#define ISOC_PTX_PARSE_H

#include "inst.h"

#include <setjmp.h>

typedef struct PtxLabel {
    Str name;
    int at;
} PtxLabel;

/* A variable: its address, and 0 bytes where it is the dynamic part of shared memory. */
typedef struct PtxShared {
    Str name;
    u32 align, size, address;
    bool dynamic;
} PtxShared;

typedef struct PtxParse {
    Arena *arena;
    const char *at, *end;
    int line;
    Str *problem;
    jmp_buf failed;
    PtxModule *module;
    PtxKernel *kernel; /* NULL outside one */
    VEC(PtxRegs) regs; /* of the kernel, inner scopes last */
    VEC(PtxLabel) labels;
    VEC(Str) targets; /* per instruction; empty: no branch */
    VEC(PtxShared) shared, own_shared; /* the module's, the kernel's */
    u32 dynamic_align; /* of the dynamic part, as the kernel names it */
    VEC(PtxShared) constants, local;   /* the module's, the kernel's; addresses are generic */
    VEC(u8) constant_bytes;
} PtxParse;

/* ---- the cursor (lex.c) */
void ptx_fail(PtxParse *p, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
void ptx_space(PtxParse *p); /* and comments */
bool ptx_eat(PtxParse *p, char c);
void ptx_need(PtxParse *p, char c);
bool ptx_peek(PtxParse *p, char c);
Str ptx_word(PtxParse *p);   /* a name or directive; empty if there is none */
Str ptx_opcode(PtxParse *p);
bool ptx_number(PtxParse *p, u64 *bits); /* integers, and 0f12345678 */
void ptx_skip_line(PtxParse *p);
void ptx_skip_past(PtxParse *p, char c);
void ptx_skip_braces(PtxParse *p);

/* Where the dynamic part of shared memory begins, once all others are placed. */
static inline u32 ptx_dynamic_place(const PtxParse *p)
{
    return (p->kernel->shared_static + p->dynamic_align - 1) / p->dynamic_align * p->dynamic_align;
}

/* ---- operands (operand.c) */
void ptx_declare_regs(PtxParse *p);
u32 ptx_take_words(PtxParse *p, u32 words);
/* A whole instruction after its guard, up to the semicolon. */
void ptx_read_operands(PtxParse *p, PtxInst *inst);
const PtxRegs *ptx_find_reg(const PtxParse *p, Str name, u32 *row);

#endif
