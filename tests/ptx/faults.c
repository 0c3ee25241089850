/* Seeded faults: one line of the device library or of a kernel's emitted text is changed, the
 * kernel compiled again, and the proof must refuse it and say where. Usage: faults CONTRACT. */
#include "bench.h"

#include "base/device_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A kernel is named by its use, so that no change of another kernel chooses another one. */
typedef struct Fault {
    const char *name;
    const char *op, *layout;
    i64 rows;          /* of the layout; JOINED: the join of ranks' roots;
                          ORDERED: the order of grouped rows */
    const char *holds; /* by the emitted text of one of several for these rows; "": the first */
    const char *file;       /* of the device library; NULL: the kernel's own text */
    const char *from, *to;
} Fault;

enum { JOINED = -1, ORDERED = -2 };

#define GATE "gate_up", "tp3", 1, "iso_gemm_wgmma<Op"
#define LATER "gate_up", "tp1", 16384, "iso_gemm_wgmma<Op" /* a CTA goes on to another tile */
#define TREE "o_proj", "tp1", 1024, "iso_gemm_wgmma<Op"    /* leaves in registers, in a cluster */
#define SPLIT "o_proj", "tp1", 1, "iso_gemm_split<Op"
#define JOIN "o_proj", "tp3", JOINED, ""
#define NORM "input_norm", "tp1", 1, ""
#define SPLIT_FILE "iso_gemm_split.cuh"
#define WGMMA_FILE "iso_gemm_wgmma.cuh"
#define FILL_FILE "iso_gemm_fill.cuh"
#define SHORT_FILE "iso_short.cuh"
#define LEAVE_FILE "iso_leave.cuh"

static const Fault faults[] = {
    /* trees */
    {"leaves joined in another tree", SPLIT, NULL, "IsoTree<'L', 'L', '+', 'L', '+'>",
     "IsoTree<'L', 'L', 'L', '+', '+'>"},
    {"leaves in registers joined in another tree", TREE, NULL, "'Q', 'P', '+'", "'P', 'Q', '+'"},
    {"a leaf is done twice, another skipped", TREE, FILL_FILE, "col0, kb * Plan::bk, leaf);",
     "col0, kb * Plan::bk, leaf & ~1);"},
    {"a leaf is done twice over a cluster", SPLIT, SPLIT_FILE, "kb * bk, leaf);",
     "kb * bk, leaf & ~1);"},
    {"a join is left out", SPLIT, "iso_tree.cuh",
     "stack[Height - 2][i] = iso_add(stack[Height - 2][i], stack[Height - 1][i]);",
     "stack[Height - 2][i] = stack[Height - 1][i];"},
    {"a join rounds early", SPLIT, "iso_tree.cuh",
     "stack[Height - 2][i] = iso_add(stack[Height - 2][i], stack[Height - 1][i]);",
     "stack[Height - 2][i] = iso_f32_of_bf16(iso_bf16_of_f32(iso_add(stack[Height - 2][i], "
     "stack[Height - 1][i])));"},
    {"a cluster's values lie on one another", SPLIT, SPLIT_FILE,
     "values + own * Plan::value_bytes;", "values;"},
    {"a cluster's values are read before they come", SPLIT, SPLIT_FILE,
     "    iso_mbar_wait(bar, phase);\n", "\n"},
    {"roots of ranks in another order", JOIN, "iso_join.cuh", "args.source[at.source];",
     "args.source[args.sources - 1 - at.source];"},
    {"roots of other rows", JOIN, "iso_join.cuh", "args.row_begin + row, offset",
     "args.row_begin + (row ^ 1), offset"},
    /* roundings and fusions of the epilogue */
    {"a rounding is left out", GATE, NULL, "iso_f32_of_bf16(t1)", "iso_short_silu(t0)"},
    {"a rounding too many", GATE, NULL, "iso_short_silu(t0)",
     "iso_f32_of_f16(iso_f16_of_f32(iso_short_silu(t0)))"},
    {"gate and up exchanged", GATE, NULL, "sum[0]", "sum[1]"},
    {"sums are rounded to another type", SPLIT, NULL, "iso_round_pair<false>(x, y)",
     "iso_round_pair<true>(x, y)"},
    {"two sums are rounded into each other's place", SPLIT, NULL, "iso_round_pair<false>(x, y)",
     "iso_round_pair<false>(y, x)"},
    {"a product contracted into a sum", GATE, SHORT_FILE, "iso_sub(-0x1p16f, q)",
     "iso_fma(-1.0f, q, -0x1p16f)"},
    {"silu rounds one argument to the other side", GATE, SHORT_FILE, "0x1.fffffep15f", "0x1p16f"},
    {"division approximated", NORM, "iso_num.cuh", "\"div.rn.f32\"", "\"div.approx.f32\""},
    {"subnormals flushed", GATE, "iso_num.cuh", "\"mul.rn.f32\"", "\"mul.rn.ftz.f32\""},
    {"sums that ptxas may contract", SPLIT, "iso_num.cuh", "\"add.rn.f32\"", "\"add.f32\""},
    /* rows */
    {"a norm's epsilon", NORM, NULL, "0x3727C5AC", "0x3727C5AD"},
    {"a norm divides by another length", NORM, NULL, "0x44100000", "0x44000000"},
    {"a row's last elements are left out", NORM, NULL, "(0, 576, vector", "(0, 568, vector"},
    {"lanes of another width", NORM, NULL, "IsoLanes<128, 8", "IsoLanes<128, 4"},
    {"products rounded before they are added", NORM, "iso_row.cuh",
     "return iso_fma(t.a[e], t.b[e], acc);", "return iso_add(iso_mul(t.a[e], t.b[e]), acc);"},
    {"weight applied before rounding", NORM, NULL, "iso_mul(iso_f32_of_bf16(t10), ",
     "iso_mul(t9, "},
    /* data movement */
    {"a descriptor's stride", GATE, WGMMA_FILE, "Op::a_trans ? 8192 : 16, 1024)",
     "Op::a_trans ? 8192 : 16, 512)"},
    {"a step's place in the swizzled row", GATE, WGMMA_FILE, "b_step = Op::b_trans ? 2048 : 32",
     "b_step = Op::b_trans ? 2048 : 64"},
    {"copies without the swizzle that products expect", GATE, "iso_wgmma.cuh", "| 1ULL << 62", ""},
    {"a chain begins with a stale accumulator", TREE, WGMMA_FILE, "block<steps>(d, true);",
     "block<steps>(d, false);"},
    {"a wait for products is left out", GATE, WGMMA_FILE, "iso_wgmma_wait<0>();", ";"},
    {"the producer waits for the other phase", GATE, FILL_FILE,
     "iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);",
     "iso_mbar_wait(ring.empty + 8 * ring.stage, ring.phase);"},
    {"consumers do not wait for copies", GATE, WGMMA_FILE,
     "iso_mbar_wait(ring.full + 8 * ring.stage, ring.phase);", ";"},
    {"fewer bytes are expected than come", GATE, FILL_FILE,
     "iso_mbar_expect(bar, bytes);", "iso_mbar_expect(bar, bytes - 128);"},
    {"stages are given back to one CTA of a cluster", TREE, WGMMA_FILE,
     "if (threadIdx.x % 32 < Tile::cluster)", "if (threadIdx.x % 32 < 1)"},
    {"the tile's columns are shifted", GATE, WGMMA_FILE, "column * Tile::bn + thread % 4 * 2",
     "column * Tile::bn + thread % 4"},
};

#define ATTEND "attention", "tp1", 1, "iso_attend<Op>"
#define ATTEND_FILE "iso_attend.cuh"
#define WALK_FILE "iso_attend_walk.cuh"
#define DECODE "attention", "tp1", 1, "iso_attend_decode<Op>"
#define DECODE_FILE "iso_attend_decode.cuh"
#define WIDE "attention", "tp1", 200, "iso_attend_wgmma<Op>"
#define WIDE_FILE "iso_attend_wgmma.cuh"
#define TILE_FILE "iso_attend_tile.cuh"
#define LSE "lse", "tp1", 1, "" /* of all parts, in one CTA */

/* Attention, log-sum-exp and barriers: tried with tests/ptx/mutants.iso. */
static const Fault more_faults[] = {
    {"a row sees the key after its own", ATTEND, "iso_attend_base.cuh", "end = position + 1;",
     "end = position + 2;"},
    {"unseen keys weigh", ATTEND, ATTEND_FILE, "w[e] = is_seen(i, h, key0 + n * 8 + e) ? x : 0.0f;",
     "w[e] = x;"},
    {"unseen keys are in the maximum", ATTEND, ATTEND_FILE,
     "most = is_seen(i, h, key0 + n * 8 + e) ? iso_max(most, t) : most;",
     "most = iso_max(most, t);"},
    {"row sums of rounded weights", ATTEND, ATTEND_FILE, "part = iso_add(part, w[e]);",
     "part = iso_add(part, iso_f32_of_bf16(iso_bf16_of_f32(w[e])));"},
    {"row sums by lanes in another order", ATTEND, ATTEND_FILE,
     "iso_add(shared.part[0][own][r], shared.part[1][own][r]);",
     "iso_add(shared.part[0][own][r], shared.part[2][own][r]);"},
    {"old values keep their scale", ATTEND, WALK_FILE, "        scale_out(o, alpha);\n", "\n"},
    {"splits are joined without their distance", ATTEND, ATTEND_FILE,
     "Op::weight(iso_sub(total_m, most)), Op::weight(iso_sub(m, most))",
     "Op::weight(iso_sub(total_m, most)), 1.0f"},
    {"values that are no numbers reach other rows", ATTEND, ATTEND_FILE,
     "return shared.odd != 0;", "return false;"},
    {"only half of the values are tested", ATTEND, ATTEND_FILE,
     "odd |= (x[j] & inf) == inf || (x[j] >> 16 & inf) == inf;", "odd |= (x[j] & inf) == inf;"},
    {"another key's place", ATTEND, ATTEND_FILE, "iso_attend_place(args, sequence, key);",
     "iso_attend_place(args, sequence, key ^ 1);"},
    {"weights are read before they are all there", ATTEND, WALK_FILE,
     "        iso_cp_async_wait<1>();\n        __syncthreads();\n        take_sums(block);",
     "        iso_cp_async_wait<1>();\n        take_sums(block);"},
    {"keys are copied over while they are read", ATTEND, WALK_FILE,
     "        find_most(s, key0);\n        __syncthreads();",
     "        find_most(s, key0);\n        __syncwarp();"},
    {"roots of splits in another order", DECODE, DECODE_FILE,
     "join_root(ring + part * each, i, 0, start);",
     "join_root(ring + (parts - 1 - part) * each, i, 0, start);"},
    {"a split's root is another's", DECODE, DECODE_FILE, "int part = item < full ?",
     "int part = item >= full ?"},
    {"values are copied over while they are read", DECODE, DECODE_FILE,
     "        iso_cp_async_wait<Deep::stages - 2>();\n        __syncthreads();",
     "        iso_cp_async_wait<Deep::stages - 2>();\n        __syncwarp();"},
    {"values are read before they come", DECODE, DECODE_FILE,
     "iso_cp_async_wait<Deep::stages - 1>();", "iso_cp_async_wait<Deep::stages>();"},
    {"a place is another block's", DECODE, DECODE_FILE,
     "look_up(first + n * ISO_ATTEND_BLOCK)", "look_up(first)"},
    {"warps' values are read without a barrier", LSE, "iso_row.cuh",
     "        shared[t / 32] = v;\n    __syncthreads();", "        shared[t / 32] = v;\n"},
    {"the next part's values are written without a barrier", LSE, "iso_row.cuh",
     "    __syncthreads();\n    if (t % 32 == 0 && t / 32 < warps)",
     "    if (t % 32 == 0 && t / 32 < warps)"},
    {"the greater of two log-sum-exps is weighed", LSE, SHORT_FILE,
     "low = less ? a.s : b.s, high = less ? b.s : a.s;",
     "low = less ? b.s : a.s, high = less ? a.s : b.s;"},
    {"a log-sum-exp's distances end early", LSE, SHORT_FILE,
     "iso_at_least(iso_minus_abs(d), -87.0f)", "iso_at_least(iso_minus_abs(d), -1.0f)"},
    /* lanes of one warp */
    {"a lane arrives before others have read", WIDE, TILE_FILE,
     "    __syncwarp();\n    if (threadIdx.x % 32 == 0) {\n        iso_mbar_arrive(",
     "    if (threadIdx.x % 32 == 0) {\n        iso_mbar_arrive("},
    {"a tile's first tokens are read as they are found", WIDE, TILE_FILE,
     "        __syncwarp();\n        int run = 0;", "        int run = 0;"},
    {"sequences are read as lanes store them", WIDE, TILE_FILE,
     "        __syncwarp();\n        find_first(tile", "        find_first(tile"},
    {"a range is stored over while lanes read it", WIDE, WIDE_FILE,
     "        __syncwarp();\n        if (thread % 32 == 0) {\n            shared.range",
     "        if (thread % 32 == 0) {\n            shared.range"},
    {"a range is read as a lane stores it", WIDE, WIDE_FILE,
     "        __syncwarp();\n        start_split();", "        start_split();"},
    {"a count of tiles is read as a lane stores it", WIDE, WIDE_FILE,
     "                *passed() = t + 1;\n            }\n            __syncwarp();",
     "                *passed() = t + 1;\n            }"},
    {"values are given back while lanes read them", WIDE, "iso_attend_steps.cuh",
     "        __syncwarp(); // read by every lane", "        // read by every lane"},
};

#define TOP_FILE "iso_top.cuh"
#define RANK_FILE "iso_random.cuh"
#define TIES "ties", "", 1, ""
#define SIGMOID "sigmoid_route", "", 1, ""

/* Choices: tried with tests/ptx/top.iso. */
static const Fault choice_faults[] = {
    {"scores are halved, which keeps their order", "route", "", 1, "", NULL,
     "z[k + e] = a5[k + e];", "z[k + e] = iso_mul(0.5f, a5[k + e]);"},
    {"the last of equal scores comes first", TIES, TOP_FILE, "at = ranks[e] > rank ? e : at;",
     "at = ranks[e] >= rank ? e : at;"},
    {"the last lane with the greatest rank comes first", TIES, TOP_FILE,
     "iso_top_least(best.rank == most ? own : ISO_TOP_ALL);",
     "iso_top_most(best.rank == most ? own : 0u);"},
    {"-0 is below +0", SIGMOID, RANK_FILE, "all == ISO_SIGN_BIT ? 0 : all;", "all;"},
    {"NaN comes first by its bits alone", SIGMOID, RANK_FILE,
     "return (all & 0x7FFFFFFFu) > 0x7F800000u ? ISO_RANK_NAN : rank;", "return rank;"},
    {"negative scores rise as their bits do", SIGMOID, RANK_FILE, "? ~bits : bits | ISO_SIGN_BIT;",
     "? bits ^ ISO_SIGN_BIT : bits | ISO_SIGN_BIT;"},
    {"a group is ranked by its second score", SIGMOID, TOP_FILE,
     "sum = i == 0 ? x : iso_add(sum, x);", "sum = x;"},
    {"one group too few is kept", SIGMOID, TOP_FILE, "i < Top::keep;", "i < Top::keep - 1;"},
    {"what is taken stays", SIGMOID, TOP_FILE,
     "        if (own == index)\n            best.drop(ranks);\n", "\n"},
    {"slots stay in the order of their scores", SIGMOID, TOP_FILE,
     "Top::by_index ? iso_top_ascending<Top::k>(chosen) : chosen;", "chosen;"},
    {"a slot's score is its neighbour's", SIGMOID, NULL, "iso_look_up(chosen, ",
     "iso_look_up(chosen ^ 1, "},
};

#define DRAW_FILE "iso_draw.cuh"
#define SCALED "scaled", "", 1, ""

/* Draws: tried with tests/ptx/noise.iso. */
static const Fault draw_faults[] = {
    {"noise is another index's", SCALED, DRAW_FILE, "iso_gumbel(words.w[e])",
     "iso_gumbel(words.w[e ^ 1])"},
    {"noise is that of another position", SCALED, NULL, "(unsigned)map.position[i0];",
     "(unsigned)map.position[i0] + 1u;"},
    {"noise is taken from the score", SCALED, DRAW_FILE, "iso_draw_key(iso_add(x, iso_gumbel(",
     "iso_draw_key(iso_sub(x, iso_gumbel("},
    {"the bound of the noise is too low", SCALED, DRAW_FILE, "0x1.62e430p-1f, 0x1p-10f);",
     "0x1.62e430p-2f, 0x1p-10f);"},
    {"scores are halved", SCALED, DRAW_FILE, ": terms.a[e];", ": iso_mul(terms.a[e], 0.5f);"},
};

#define LIMITED "own", "tp1", 1, ""

/* Temperatures and limits: tried with tests/ptx/draw.iso. */
static const Fault limit_faults[] = {
    {"one too many is kept", "two", "tp1", 1, "", DRAW_FILE, "(IsoU64)draw.top_k, 0.0f);",
     "(IsoU64)draw.top_k + 1, 0.0f);"},
    {"scores are multiplied by what the temperature divides", LIMITED, DRAW_FILE,
     "iso_div(terms.a[e], draw.temperature)",
     "iso_mul(terms.a[e], iso_div(1.0f, draw.temperature))"},
    {"shares are of half the weights", LIMITED, DRAW_FILE,
     "iso_draw_mass(iso_pair_scale(z[e], kept.most))",
     "iso_draw_mass(iso_mul(0.5f, iso_pair_scale(z[e], kept.most)))"},
    {"what weighs just as much as it must is left out", LIMITED, DRAW_FILE,
     "weight >= kept.min_p", "weight > kept.min_p"},
    {"weights are of scores that were not divided", LIMITED, DRAW_FILE,
     "const float weight = iso_pair_scale(z, kept.most);",
     "const float weight = iso_pair_scale(iso_add(z, z), kept.most);"},
    {"counts are added to before they are 0", LIMITED, DRAW_FILE,
     "shared.low[b] = shared.high[b] = 0;\n        }\n        __syncthreads();",
     "shared.low[b] = shared.high[b] = 0;\n        }"},
    {"counts are read before all is added", LIMITED, DRAW_FILE,
     "        __syncthreads();\n        if (threadIdx.x < ISO_WARP) {",
     "        if (threadIdx.x < ISO_WARP) {"},
    {"a sum is read as a lane stores it", LIMITED, DRAW_FILE,
     "        shared.total = total;\n    __syncwarp();", "        shared.total = total;"},
    {"a sum is stored over while lanes read it", LIMITED, DRAW_FILE,
     "            __syncwarp();\n            if (threadIdx.x == 0 && Mass)",
     "            if (threadIdx.x == 0 && Mass)"},
};

#define SLOTS_FILE "iso_slots.cuh"
#define COMBINE "combine", "one", 1, "" /* of all experts, on one rank: it rounds */

/* Sums of slots: tried with tests/ptx/slots.iso. */
static const Fault slot_faults[] = {
    {"a part ends a place later", COMBINE, NULL, "place >= 5;", "place >= 6;"},
    {"slots are summed in their own order", COMBINE, SLOTS_FILE,
     "before += at >= 0 && at < own;", "before += at >= 0 && s < lane;"},
    {"the second slot at a place counts too", COMBINE, SLOTS_FILE, "return taken ? -1 : own;",
     "return own;"},
    {"a part's first slot is added to the part before", COMBINE, SLOTS_FILE,
     "if (code[j] & ISO_SLOTS_FIRST) {", "if (code[j] & ISO_SLOTS_FIRST && !acc.any) {"},
};

#define ROUNDED_FILE "iso_rounded.cuh"
#define ROUNDED "rounded_sinks", "whole", 1, "iso_attend<Op>"

/* Rounded maxima: tried with tests/ptx/rounded.iso. */
static const Fault rounded_faults[] = {
    {"what is left of an exponent is rounded twice", ROUNDED, ROUNDED_FILE,
     "r = iso_fma(v, by, iso_sub(base, t));", "r = iso_add(iso_mul(v, by), iso_sub(base, t));"},
    {"low scores have no floor", ROUNDED, ROUNDED_FILE,
     "v = iso_max(u, iso_rounded_least(m, inverse));", "v = u;"},
    {"a maximum is rounded to another multiple", ROUNDED, ROUNDED_FILE,
     "iso_sub(iso_add(x, 0x1.8p26f), 0x1.8p26f);", "iso_sub(iso_add(x, 0x1.8p25f), 0x1.8p25f);"},
    {"a weight is raised by another bit", ROUNDED, ROUNDED_FILE, "shl.b32 n, %1, 23;",
     "shl.b32 n, %1, 22;"},
};

/* Those that show only where a CTA goes on to another tile. */
static const Fault later_faults[] = {
    {"what waits leaves to another row", LATER, LEAVE_FILE, "at, left & 1, first);",
     "at, ~left & 1, first);"},
    {"what waits is another piece", LATER, LEAVE_FILE, "4 * (piece - pieces + Kept) + i % 4",
     "4 * (pieces - 1 - piece) + i % 4"},
    {"the last tile waits for one that never comes", LATER, WGMMA_FILE,
     "tile + (int)gridDim.x / Tile::cluster < tiles.count()", "true"},
};

#define DEEP "o_proj", "tp1", 4096, "iso_gemm_wgmma<Op"

/* Those that show only where k is longer than the stages: tried with qwen3-8b. */
static const Fault deep_faults[] = {
    {"a stage is given back before its product is done", DEEP, WGMMA_FILE,
     "        iso_wgmma_wait<1>();\n        release(previous);",
     "        release(ring.stage);\n        iso_wgmma_wait<1>();"},
};

#define BLOCK "down", "tp1", 4096, "take_eight"
#define BLOCK_PLACE "row + set / 4 * Tile::bm * 128 + set % 2 * 1024 + eight * 16"
#define BLOCK_AT "iso_shared_load16(word, " BLOCK_PLACE

/* What an epilogue reads, as one more block of a tile: tried with block. */
static const Fault block_faults[] = {
    {"a block is of other columns", BLOCK, FILL_FILE, "col0 + i * 64, 0, row0", "col0, 0, row0"},
    {"a block is read before it comes", BLOCK, WGMMA_FILE, "        await();\n#pragma unroll",
     "#pragma unroll"},
    {"a block is another row's", BLOCK, WGMMA_FILE, "set % 2 * 1024 + eight", "eight"},
    {"a block's place is given back twice", BLOCK, WGMMA_FILE,
     "__syncwarp();\n        release(ring.stage);",
     "release(ring.stage);\n        release(ring.stage);"},
    {"a lane reads in a block what another stores there", BLOCK, WGMMA_FILE, BLOCK_AT ");",
     BLOCK_AT ");\n            iso_shared_store16(" BLOCK_PLACE ", word);\n"
     "            iso_shared_load16(word, __shfl_xor_sync(0xFFFFFFFFu, " BLOCK_PLACE ", 1));\n"
     "            " BLOCK_AT ");"},
};

static const Fault later_block_faults[] = {
    {"a block's place is given back while lanes read it", BLOCK, WGMMA_FILE,
     "        __syncwarp();\n        release(ring.stage);", "        release(ring.stage);"},
};

#define ORDER "gate_up", "one", ORDERED, ""
#define ORDER_FILE "iso_group_order.cuh"
#define SLOTS_ROWS "down", "one", 100, ""
#define GROUP_FILE "iso_group_wgmma.cuh"

/* Products at their experts: tried with tests/ptx/grouped.iso. */
static const Fault group_faults[] = {
    {"counts are read before they are 0", ORDER, ORDER_FILE,
     "    __syncwarp();\n    iso_order_walk", "    iso_order_walk"},
    {"counts are raised while lanes read them", ORDER, ORDER_FILE,
     "            __syncwarp();\n            if (slot[i] >= 0 && before",
     "            if (slot[i] >= 0 && before"},
    {"a warp's rows are read as lanes keep them", SLOTS_ROWS, GROUP_FILE,
     "        keep();\n        __syncwarp();", "        keep();"},
    {"rows leave as lanes store them", SLOTS_ROWS, GROUP_FILE,
     "        __syncwarp();\n        leaves = true;", "        leaves = true;"},
    {"rows of the order are loaded from the second on", SLOTS_ROWS, "iso_group_load.cuh",
     "        int bytes = Op::parts", "        item.first += 1;\n        int bytes = Op::parts"},
    {"a pair's stage is given back to one CTA alone", "down_on", "one", 100, "", GROUP_FILE,
     "if (threadIdx.x % 32 < 2)", "if (threadIdx.x % 32 < 1)"},
    {"rows of a pair lie where only one CTA's are", "down_on", "one", 100, "",
     "iso_group_load.cuh", "stage + own * 128, &maps.a", "stage, &maps.a"},
};

/* ---- texts ----------------------------------------------------------------------------------- */

static Str replaced(Str text, const char *from, const char *to, int *times, Arena *arena)
{
    Text out = {.arena = arena};
    const char *at = text.s, *found;
    for (; (found = strstr(at, from)) != NULL; at = found + strlen(from), ++*times) {
        text_add(&out, (Str){at, (int)(found - at)});
        text_add(&out, str_of(to));
    }
    text_add(&out, str_of(at));
    return text_str(&out);
}

/* A device file with its includes in place, changed where the fault says. */
static void add_file(const Fault *fault, Str name, int *times, Text *out)
{
    const DeviceText *file = device_texts;
    while (file->name && !str_is(name, file->name))
        file++;
    if (!file->name)
        bench_fail("a device file is missing");
    Str text = str_of(file->text);
    if (fault->file && str_is(name, fault->file))
        text = replaced(text, fault->from, fault->to, times, out->arena);
    for (const char *line = text.s; *line;) {
        const char *end = strchr(line, '\n') + 1;
        static const char include[] = "#include \"";
        if (strncmp(line, include, sizeof include - 1) == 0) {
            const char *start = line + sizeof include - 1;
            add_file(fault, (Str){start, (int)(strchr(start, '"') - start)}, times, out);
        } else {
            text_add(out, (Str){line, (int)(end - line)});
        }
        line = end;
    }
}

/* A kernel's emitted text, to the next kernel's comment. */
static Str emitted_text(const Bench *b, Str kernel)
{
    Str head = str_format(b->arena, "namespace text_%.*s {", STR_FMT(kernel));
    const char *at = strstr(b->pipeline.emitted.program.s, head.s);
    if (!at)
        bench_fail("a kernel's text is not found");
    const char *next = strstr(at, "\n}\n\n//");
    return str_copy(b->arena, (Str){at, (int)(next ? next + 3 - at : (long)strlen(at))});
}

static Str spec_kernel(const Manifest *m, int spec)
{
    return spec < 0 ? STR("") : str_of(m->kernels[m->specs[spec].kernel].name);
}

static Str order_kernel(const Manifest *m)
{
    int k = 0;
    while (k < m->n_kernels - 1 && !strstr(m->kernels[k].name, "iso_order"))
        k++;
    return str_of(m->kernels[k].name);
}

/* Of the variants for the fault's rows the one whose text holds what it names. */
static Str choose_text(const Bench *b, const Fault *fault, const MfLayoutOp *op, Str *name)
{
    const Manifest *m = b->worker.module->manifest;
    if (fault->rows == JOINED) {
        *name = spec_kernel(m, op->join);
        return emitted_text(b, *name);
    }
    if (fault->rows == ORDERED) {
        *name = spec_kernel(m, op->variants[op->n_variants - 1].specs[0]);
        return emitted_text(b, order_kernel(m));
    }
    for (int v = 0; v < op->n_variants; v++) {
        const MfVariant *variant = &op->variants[v];
        *name = spec_kernel(m, variant->specs[0]);
        if (fault->rows < variant->rows_min || fault->rows > variant->rows_max || !name->n)
            continue;
        Str text = emitted_text(b, *name);
        if (strstr(text.s, fault->holds))
            return text;
    }
    bench_fail("no kernel of that kind for these rows");
}

static Str kernel_text(const Bench *b, const Fault *fault, Str *name)
{
    const Manifest *m = b->worker.module->manifest;
    for (int l = 0; l < m->n_layouts; l++) {
        const MfLayout *layout = &m->layouts[l];
        for (int i = 0; i < layout->n_ops && str_is(str_of(layout->name), fault->layout); i++)
            if (str_is(str_of(fault->op), m->ops[layout->ops[i].op].name))
                return choose_text(b, fault, &layout->ops[i], name);
    }
    bench_fail("no such op in that layout");
}

/* ---- one fault ------------------------------------------------------------------------------- */

static bool try_fault(Bench *b, const Fault *fault, bool every)
{
    static const char *const heads[] = {"iso_abi.cuh", "iso_num.cuh", "iso_short.cuh",
                                        "iso_gemm_wgmma.cuh", "iso_gemm_split.cuh",
                                        "iso_join.cuh", "iso_map.cuh", "iso_row.cuh",
                                        "iso_attend.cuh", "iso_attend_base.cuh",
                                        "iso_attend_decode.cuh", "iso_attend_walk.cuh",
                                        "iso_attend_wgmma.cuh", "iso_group_load.cuh",
                                        "iso_group_wgmma.cuh",
                                        "iso_group_order.cuh", "iso_top.cuh", "iso_draw.cuh",
                                        "iso_slots.cuh"};
    Arena *arena = arena_new();
    Text program = {.arena = arena};
    Binary binary = {0};
    PtxOutcome outcome;
    Str name;
    int times = 0;
    Str text = kernel_text(b, fault, &name);
    if (!fault->file)
        text = replaced(text, fault->from, fault->to, &times, arena);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        add_file(fault, str_of(heads[i]), &times, &program);
    text_add(&program, text);
    if (times == 0) {
        printf("  %-52s NOT SEEDED: the text has changed\n", fault->name);
        return false;
    }
    bench_choose(b, name.s, every);
    if (fault->rows == ORDERED) /* runs in the launches of the product that comes after it */
        b->kernel = (PtxKernel *)(uintptr_t)ptx_find(&b->module,
                                                     order_kernel(b->worker.module->manifest));
    if (!nvrtc_compile(b->pipeline.nvrtc, text_str(&program), b->pipeline.arch, &binary, arena,
                       &b->pipeline.diags)) {
        printf("  %-52s refused by the compiler's own checks\n", fault->name);
        return true;
    }
    Verdict verdict = bench_judge(b, binary.ptx, &outcome, arena);
    const char *how = verdict == SURVIVES ? "NOT FOUND"
                      : verdict == UNLIKE ? outcome.unlike.n ? outcome.unlike.s : "outputs missing"
                                          : outcome.finding.s;
    printf("  %-52s %s\n", fault->name, how);
    fflush(stdout);
    arena_free(arena);
    return verdict != SURVIVES;
}

typedef struct List {
    const char *contract; /* that has it in its name */
    const Fault *fault, *later;
    size_t n, n_later;
} List;

#define LIST(contract, list) {contract, list, NULL, sizeof list / sizeof *list, 0}
#define LISTS(contract, list, later) \
    {contract, list, later, sizeof list / sizeof *list, sizeof later / sizeof *later}

static const List lists[] = {
    LISTS("block", block_faults, later_block_faults),
    LIST("qwen3-8b", deep_faults),
    LISTS("mutants", more_faults, later_faults),
    LIST("top", choice_faults),
    LIST("noise", draw_faults),
    LIST("draw", limit_faults),
    LIST("slots", slot_faults),
    LIST("rounded", rounded_faults),
    LIST("grouped", group_faults),
    LISTS("", faults, later_faults),
};

int main(int argc, char **argv)
{
    if (argc < 2)
        bench_fail("faults CONTRACT");
    Bench *b = bench_open(argv[1], false);
    const List *list = lists;
    while (!strstr(argv[1], list->contract))
        list++;
    int n = (int)(list->n + list->n_later), found = 0;
    for (size_t i = 0; i < list->n; i++)
        found += try_fault(b, &list->fault[i], false);
    for (size_t i = 0; i < list->n_later; i++)
        found += try_fault(b, &list->later[i], true);
    printf("%d of %d seeded faults found\n", found, n);
    bench_close(b);
    return found == n ? 0 : 1;
}
