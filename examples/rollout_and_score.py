"""A sampler on two ranks and a trainer under FSDP2, one contract: the largest difference is 0.

    torchrun --nproc-per-node 2 examples/rollout_and_score.py model.cubin CHECKPOINT \\
        [--layout tp2] [--device cuda] [--requests 32] [--answer 64]

Each rank draws with its part of the weights (tensor parallelism, over isoc's own group), then
scores its share of the answers with the whole model, whose parameters FSDP2 spreads over the ranks.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

import isoc
import isoc.check
import isoc.transformers


def sample(module, options):
    sizes = isoc.Model.sizes(module, layout=options.layout, rank=dist.get_rank(), max_rows=2048,
                             max_position=512, pages=32 * options.at_once)
    draw = torch.Generator().manual_seed(1)
    requests = [isoc.Request(torch.randint(0, 500, (8 + 11 * i % 60,), generator=draw).tolist(),
                             tokens=options.answer, seed=i) for i in range(options.requests)]
    with isoc.Group(module, size=sizes.group) as group:
        with isoc.Engine(module, options.checkpoint, layout=options.layout, group=group,
                         at_once=options.at_once, max_position=512) as engine:
            isoc.check.peers(dist.distributed_c10d._get_default_store(), f"rank {dist.get_rank()}",
                             dist.get_world_size(), module, weights=engine.model.weights,
                             layout=options.layout)
            return engine.generate(requests)


def trainer(module, options):
    model = AutoModelForCausalLM.from_pretrained(options.checkpoint, dtype=torch.bfloat16)
    model = model.to(options.device)
    isoc.transformers.patch(model, module)
    fully_shard(model)
    return model


@torch.no_grad()
def score(model, answers, device):
    """The differences of this rank's share, and how many bits patterns differ. Every rank makes as
    many calls: FSDP brings the parameters together in each."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    most, differ, total = 0.0, 0, 0
    for first in range(0, len(answers), ranks):
        answer = answers[min(first + rank, len(answers) - 1)]
        ids = torch.tensor([[*answer.request.prompt, *answer.tokens]], device=device)
        own = isoc.transformers.logprobs(model, ids)[0, len(answer.request.prompt) - 1:].cpu()
        drawn = torch.from_numpy(answer.logprobs)
        most = max(most, (own - drawn).abs().max().item())
        differ += int((own.view(torch.int32) != drawn.view(torch.int32)).sum())
        total += len(drawn)
    return most, differ, total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("contract")
    parser.add_argument("checkpoint", help="a folder that transformers loads")
    parser.add_argument("--layout", default="tp2", help="of as many ranks as there are processes")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--answer", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--at-once", type=int, default=16)
    options = parser.parse_args()
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    module = isoc.load(options.contract, device=options.device)
    answers = sample(module, options)
    most, differ, total = score(trainer(module, options), answers, options.device)
    print(f"rank {dist.get_rank()}: sampler {options.layout}, trainer tp1 under FSDP2: {differ} of "
          f"{total} log-probabilities differ, by at most {most:g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
