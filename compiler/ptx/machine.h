/* The state of one CTA as its parts share it: warps, shared memory, barriers, copies under way.
 * Ownership: a CTA's buffers are reused from one CTA to the next and freed by ptx_run. */
#ifndef ISOC_PTX_MACHINE_H
#define ISOC_PTX_MACHINE_H

#include "inst.h"
#include "run.h"

/* Lanes at one place of the program. */
typedef struct PtxGroup {
    int pc;
    u32 mask;
    bool parked; /* before an instruction of the whole warp */
} PtxGroup;

typedef enum PtxWait { PTX_READY, PTX_AT_BARRIER, PTX_AT_REGISTERS, PTX_DONE } PtxWait;

/* Copies and products that one warp has begun; `commit`: the groups committed before. */
typedef struct PtxCopy {
    u64 from;
    u32 to, bytes; /* of 16; the rest is zeros */
    u32 commit;
    const struct PtxClock *begun; /* race.h */
} PtxCopy;

typedef struct PtxProduct {
    const PtxInst *inst;
    u64 a, b;
    bool accumulate;
    u32 commit;
    const struct PtxClock *begun;
} PtxProduct;

/* The terms of one register's lane: of its lower and its upper 16 bits (shadow.h). */
typedef struct PtxTerms {
    u64 lo, hi;
} PtxTerms;

/* What a lane has tested since its last branch on a test (tests.h). */
typedef struct PtxTested {
    u64 hash, value;
    u32 mask;
} PtxTested;

struct PtxWarp {
    int index;
    PtxWait wait;
    int barrier; /* that it waits at */
    u32 *file;
    PtxTerms *shadow; /* per word of the file; NULL where only numbers are wanted */
    u32 *taint;       /* at each row's first word: lanes with a term */
    u32 alive; /* lanes that have not returned */
    int n_groups, current;
    PtxGroup group[PTX_WARP];
    bool pause; /* ends its turn: it polls */
    u32 copy_commits[PTX_WARP]; /* per lane: groups committed */
    VEC(PtxCopy) copies[PTX_WARP];
    VEC(PtxTested) tested[PTX_WARP];
    u32 product_commits;
    VEC(PtxProduct) products;
    struct PtxTimes *times; /* what it has seen of all warps and engines of its cluster (race.h) */
    bool arrived;        /* at the cluster's barrier, and has not waited yet */
    u32 meets;           /* how often it has met the others there */
    bool acquires;       /* waits at the cluster's barrier for what others did before */
    u32 waited;          /* lanes that have waited for the grid before (order.h) */
    bool fenced;         /* wgmma.fence was there once */
    u8 *unfenced;        /* by row / 32: a product's register, used since the last fence */
    u32 registers, registers_wanted; /* of a thread */
};

typedef struct PtxMbarrier {
    u32 address;
    u32 count, pending; /* arrivals of a phase; still missing */
    i64 bytes;          /* still to come in this phase */
    u32 phase;          /* completed ones */
    u32 copied, waited; /* phases that a bulk copy was part of, that a warp has seen the end of */
    bool fenced;        /* engines and other CTAs know of it */
    u32 meets;          /* of the warp that has made it, until then */
    struct PtxClock *told, *knows; /* of arrivals, and of those of completed phases */
} PtxMbarrier;

/* A bulk copy that the engine has not done yet. */
typedef struct PtxBulk {
    PtxTensorMap map;
    u32 to, barrier;
    i64 at[PTX_MAP_DIMS];
    const PtxInst *inst;
    u32 delay; /* turns */
    PtxCta *by;
    const struct PtxClock *begun;
} PtxBulk;

typedef struct PtxRaces PtxRaces;

enum { PTX_BARRIERS = 16, PTX_MBARRIERS = 64, PTX_MAX_SHARED = 233472 };

struct PtxCta {
    const PtxLaunch *launch;
    PtxReport *report;
    Arena *arena; /* of the launch */
    u32 id[3];
    u8 *shared, *shared_known; /* shared_end bytes */
    u64 *shared_shadow;        /* a term per two bytes, or NULL */
    u32 shared_end;
    u8 *param;
    u8 *local;               /* of all threads, local_bytes each; undefined like registers */
    u64 *local_shadow;       /* a term per two bytes, or NULL */
    int n_warps;
    PtxWarp *warps;
    struct {
        u32 arrived, expected;
    } barrier[PTX_BARRIERS];
    int n_mbarriers;
    PtxMbarrier mbarrier[PTX_MBARRIERS];
    VEC(PtxBulk) bulk;
    struct PtxFork **forks; /* by instruction, where it is a branch that has gone both ways */
    u64 changes; /* of anything that a waiting warp may wait for */
    u64 random;
    const PtxRegion *last; /* region touched last */
    int rank, n_peers;     /* in its cluster */
    struct PtxRaces *races; /* or NULL */
    struct PtxGrid *grid;   /* of the launch, or NULL; and what the CTA knows (grid.h) */
    struct PtxLearned *learned;
    PtxCta *const *peer;   /* the cluster's CTAs by rank, this one too */
    u32 registers;         /* that no thread has */
    bool failed;
};

/* Adds a finding and stops the CTA: always false. */
bool ptx_fault(PtxCta *cta, const PtxInst *inst, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- registers */

static inline u32 *ptx_row32(PtxWarp *w, const PtxInst *i, int arg)
{
    return w->file + i->args[arg].row;
}

static inline u64 *ptx_row64(PtxWarp *w, const PtxInst *i, int arg)
{
    return (u64 *)(void *)(w->file + i->args[arg].row);
}

/* An operand of either width, in one lane. */
static inline u64 ptx_value(const PtxWarp *w, const PtxArg *arg, int lane)
{
    return arg->width == 64 ? ((const u64 *)(const void *)(w->file + arg->row))[lane]
                            : w->file[arg->row + (u32)lane];
}

/* Runs the body for every lane of the mask, the variable being `l`. */
#define PTX_LANES(mask, body)                                                                      \
    do {                                                                                           \
        if ((mask) == 0xffffffffu) {                                                               \
            for (int l = 0; l < PTX_WARP; l++) {                                                   \
                body;                                                                              \
            }                                                                                      \
        } else {                                                                                   \
            for (u32 rest_ = (mask); rest_; rest_ &= rest_ - 1) {                                  \
                int l = __builtin_ctz(rest_);                                                      \
                body;                                                                              \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* An operand's address in a lane: a thread's own memory gets the thread's number. */
static inline u64 ptx_address(const PtxWarp *w, const PtxInst *i, const PtxArg *at, int lane)
{
    u64 address = ptx_value(w, at, lane) + (u64)at->imm;
    if (i->space == PTX_LOCAL)
        address += (u64)(w->index * PTX_WARP + lane) * PTX_LOCAL_MOST;
    return address;
}

/* Where such an address lies in the CTA's own memory of threads; `bytes` past its end: nowhere. */
u64 ptx_local_place(const PtxCta *cta, u64 address, u32 bytes);

/* ---- memory (memory.c): bytes of a space, or NULL with a finding */
const PtxRegion *ptx_region_at(PtxCta *cta, u64 address, u32 bytes); /* NULL: none */
const u8 *ptx_read_at(PtxCta *cta, const PtxInst *inst, PtxSpace space, u64 address, u32 bytes);
/* Of shared memory, of which some may hold nothing yet. */
const u8 *ptx_operand_at(PtxCta *cta, const PtxInst *inst, u64 address, u32 bytes, bool *known);
u8 *ptx_write_at(PtxCta *cta, const PtxInst *inst, PtxSpace space, u64 address, u32 bytes);

/* ---- barriers (barrier.c) */
PtxMbarrier *ptx_mbarrier(PtxCta *cta, const PtxInst *inst, u32 address);
/* For who has not initialised it: a fence must have followed. */
PtxMbarrier *ptx_mbarrier_elsewhere(PtxCta *cta, const PtxInst *inst, u32 address);
void ptx_mbarrier_bytes(PtxCta *cta, PtxMbarrier *barrier, i64 bytes);
/* At the mbarrier that the instruction's first operand names. */
bool ptx_mbarrier_arrive(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 mask);
/* Warps that wait where all that are left have arrived go on. */
void ptx_barrier_release(PtxCta *cta);

/* ---- clusters (cluster.c) */
/* The CTA whose shared memory a cluster address names, the address becoming its own; NULL with a
 * finding. */
PtxCta *ptx_peer(PtxCta *cta, const PtxInst *inst, u64 *address);
/* Warps go on where every warp of the cluster that is left waits for all of them. */
void ptx_cluster_release(PtxCta *const *peer, int n);

/* ---- copies (copy.c) */
/* One turn of the copy engine; false on a fault. */
bool ptx_bulk_turn(PtxCta *cta);

/* ---- warps (warp.c) */
void ptx_warp_start(PtxCta *cta, PtxWarp *warp, int index);
/* Runs until it waits, polls, ends or has used its share; false on a fault. */
bool ptx_warp_turn(PtxCta *cta, PtxWarp *warp);

/* The lane that a shuffle's lane takes from. */
int ptx_shuffle_source(const PtxWarp *warp, const PtxInst *inst, int lane);

u64 ptx_random(PtxCta *cta);

#endif
