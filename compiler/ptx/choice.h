/* Choices by scores. A score's rank is a number in the order of scores, as device/iso_random.cuh
 * has it; which of two ranks is greater, or which is that of absence, is decided as the numbers go,
 * and whatever follows is concrete. Nothing else may be done with a rank: another use of it is a
 * term as any other. So what a kernel chooses depends on the order of certain terms alone, and
 * these are kept, to be compared with the contract's.
 * Ownership: everything lives in the arena given. */
#ifndef ISOC_PTX_CHOICE_H
#define ISOC_PTX_CHOICE_H

#include "machine.h"
#include "term.h"

/* What a way to compute something of a score gives: its rank, whether that is above some number or
 * below, or something else. */
typedef enum PtxGives { PTX_GIVES_RANK, PTX_GIVES_BOUND, PTX_GIVES_OTHER } PtxGives;

typedef struct PtxWay {
    u64 shape;
    PtxGives gives;
} PtxWay;

typedef struct PtxWays {
    Arena *arena;
    VEC(PtxWay) all;
} PtxWays;

typedef struct PtxPair {
    u64 term, value;
} PtxPair;

/* By term; its size grows by two. */
typedef struct PtxPairs {
    int bits, n;
    PtxPair *v;
} PtxPairs;

typedef struct PtxNote PtxNote;

typedef struct PtxNotes {
    int bits, n;
    PtxNote *v;
} PtxNotes;

enum { PTX_CHOOSING_WARPS = 32 };

typedef struct PtxChoices {
    Arena *arena;
    PtxWays *ways;   /* of several launches */
    int warp;        /* that runs */
    /* Integers and predicates that a warp has computed of one score, lately and before. */
    PtxNotes notes[PTX_CHOOSING_WARPS], older[PTX_CHOOSING_WARPS];
    PtxPairs ranks;  /* ranks that were compared: their scores */
    PtxPairs moved;  /* sums of keys and constants, for tests of ranges: their scores */
    PtxPairs scores; /* these: their ranks' numbers, and whether the contract has them */
    bool by_value;   /* ranks are numbers to what does not compare them; so is what else decides */
    PtxPairs values; /* the latter's terms, and whether the contract has them */
} PtxChoices;

/* The rank of a score that was compared, which is the contract's from now on; false: never was. */
bool ptx_choices_rank(PtxChoices *choices, u64 score, u32 *rank);
/* What may decide by its number: an f32 that becomes an integer, or a predicate. */
void ptx_choices_allow(PtxChoices *choices, u64 term);
/* How many scores were compared, and values decided, that are not the contract's. */
i64 ptx_choices_foreign(const PtxChoices *choices);

/* ---- the machine's */

/* The terms of what decides, or moves, ranks; false: no rank is in it. */
bool ptx_choice(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, int lane, PtxTerms *out);
/* The greatest or least rank of all lanes of `mask`; false: none is in it. */
bool ptx_choice_of_lanes(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 mask);
/* The guard of a branch, decided in these lanes where it is a bound of a rank; false: it is not. */
bool ptx_choice_guard(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, u32 lanes);
/* mov {low, high}, a word of 64 bits; false: no rank is in it. */
bool ptx_choice_apart(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, int lane);
/* Keeps how `term` was computed of `args`; and how a half was masked. */
void ptx_choice_note(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, int lane, const u64 *args,
                     int n, u64 term);
void ptx_choice_note_mask(PtxCta *cta, u64 half, u32 mask, u64 term);

/* ---- by value (choice_value.c) */

/* Ranks among the instruction's operands become numbers; true where nothing else is left. */
bool ptx_choice_settle(PtxCta *cta, PtxWarp *warp, const PtxInst *inst, int lane);
/* The value decides by its number. */
void ptx_choice_by_value(PtxChoices *choices, u64 term);
/* and, or of a predicate with a known one. */
bool ptx_choice_logic(PtxWarp *warp, const PtxInst *inst, int lane, PtxTerms *out);

/* ---- for choice_value.c */

PtxPair *ptx_choice_pair(PtxPairs *pairs, u64 term, Arena *arena);
bool ptx_choice_is_rank(PtxChoices *choices, u64 term);
/* A rank, by its term, has this number. */
void ptx_choice_meet(PtxChoices *choices, u64 term, u32 rank);

/* ---- notes, for choice.c */

enum { PTX_NOTE_ARGS = 3 };

typedef struct PtxNoteArg {
    u64 term; /* 0: a constant */
    u32 bits;
} PtxNoteArg;

/* An operation; a half as the upper, or the lower one of a word with nothing in the other; a half
 * with a mask. */
typedef enum PtxNoteKind { PTX_NOTE_INST, PTX_NOTE_WIDE, PTX_NOTE_LOW, PTX_NOTE_MASK } PtxNoteKind;

struct PtxNote {
    u64 term, score;
    u64 shape; /* of the way in which it is computed; equal ones do the same */
    PtxNoteKind kind;
    bool half; /* of a score of 16 bits, bf16 */
    bool predicate;
    const PtxInst *inst;
    int n;
    PtxNoteArg arg[PTX_NOTE_ARGS];
};

const PtxNote *ptx_choice_find(const PtxChoices *choices, u64 term);
/* What is noted of the score, computed for every score that there is (choice_rank.c). */
PtxGives ptx_choice_gives(PtxChoices *choices, const PtxNote *note);

#endif
