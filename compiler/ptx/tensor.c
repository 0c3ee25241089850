/* ldmatrix, mma.sync and wgmma, through the executor's tensor-core step. A wgmma reads shared
 * memory and its left operand's registers, and writes its results, when it is waited for, the last
 * moment allowed; a warp does its own sixteen rows. */
#include "race.h"
#include "shadow.h"

#include <string.h>

#define RUN(name) static bool name(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask)

enum { STEP = 16 }; /* products of one k16 instruction, and rows of a warp's tile */

/* ---- ldmatrix ---------------------------------------------------------------------------------
 */

static bool read_matrices(PtxCta *c, PtxWarp *w, const PtxInst *i, u16 (*matrix)[8][8])
{
    for (int l = 0; l < PTX_WARP; l++) {
        u64 address = ptx_value(w, &i->args[4], l) + (u64)i->args[4].imm;
        const u8 *from = ptx_read_at(c, i, PTX_SHARED, address, 16);
        if (!from || !ptx_race_read(c, w, i, PTX_BY_WARP, address, 16, NULL))
            return false;
        memcpy(matrix[l / 8][l % 8], from, 16);
    }
    return true;
}

static bool whole_warp(PtxCta *c, const PtxInst *i, u32 mask)
{
    return mask == 0xffffffffu || ptx_fault(c, i, "runs without lanes %#x", ~mask);
}

static bool ldmatrix_any(PtxCta *c, PtxWarp *w, const PtxInst *i, u32 mask, bool trans)
{
    u16 matrix[4][8][8];
    if (!whole_warp(c, i, mask) || !read_matrices(c, w, i, matrix))
        return false;
    for (int m = 0; m < 4; m++) {
        u32 *d = ptx_row32(w, i, m);
        for (int l = 0; l < PTX_WARP; l++) {
            int r = l / 4, k = l % 4 * 2;
            d[l] = trans ? matrix[m][k][r] | (u32)matrix[m][k + 1][r] << 16
                         : matrix[m][r][k] | (u32)matrix[m][r][k + 1] << 16;
        }
    }
    return true;
}

RUN(ldmatrix)
{
    return ldmatrix_any(c, w, i, mask, false);
}

RUN(ldmatrix_trans)
{
    return ldmatrix_any(c, w, i, mask, true);
}

/* ---- steps ------------------------------------------------------------------------------------
 */

enum { MOST_N = 256 };

typedef struct Step {
    int n;
    u16 a[STEP][STEP];   /* [row][k] */
    u16 b[MOST_N][STEP]; /* [column][k] */
    float d[STEP * MOST_N];
} Step;

static void multiply(const PtxCta *c, FdpaType type, bool accumulate, Step *s)
{
    FdpaElem a[STEP * STEP], b[MOST_N * STEP];
    const FdpaClass *cls = c->launch->numerics;
    size_t n = (size_t)s->n;
    for (int r = 0; r < STEP; r++)
        fdpa_decode(cls, type, s->a[r], 1, STEP, a + r * STEP);
    fdpa_decode_panels(cls, type, s->b, STEP, 1, n, STEP, b);
    FdpaTile tile = {.a = a, .b = b, .m = STEP, .n = n, .kp = STEP, .k0 = 0, .k1 = STEP,
                     .out = s->d, .ld = n, .accumulate = accumulate};
    fdpa_tile(cls, &tile);
}

/* Element j of a lane's accumulators lies at this place of the tile, in mma and wgmma alike. */
static int place(const Step *s, int lane, int j)
{
    int row = lane / 4 + (j & 2 ? 8 : 0), column = j / 4 * 8 + lane % 4 * 2 + (j & 1);
    return row * s->n + column;
}

static void load_accumulators(PtxWarp *w, const PtxInst *i, int first, Step *s)
{
    for (int j = 0; j < s->n / 2; j++) {
        const u32 *row = ptx_row32(w, i, first + j);
        for (int l = 0; l < PTX_WARP; l++)
            memcpy(&s->d[place(s, l, j)], &row[l], 4);
    }
}

static void store_accumulators(PtxWarp *w, const PtxInst *i, const Step *s)
{
    for (int j = 0; j < s->n / 2; j++) {
        u32 *row = ptx_row32(w, i, j);
        for (int l = 0; l < PTX_WARP; l++)
            memcpy(&row[l], &s->d[place(s, l, j)], 4);
    }
}

/* ---- mma.sync ---------------------------------------------------------------------------------
 */

static void left_operand(PtxWarp *w, const PtxInst *i, int first, Step *s)
{
    for (int r = 0; r < 4; r++) {
        const u32 *v = ptx_row32(w, i, first + r);
        for (int l = 0; l < PTX_WARP; l++) {
            u16 *to = &s->a[l / 4 + (r & 1 ? 8 : 0)][l % 4 * 2 + (r & 2 ? 8 : 0)];
            to[0] = (u16)v[l], to[1] = (u16)(v[l] >> 16);
        }
    }
}

static void mma_operands(PtxWarp *w, const PtxInst *i, Step *s)
{
    left_operand(w, i, 4, s);
    for (int r = 0; r < 2; r++) {
        const u32 *v = ptx_row32(w, i, 8 + r);
        for (int l = 0; l < PTX_WARP; l++) {
            u16 *to = &s->b[l / 4][l % 4 * 2 + (r ? 8 : 0)];
            to[0] = (u16)v[l], to[1] = (u16)(v[l] >> 16);
        }
    }
}

RUN(mma)
{
    Step s = {.n = 8};
    if (!whole_warp(c, i, mask))
        return false;
    mma_operands(w, i, &s);
    load_accumulators(w, i, 10, &s);
    multiply(c, i->op == PTX_MMA_F16 ? FDPA_F16 : FDPA_BF16, true, &s);
    store_accumulators(w, i, &s);
    return true;
}

/* ---- wgmma ------------------------------------------------------------------------------------
 */

/* The left operand's four registers, where it is not in shared memory: those after the
 * accumulators. */
static bool left_in_registers(const PtxInst *i)
{
    return i->n_args == i->vec * 4 + 9;
}

/* An operand's tile in shared memory, 128-byte swizzle. */
typedef struct Descriptor {
    u32 start, leading, stride;
    bool trans; /* k is the outer axis */
} Descriptor;

static bool read_descriptor(PtxCta *c, const PtxInst *i, u64 bits, i64 trans, Descriptor *d)
{
    *d = (Descriptor){
        .start = (u32)(bits & 0x3fff) << 4,
        .leading = (u32)(bits >> 16 & 0x3fff) << 4,
        .stride = (u32)(bits >> 32 & 0x3fff) << 4,
        .trans = trans != 0,
    };
    if (bits >> 62 != 1 || (bits >> 49 & 7) || trans < 0 || trans > 1)
        return ptx_fault(c, i, "a descriptor of a form that is not known: %#llx",
                         (unsigned long long)bits);
    return true;
}

/* The address of 8 elements that lie together: of one line and k 8 `block` on, or, transposed, of
 * one k and lines 8 `block` on. */
static u32 chunk_at(const Descriptor *d, u32 line, u32 block)
{
    u32 at = d->trans ? d->start + block / 8 * d->leading + line / 8 * d->stride + line % 8 * 128 +
                            block % 8 * 16
                      : d->start + line / 8 * d->stride + line % 8 * 128 + block * 16;
    return at ^ (at >> 7 & 7) << 4;
}

/* `lines` lines of 16 k from line `first` on (a multiple of 8) into [line][k]. Lines of a tile that
 * the launch does not have may hold nothing: what comes of them is no term. */
static bool gather(PtxCta *c, PtxWarp *w, const PtxProduct *p, const Descriptor *d, u32 first,
                   u32 lines, u16 (*to)[STEP], u64 *terms)
{
    const PtxInst *i = p->inst;
    u32 outer = d->trans ? STEP : lines, inner = d->trans ? lines / 8 : STEP / 8;
    for (u32 o = 0; o < outer; o++)
        for (u32 b = 0; b < inner; b++) {
            u32 at = d->trans ? chunk_at(d, o, first / 8 + b) : chunk_at(d, first + o, b);
            bool known;
            const u8 *from = ptx_operand_at(c, i, at, 16, &known);
            u16 v[8];
            u64 t[8];
            if (!from || !ptx_race_read(c, w, i, PTX_BY_PRODUCT, at, 16, p->begun))
                return false;
            memcpy(v, from, 16);
            if (c->shared_shadow)
                ptx_shadow_read(c, PTX_SHARED, at, 16, t);
            for (u32 e = 0; e < 8; e++) {
                u32 line = d->trans ? b * 8 + e : o, k = d->trans ? o : b * 8 + e;
                to[line][k] = v[e];
                if (c->shared_shadow)
                    terms[line * STEP + k] = known ? ptx_operand_term(t[e], v[e]) : TERM_POISON;
            }
        }
    return true;
}

static bool gather_left(PtxCta *c, PtxWarp *w, const PtxProduct *p, Step *s, u64 *terms)
{
    const PtxInst *i = p->inst;
    Descriptor a;
    int n = s->n / 2;
    if (!left_in_registers(i))
        return read_descriptor(c, i, p->a, i->args[n + 5].imm, &a) &&
               gather(c, w, p, &a, (u32)(w->index % 4 * STEP), STEP, s->a, terms);
    left_operand(w, i, n, s);
    if (c->shared_shadow)
        ptx_shadow_left(w, i, n, terms);
    return true;
}

static bool do_product(PtxCta *c, PtxWarp *w, const PtxProduct *p)
{
    const PtxInst *i = p->inst;
    Descriptor b;
    Step s;
    u64 terms_a[STEP * STEP], terms_b[MOST_N * STEP];
    s.n = i->vec * 8;
    if (!gather_left(c, w, p, &s, terms_a) ||
        !read_descriptor(c, i, p->b, i->args[i->n_args - 1].imm, &b) ||
        !gather(c, w, p, &b, 0, (u32)s.n, s.b, terms_b))
        return false;
    if (c->shared_shadow)
        ptx_shadow_product(c, w, i, terms_a, terms_b, s.n, p->accumulate);
    if (p->accumulate)
        load_accumulators(w, i, 0, &s);
    multiply(c, i->type == PTX_T_F16 ? FDPA_F16 : FDPA_BF16, p->accumulate, &s);
    store_accumulators(w, i, &s);
    return true;
}

RUN(wgmma)
{
    bool registers = left_in_registers(i);
    int right = i->vec * 4 + (registers ? 4 : 1), left = registers ? right : right - 1;
    if (!whole_warp(c, i, mask))
        return false;
    u64 a = ptx_value(w, &i->args[left], 0), b = ptx_value(w, &i->args[right], 0);
    for (int l = 1; l < PTX_WARP; l++)
        if (ptx_value(w, &i->args[left], l) != a || ptx_value(w, &i->args[right], l) != b)
            return ptx_fault(c, i, "descriptors that differ between lanes");
    u32 p = *ptx_row32(w, i, right + 1);
    if (p != 0 && p != 0xffffffffu)
        return ptx_fault(c, i, "a scale that differs between lanes");
    PtxProduct product = {i, a, b, p != 0, w->product_commits,
                          ptx_race_now(c, w, PTX_BY_WARP)};
    vec_push(c->arena, &w->products, product);
    return true;
}

RUN(wgmma_commit)
{
    (void)c, (void)i, (void)mask;
    w->product_commits++;
    return true;
}

RUN(wgmma_wait)
{
    int kept = 0;
    (void)mask;
    for (int k = 0; k < w->products.n; k++) {
        const PtxProduct p = w->products.v[k];
        if ((u64)p.commit + (u64)i->args[0].imm >= w->product_commits)
            w->products.v[kept++] = p;
        else if (!do_product(c, w, &p))
            return false;
    }
    w->products.n = kept;
    return true;
}

static bool wgmma_fits(const PtxInst *i)
{
    bool registers = left_in_registers(i);
    int n = i->vec * 4, in_registers = n + (registers ? 4 : 0), p = n + (registers ? 5 : 2);
    if (i->n_args != n + 7 && !registers)
        return false;
    for (int k = 0; k < in_registers; k++)
        if (i->args[k].kind != PTX_REG || i->args[k].width != 32)
            return false;
    for (int k = in_registers; k < p; k++)
        if (i->args[k].width != 64)
            return false;
    for (int k = p + 1; k < i->n_args; k++)
        if (i->args[k].kind != PTX_IMM)
            return false;
    return i->args[p].width == 1 && i->args[p + 1].imm == 1 && i->args[p + 2].imm == 1;
}

PtxRun ptx_find_tensor(const PtxInst *i)
{
    switch (i->op) {
    case PTX_LDMATRIX: return ptx_shape(i, "rrrra") ? ldmatrix : NULL;
    case PTX_LDMATRIX_T: return ptx_shape(i, "rrrra") ? ldmatrix_trans : NULL;
    case PTX_MMA_BF16:
    case PTX_MMA_F16: return ptx_shape(i, "rrrrrrrrrrrrrr") ? mma : NULL;
    case PTX_WGMMA: return wgmma_fits(i) ? wgmma : NULL;
    case PTX_WGMMA_COMMIT: return i->n_args == 0 ? wgmma_commit : NULL;
    case PTX_WGMMA_WAIT: return ptx_shape(i, "n") ? wgmma_wait : NULL;
    default: return NULL;
    }
}
