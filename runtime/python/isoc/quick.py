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
from ._native import CUDA
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
_gpus = 0
_dtypes: tuple[Any, ...] = ()  # torch's, by ours
_INT32 = 3


def learn() -> None:
    """Notes torch's functions, if it was imported meanwhile."""
    global graded, _empty, _stream, _gpu, _gpus, _dtypes
    torch = sys.modules.get("torch")
    if not hasattr(torch, "nn"):
        return
    graded, _empty = torch.is_grad_enabled, torch.empty_like
    _dtypes = (torch.bfloat16, torch.float16, torch.float32, torch.int32)
    if torch.cuda.is_available():
        _stream = getattr(torch._C, "_cuda_getCurrentRawStream", memory.current_stream)
        _gpu = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
        _gpus = torch.cuda.device_count()
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
    if not _plain:
        return None, None
    said: list[Any] = [numbers]
    addresses = []
    cuda = op.module._device == CUDA
    for x, slot in zip(tensors, op._run_slots):
        dtype = x.dtype if type(x) in _plain else None
        if (dtype is not _dtypes[slot.dtype] or (lost and x.requires_grad)
                or not (x.is_cuda if cuda else x.is_cpu) or (dtype is not _dtypes[0] and x.is_neg())
                or (_gpus > 1 and cuda and x.get_device() != op.module._index)):
            return None, None
        said.append(x.shape if x.is_contiguous() else (x.shape, x.stride()))
        addresses.append(x.data_ptr())
    live = positions = sequences = where = 0
    if places or keys is not None:
        at = _look(op, cuda, places if keys is None else (*places, keys[0], keys[1]), said)
        if at is None:
            return None, None
        if places:
            live, positions, sequences = at[:3]
        if keys is not None:
            packed = _packed(op, cuda, keys, at[-2:], said)
            if packed is None:
                return None, None
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


def _is_there(op: "Op", cuda: bool, x: Any) -> bool:
    """Whether x is int32 of torch's on the module's device."""
    return (type(x) in _plain and x.dtype is _dtypes[_INT32] and (x.is_cuda if cuda else x.is_cpu)
            and (_gpus <= 1 or not cuda or x.get_device() == op.module._index))


def _look(op: "Op", cuda: bool, xs: tuple[Any, ...], said: list[Any]) -> list[int] | None:
    """The addresses of rows of integers, 0 for None; how long they are is added."""
    at = []
    for x in xs:
        if x is None:
            said.append(None)
            at.append(0)
        elif _is_there(op, cuda, x) and x.is_contiguous():
            said.append(x.numel())
            at.append(x.data_ptr())
        else:
            return None
    return at


def _packed(op: "Op", cuda: bool, keys: Keys, at: list[int], said: list[Any]) -> Any:
    """The structure of keys; what they look like, but for their first two tensors, is added."""
    table, numbers = keys[2], keys[3:]
    address = stride = 0
    said.append(numbers)
    if table is not None:
        if not _is_there(op, cuda, table):
            return None
        address, stride = table.data_ptr(), table.stride(0)
        said.append((table.shape, table.stride()))
    return _KeysBytes.from_buffer_copy(_KEYS.pack(*at, address, stride, *numbers))


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
