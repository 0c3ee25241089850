"""The same attention by PyTorch's own kernels, for bench_attend's figures to stand beside.

Keys lie padded and contiguous, which is easier than pages. Replays of graphs, medians of 11.
"""

import math
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, KV_HEADS, DEPTH, REPEATS = 32, 8, 128, 11
DECODE = [("64 x 8k", 64, 8192), ("4 x 64k", 4, 65536), ("256 x 1k", 256, 1024),
          ("1 x 8k", 1, 8192)]
PREFILL = [("1 x 16k", 1, 16384), ("1 x 4k", 1, 4096), ("4 x 4k", 4, 4096), ("16 x 1k", 16, 1024),
           ("64 x 512", 64, 512)]
BACKENDS = [("cuDNN", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)]


def replay_times(work):
    """Microseconds of the replays of a graph, ascending."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return sorted(times)


def run(name, batch, queries, keys, backend):
    q = torch.randn(batch, HEADS, queries, DEPTH, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, KV_HEADS, keys, DEPTH, device="cuda", dtype=torch.bfloat16)
            for _ in range(2))
    attention = torch.nn.functional.scaled_dot_product_attention
    label, which = backend
    try:
        with sdpa_kernel(which):
            times = replay_times(lambda: attention(q, k, v, is_causal=queries > 1,
                                                   scale=1 / math.sqrt(DEPTH), enable_gqa=True))
    except RuntimeError as error:
        print(f"| {name} | {label} | {str(error).splitlines()[0][:60]} | |")
        return
    middle = times[REPEATS // 2]
    if queries > 1:
        amount = 4 * HEADS * DEPTH * batch * queries * (queries + 1) / 2
        figure = f"{amount / middle / 1e6:.0f} TFLOP/s"
    else:
        figure = f"{4 * batch * keys * KV_HEADS * DEPTH / middle / 1e6:.2f} TB/s"
    print(f"| {name} | {label} | {middle:.1f} ({times[0]:.1f}-{times[-1]:.1f}) | {figure} |")


def main():
    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; medians of {REPEATS}")
    for name, batch, keys in DECODE if kind != "prefill" else []:
        for backend in BACKENDS:
            run(name, batch, 1, keys, backend)
    for name, batch, keys in PREFILL if kind != "decode" else []:
        for backend in BACKENDS:
            run(name, batch, keys, keys, backend)


if __name__ == "__main__":
    main()
