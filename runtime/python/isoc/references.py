"""Formulas in stock PyTorch of the ops that isoc's own contracts have, by name: for gradients.

Each takes an op's parameters by position, and positions, sequences or starts by name where the op
has them. They are what a Hugging Face model computes, so that gradients are those that it has.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


def formulas(eps: float) -> dict[str, Callable[..., Any]]:
    """All of them, for norms with this epsilon."""

    def norm(x: Tensor, w: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return (wide * scale).to(x.dtype) * w

    return {
        "embedding": embedding,
        "input_norm": norm,
        "post_norm": norm,
        "final_norm": norm,
        "q_norm": norm,
        "k_norm": norm,
        "qkv": qkv,
        "q_rope": rope,
        "k_rope": rope,
        "attention": attention,
        "o_proj": add_product,
        "gate_up": gate_up,
        "down": add_product,
        "lm_head": lm_head,
        "scaled_logits": lambda logits, temperature: logits / temperature.unsqueeze(-1),
        "vocab_lse": lambda z: torch.logsumexp(z, -1),
        "target_logit": target_logit,
        "token_logprob": lambda z, lse: z - lse,
        "target_logprob": lambda z, lse, targets: target_logit(z, targets) - lse,
        "log_softmax": lambda z, lse: z - lse.unsqueeze(-1),
    }


def embedding(ids: Tensor, w: Tensor) -> Tensor:
    return F.embedding(ids.long(), w)


def _product(x: Tensor, w: Tensor, summed: int) -> Tensor:
    """x [rows, summed axes ...] with w [own axes ..., summed axes ...]."""
    own = w.shape[:w.dim() - summed]
    flat = F.linear(x.reshape(x.shape[0], -1), w.reshape(own.numel(), -1))
    return flat.view(x.shape[0], *own)


def qkv(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Weights of q, k, v [heads, head_dim, hidden], then their biases [heads, head_dim] if any."""
    made = [_product(x, w, 1) for w in weights[:3]]
    return tuple(y + b for y, b in zip(made, weights[3:])) if weights[3:] else tuple(made)


def add_product(x: Tensor, w: Tensor, res: Tensor) -> Tensor:
    return _product(x, w, x.dim() - 1) + res


def gate_up(x: Tensor, wg: Tensor, wu: Tensor) -> Tensor:
    return F.silu(F.linear(x, wg)) * F.linear(x, wu)


def lm_head(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w).float()


def rope(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> Tensor:
    """Of halves: x [rows, heads, head_dim], tables [positions, head_dim / 2]."""
    c, s = (t[positions.long()].unsqueeze(1) for t in (cos, sin))
    a, b = x.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def target_logit(z: Tensor, targets: Tensor) -> Tensor:
    return z.gather(-1, targets.long().unsqueeze(-1)).squeeze(-1)


def attention(q: Tensor, k: Tensor, v: Tensor, positions: Tensor, sequences: Tensor,
              starts: Tensor) -> tuple[Tensor, Tensor]:
    """Causal, sequence by sequence of a packed batch: q [rows, heads, head_dim], k and v
    [1, rows, kv_heads, head_dim]. The log-sum-exp has no gradient to give."""
    if q.shape[0] != k.shape[1]:
        raise ValueError("gradients of attention are of whole sequences: there are "
                         f"{k.shape[1]} keys for {q.shape[0]} queries")
    ends = [*starts.tolist()[1:], q.shape[0]]
    outs = []
    for lo, hi in zip(starts.tolist(), ends):
        one = (q[lo:hi], k[0, lo:hi], v[0, lo:hi])
        out = F.scaled_dot_product_attention(*(t.transpose(0, 1).unsqueeze(0) for t in one),
                                             is_causal=True, enable_gqa=True)
        outs.append(out.squeeze(0).transpose(0, 1))
    return torch.cat(outs), q.new_zeros(q.shape[:2], dtype=torch.float32)
