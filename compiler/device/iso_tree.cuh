// Reduction trees as postfix programs, and the two ways to run them: interpreted around a main
// loop, or unrolled over values that are already there. Owns nothing.
//
//   L  the next leaf becomes the topmost value      b  round the topmost value to bf16
//   P  LL+ in registers                             h  round the topmost value to f16
//   Q  LL+LL++ in registers                         R  write the topmost away as the next root
//   +  below + topmost replaces both, in f32
//
// So eight leaves joined in pairs are LL+LL++LL+LL+++, four from left to right LL+L+L+, and
// "pairwise bf16" of two LbLb+b. R stands only where one value is left. A program without R ends
// with one value, which goes to the epilogue; one with R ends with none.
#ifndef ISO_TREE_CUH
#define ISO_TREE_CUH

#include "iso_num.cuh"
#include "iso_prim.cuh"

#define ISO_CONSTEXPR static __host__ __device__ constexpr

// Height of the stack after one more step, or -1 where the step is not allowed.
ISO_CONSTEXPR int iso_tree_step(char c, int height) {
    switch (c) {
    case 'L':
    case 'P':
    case 'Q':
        return height + 1;
    case '+':
        return height >= 2 ? height - 1 : -1;
    case 'b':
    case 'h':
        return height >= 1 ? height : -1;
    case 'R':
        return height == 1 ? 0 : -1;
    default:
        return -1;
    }
}

// A program as a type: IsoTree<'L', 'L', '+'>.
template <char... Steps> struct IsoTree {
    static constexpr int length = sizeof...(Steps);

    ISO_CONSTEXPR char at(int i) {
        const char steps[] = {Steps..., 0};
        return steps[i];
    }
    ISO_CONSTEXPR int count(char c) {
        return (0 + ... + (Steps == c));
    }
    ISO_CONSTEXPR bool is_valid() {
        int height = 0;
        for (int i = 0; i < length && height >= 0; ++i) {
            height = iso_tree_step(at(i), height);
        }
        return height == (count('R') > 0 ? 0 : 1);
    }
    ISO_CONSTEXPR int most_waiting() {
        int height = 0, most = 1;
        for (int i = 0; i < length; ++i) {
            height = iso_tree_step(at(i), height);
            most = height > most ? height : most;
        }
        return most - 1;
    }

    static constexpr bool valid = is_valid();
    static constexpr int leaves = count('L') + 2 * count('P') + 4 * count('Q');
    static constexpr bool single = count('P') + count('Q') == 0;
    static constexpr int levels = most_waiting();       // values that wait below the topmost one
    static constexpr bool roots = count('R') > 0;

    // Steps as bytes of 64-bit immediates, for the interpreter.
    ISO_CONSTEXPR unsigned long long word(int i) {
        unsigned long long w = 0;
        for (int j = 0; j < 8 && 8 * i + j < length; ++j) {
            w |= (unsigned long long)(unsigned char)at(8 * i + j) << 8 * j;
        }
        return w;
    }
    template <int W = 0> ISO_INLINE char fetch(int pc) {
        constexpr unsigned long long w = word(W);
        if constexpr (8 * W + 8 < length) {
            if (pc >= 8 * W + 8) {
                return fetch<W + 1>(pc);
            }
        }
        return (char)(w >> 8 * (pc & 7));
    }
};

template <int N> ISO_INLINE void iso_tree_round(char c, float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        v[i] = c == 'b' ? iso_f32_of_bf16(iso_bf16_of_f32(v[i]))
                        : iso_f32_of_f16(iso_f16_of_f32(v[i]));
    }
}

// Runs a program around a body that holds the topmost value and has
//   leaf(l)      the topmost value becomes leaf l
//   pair(l)      the topmost value becomes leaf l + leaf l + 1
//   quad(l)      the topmost value becomes the balanced sum of four leaves from l on
//   push(level)  store the topmost value at a level of the stack
//   join(level)  topmost = stored value of the level + topmost
//   round(c)     round the topmost value
//   root(r)      write the topmost value away
// Only what the program uses is compiled: an unused branch costs registers.
template <class Tree, class Body> ISO_INLINE void iso_tree_run(Body &body) {
    static_assert(Tree::valid, "not a tree program");
    constexpr bool leaves = Tree::count('L') > 0, pairs = Tree::count('P') > 0;
    constexpr bool quads = Tree::count('Q') > 0;
    constexpr bool joins = Tree::count('+') > 0, roots = Tree::roots;
    constexpr bool rounds = Tree::count('b') + Tree::count('h') > 0;
    int height = 0, leaf = 0, root = 0;
#pragma unroll 1
    for (int pc = 0; pc < Tree::length; ++pc) {
        char c = Tree::fetch(pc);
        if (iso_tree_step(c, 0) == 1) {
            if constexpr (Tree::levels > 0) {
                if (height > 0) {
                    body.push(height - 1);
                }
            }
            ++height;
            if constexpr (leaves) {
                if (c == 'L' || (!pairs && !quads)) {
                    body.leaf(leaf++);
                    continue;
                }
            }
            if constexpr (pairs) {
                if (c == 'P' || !quads) {
                    body.pair(leaf);
                    leaf += 2;
                    continue;
                }
            }
            if constexpr (quads) {
                body.quad(leaf);
                leaf += 4;
            }
            continue;
        }
        if constexpr (joins) {
            if (c == '+') {
                body.join(--height - 1);
            }
        }
        if constexpr (roots) {
            if (c == 'R') {
                body.root(root++);
                --height;
            }
        }
        if constexpr (rounds) {
            if (c == 'b' || c == 'h') {
                body.round(c);
            }
        }
    }
}

// Runs a program from position Pc, unrolled, over vectors of N values held in registers:
// body.leaf(l, v) gives leaf l, body.root(r, v) takes root r, body.done(v) the last value.
template <class Tree, int Pc, int Height, int Leaf, int Root, int H, int N, class Body>
ISO_INLINE void iso_tree_unroll(Body &body, float (&stack)[H][N]) {
    static_assert(Tree::valid && Tree::single, "not a program of single leaves");
    constexpr char c = Tree::at(Pc);
    if constexpr (c == 0) {
        if constexpr (!Tree::roots) {
            body.done(stack[0]);
        }
    } else if constexpr (c == 'L') {
        body.leaf(Leaf, stack[Height]);
        iso_tree_unroll<Tree, Pc + 1, Height + 1, Leaf + 1, Root>(body, stack);
    } else if constexpr (c == '+') {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            stack[Height - 2][i] = iso_add(stack[Height - 2][i], stack[Height - 1][i]);
        }
        iso_tree_unroll<Tree, Pc + 1, Height - 1, Leaf, Root>(body, stack);
    } else if constexpr (c == 'R') {
        body.root(Root, stack[0]);
        iso_tree_unroll<Tree, Pc + 1, 0, Leaf, Root + 1>(body, stack);
    } else {
        iso_tree_round(c, stack[Height - 1]);
        iso_tree_unroll<Tree, Pc + 1, Height, Leaf, Root>(body, stack);
    }
}

#endif
