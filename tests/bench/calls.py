"""Microseconds that a call of each op takes the host, beside torch's own calls of the same size.

    python tests/bench/calls.py CUBIN [ROWS]

The module's ops of one rank, run on eight rows unless told otherwise, from tensors of torch's on a
GPU. Bursts of calls that the GPU's queue has room for, each begun after the GPU is done: what is
measured is the host, not the kernels. Medians of 25 bursts, with the extremes. Needs the package
(PYTHONPATH, ISOC_LIBRARY), torch and a device.
"""

import statistics
import sys
import time

import torch

import isoc

CALLS, BURSTS = 100, 25
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "i32": torch.int32}


def microseconds(call):
    times = []
    for _ in range(BURSTS + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    times = times[3:]
    return f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})"


def argument(spec, rows):
    """A table has 16 rows; keys and values are one sequence's, as many as there are rows."""
    stored = spec.name in ("k", "v") and len(spec.shape) == 4
    shape = (1, rows, *spec.shape[2:]) if stored else tuple(size or 16 for size in spec.shape)
    return torch.ones(shape, dtype=DTYPES[spec.dtype], device="cuda")


def places(name, op, rows):
    at = torch.arange(rows, dtype=torch.int32, device="cuda")
    if name == "attention":
        return {"positions": at, "sequences": at * 0, "keys": isoc.Keys(starts=at[:1])}
    tables = any(0 in spec.shape for spec in op.tensors(rows))
    return {"positions": at % 16} if tables or name == "sample" else {}


def of_op(name, op, rows):
    given = [argument(spec, rows) for spec in op.tensors(rows)[:len(op.params)]]
    named = places(name, op, rows)
    out = op(*given, **named)
    return (name, f"{len(given)} to {len(op.results)}",
            microseconds(lambda: op(*given, out=out, **named)),
            microseconds(lambda: op(*given, **named)))


def of_torch(rows):
    x = torch.ones(rows, 576, dtype=torch.bfloat16, device="cuda")
    w, out = torch.ones_like(x[0]), torch.empty_like(x)
    yield ("torch.add", "2 to 1", microseconds(lambda: torch.add(x, x, out=out)),
           microseconds(lambda: torch.add(x, x)))
    yield "torch.rms_norm", "2 to 1", "", microseconds(lambda: torch.rms_norm(x, (576,), w, 1e-5))
    yield "torch.empty_like", "", "", microseconds(lambda: torch.empty_like(x))


def main():
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {rows} rows\n")
    print("| us a call | tensors | results given | new results |\n| --- | --- | --- | --- |")
    with torch.no_grad(), isoc.load(sys.argv[1], device="cuda") as module:
        for line in of_torch(rows):
            print("|", " | ".join(line), "|")
        for name, op in module.ops.items():
            print("|", " | ".join(of_op(name, op, rows)), "|", flush=True)
        for line in of_torch(rows):
            print("|", " | ".join(line), "|")


if __name__ == "__main__":
    main()
