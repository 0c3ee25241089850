"""Microseconds of torch's RMS norm over rows of 4096 bf16, alone and after adding a residual.

Replays of CUDA graphs over buffers that rotate past the L2 cache, medians of 11: what bench_gemm's
rows are compared with. Needs torch and a device.
"""

import statistics

import torch

COLUMNS, PAST_L2 = 4096, 256 << 20


def norm(x, residual, weight):
    return torch.nn.functional.rms_norm(x, (COLUMNS,), weight, 1e-6)


def add_norm(x, residual, weight):
    z = x + residual
    return torch.nn.functional.rms_norm(z, (COLUMNS,), weight, 1e-6), z


def microseconds(function, rows):
    copies = min(64, PAST_L2 // (8 * COLUMNS * rows) + 1)
    shape = (copies, rows, COLUMNS)
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    residual = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(COLUMNS, device="cuda", dtype=torch.bfloat16)
    function(x[0], residual[0], weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(copies):
            function(x[i], residual[i], weight)
    times = []
    for _ in range(12):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / copies)
    return statistics.median(times[1:])


def main():
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("| op | rows | us |\n| --- | --- | --- |")
    for name, function in (("input_norm", norm), ("add_norm", add_norm)):
        for rows in (1, 8, 16, 64, 1024, 4096):
            print(f"| {name} | {rows} | {microseconds(function, rows):.1f} |")


if __name__ == "__main__":
    main()
