"""Which roundings transformers computes: on one input per op, elements in which its own module, in
bf16 on the CPU, differs from the contract's op and from neighbours of the contract.

    make && ISOC_LIBRARY=build/libiso.so PYTHONPATH=runtime/python python tests/peers/witness.py
"""
import os
import subprocess
import tempfile

import isoc
import torch
from transformers.models.llama import modeling_llama as llama
from transformers.models.olmo2 import modeling_olmo2 as olmo2

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ROWS = 64


def load(contract):
    cubin = os.path.join(tempfile.mkdtemp(), "m.cubin")
    command = os.path.join(ROOT, os.environ.get("BUILD", "build"), "isoc")
    subprocess.run([command, contract, "--layout=tp1", "-o", cubin], cwd=ROOT, check=True,
                   capture_output=True)
    return isoc.load(cubin, device="cpu")


def imported(config):
    contract = os.path.join(tempfile.mkdtemp(), "m.iso")
    command = os.path.join(ROOT, os.environ.get("BUILD", "build"), "isoc")
    subprocess.run([command, "import", config, "-o", contract], cwd=ROOT, check=True)
    return contract


def bf16(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).bfloat16()


def report(name, theirs, contract, **neighbours):
    counts = [f"{int((theirs != contract.view_as(theirs)).sum())}"]
    for what, value in neighbours.items():
        different = int((theirs != value.view_as(theirs)).sum())
        counts.append(f"{what.replace('_', ' ')}: {different}")
    print(f"| {name} | {theirs.numel()} | {counts[0]} | {'; '.join(counts[1:])} |", flush=True)


def normalised(x, eps):
    x = x.float()
    return x * (1.0 / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt())


def norms(module, other):
    x, w = bf16(ROWS, 576), bf16(576)
    theirs = llama.LlamaRMSNorm(576, 1e-5).bfloat16()
    theirs.weight.data = w
    report("RMSNorm of Llama, Qwen, Mistral", theirs(x), module.ops["input_norm"](x, w),
           weight_in_f32=(normalised(x, 1e-5) * w.float()).bfloat16(),
           mean_in_bf16=(x * (1.0 / (x * x).mean(-1, keepdim=True).add(1e-5).sqrt())) * w)
    x, w = bf16(ROWS, 256), bf16(256)
    theirs = olmo2.Olmo2RMSNorm(256, 1e-6).bfloat16()
    theirs.weight.data = w
    report("RMSNorm of OLMo", theirs(x), other.ops["final_norm"](x, w),
           rounded_before_the_weight=normalised(x, 1e-6).bfloat16() * w)


def rotary(module):
    q = bf16(ROWS, 9, 64)
    angle = torch.rand(ROWS, 32) * 6.3
    cos, sin = angle.cos().bfloat16(), angle.sin().bfloat16()
    both = [torch.cat((t, t), -1)[None] for t in (cos, sin)]
    theirs, _ = llama.apply_rotary_pos_emb(q.transpose(0, 1)[None], q.transpose(0, 1)[None], *both)
    theirs = theirs[0].transpose(0, 1).contiguous()
    a, b, c, s = q[..., :32].float(), q[..., 32:].float(), cos[:, None].float(), sin[:, None].float()
    own = module.ops["q_rope"](q, cos, sin, positions=torch.arange(ROWS, dtype=torch.int32))
    report("rotary embedding", theirs, own,
           one_rounding=torch.cat((a * c - b * s, b * c + a * s), -1).bfloat16())


def products(module):
    x, wg, wu = bf16(ROWS, 576), bf16(1536, 576, scale=0.05), bf16(1536, 576, scale=0.05)
    g, u = x @ wg.T, x @ wu.T
    report("gate and up", torch.nn.functional.silu(g) * u, module.ops["gate_up"](x, wg, wu),
           product_in_f32=(torch.nn.functional.silu(g.float()) * u.float()).bfloat16(),
           sums_not_rounded=(torch.nn.functional.silu(x.float() @ wg.T.float()) *
                             (x.float() @ wu.T.float())).bfloat16())
    h, w, res = bf16(ROWS, 1536), bf16(576, 1536, scale=0.03), bf16(ROWS, 576, scale=4.0)
    report("down and the residual", h @ w.T + res, module.ops["down"](h, w, res),
           residual_in_f32=(h.float() @ w.T.float() + res.float()).bfloat16())
    x, w = bf16(ROWS, 576), bf16(49152, 576, scale=0.05)
    report("head", (x @ w.T).float(), module.ops["lm_head"](x, w),
           rounded_to_bf16=(x.float() @ w.T.float()).bfloat16().float())


def main():
    torch.manual_seed(0)
    module = load("contracts/smollm2-135m-model.iso")
    other = load(imported("tests/import/olmo-3-small.json"))
    print("| op | elements | contract | neighbours |\n| --- | --- | --- | --- |")
    norms(module, other)
    rotary(module)
    products(module)


if __name__ == "__main__":
    main()
