/* Elementwise kernels: a thread computes one chunk of the inner dim at a time. */
#include "emit_impl.h"

enum { MAP_THREADS = 256 };

void emit_map(KernelText *k)
{
    Writer *w = &k->body;
    Chunked c;
    chunked_init(&c, k, k->kernel->n_dims - 1);
    k->family = "map";
    k->parameters = "const __grid_constant__ IsoMapCalls calls";
    k->arguments = "IsoMapCalls";
    k->threads = MAP_THREADS;
    k->bounds = "256";
    k->files = STR("iso_abi.cuh\niso_num.cuh\niso_fn.cuh\niso_short.cuh\niso_prim.cuh\n"
                   "iso_map.cuh\n");

    writer_line(w, "const IsoMapArgs &map = calls.map[blockIdx.y];");
    chunked_extents(&c);
    writer_line(w, "const unsigned chunks = (e%d + %d) / %d;", c.inner, c.width - 1, c.width);
    writer_open(w, "for (unsigned at = blockIdx.x * %du + threadIdx.x; at < rows * chunks; "
                   "at += gridDim.x * %du)", MAP_THREADS, MAP_THREADS);
    writer_line(w, "const unsigned row = at / chunks;");
    chunked_row(&c);
    chunked_own(&c);
    if (chunked_store(&c, "body"))
        writer_line(w, "iso_chunk<%d>(at %% chunks * %d, e%d, vector, body);", c.width, c.width,
                    c.inner);
    chunked_store_row(&c, "at % chunks == 0");
    writer_close(w, "");
}
