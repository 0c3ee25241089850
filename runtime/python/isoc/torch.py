"""Ops as torch.library custom operators: for autograd, torch.compile and activation checkpointing.

    import isoc.torch
    norm = isoc.torch.function(module.ops["final_norm"], reference=rms_norm)
    y = norm(x, w)           # the contract's bits; gradients those of rms_norm, in stock PyTorch

The forward runs the contract's kernels. The backward recomputes ``reference`` from the saved
parameters and differentiates that, so that gradients are PyTorch's own of the same formula.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Sequence

import torch

from . import _native
from ._native import RUN
from .errors import Status
from .keys import Keys
from .op import Op

_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.int32)
_KEYWORDS = ("rows", "positions", "sequences", "starts")
_made: dict[str, tuple[Op, Callable[..., Any]]] = {}

Reference = Callable[..., "torch.Tensor | Sequence[torch.Tensor]"]


def function(op: Op, reference: Reference | None = None, *, name: str | None = None
             ) -> Callable[..., Any]:
    """An op as a custom operator of torch's.

    Args:
        op: an op that needs no join.
        reference: the op's formula in PyTorch: from the op's parameters, by position, and its
            rows, positions, sequences and starts by name where the call has them, to its result
            or results. It is what gradients are taken of; None: asking for a gradient is an error.
        name: of the operator in the namespace ``isoc``; None makes one of the contract's, the
            op's and the layout's names, the rank and the fingerprint. A name is made once.

    Returns:
        A callable of the op's parameters and, by name, ``rows`` (int), ``positions`` and
        ``sequences`` (int32 tensors), and for attention over a packed batch ``starts`` (int32:
        where each sequence begins), that returns what the op does. It is traced by
        torch.compile without a graph break. Tensors whose dtype the contract does not declare are
        refused, also under autocast, which does not change what it is given.

    Raises:
        IsoError: NEEDS_JOIN for an op whose ranks exchange roots: its parts and joins belong into
            the caller's own communication. Calls raise what :meth:`isoc.Op.__call__` does.
        ValueError: the name is taken by another op.
    """
    if op.needs_join:
        raise _native.error(Status.NEEDS_JOIN, f"op {op.name} in layout {op.layout}")
    name = name or _name(op)
    if name in _made:
        raise ValueError(f"isoc::{name} is an operator already; pass another name=")
    operator = torch.library.custom_op(f"isoc::{name}", _run(op), mutates_args=(),
                                       schema=_schema(op))
    operator.register_fake(_fake(op))
    if reference is not None:
        _register_gradient(op, operator, reference)
    _made[name] = (op, _checked(op, operator))
    return _made[name][1]


def _name(op: Op) -> str:
    at = f"{op.layout}_r{op.rank}" if op.layout else "one"
    print_ = op.module.fingerprint.hex()[:8]
    return re.sub(r"\W", "_", f"{op.module.name}_{op.name}_{at}_{print_}_{op.module.device}")


def _schema(op: Op) -> str:
    """Parameters by number: a contract's names may be words that a schema has for itself."""
    params = ", ".join(f"Tensor p{i}" for i in range(len(op.params)))
    results = ", ".join("Tensor" for _ in op.results)
    return (f"({params}, SymInt? rows=None, Tensor? positions=None, Tensor? sequences=None, "
            "Tensor? starts=None) -> " + (results if len(op.results) == 1 else f"({results})"))


def _run(op: Op) -> Callable[..., Any]:
    n = len(op.params)

    def run(*args: Any, **named: Any) -> Any:
        named.update(zip(_KEYWORDS, args[n:]))
        starts = named.pop("starts", None)
        with torch.no_grad():
            return op(*args[:n], keys=None if starts is None else Keys(starts=starts), **named)

    return run


def _fake(op: Op) -> Callable[..., Any]:
    """Results' shapes from the parameters': all have this rank's rows."""
    slots = op._slots_of(RUN)

    def fake(*args: Any, **_: Any) -> Any:
        params = args[:len(op.params)]
        rows = next((p.shape[slot.axis] for p, slot in zip(params, slots) if slot.axis >= 0), 1)
        results = []
        for slot in slots[len(params):]:
            shape: list[Any] = list(slot.shape)
            if slot.axis >= 0:
                shape[slot.axis] = rows
            results.append(params[0].new_empty(shape, dtype=_DTYPES[slot.dtype]))
        return results[0] if len(results) == 1 else tuple(results)

    return fake


def _checked(op: Op, operator: Any) -> Callable[..., Any]:
    """The operator, refusing dtypes also while it is only traced."""
    slots = op._slots_of(RUN)[:len(op.params)]
    wanted = tuple(_DTYPES[slot.dtype] for slot in slots)

    def call(*params: torch.Tensor, **named: Any) -> Any:
        for x, dtype, slot in zip(params, wanted, slots):
            if x.dtype != dtype:
                raise TypeError(f"op {op.name}: tensor {slot.name} has dtype {x.dtype}, the "
                                f"contract says {dtype}")
        return operator(*params, **named)

    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = f"{op!r} as the operator {operator._qualname}."
    return call


# ---- gradients ------------------------------------------------------------------------------


def _register_gradient(op: Op, operator: Any, reference: Reference) -> None:
    n = len(op.params)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.rows, *coordinates = inputs[n:]
        ctx.save_for_backward(*inputs[:n], *coordinates)

    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors  # once: checkpoints unpack a tensor no second time
        params, given = saved[:n], dict(zip(_KEYWORDS, (ctx.rows, *saved[n:])))
        named = {key: value for key, value in given.items() if value is not None}
        wanted = [i for i in range(n) if ctx.needs_input_grad[i]]
        found: list[Any] = [None] * (n + len(_KEYWORDS))
        with torch.enable_grad():
            again = [p.detach().requires_grad_(True) if i in wanted else p
                     for i, p in enumerate(params)]
            outs = reference(*again, **named)
            outs = [outs] if isinstance(outs, torch.Tensor) else list(outs)
            # A result that depends on no parameter that is asked for has no gradient to give.
            pairs = [(o, g) for o, g in zip(outs, gradients) if o.requires_grad and g is not None]
            grads = torch.autograd.grad([o for o, _ in pairs], [again[i] for i in wanted],
                                        [g for _, g in pairs], allow_unused=True)
        for i, gradient in zip(wanted, grads):
            found[i] = gradient
        return tuple(found)

    operator.register_autograd(backward, setup_context=setup)
