"""One of two FSDP2 ranks on the CPU, run by test_torch.py: STORE RANK."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import isoc.torch

from support import load
from test_torch import bf16, rms_norm


class Model(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        torch.manual_seed(0)
        self.norm = norm
        self.linear = torch.nn.Linear(576, 576).bfloat16()
        self.w = torch.nn.Parameter(bf16((576,), 5))

    def forward(self, x):
        return self.norm(self.linear(x), self.w)


def step(norm, mesh):
    model = fully_shard(Model(norm), mesh=mesh)
    y = model(bf16((5, 576), 3))
    y.float().square().mean().backward()
    return y, [p.grad.to_local() for p in model.parameters()]


def main():
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=int(sys.argv[2]),
                            world_size=2)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    op = load("smollm2-135m").ops["final_norm"]
    own, own_gradients = step(isoc.torch.function(op, rms_norm), mesh)
    other, gradients = step(rms_norm, mesh)
    equal = [torch.equal(a, b) for a, b in zip(own_gradients, gradients)]
    print(f"equal: forward {torch.equal(own, other)}, gradients {equal}")
    dist.destroy_process_group()


main()
