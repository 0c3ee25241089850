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

from . import _native, quick
from ._native import RUN
from .errors import Status
from .keys import Keys
from .op import Op

_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.int32)
_KEYWORDS = ("rows", "positions", "sequences", "starts")
# By hand, not by torch.library.custom_op, whose own checks of every call take longer than the call.
_library = torch.library.Library("isoc", "FRAGMENT")
_made: dict[str, tuple[Op, Callable[..., Any]]] = {}

_ABSENT = (None,) * len(_KEYWORDS)
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
    _library.define(name + _schema(op), tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, _run(op), "CompositeExplicitAutograd")
    torch.library.register_fake(f"isoc::{name}", _fake(op), lib=_library)
    graph = _register_gradient(op, name, reference)
    _made[name] = (op, _checked(op, getattr(torch.ops.isoc, name).default, graph))
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

    def run(*args: Any) -> Any:
        return _run_op(op, args[:n], args[n:] + _ABSENT[len(args) - n:])

    return run


def _run_op(op: Op, params: tuple[Any, ...], places: tuple[Any, ...]) -> Any:
    rows, positions, sequences, starts = places
    return op._run(params, None, rows, (None, positions, sequences),
                   None if starts is None else Keys(starts=starts), graded=False)


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


def _elsewhere() -> bool:
    """Whether someone looks at operators as they are called: then they are called as such."""
    c = torch._C
    return bool(c._len_torch_dispatch_stack() or c._len_torch_function_stack()
                or c._are_functorch_transforms_active() or c._get_tracing_state() is not None
                or torch.autograd._profiler_enabled())


def _checked(op: Op, operator: Any, graph: Any) -> Callable[..., Any]:
    """The operator, refusing dtypes also while it is only traced. Plain tensors are brought to the
    op past torch's dispatcher, whose two turns in Python take longer than the call."""
    slots = op._slots_of(RUN)[:len(op.params)]
    wanted = tuple(_DTYPES[slot.dtype] for slot in slots)

    def call(*params: torch.Tensor, rows: int | None = None,
             positions: torch.Tensor | None = None, sequences: torch.Tensor | None = None,
             starts: torch.Tensor | None = None) -> Any:
        for x, dtype in zip(params, wanted):
            if x.dtype != dtype:
                _refuse(params)
        places = (rows, positions, sequences, starts)
        if not torch.compiler.is_compiling() and quick.plain(params) and not _elsewhere():
            if torch.is_grad_enabled() and torch._C._any_requires_grad(*params):
                return graph.apply(None, *params, *places)
            return _run_op(op, params, places)
        return operator(*params, *places)

    def _refuse(params: Sequence[torch.Tensor]) -> None:
        for x, dtype, slot in zip(params, wanted, slots):
            if x.dtype != dtype:
                raise TypeError(f"op {op.name}: tensor {slot.name} has dtype {x.dtype}, the "
                                f"contract says {dtype}")

    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = f"{op!r} as the operator {operator}."
    return call


# ---- gradients ------------------------------------------------------------------------------


def _register_gradient(op: Op, name: str, reference: Reference | None) -> Any:
    """By hand too: torch.library.register_autograd takes three times as long in every call. Its
    first argument is the dispatcher's keys, None past the dispatcher."""
    n, operator = len(op.params), getattr(torch.ops.isoc, name).default
    below, after = torch._C._AutoDispatchBelowAutograd, torch._C._after_autograd_keyset

    def forward(ctx: Any, keyset: Any, *args: Any) -> Any:
        given = args + _ABSENT[len(args) - n:]
        ctx.rows, ctx.count = given[n], len(args)
        ctx.save_for_backward(*given[:n], *given[n + 1:])
        if keyset is None:
            return _run_op(op, args[:n], args[n:])
        with below():
            return operator.redispatch(keyset & after, *args)

    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        if reference is None:
            raise _native.error(Status.UNSUPPORTED, f"op {op.name} has no reference= to take "
                                                    "gradients of")
        saved = ctx.saved_tensors  # once: checkpoints unpack a tensor no second time
        wanted = [i for i in range(n) if ctx.needs_input_grad[1 + i]]
        found: list[Any] = [None] * (1 + ctx.count)
        named = dict(zip(_KEYWORDS, (ctx.rows, *saved[n:])))
        for i, gradient in zip(wanted, _gradients(reference, saved[:n], named, wanted, gradients)):
            found[1 + i] = gradient
        return tuple(found)

    graph: Any = type(f"{op.name}_backward", (torch.autograd.Function,),
                      {"forward": staticmethod(forward), "backward": staticmethod(backward)})

    def run(keyset: Any, *args: Any) -> Any:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            return graph.apply(keyset, *args)
        with below():
            return operator.redispatch(keyset & after, *args)

    _library.impl(name, run, "Autograd", with_keyset=True)
    return graph


def _gradients(reference: Reference, params: Sequence[torch.Tensor], named: dict[str, Any],
               wanted: list[int], gradients: Sequence[torch.Tensor]) -> Sequence[Any]:
    """Of the parameters that are wanted, by computing the formula once more."""
    named = {key: value for key, value in named.items() if value is not None}
    with torch.enable_grad():
        again = [p.detach().requires_grad_(True) if i in wanted else p
                 for i, p in enumerate(params)]
        outs = reference(*again, **named)
        outs = [outs] if isinstance(outs, torch.Tensor) else list(outs)
        # A result that depends on no parameter that is asked for has no gradient to give.
        pairs = [(o, g) for o, g in zip(outs, gradients) if o.requires_grad and g is not None]
        return torch.autograd.grad([o for o, _ in pairs], [again[i] for i in wanted],
                                   [g for _, g in pairs], allow_unused=True)
