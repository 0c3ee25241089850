"""What PyTorch's attention reaches: cuDNN's kernel and FlashAttention-2, beside attend_probe."""
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, KV_HEADS = 32, 8


def times(call, rounds=12):
    events = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        events.append(begin.elapsed_time(end))
    return sorted(events[2:])


def measure(backend, name, requests, tokens, width):
    shape = (requests, HEADS, tokens, width)
    q = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn((requests, KV_HEADS, tokens, width), device="cuda", dtype=torch.bfloat16)
            for _ in range(2))
    try:
        with sdpa_kernel(backend):
            ms = times(lambda: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True))
    except RuntimeError as error:
        print(f"{name:10} {requests} x {tokens} causal: refused ({str(error).splitlines()[0]})")
        return
    flop = requests * HEADS * tokens * (tokens + 1) / 2 * 4 * width
    median = statistics.median(ms)
    print(f"{name:10} {requests} x {tokens} causal, width {width}: {median:8.3f} ms "
          f"({ms[0]:.3f} to {ms[-1]:.3f})  {flop / median * 1e-9:6.1f} TFLOP/s", flush=True)


def main():
    print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"{torch.cuda.get_device_name()}")
    for width in (128, 64) if "all" in sys.argv else (128,):
        for tokens in (1024, 4096, 16384):
            measure(SDPBackend.CUDNN_ATTENTION, "cuDNN", 16384 // tokens, tokens, width)
    measure(SDPBackend.FLASH_ATTENTION, "Flash-2", 1, 16384, 128)


if __name__ == "__main__":
    main()
