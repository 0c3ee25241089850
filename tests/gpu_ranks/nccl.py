"""NCCL's all-reduce through PyTorch, beside `gpu_ranks speed`: python3 nccl.py [GPUS]"""
import os
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def microseconds(work, times):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    start.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1000 / times


def rank_main(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks,
                            device_id=torch.device("cuda", rank))
    for count in (2048 << i for i in range(15)):
        line = f"  {count:9d} elements:"
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.ones(count, device="cuda", dtype=dtype)
            eager = microseconds(lambda: dist.all_reduce(x), 50)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(10):
                    dist.all_reduce(x)
            replay = microseconds(graph.replay, 10) / 10
            line += f" {dtype} {eager:7.1f} us, in a graph {replay:7.1f} us;"
        if rank == 0:
            print(line, flush=True)
    os._exit(0)


if __name__ == "__main__":
    gpus = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    mp.spawn(rank_main, args=(gpus,), nprocs=gpus)
