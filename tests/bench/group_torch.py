"""Times torch._grouped_mm on Qwen3-30B-A3B's expert products, as a yardstick for grouped products.

Rows lie sorted by expert already: what brings them there, the activation and the way back to the
tokens are not in these times, and are in ours (tests/gpu/group.c).
"""
import torch

EXPERTS, PICKS, TIMES = 128, 8, 11
SHAPES = {"gate and up": (2048, 2 * 768), "down": (768, 2048)}     # k, columns


def counts(tokens, zipf, generator):
    """Rows of each expert: a token has PICKS different ones, uniform or by weights 1 / (i + 1)."""
    weight = torch.ones(EXPERTS) if not zipf else 1 / torch.arange(1, EXPERTS + 1)
    noise = -torch.log(torch.rand(tokens, EXPERTS, generator=generator)) / weight
    chosen = noise.topk(PICKS, largest=False).indices
    return torch.bincount(chosen.flatten(), minlength=EXPERTS)


def median_us(run):
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times = []
    for _ in range(TIMES + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    times = sorted(times[2:])
    return times[TIMES // 2], times[0], times[-1]


def main():
    generator = torch.Generator().manual_seed(7)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("| product | tokens | routing | us | TFLOP/s | weights GB/s |")
    for name, (k, columns) in SHAPES.items():
        w = torch.randn(EXPERTS, columns, k, device="cuda", dtype=torch.bfloat16) * 0.02
        for tokens in (8192, 1024, 64):
            for zipf in (False, True):
                rows = counts(tokens, zipf, generator)
                offsets = rows.cumsum(0).to(device="cuda", dtype=torch.int32)
                x = torch.randn(tokens * PICKS, k, device="cuda", dtype=torch.bfloat16)
                us, least, most = median_us(
                    lambda: torch._grouped_mm(x, w.transpose(-2, -1), offs=offsets))
                weights = int((rows > 0).sum()) * k * columns * 2 / us / 1e3
                rate = 2 * tokens * PICKS * k * columns / us / 1e6
                print(f"| {name} | {tokens} | {'zipf' if zipf else 'uniform'} | {us:.1f} "
                      f"({least:.1f}-{most:.1f}) | {rate:.0f} | {weights:.0f} |")


main()
