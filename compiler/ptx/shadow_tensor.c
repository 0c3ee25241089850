/* Terms of the tensor core: a step's group is a sum of products of factors, so that its members
 * have no order but pairs stay pairs. */
#include "shadow.h"

#include "tests.h"

enum { STEP = 16 };

bool ptx_shadow_ldmatrix(PtxCta *c, PtxWarp *w, const PtxInst *i)
{
    u64 matrix[4][8][8];
    bool trans = i->op == PTX_LDMATRIX_T;
    for (int l = 0; l < PTX_WARP; l++) {
        u64 address = ptx_value(w, &i->args[4], l) + (u64)i->args[4].imm;
        if (!ptx_read_at(c, i, PTX_SHARED, address, 16))
            return false;
        ptx_shadow_read(c, PTX_SHARED, address, 16, matrix[l / 8][l % 8]);
    }
    for (int m = 0; m < 4; m++)
        for (int l = 0; l < PTX_WARP; l++) {
            int r = l / 4, k = l % 4 * 2;
            PtxTerms t = trans ? (PtxTerms){matrix[m][k][r], matrix[m][k + 1][r]}
                               : (PtxTerms){matrix[m][r][k], matrix[m][r][k + 1]};
            ptx_set_terms(w, &i->args[m], l, t);
        }
    return true;
}

/* Factors of one line, and which of its members are there. */
typedef struct Line {
    const u64 *term;
    u64 factor[STEP];
    u32 present;
    bool poison;
} Line;

static void read_line(const u64 *terms, Line *line)
{
    line->term = terms;
    line->present = 0;
    line->poison = false;
    for (int k = 0; k < STEP; k++) {
        line->factor[k] = terms[k] ? ptx_term_factor(terms[k]) : 0;
        line->present |= (u32)(terms[k] != 0) << k;
        line->poison |= terms[k] == TERM_POISON;
    }
}

/* A zero that meets what is known to be finite, or a zero, is nothing; one that meets another value
 * is a member of the group, the product of that and +0: 0 x NaN is no zero. */
static bool meets(PtxCta *c, PtxType type, const Line *a, const Line *b)
{
    for (u32 rest = a->present ^ b->present; rest; rest &= rest - 1) {
        int k = __builtin_ctz(rest);
        const Line *has = a->present >> k & 1 ? a : b;
        if (!c->launch->tests || !ptx_tests_finite(c->launch->tests, type, has->term[k]))
            return false;
    }
    return true;
}

static u64 step(PtxCta *c, PtxType type, u64 accumulator, const Line *a, const Line *b)
{
    TermSum sum = 0;
    u32 present = a->present & b->present;
    if (a->poison || b->poison)
        return TERM_POISON;
    for (int k = 0; k < STEP; k++)
        sum += (TermSum)a->factor[k] * b->factor[k];
    if (a->present != b->present && !meets(c, type, a, b)) {
        u64 zero = ptx_term_factor(ptx_term_const(0));
        present = a->present | b->present;
        for (u32 rest = a->present ^ b->present; rest; rest &= rest - 1) {
            int k = __builtin_ctz(rest);
            sum += (TermSum)(a->factor[k] + b->factor[k]) * zero;
        }
    }
    return ptx_term_step(accumulator, sum, present != 0);
}

/* The accumulator's term; +0 is the same as absent. */
static u64 accumulator_of(PtxWarp *w, const PtxArg *arg, int l)
{
    PtxTerms t = *ptx_terms(w, arg, l);
    u32 value = w->file[arg->row + (u32)l];
    return t.lo | t.hi | value ? ptx_word_term(t, value) : TERM_CONCRETE;
}

/* a: [row][k] terms of 16 rows, b: [column][k] of n columns; results in the instruction's first
 * n / 2 registers. */
static void tile(PtxCta *c, PtxWarp *w, const PtxInst *i, int from, const u64 *a, const u64 *b,
                 int n, bool accumulate)
{
    Line rows[STEP], column[2];
    PtxType type = i->op == PTX_MMA_F16 || i->type == PTX_T_F16 ? PTX_T_F16 : PTX_T_BF16;
    for (int r = 0; r < STEP; r++)
        read_line(a + r * STEP, &rows[r]);
    for (int pair = 0; pair < n / 2; pair++) {
        read_line(b + pair * 2 * STEP, &column[0]);
        read_line(b + (pair * 2 + 1) * STEP, &column[1]);
        for (int e = 0; e < 2 * STEP; e++) {
            int row = e / 2, l = row % 8 * 4 + pair % 4, j = pair / 4 * 4 + row / 8 * 2 + e % 2;
            u64 acc = accumulate ? accumulator_of(w, &i->args[from + j], l) : TERM_CONCRETE;
            u64 t = step(c, type, acc, &rows[row], &column[e % 2]);
            ptx_set_terms(w, &i->args[j], l, (PtxTerms){t, t ? TERM_WHOLE : TERM_CONCRETE});
        }
    }
}

void ptx_shadow_product(PtxCta *c, PtxWarp *w, const PtxInst *i, const u64 *a, const u64 *b, int n,
                        bool accumulate)
{
    tile(c, w, i, 0, a, b, n, accumulate);
}

/* Only +0 is nothing. */
u64 ptx_operand_term(u64 term, u32 value)
{
    return term || !value ? term : ptx_term_const(value);
}

static void spread(PtxWarp *w, const PtxInst *i, int arg, u64 *to, bool columns)
{
    for (int r = 0; r < (columns ? 2 : 4); r++)
        for (int l = 0; l < PTX_WARP; l++) {
            PtxTerms t = *ptx_terms(w, &i->args[arg + r], l);
            int line = columns ? l / 4 : l / 4 + (r & 1 ? 8 : 0);
            int k = l % 4 * 2 + ((columns ? r : r & 2) ? 8 : 0);
            u32 value = w->file[i->args[arg + r].row + (u32)l];
            to[line * STEP + k] = ptx_operand_term(t.lo, value & 0xffff);
            to[line * STEP + k + 1] = ptx_operand_term(t.hi, value >> 16);
        }
}

void ptx_shadow_left(PtxWarp *w, const PtxInst *i, int first, u64 *terms)
{
    spread(w, i, first, terms, false);
}

bool ptx_shadow_mma(PtxCta *c, PtxWarp *w, const PtxInst *i)
{
    u64 a[STEP * STEP], b[8 * STEP];
    spread(w, i, 4, a, false);
    spread(w, i, 8, b, true);
    tile(c, w, i, 10, a, b, 8, true);
    return true;
}
