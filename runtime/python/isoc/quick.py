"""Calls that look like one before: its checks are not made twice.

What a call of torch's tensors is refused for, its row count, the shapes of its results and its
workspace depend on the tensors' dtypes, devices, shapes and strides alone. They are found once, by
the whole way in op.py, and kept by these; a later call that looks the same brings addresses. What
depends on those is checked by libiso, in every call.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from typing import TYPE_CHECKING, Any, Iterable

from . import _native, memory
from .keys import Keys

if TYPE_CHECKING:
    from .op import Op, _Call

_MOST = 512  # looks of one op that are kept
_RUN = struct.Struct("@qiPPPPPNP")  # as _native.Run
_KEYS = struct.Struct("@PPPqiiq")  # as iso_keys
_KeysBytes = ctypes.c_char * _KEYS.size
_REST = _native.TENSOR.size - struct.calcsize("P")

# The same function without argtypes: bytes, c_void_p and small ints go as they are, sooner.
_run = _native.lib["iso_op_run"]

_plain: set[type] = set()  # torch.Tensor and Parameter, once there is torch
_empty: Any = None
_stream: Any = None  # the current one's CUstream, by GPU
_gpu: Any = None  # the current one
_NEVER_NEGATED: frozenset[Any] = frozenset()  # dtypes of no part of a complex number


def learn() -> None:
    """Notes torch's functions, if it was imported meanwhile."""
    global _NEVER_NEGATED, graded, _empty, _stream, _gpu
    torch = sys.modules.get("torch")
    if not hasattr(torch, "nn"):
        return
    graded, _empty = torch.is_grad_enabled, torch.empty_like
    _NEVER_NEGATED = frozenset((torch.bfloat16, torch.int32))
    if torch.cuda.is_available():
        _stream = getattr(torch._C, "_cuda_getCurrentRawStream", memory.current_stream)
        _gpu = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
    _plain.update((torch.Tensor, torch.nn.Parameter))


def graded() -> bool:
    """Whether gradients are enabled."""
    return True


def plain(xs: Iterable[Any]) -> bool:
    """Whether all of them are torch's own tensors, of no class of others."""
    for x in xs:
        if type(x) not in _plain:
            return False
    return True


def run(op: "Op", tensors: tuple[Any, ...], numbers: tuple[Any, ...], places: tuple[Any, ...],
        keys: Keys | None, lost: bool) -> tuple[Any, Any]:
    """Runs the op as a call before that looked the same.

    Args:
        tensors: parameters, and the results that were brought.
        numbers: what else a look is made of.
        places: live_rows, positions, sequences; or () for none.
        lost: whether a gradient that a tensor asks for would be lost.

    Returns:
        The results, or None where no such call is known; and the look by which to keep this one,
        None for what is not kept.
    """
    said: list[Any] = [numbers]
    addresses = []
    for x in tensors:
        if type(x) not in _plain or (lost and x.requires_grad):
            return None, None
        dtype = x.dtype
        if dtype not in _NEVER_NEGATED and x.is_neg():
            return None, None
        said += dtype, x.device, x.shape, x.is_contiguous() or x.stride()
        addresses.append(x.data_ptr())
    live = positions = sequences = where = 0
    if places or keys is not None:
        more = places if keys is None else (*places, *keys[:3])
        at = _look(more, said)
        if at is None:
            return None, None
        if places:
            live, positions, sequences = at[:3]
        if keys is not None:
            said.append(keys[3:])
            stride = 0 if keys.block_table is None else keys.block_table.stride(0)
            packed = _KeysBytes.from_buffer_copy(_KEYS.pack(*at[-3:], stride, *keys[3:]))
            where = ctypes.addressof(packed)
    look = tuple(said)
    known = op._known.get(look)
    if known is None:
        return None, look
    stream, space, index = 0, 0, known.index
    if index >= 0:
        if _gpu() != index:
            return None, None
        stream = _stream(index)
        if known.size:
            space, kept = memory.workspaces.get(known.device, stream, known.size)
    results = tensors[op._n_params:]
    if known.like:
        results = [_empty(x) for x in known.like]
        addresses += [x.data_ptr() for x in results]
    flat = known.flat.copy()
    flat[::2] = addresses
    status = _run(op._alive(), known.pack(*flat), op._n, _RUN.pack(
        known.rows, known.schedule, live, positions, sequences, where, space, known.size, stream))
    if status:
        _native.check(status)
    return (results[0] if len(results) == 1 else tuple(results)), look


def _look(xs: tuple[Any, ...], said: list[Any]) -> list[int] | None:
    """The addresses of tensors of integers, 0 for None; what they look like is added."""
    at = []
    for x in xs:
        if x is None:
            said.append(None)
            at.append(0)
        elif type(x) in _plain:
            said += x.dtype, x.device, x.shape, x.is_contiguous() or x.stride()
            at.append(x.data_ptr())
        else:
            return None
    return at


class Known:
    """A call that went well, without its addresses."""

    __slots__ = ("rows", "schedule", "flat", "pack", "like", "device", "index", "size")

    def __init__(self, call: "_Call", brought: bool) -> None:
        op = call.op
        self.rows, self.schedule = call.rows, call.run.schedule
        packed = bytes(call.tensors())
        size = _native.TENSOR.size
        self.flat: list[Any] = []
        for at in range(0, len(packed), size):
            self.flat += (0, packed[at + size - _REST:at + size])
        self.pack = struct.Struct("@" + f"P{_REST}s" * op._n).pack
        outs = call.given[op._n_params:]
        self.like = () if brought else tuple(_template(x) for x in outs)
        self.device = call.torch.device if call.on_torch else None
        self.index = self.device.index if self.device is not None else -1
        self.size = call.run.workspace_bytes


def _template(x: Any) -> Any:
    """Of one element, of which empty_like makes another x: it has less to read than empty."""
    return x.new_empty(1).expand(x.shape)


def keep(op: "Op", look: Any, call: "_Call", brought: bool) -> None:
    """After a call that went well, unless it is none of those that are looked at. Empty tensors
    have no address to bring."""
    if not _plain:
        learn()
    if look is None or any(0 in x.shape for x in call.given):
        return
    if len(op._known) >= _MOST:
        op._known.clear()
    op._known[look] = Known(call, brought)
