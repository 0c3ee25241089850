/* Launches of decoding attention that go each of its kernel's ways. Of every other request the
 * last key's value is no number, of long ones one 25 before the end too (verify_ptx_attend.c). */
#include "requests.h"

enum { PADDED = PTX_PADDED_ROWS, UNEVEN = PTX_PADDED_ROWS | PTX_UNEVEN_BASE | PTX_UNEVEN_ROWS };

static const Requests all[] = {
    /* As far as rows see, alone and together. */
    {"attention", 0,
     {.n = 2, .lengths = {17, 1}, .places = PTX_BY_STRIDES, .page = 16, .no_lengths = true,
      .n_runs = 3, .run = {{0, 0, 1}, {0, 16, 1}, {1, 0, 1}}, .multiprocessors = 1}},
    /* A token past its request's keys, requests without keys, tokens of none; the last one, which
     * is not live, comes after such. */
    {"attention", UNEVEN,
     {.n = 4, .lengths = {40, 1, 262, 0}, .places = PTX_IN_PAGES, .page = 7, .n_runs = 8,
      .run = {{2, 261, 2, -160}, {0, 39, 2, -3}, {-2, 5, 1}, {1, 0, 1}, {3, 0, 1}, {0, 60, 1},
              {-1, 5, 1}, {0, 3, 1}},
      .not_live = 1, .multiprocessors = 2}},
    /* Seventeen tokens, that is a whole tile and one more, each of which sees another last key. */
    {"attention_one", PADDED,
     {.n = 2, .lengths = {151, 151}, .places = PTX_PACKED, .page = 16, .n_runs = 2,
      .run = {{0, 150, 17, -1}, {1, 40, 16, 7}}, .multiprocessors = 2}},
    /* One token of each tile, another one each time, sees more than the others, or less. */
    {"attention_one", 0,
     {.n = 1, .lengths = {19}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 1,
      .run = {{0, 3, 256, .every = 17, .far = 17}}, .multiprocessors = 1}},
    {"attention_one", 0,
     {.n = 1, .lengths = {18}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 1,
      .run = {{0, 17, 256, .every = 17, .far = 3}}, .multiprocessors = 1}},
    /* The key that is no number is the first that a token does not see, wherever it lies among the
     * 32 of a step. */
    {"attention_one", 0,
     {.n = 8, .lengths = {5, 160, 13, 1, 27, 1, 30, 1}, .places = PTX_PACKED, .page = 16,
      .n_runs = 5,
      .run = {{0, 4, 2, -1}, {2, 12, 2, -1}, {4, 26, 2, -1}, {6, 29, 2, -1}, {1, 135, 2, -1}},
      .multiprocessors = 1}},
    /* Tokens of several numbers of splits in a tile. */
    {"attention", PADDED,
     {.n = 2, .lengths = {30, 700}, .places = PTX_IN_PAGES, .page = 48, .n_runs = 5,
      .run = {{1, 699, 1}, {1, 511, 2, 1}, {1, 300, 1}, {0, 29, 1}}, .multiprocessors = 3}},
    /* Nine in a tile, which is one more than half of it; keys end with a block. */
    {"attention", 0,
     {.n = 4, .lengths = {1, 1, 1, 301}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 4,
      .run = {{3, 300, 1}, {3, 127, 1}, {3, 299, 6, -1}, {3, 127, 1}}, .multiprocessors = 1}},
    /* The token with most splits is another of each tile's. */
    {"attention_one", 0,
     {.n = 2, .lengths = {515, 515}, .places = PTX_IN_PAGES, .page = 160, .n_runs = 24,
      .run = {{0, 260, 1}, {0, 513, 1}, {0, 261, 5, 1}, {1, 262, 2, 1}, {1, 514, 1},
              {1, 259, 4, 1}, {0, 257, 3, 1}, {0, 512, 1}, {0, 260, 3, -1}, {1, 258, 4, 1},
              {1, 513, 1}, {1, 260, 2}, {0, 256, 5}, {0, 514, 1}, {0, 263, 1}, {1, 265, 6, -1},
              {1, 512, 1}, {0, 256, 4}, {0, 513, 1}, {1, 513, 1}, {1, 260, 7}, {0, 259, 5},
              {0, 512, 1}, {0, 257, 2}},
      .multiprocessors = 2}},
    /* Roots for some tiles, just so many; the others join in registers. */
    {"attention_one", 0,
     {.n = 2, .lengths = {700, 300}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 5,
      .run = {{1, 299, 1}, {0, 699, 2, -279}, {1, 290, 1}, {0, 698, 2, -100}, {1, 5, 1}},
      .roots = 8, .multiprocessors = 1}},
    {"attention_one", 0,
     {.n = 2, .lengths = {30, 700}, .places = PTX_PACKED, .page = 16, .n_runs = 5,
      .run = {{1, 699, 1}, {1, 511, 1}, {1, 690, 7, -14}, {1, 511, 1}, {1, 580, 6, -14}},
      .roots = 1, .multiprocessors = 1}},
    {"attention_six", UNEVEN,
     {.n = 1, .lengths = {400}, .places = PTX_IN_PAGES, .page = 160, .n_runs = 1,
      .run = {{0, 399, 2, -130}}, .roots = 1, .multiprocessors = 1}},
    {"attention_apart", 0,
     {.n = 2, .lengths = {300, 425}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 3,
      .run = {{1, 290, 1}, {0, 256, 1}, {1, 399, 1}}, .roots = 1, .multiprocessors = 1}},
    /* Three windows, with roots in the first and the last, and a request in two of them. */
    {"attention", 0,
     {.n = 3, .lengths = {20, 300, 0}, .places = PTX_PACKED, .page = 16, .n_runs = 6,
      .run = {{1, 290, 1}, {-1, 0, 126, 0, 3}, {0, 14, 6, 1}, {-1, 0, 125}, {1, 299, 1},
              {0, 1, 1}},
      .multiprocessors = 1}},
    {"attention_one", 0,
     {.n = 1, .lengths = {20}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 2,
      .run = {{-1, 0, 125}, {0, 14, 6, 1}}, .multiprocessors = 1}},
    {"attention_many", 0,
     {.n = 3, .lengths = {260, 300, 0}, .places = PTX_PACKED, .page = 16, .n_runs = 3,
      .run = {{-1, 0, 127, 0, 3}, {0, 258, 1}, {1, 299, 1}}, .multiprocessors = 2}},
    /* Tiles of several splits all over a window. */
    {"attention_six", 0,
     {.n = 3, .lengths = {2, 514, 0}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 20,
      .run = {{-1, 0, 3}, {1, 257, 1}, {-1, 0, 16, 0, 3}, {1, 258, 2}, {-1, 0, 15},
              {1, 259, 1}, {0, 1, 16}, {1, 256, 1}, {-1, 0, 16, 0, 3}, {1, 258, 3},
              {-1, 0, 14, 0, 3}, {1, 257, 1}, {-1, 0, 16}, {1, 256, 1}, {0, 0, 1},
              {-1, 0, 15, 0, 3}, {1, 259, 1}, {2, 0, 3}, {1, 258, 1}, {1, 513, 1}},
      .multiprocessors = 2}},
    /* A warp's tokens with more roots than it has threads. */
    {"attention_one", 0,
     {.n = 2, .lengths = {514, 260}, .places = PTX_PACKED, .page = 16, .n_runs = 7,
      .run = {{-1, 0, 3}, {1, 259, 1}, {-1, 0, 28}, {0, 513, 32}, {1, 258, 1}, {-1, 0, 31},
              {0, 512, 32}},
      .multiprocessors = 2}},
    {"attention_six", 0,
     {.n = 2, .lengths = {140, 5}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 2,
      .run = {{0, 139, 5, -1}, {1, 4, 1}}, .multiprocessors = 1}},
    /* One token, nine splits. */
    {"attention_one", 0,
     {.n = 1, .lengths = {2300}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 1,
      .run = {{0, 2299, 1}}, .multiprocessors = 2}},
    /* One split more than twice those that the ring holds roots of, which are even in number. */
    {"attention_one", 0,
     {.n = 4, .lengths = {1, 1, 1, 11270}, .places = PTX_PACKED, .page = 16, .n_runs = 1,
      .run = {{3, 11269, 15, -1}}, .multiprocessors = 4}},
    {"attention_many", PADDED,
     {.n = 2, .lengths = {520, 3}, .places = PTX_PACKED, .page = 16, .n_runs = 2,
      .run = {{0, 519, 2, -5}, {1, 2, 1}}, .multiprocessors = 2}},
    {"attention_apart", 0,
     {.n = 2, .lengths = {300, 20}, .places = PTX_BY_STRIDES, .page = 16, .n_runs = 3,
      .run = {{0, 299, 1}, {1, 19, 1}, {0, 128, 1}}, .multiprocessors = 1}},
    {"attention_apart", 0,
     {.n = 2, .lengths = {300, 20}, .places = PTX_IN_PAGES, .page = 48, .n_runs = 3,
      .run = {{0, 290, 1}, {1, 19, 1}, {0, 127, 1}}, .multiprocessors = 1}},
};

const Requests *requests_at(int i)
{
    return i < (int)(sizeof all / sizeof *all) ? &all[i] : NULL;
}
