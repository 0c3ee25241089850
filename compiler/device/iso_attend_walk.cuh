// The general kernel of attention: any batch, chunks of it and decode. Owns nothing; the launch
// rule is in iso_abi.cuh, a block's arithmetic in iso_attend.cuh.
#ifndef ISO_ATTEND_WALK_CUH
#define ISO_ATTEND_WALK_CUH

#include "iso_attend.cuh"

template <class Op> struct IsoAttendWalk : IsoAttend<Op> {
    using Base = IsoAttend<Op>;
    using Plan = IsoAttendPlan<Op>;
    using typename Base::Scores;
    using Base::alpha, Base::lane, Base::o, Base::range, Base::shared, Base::warp;
    using Base::clear_totals, Base::end_split, Base::find_most, Base::find_places;
    using Base::is_odd, Base::load_keys, Base::load_queries, Base::load_values;
    using Base::multiply_keys, Base::open_rows, Base::open_sequence, Base::scale_out;
    using Base::start_split, Base::store, Base::take_most, Base::take_sums, Base::weigh;

    // Groups of copies are committed in the order keys, values, keys, ...; one may be under way.
    __device__ __forceinline__ void attend_block(int block, int buffer, int next) {
        Scores s;
        int key0 = block + warp * 32 + lane % 4 * 2;
        iso_cp_async_wait<1>();
        if (next < range.hi) {
            find_places(next, buffer ^ 1);
        }
        __syncthreads();
        multiply_keys(s);
        find_most(s, key0);
        __syncthreads();
        if (next < range.hi) {
            load_keys(next, buffer ^ 1);
        }
        iso_cp_async_commit();
        take_most(block);
        weigh(s, key0);
        scale_out(o, alpha);
        iso_cp_async_wait<1>();
        __syncthreads();
        take_sums(block);
        if (is_odd(block)) {
            this->template multiply_values<true>(block);
        } else {
            this->template multiply_values<false>(block);
        }
        __syncthreads();
        if (next < range.hi) {
            load_values(next, buffer ^ 1);
        }
        iso_cp_async_commit();
    }

    __device__ __forceinline__ void walk() {
        int first = range.lo / ISO_ATTEND_BLOCK * ISO_ATTEND_BLOCK, buffer = 0;
        clear_totals();
        if (first < range.hi) {
            find_places(first, buffer);
            __syncthreads();
            load_keys(first, buffer);
            iso_cp_async_commit();
            load_values(first, buffer);
            iso_cp_async_commit();
        }
#pragma unroll 1
        for (int block = first; block < range.hi; buffer ^= 1) {
            int next = block + ISO_ATTEND_BLOCK;
            attend_block(block, buffer, next);
            if (next % Op::split == 0 || next >= range.hi) {
                end_split(block / Op::split * Op::split);
                start_split();
            }
            block = next;
        }
        iso_cp_async_wait<0>();
    }

    // Whether no row before r is of its sequence.
    __device__ __forceinline__ bool is_first(int r) const {
        for (int before = 0; before < r; ++before) {
            if (shared.sequence[before] == shared.sequence[r]) {
                return false;
            }
        }
        return shared.sequence[r] != ISO_ATTEND_NO_ROW;
    }

    __device__ __forceinline__ void run(int tokens) {
        open_rows(tokens);
        __syncthreads();
        load_queries();
        iso_cp_async_commit();
#pragma unroll 1
        for (int r = 0; r < Plan::rows; ++r) {
            if (is_first(r)) {
                open_sequence(shared.sequence[r]);
                walk();
                store();
            }
        }
    }
};

template <class Op> ISO_INLINE void iso_attend(const IsoAttendArgs &args) {
    using Plan = IsoAttendPlan<Op>;
    extern __shared__ unsigned char iso_dynamic[];
    __shared__ IsoAttendShared<Op> shared;
    int tokens = args.rows_dev ? *args.rows_dev : args.rows;
    unsigned q = iso_shared(iso_dynamic), k = q + Plan::q_bytes, v = k + Plan::k_bytes;
    IsoAttendWalk<Op> body{{args, shared, q, k, v, v + Plan::v_bytes, (int)blockIdx.y,
                            (int)threadIdx.x / 32, (int)threadIdx.x % 32}};
    body.run(tokens < args.rows ? tokens : args.rows);
}

#endif
