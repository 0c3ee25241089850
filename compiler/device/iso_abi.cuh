// The structs that a launcher and the product kernels share; compiles as C11 and as CUDA C++.
// A launcher owns every struct and buffer; kernels only read the structs and write through their
// pointers.
//
// Lengths, strides and offsets are counted in elements of the tensor they belong to, byte counts
// say "bytes". Rows are what the op's free token axes flatten to; columns are what the weight's
// own axes flatten to; k is the summed axis.
//
// A product kernel is fixed at compile time by
//   groups G   column groups of one launch that share A (q, k and v: 3)
//   parts P    accumulators held together for one (row, column) (gate and up: 2)
//   program    the tree as text, read left to right (iso_tree.cuh): L leaf, P two leaves and Q
//              four joined in registers, + join the two topmost values, b / h round the topmost to
//              bf16 / f16, R write the topmost away as the next root
//   a_trans    A is [k][row] with rows contiguous, instead of [row][k] with k contiguous
//   b_trans    B is [k][column] with columns contiguous, instead of [column][k]
//   tile       bm rows by bn columns (of each part), bk, stages, split, near, cluster, fused
// and everything else, sizes included, is an argument. With "leaves" the program's leaf count
// (L 1, P 2, Q 4), "levels" its greatest stack height less one (each of L, P and Q puts one value
// on the stack, + and R take one off), and ceil(x, y) = (x + y - 1) / y:
//
// iso_gemm_wgmma<Op, IsoWgmmaTile<bm, bn, stages, near, cluster>>(IsoGemmArgs, IsoGemmMaps)
//   needs   leaves of one length; bases aligned to 16 bytes, strides multiples of 8; the leaf
//           length a multiple of 8 where there are several leaves and an operand has k contiguous
//   block   128 * (1 + ceil(bm, 64)), 1, 1; cluster, 1, 1
//   grid    cluster * min(multiprocessors / cluster,
//                         ceil(ceil(rows, bm), high) *
//                         ceil(sum over groups of ceil(columns, bn), wide))
//           where high = cluster and wide = 1 if P * bn > bm, else the other way round;
//           any smaller multiple of cluster is right too: clusters loop over tiles
//   shared  1024 + stages * (max(bm + P * bnp, 64) * 128 + 16) + near * bmp * bn * P * 4 bytes of
//           dynamic shared memory, where bnp = b_trans ? 64 * ceil(bn, 64) : bn and
//           bmp = 64 * ceil(bm, 64)
//   workspace  grid.x * (levels - near) * bmp * bn * P * 4 bytes, 16-byte aligned, never set
//   counters   none
//   maps    one for A and one for every (group, part) of B; bf16 or f16, three dimensions,
//           128-byte swizzle, no interleave, element strides 1, fill of zeros, L2 promotion free:
//             operand [row][k]:  dims {leaf length, leaves, rows}
//                                byte strides {leaf length * 2, row stride * 2}
//                                box {64, 1, cluster > 1 ? bm / wide : min(bm, rows)}
//                                (B: {64, 1, bn / high}, rows = the group's columns)
//             operand [k][row]:  dims {rows, leaf length, leaves}
//                                byte strides {k stride * 2, leaf length * k stride * 2}
//                                box {64, 64, 1}
//           (with one leaf the leaf's byte stride is never used: give any multiple of 16)
//           an Op with take_eight, args.reads != 0: one more for its only operand, as [row][k] of
//           one leaf whose k are the columns, box {64, 1, bm}
//
//   folds   an Op whose columns are reduced (iso_fold.cuh): ceil(columns, bn) is Fold::parts; value
//           v of the root of part p of a row lies at roots + (p * Op::values + v) * root_stride +
//           row, root_row_stride is not used
//
// iso_gemm_split<Op, IsoSplitTile<bm, bn, stages, fused>>(IsoGemmArgs, IsoGemmMaps)
//   needs   as iso_gemm_wgmma; in the program every L stands for `fused` leaves (1, 2 or 4), joined
//           as P and Q join them; C of these, 2 to 8, each one CTA of a cluster; bn a multiple of
//           8 * C
//   block   128 * (1 + ceil(bm, 64)), 1, 1; cluster C, 1, 1
//   grid    C * sum over groups of ceil(columns, bn), 1, min(ceil(rows, bm), 65535)
//           a smaller z is right too: clusters loop over row tiles
//   shared  1024 + stages * (max(bm + P * bnp, 64) * 128 + 16) + bm * bn * P * 4 + 16 bytes
//   workspace, counters   none
//   maps    as iso_gemm_wgmma's with cluster 1
//
// iso_gemm_stream<Op, IsoStreamTile<bm, bn, bk, stages, split>>(IsoGemmArgs)
//   needs   nothing: any leaf lengths, strides and alignment (16-byte aligned rows are fastest);
//           bn is best where the CTAs fill the multiprocessors evenly
//   block   128, 1, 1
//   grid    sum over groups of ceil(columns, bn), split ? leaves : 1, min(ceil(rows, bm), 65535)
//           a smaller z is right too: CTAs loop over row tiles
//   shared  stages * (bm + P * bn) * bk * 2 + (split ? 0 : levels * P * bm * bn * 4) bytes
//   workspace  split and leaves > 1:
//           ceil(rows, bm) * grid.x * leaves * P * bm * bn * 4 bytes, 16-byte aligned
//   counters   split and leaves > 1: ceil(rows, bm) * grid.x of 4 bytes, zero before the first
//           launch ever; each launch leaves them zero
//
// iso_gemm_group<Op, IsoGroupTile<bm, bn, stages, near, tail, room, odd, sorts>>(IsoGroupArgs,
//                                                                                IsoGemmMaps)
//   needs   as iso_gemm_wgmma, and a_trans false; order and items as iso_group_order leaves them
//           for this bm; the strides of a multiples of 8, all its offsets below 2^35
//           odd > 0: leaves are longer than 64 and multiples of 16, by odd * 16 longer than whole
//           64s, and those of each unit of the program (Q, P) end with a 64; then tail is 4
//           else tail is ceil(leaf length % 64, 16) where leaves are longer than 64 and no
//           multiples of it, 4 otherwise
//           sorts: 0 where a_sorted is; 2: bm is 128, of the program no step is L, and with
//           a_sorted the column tiles are even in number
//   block   128 * (1 + ceil(bm, 64)), 1, 1; sorts = 2: cluster 2, 1, 1
//   grid    min(multiprocessors, most items * sum over groups of ceil(columns, bn)), a multiple
//           of the cluster; any smaller one is right too: CTAs loop over tiles
//   workspace, shared   as iso_gemm_wgmma's with cluster 1; of shared ISO_GROUP_WAITING more, and
//           bmp * (bn * 2 + 16) for several leaves that leave no roots and near = 0
//   counters   none
//   maps    those of iso_gemm_wgmma (odd > 0: of one leaf that is all of them); of a, which
//           a_sorted alone uses, in boxes of min(bm, 64) rows; of b with one dimension more, the
//           outermost, of the experts that lie here, and boxes of one of them
//
// iso_group_order(IsoOrderArgs)
//   block   512, 1, 1; cluster 8, 1, 1
//   grid    8, 1, 1
//   shared  ISO_ORDER_SHARED bytes
//   counters   none
//
// iso_join<Op>(IsoJoinArgs)
//   block   256, 1, 1
//   grid    ceil(sum over groups of ceil(columns, 2), 256), any y >= 1 (CTAs loop over rows)
//   shared, workspace, counters   none
//
// Every kernel waits itself for what was launched before it (iso_grid_begin), and lets what is
// launched next begin: it may be launched with programmatic stream serialization, or without.
//
// With rows = 0 there is nothing to launch. Two launches that may overlap must not share workspace
// or counters.
#ifndef ISO_ABI_CUH
#define ISO_ABI_CUH

enum {
    ISO_DIMS = 6,           // dimensions of a kernel, strides of a view
    ISO_VIEWS = 24,         // operands and results of one map or row kernel
    ISO_CALLS = 2,          // of one map or row kernel, in one launch
    ISO_LOOKUPS = 4,        // of them, operands that are read at indices from others
    ISO_GEMM_GROUPS = 4,    // column groups of one launch
    ISO_GEMM_PARTS = 4,     // accumulators held together
    ISO_GEMM_MAPS = 8,      // groups * parts of one wgmma kernel
    ISO_GEMM_OPERANDS = 6,  // tensors that an epilogue reads
    ISO_GEMM_RESULTS = 3,   // tensors that an epilogue writes
    ISO_GEMM_LEAVES = 64,   // leaves of one rank
    ISO_GROUP_EXPERTS = 512,        // experts that lie on one rank
    ISO_GROUP_COUNTS = 8 * 513,     // ints that iso_group_order counts in
    ISO_GROUP_WAITING = 128,        // bytes of shared memory beside those of other products
    ISO_ORDER_SHARED = 16 * 513 * 4 + 514 * 8 + 128,
    ISO_JOIN_SOURCES = 16   // ranks whose roots one join takes
};

// A binding in place: the address of its first element (axes that it holds at an index already
// counted in), and one stride for each dimension of the kernel, in the manifest's order; for the
// groups of a product the dimensions are (rows, columns), and a binding that is read at an index
// has stride[2] from one index to the next, of which stride[4] from index stride[3] on are there. A
// dimension that the binding has not has stride 0.
typedef struct IsoView {
    void *ptr;
    long long stride[ISO_DIMS];
} IsoView;

// The driver's CUtensorMap, opaque here.
typedef struct IsoTensorMap {
    unsigned long long opaque[16];
} __attribute__((aligned(128))) IsoTensorMap;

// One column group: its weights, and what its epilogue touches.
typedef struct IsoGemmGroup {
    const void *b[ISO_GEMM_PARTS];          // weights of each part (the wgmma kernel: in the maps)
    long long b_stride[ISO_GEMM_PARTS];     // between columns, or between k where b_trans
    int columns;                            // columns that this rank computes
    int first_column;                       // the first of them among all ranks'
    int extent[ISO_DIMS];                   // extents for the epilogue's index arithmetic, in the
                                            // manifest's order; unused ones 0
    float *roots;                           // (of folds: below) programs with R: root r of part p
                                            // of (row, column)
    long long root_stride, root_row_stride; // lies at (r * P + p) * root_stride
                                            //         + row * root_row_stride + column
    IsoView operand[ISO_GEMM_OPERANDS];     // read by the epilogue, in the manifest's order
    IsoView result[ISO_GEMM_RESULTS];       // written by the epilogue, in the manifest's order
} IsoGemmGroup;

typedef struct IsoGemmArgs {
    const void *a;                          // the shared operand (the wgmma kernel: in the map)
    long long a_stride;                     // between rows, or between k where a_trans
    const int *rows_dev;                    // live rows, on the device, or null for all of rows;
                                            // rows beyond are computed by nobody and not written
    int rows;                               // rows of the tensors, and so the most live rows
    int settled;                            // not 0: the columns' operands were written by what had
                                            // ended when this was launched
    int leaves;                             // leaves this rank owns: the program's
    int leaf_begin[ISO_GEMM_LEAVES + 1];    // leaf l is k in [leaf_begin[l], leaf_begin[l + 1]),
                                            // counted in the operands as they lie here
    float *workspace;                       // see above; null where its size is 0
    unsigned *counters;
    IsoGemmGroup group[ISO_GEMM_GROUPS];
    int reads;                              // not 0: the map of what the epilogue reads is there
} IsoGemmArgs;

// Elements (token, pick) with their experts are the rows of a grouped product, numbered token by
// token; those of experts that lie elsewhere are not computed. An item is up to bm rows of one
// expert, whose numbers are order[first] to order[first + count - 1]. Rows without an expert belong
// to who has the first one; they come last, as of one that lies past all others, so that their
// weights read as zeros.
typedef struct IsoGroupItem {
    int expert, first, count, unused;
} __attribute__((aligned(16))) IsoGroupItem;

typedef struct IsoGroupRow {
    int slot, place;
} __attribute__((aligned(8))) IsoGroupRow;

typedef struct IsoGroupArgs {
    IsoGemmArgs gemm;                       // rows: of the tensors; a_stride: between tokens
    long long a_pick_stride;                // of a, between picks; 0: a has a row for each token
    int picks;
    int a_sorted, out_sorted;               // not 0: row order[i] of a, of the results, lies at i
    const int *order;
    const IsoGroupItem *items;
    const int *n_items;
} IsoGroupArgs;

// Sorts rows by expert, those of one in ascending order. items has room for
// min(rows, rows / bm + experts + 1): at most so many are written, and their number.
typedef struct IsoOrderArgs {
    const int *rows_dev;                    // live tokens, on the device, or null for all
    int rows;                               // tokens
    int picks;
    const int *chosen;                      // experts, of `all`; what is not one of them: none
    long long chosen_token, chosen_pick;    // strides
    int all, begin, experts;                // of these the ones from begin on, so many, lie here
    int bm;
    int *counts;                            // ISO_GROUP_COUNTS of them, never set
    IsoGroupRow *places;                    // scratch, rows * picks of them
    int *order;                             // rows * picks of them
    IsoGroupItem *items;
    int *n_items;
} IsoOrderArgs;

// Tensor maps of a wgmma kernel; b[group * parts + part].
typedef struct IsoGemmMaps {
    IsoTensorMap a;
    IsoTensorMap b[ISO_GEMM_MAPS];
    IsoTensorMap read;
} IsoGemmMaps;

// The roots that one rank sent, in the order of its leaves: root r of part p of (row, column) of
// group g lies at ptr + (r * P + p) * root_stride + row * row_stride + (columns of the groups
// before g) + column.
typedef struct IsoJoinSource {
    const float *ptr;
    long long root_stride, row_stride;
    int roots;
} IsoJoinSource;

// A join reads the sources' rows [row_begin, row_begin + rows) and calls the epilogue with rows
// counted from 0, so that operands and results are the caller's own rows.
// Of a grouped product the rows are tokens by picks, rows_each of them a token's, and with `chosen`
// only rows are joined whose expert lies here, or that have none where the first one does.
typedef struct IsoJoinArgs {
    const int *rows_dev;                    // live tokens of the sources, counted from their first
    int row_begin, rows;
    int rows_each;                          // rows of a token
    const int *chosen;                      // experts of the caller's rows, or null
    long long chosen_token, chosen_pick;
    int all, begin, experts;                // as in IsoOrderArgs
    int sources;                            // ranks, in the order of their leaves
    IsoJoinSource source[ISO_JOIN_SOURCES];
    IsoGemmGroup group[ISO_GEMM_GROUPS];    // columns, extent, operand and result are used
} IsoJoinArgs;

// An axis that an operand is read at by indices: those from `begin` on, `count` of them, are there.
typedef struct IsoLookup {
    long long stride;
    int begin, count;
} IsoLookup;

// Elementwise kernels: every element of the kernel's dimensions once.
//   block   the manifest's threads
//   grid    ceil(elements, 8 * threads), calls, 1; any grid.x >= 1 is right: threads loop
//   shared, workspace, counters   none
// The product of all extents but the last must be below 2^31, and so must that of the extents with
// the last one counted in chunks of 8.
typedef struct IsoMapArgs {
    const int *rows_dev;            // live length of the free axis, on the device, or null for all;
                                    // elements beyond are not written
    const int *position;            // for bindings with a coordinate: each row's index in it; the
    const int *sequence;            // last factor of a ragged axis is its position, others sequence
    unsigned rows_each;             // elements of the free axis's dimension per row: the product of
                                    // the other axes of that dimension
    unsigned extent[ISO_DIMS];      // what this rank computes of each dimension
    IsoView view[ISO_VIEWS];        // the bindings, in the manifest's order
    IsoLookup lookup[ISO_LOOKUPS];  // of the bindings that have one, in that order
} IsoMapArgs;

// What one launch computes: as many calls as grid.y says, none of which may need another's results.
typedef struct IsoMapCalls {
    IsoMapArgs map[ISO_CALLS];
} IsoMapCalls;

// Row kernels: the last dimension is reduced, the others number the rows.
//   block   the manifest's threads
//   grid    where "row_threads" is 1: ceil(rows, threads), else rows; calls, 1; any grid.x >= 1 is
//           right. A second call has its own `also` and stores no roots.
//           With "columns" the last dimension but one is no row's: a warp has 32 * columns of its
//           elements, a thread has neighbours, and the last dimension are a token's slots;
//           ceil(rows * ceil(elements, 32 * columns) * 32, threads)
//           With a "cluster": rows * cluster, in clusters of so many CTAs, and no other
//   shared, workspace, counters   none
// With roots_out only the roots of the first reduce are stored: value v of root r of a row lies at
//   roots[(r * values + v) * root_stride + row], rows counted row-major over the outer dimensions.
// The kernel that joins them is a row kernel too, whose sources are the ranks in the order of their
// elements. Its own first element of the free axis's dimension (the outermost) is element row_begin
// of the sources'; rows_dev counts in the sources. row_stride is not used.
typedef struct IsoRowArgs {
    IsoMapArgs map;
    float *roots;
    long long root_stride;
    int row_begin;
    int column_begin, source_columns; // with "columns", of a join: the sources' columns, and which
                                      // of them is its first
    IsoJoinSource source[ISO_JOIN_SOURCES];
    IsoMapArgs also;
} IsoRowArgs;

// Attention of packed tokens over the keys of their sequences. The views' dimensions are (tokens,
// heads of keys, group, elements of queries and keys, elements of values); keys and values have a
// row for each key of each sequence, found by one of three rules: key j of sequence s lies at steps
// (a, b) along the stored axes of sequences and positions, which are
//   block_table  (block_table[s * block_table_stride + j / page], j % page)   pages of a cache
//   key_start    (0, key_start[s] + j)                                        a packed batch
//   neither      (s, j)                                                       by the strides alone
//
//   needs   queries, keys and values aligned to 16 bytes, their elements next to each other, other
//           strides multiples of 8
//   block   128, 1, 1
//   grid    ceil(rows, tile_tokens) * ceil(group, tile_group), heads, 1
//   shared  dynamic, the manifest's bytes
//   workspace, counters   none
//
// iso_attend_wgmma<Op>(IsoAttendArgs, IsoAttendMaps)
//   needs   as iso_attend; pages of multiples of 8 keys
//   block   384, 1, 1
//   grid    any; no more CTAs than have room at once is best
//   draws   2 of 4 bytes, zero before the first launch ever; each launch leaves them zero
//   maps    bf16 or f16, four dimensions, 128-byte swizzle, no interleave, element strides 1, fill
//           of zeros, L2 promotion free; axes of size 1 have any stride that is a multiple of 16:
//             q      dims {elements, group, heads, rows}, box {64, tile_group, 1, tile_tokens}
//             k, v   dims {elements, heads, stored positions, stored sequences}, box
//                    {64, 1, piece, 1}; values that are the same for all heads (stride 0): 1 head
//           piece is 128, or with a block_table the greatest power of two that divides both
//
// iso_attend_decode:
//   block   128, 1, 1
//   grid    any; no more CTAs than have room at once is best
//   shared  dynamic, the manifest's bytes
//   workspace  most_roots * heads * ceil(group, tile_group) * tile_group * (values + 4) * 4 bytes,
//           16-byte aligned: any most_roots is right, one for each token and split is fastest
//   counters, draws   rows * heads * ceil(group, tile_group) and 2 of 4 bytes, zero before the
//           first launch ever; each launch leaves them zero
//
// Where the keys of a sequence lie on several ranks, split s on piece (s + turn) % key_pieces:
// iso_attend_parts: as iso_attend_decode
//   workspace, counters   none; draws as decode's
//   roots   of row (token, head, member), root k the k-th split of those that the row sees and the
//           piece has: values, maximum, sum, 0, 0, at
//           ((((token * heads + head) * group + member) * places + k) * (values + 4)
// iso_attend_join: reads the roots of all pieces
//   block   128, 1, 1
//   grid    rows, ceil(heads * group, 4), 1
//   rows_dev   counts in the sources' tokens
//   shared, workspace, counters   none
typedef struct IsoAttendSource {
    const float *roots;
    int token, head, member;        // the join's first, in the source
    int heads, group;               // of the source
} IsoAttendSource;

typedef struct IsoAttendCut {
    float *roots;                   // parts
    const int *turn;                // of each sequence; null: 0
    int pieces, piece;              // piece: of parts, which is this rank's
    int places;                     // roots of a row in a source
    IsoAttendSource source[ISO_JOIN_SOURCES];   // join
} IsoAttendCut;

typedef struct IsoAttendArgs {
    const int *rows_dev;            // live tokens, on the device, or null for all of rows
    int rows;                       // tokens of the tensors
    int group;                      // queries of a token for each head of keys
    int tile_tokens, tile_group;    // of a CTA; their product is at most its rows
    const int *position, *sequence; // of each token; a negative sequence: none, a row without keys
    const int *length;              // keys of each sequence; null: as far as a causal row sees
    const int *key_start;           // see above; null where there are none
    const int *block_table;
    long long block_table_stride;   // between sequences
    int page;                       // keys of one
    int piece;                      // keys of one copy: the box of the maps of keys and values
    long long k_sequence, k_position, v_sequence, v_position; // strides of the stored axes
    IsoView q, k, v, sinks, o, lse; // sinks, lse: where the op has them
    int heads;                      // of keys
    int most_roots;                 // iso_attend_decode: see above
    float *roots;
    unsigned *counters, *draws;     // draws: iso_attend_wgmma too
} IsoAttendArgs;

// Tensor maps of iso_attend_wgmma.
typedef struct IsoAttendMaps {
    IsoTensorMap q, k, v;
} IsoAttendMaps;

#endif
