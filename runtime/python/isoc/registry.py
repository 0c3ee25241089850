"""A contract's attention in the registry of transformers: the model's other ops stay its own.

    isoc.transformers.register_attention(module)
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="isoc")

Padded batches, packed ones (``position_ids`` that begin anew) and a cache of keys are all handed
to the op as sequences one behind the other, so that a row's bits are the same in each.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch

from . import _native
from .errors import Status
from .module import Module
from .references import attention as _formula
from .torch import function

_APART = 0.05  # of the outputs' norm
_made: dict[Any, Callable[..., Any]] = {}


class _Places(NamedTuple):
    """Where a batch's rows are. ``queries`` and ``keys`` pick rows of the flattened batch, all of
    them if None; the others are int32, as ops take them."""

    positions: torch.Tensor
    sequences: torch.Tensor
    starts: torch.Tensor
    queries: torch.Tensor | None
    keys: torch.Tensor | None


def _places(mask: torch.Tensor | None, position_ids: torch.Tensor | None, batch: int, queries: int,
            keys: int, device: torch.device) -> _Places:
    if mask is not None and mask.shape != (batch, keys):
        raise _native.error(Status.UNSUPPORTED, f"an attention mask of {tuple(mask.shape)}; isoc "
                            f"takes ({batch}, {keys}), 0 at padding")
    keep = torch.ones(batch, keys, dtype=torch.bool, device=device) if mask is None else mask.bool()
    positions = (keep.cumsum(1) - 1).clamp(min=0)
    if mask is None and position_ids is not None and queries == keys:
        positions = position_ids.expand(batch, keys)
    own = keep[:, keys - queries:].flatten()
    begins = (positions == 0) & keep
    sequences = begins.flatten()[keep.flatten()].cumsum(0) - 1
    of_keys = torch.zeros(batch * keys, dtype=torch.int64, device=device)
    of_keys[keep.flatten()] = sequences
    of_rows = of_keys.view(batch, keys)[:, keys - queries:].flatten()[own]
    at = positions[:, keys - queries:].flatten()[own]
    starts = begins.flatten()[keep.flatten()].nonzero().flatten()
    picked = (None, None) if mask is None else (own.nonzero().flatten(),
                                                keep.flatten().nonzero().flatten())
    return _Places(at.int(), of_rows.int(), starts.int(), *picked)


def _refuse(module: Any, dim: int, dropout: float, scaling: float | None,
            more: dict[str, Any]) -> None:
    asked = [name for name in ("sliding_window", "softcap", "s_aux", "position_bias")
             if more.get(name) is not None]
    asked += ["dropout"] if dropout else []
    asked += [] if scaling is None or abs(scaling * dim**0.5 - 1) < 1e-6 else ["scaling"]
    causal = more.get("is_causal")
    if not (getattr(module, "is_causal", True) if causal is None else causal):
        asked.append("is_causal=False")
    if asked:
        raise _native.error(Status.UNSUPPORTED, f"the contract's attention has no "
                            f"{', '.join(asked)}: use another attn_implementation for this model")


def _rows(x: torch.Tensor, at: torch.Tensor | None) -> torch.Tensor:
    """[batch, heads, length, dim] as rows [rows, heads, dim]."""
    flat = x.transpose(1, 2).flatten(0, 1)
    return flat if at is None else flat[at]


def _implementation(call: Callable[..., Any]) -> Callable[..., Any]:
    # A model's first layer hands the same mask on to the others: what it says is found once.
    last: list[Any] = [None, None, (), None]

    def places(first: bool, mask: Any, ids: Any, *shape: Any) -> _Places:
        if first or last[0] is not mask or last[1] is not ids or last[2] != shape:
            last[:] = mask, ids, shape, _places(mask, ids, *shape)
        return last[3]

    def attend(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
               attention_mask: torch.Tensor | None, scaling: float | None = None,
               dropout: float = 0.0, **more: Any) -> tuple[torch.Tensor, None]:
        batch, heads, length, dim = query.shape
        _refuse(module, dim, dropout, scaling, more)
        at = places(getattr(module, "layer_idx", 0) == 0, attention_mask,
                    more.get("position_ids"), batch, length, key.shape[2], query.device)
        o, _ = call(_rows(query, at.queries), _rows(key, at.keys).unsqueeze(0),
                    _rows(value, at.keys).unsqueeze(0), positions=at.positions,
                    sequences=at.sequences, starts=at.starts)
        if at.queries is not None:
            o = o.new_zeros(batch * length, heads, dim).index_put((at.queries,), o)
        return o.view(batch, length, heads, dim), None

    return attend


def _refuse_another(module: Module, op: str, call: Callable[..., Any]) -> None:
    """By what it does to a few rows: another scale or mask is far from the formula."""
    specs = module.ops[op].tensors(8)
    heads, dim = specs[0].shape[1:]
    device = torch.device(module.device)
    draw = torch.Generator().manual_seed(1)
    q, k, v = (3 * torch.randn(8, n, dim, generator=draw)
               for n in (heads, specs[1].shape[2], specs[2].shape[2]))
    q, k, v = (x.to(torch.bfloat16).to(device) for x in (q, k, v))
    count = torch.arange(8, dtype=torch.int32, device=device)
    places = {"positions": count, "sequences": count * 0, "starts": count[:1]}
    with torch.no_grad():
        own, want = (f(q, k[None], v[None], **places)[0].float() for f in (call, _formula))
    apart = float((own - want).norm() / want.norm())
    if not apart < _APART:
        raise _native.error(Status.UNSUPPORTED, f"op {op} of contract {module.name} is {apart:.0%} "
                            "away from causal attention scaled by head_dim ** -0.5")


def register_attention(module: Module, op: str = "attention", name: str = "isoc") -> None:
    """Enters an attention of the contract into transformers' registry, with a mask of its kind.

    Args:
        module: of a contract with a causal `attend` of q [rows, heads, head_dim] and k, v
            [sequence, position, kv_heads, head_dim], scaled by head_dim ** -0.5, whose results are
            the output and its log-sum-exp.
        op: its name there.
        name: what models choose it by: ``attn_implementation=`` or ``set_attn_implementation``.

    What a model asks of it that it does not compute (dropout, a window, a soft cap, attention that
    is not causal, another scale) is refused when the model is called. Gradients are those of
    ``scaled_dot_product_attention``.

    Raises:
        KeyError: no such op. IsoError: UNSUPPORTED for one that computes something else.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import flash_attention_mask

    call = _made.get((module.fingerprint, module.device, op))
    if call is None:
        call = function(module.ops[op], _formula, name=f"registry_{op}_{len(_made)}")
        _refuse_another(module, op, call)
        _made[module.fingerprint, module.device, op] = call
    AttentionInterface.register(name, _implementation(call))
    AttentionMaskInterface.register(name, flash_attention_mask)
