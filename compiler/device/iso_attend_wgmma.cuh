// Attention by wgmma: prefill, chunks of it and training. Owns nothing; the launch rule is in
// iso_abi.cuh, the arithmetic LANGUAGE.md's 6.13; the tile's rows and its copies are
// iso_attend_tile.cuh's.
//
// A tile has 128 rows. Two warps copy queries, blocks of keys and blocks of values by the copy
// engine; two warpgroups have 64 rows each. A thread's 32 weights of a row in a block are the
// clause's lane threadIdx % 4, and stay in registers as the left operand of the values' product.
// The warpgroups take turns at the tensor cores, so that the exponentials of one are computed under
// the products of the other; in a run of blocks that all rows see, a block's values are multiplied
// beside the next one's scores. Values of the splits before wait in shared memory.
//
// Keys that no row of the sequence in the tile sees may be copied. Where rows see different keys of
// a block, the weights of the unseen are +0; if a value of the block is NaN or Inf, each row gets
// steps of its own, with the values that it does not see as zeros.
#ifndef ISO_ATTEND_WGMMA_CUH
#define ISO_ATTEND_WGMMA_CUH

#include "iso_attend_steps.cuh"

template <class Op> struct IsoAttendConsumer : IsoAttendSteps<Op> {
    using Base = IsoAttendSteps<Op>;
    using Base::alpha, Base::args, Base::fresh, Base::m, Base::n, Base::o, Base::own, Base::s;
    using Base::shared, Base::sum;
    using Base::find_tokens, Base::group, Base::has_odd, Base::keep_sums;
    using Base::keep_total, Base::lane, Base::multiply_by_rows, Base::multiply_keys;
    using Base::multiply_values, Base::pack, Base::pass_turn, Base::passed, Base::range_all_hi;
    using Base::range, Base::range_hi, Base::range_lo, Base::release;
    using Base::start_split, Base::store, Base::tile, Base::wait_turn;

    // --- blocks ---

    // What is of the split from `block` on, in place of the one before, whose values are whole.
    __device__ __forceinline__ void cross_border(int block, const float (&last_m)[2],
                                                 const float (&last_sum)[2]) {
        this->template end_split<Op::window == 0>(block - Op::split, last_m, last_sum);
        keep_total();
        fresh = true;
    }

    // After the weights that are computed under the product.
    __device__ __forceinline__ void wait_values(int stage) {
        // Memory is written in order: ptxas moves no weights behind the wait.
        int thread = iso_attend_thread();
        if (thread % 32 == 0) {
            shared.order[thread / 32 - 4] = iso_add(sum[0], sum[1]);
        }
        iso_wgmma_wait<0>();
        iso_pin(o);
        release(shared.v_empty, stage);
    }

    // Where a split `ends`, the next one's maxima and sums in place of its own.
    __device__ __forceinline__ void leave_split(bool ends, float (&last_m)[2],
                                                float (&last_sum)[2]) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            last_m[h] = m[h];
            last_sum[h] = sum[h];
            m[h] = ends ? iso_bits_f32(0xFF800000u) : m[h];
            sum[h] = ends ? 0.0f : sum[h];
        }
    }

    // A block that not all rows may see, or that begins. After: beside its scores, the values of
    // the block before. `mixed`: its own values are looked at.
    template <bool After> __device__ __forceinline__ void edge_block(int block, bool mixed) {
        IsoAttendPlace at = IsoAttendPlace::of(n + After), before = IsoAttendPlace::of(n);
        bool crosses = After && block % Op::split == 0;
        iso_mbar_wait(iso_shared(&shared.k_full[at.stage]), at.phase);
        if constexpr (After) {
            iso_mbar_wait(iso_shared(&shared.v_full[before.stage]), before.phase);
        }
        wait_turn();
        multiply_keys(at.stage);
        if constexpr (After) {
            multiply_values(before.stage);
        } else {
            pass_turn();
        }
        if (mixed) {
            this->look_at_values(block, n + After);
        }
        iso_wgmma_wait<After ? 1 : 0>();
        iso_pin(s);
        release(shared.k_empty, at.stage);
        float last_m[2], last_sum[2];
        leave_split(crosses, last_m, last_sum);
        if (After || mixed || Op::window > 0) {
            this->template weigh<true>(block, false);
        } else {
            this->template weigh<false>(block, true); // the first of all
        }
        if constexpr (After) {
            wait_values(before.stage);
            ++n;
        }
        pack();
        if (crosses) {
            cross_border(block, last_m, last_sum);
        } else {
            this->template scale_out<true>();
        }
    }

    // The scores of a block that all rows see beside the values of the one before; between them may
    // be the border of splits.
    // Whether the keys of the block that is passed as number `keys`, and the values of the one
    // before, are there.
    __device__ __forceinline__ bool are_there(int keys) {
        IsoAttendPlace k = IsoAttendPlace::of(keys), v = IsoAttendPlace::of(keys - 1);
        return iso_mbar_try(iso_shared(&shared.k_full[k.stage]), k.phase) &
               iso_mbar_try(iso_shared(&shared.v_full[v.stage]), v.phase);
    }

    // `there`: are_there for this block; then for the next one, asked under other work.
    __device__ __forceinline__ void next_block(int block, bool &there) {
        IsoAttendPlace before = IsoAttendPlace::of(n), at = IsoAttendPlace::of(n + 1);
        if (!there) {
            iso_mbar_wait(iso_shared(&shared.k_full[at.stage]), at.phase);
            iso_mbar_wait(iso_shared(&shared.v_full[before.stage]), before.phase);
        }
        wait_turn();
        multiply_keys(at.stage);
        multiply_values(before.stage);
        iso_wgmma_wait<1>();
        iso_pin(s);
        release(shared.k_empty, at.stage);
        bool starts = block % Op::split == 0;
        float last_m[2], last_sum[2];
        leave_split(starts, last_m, last_sum);
        this->template weigh<false>(block, starts);
        wait_values(before.stage);
        there = are_there(n + 2);
        pack();
        if (starts) {
            cross_border(block, last_m, last_sum);
        } else {
            this->template scale_out<false>();
        }
        ++n;
    }

    __device__ __forceinline__ void last_values(int block, bool odd) {
        IsoAttendPlace at = IsoAttendPlace::of(n);
        iso_mbar_wait(iso_shared(&shared.v_full[at.stage]), at.phase);
        if (odd) {
            wait_turn();
            pass_turn();
            multiply_by_rows(block, at.stage);
        } else {
            wait_turn();
            multiply_values(at.stage);
            iso_wgmma_wait<0>();
            iso_pin(o);
        }
        release(shared.v_empty, at.stage);
        ++n;
    }

    // --- the walk ---

    __device__ __forceinline__ void open_sequence() {
        IsoAttendRange range = iso_attend_range(tile(), own);
        int thread = iso_attend_thread();
        __syncwarp();
        if (thread % 32 == 0) {
            shared.range[thread / 32 - 4] = range;
        }
        __syncwarp();
        start_split();
        keep_sums(m, sum);
    }

    ISO_INLINE bool is_mixed(int block) {
        return iso_attend_peek(&range().all_lo) > block ||
               range_all_hi() < block + ISO_ATTEND_BLOCK;
    }

    // After the last scores of the tile.
    __device__ __forceinline__ void release_queries() {
        if (own == iso_attend_peek(&tile().last)) {
            iso_attend_arrive(&shared.q_empty);
        }
    }

    // A run of blocks goes through one pipeline. What follows a mixed block waits until its values
    // have been looked at.
    __device__ __forceinline__ void attend() {
        open_sequence();
        if (range_lo() >= range_hi()) {
            release_queries();
        }
#pragma unroll 1
        for (int block = range_lo() / ISO_ATTEND_BLOCK * ISO_ATTEND_BLOCK;
             block < range_hi();) {
            bool after = false, there = false, mixed;
            do {
                mixed = is_mixed(block);
                if (after) {
                    edge_block<true>(block, mixed);
                } else {
                    edge_block<false>(block, mixed);
                }
                block += ISO_ATTEND_BLOCK;
                if (mixed) {
                    break;
                }
#pragma unroll 1
                for (; block + ISO_ATTEND_BLOCK <= range_all_hi(); block += ISO_ATTEND_BLOCK) {
                    next_block(block, there);
                }
                after = true;
            } while (block < range_hi());
            if (block >= range_hi()) {
                release_queries();
            }
            last_values(block - ISO_ATTEND_BLOCK, mixed && has_odd(n));
            bool last = block >= range_hi();
            if (block % Op::split == 0 || last) {
                this->template end_split<false>((block - 1) / Op::split * Op::split, m, sum);
                if (!last) {
                    keep_total();
                    start_split();
                }
            }
        }
        store();
    }

    __device__ __forceinline__ void run() {
        if (group() == 1) {
            pass_turn();
        }
#pragma unroll 1
        while (true) {
            int t = iso_attend_peek(passed());
            iso_mbar_wait(iso_shared(&shared.tile_full[t & 1]), t >> 1 & 1);
            if (!iso_attend_peek(&tile().tokens)) {
                break;
            }
            if (t == 0 || args.tile_group < args.group) {
                find_tokens(); // else they are as they were
            }
            iso_mbar_wait(iso_shared(&shared.q_full), t & 1);
            iso_attend_sequences(*this);
            t = iso_attend_peek(passed());
            iso_attend_arrive(&shared.tile_empty[t & 1]);
            if (lane() == 0) {
                *passed() = t + 1;
            }
            __syncwarp();
        }
        if (group() == 0) {
            wait_turn();
        }
    }
};

ISO_INLINE void iso_attend_wgmma_init(IsoAttendWgmmaShared &shared) {
    if (threadIdx.x == 0) {
        iso_mbar_init(iso_shared(&shared.q_full), 1);
        iso_mbar_init(iso_shared(&shared.q_empty), 8);
        for (int i = 0; i < 2; ++i) {
            iso_mbar_init(iso_shared(&shared.k_full[i]), 1);
            iso_mbar_init(iso_shared(&shared.v_full[i]), 1);
            iso_mbar_init(iso_shared(&shared.k_empty[i]), 8);
            iso_mbar_init(iso_shared(&shared.v_empty[i]), 8);
            iso_mbar_init(iso_shared(&shared.tile_full[i]), 1);
            iso_mbar_init(iso_shared(&shared.tile_empty[i]), 10);
        }
        for (int w = 0; w < 8; ++w) {
            shared.odd[0][w] = shared.odd[1][w] = shared.passed[w] = 0;
        }
        iso_mbar_init_fence();
    }
}

template <class Op>
ISO_INLINE void iso_attend_wgmma(const IsoAttendArgs &args, const IsoAttendMaps &maps) {
    IsoAttendWgmmaShared &shared = iso_attend_state<Op>();
    int live = args.rows_dev ? iso_attend_min(*args.rows_dev, args.rows) : args.rows;
    iso_attend_wgmma_init(shared);
    iso_attend_clear_rows<Op>(args);
    __syncthreads();
    if (threadIdx.x >= 128) {
        iso_registers_grow<232>();
        IsoAttendConsumer<Op> body{{{args, shared, 0}}};
        body.run();
        return;
    }
    iso_registers_shrink<40>();
    unsigned smem = iso_shared(iso_attend_dynamic);
    if (threadIdx.x < 32) {
        IsoAttendProducer<Op, false> body{args, maps, shared, smem, 0};
        body.run();
    } else if (threadIdx.x < 64) {
        IsoAttendProducer<Op, true> body{args, maps, shared, smem, 0};
        body.run();
    } else if (threadIdx.x < 96) {
        IsoAttendOpener<Op> body{args, shared, live};
        body.run();
    }
}

#endif
