"""Calls that look like one before: its checks are not made twice.

What a call of torch's tensors is refused for, its row count, the shapes of its results and its
workspace depend on the tensors' dtypes, devices, shapes and strides alone. They are found once, by
the whole way in op.py, and kept by these; a later call that looks the same brings addresses. What
depends on those is checked by libiso, in every call. Whether a call looks like the last one is
asked of torch, by the guards of its compiled programs: that takes a third of the time.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from typing import TYPE_CHECKING, Any, Iterable

from . import _native, memory
from ._native import CUDA
from .keys import Keys

if TYPE_CHECKING:
    from .op import Op, _Call

_MOST = 512  # looks of one op that are kept
_MOST_GUARDS = 16  # made for one look: they tell torch's modes apart, which callers may alternate
_RUN = struct.Struct("@qiPPPPPNP")  # as _native.Run
_KEYS = struct.Struct("@PPPqiiq")  # as iso_keys
_KeysBytes = ctypes.c_char * _KEYS.size
_REST = _native.TENSOR.size - struct.calcsize("P")

# The same function without argtypes: bytes, c_void_p and small ints go as they are, sooner.
_run = _native.lib["iso_op_run"]

_plain: set[type] = set()  # torch.Tensor and Parameter, once there is torch
_new: tuple[Any, Any] = (None, None)  # a tensor on the CPU, on the current GPU
_guards: Any = None
_stream: Any = None  # the current one's CUstream, by GPU
_gpu: Any = None  # the current one
_gpus = 0
_dtypes: tuple[Any, ...] = ()  # torch's, by ours
_INT32 = 3
_ABSENT = (None, None, None)


def learn() -> None:
    """Notes torch's functions, if it was imported meanwhile."""
    global graded, _new, _guards, _stream, _gpu, _gpus, _dtypes
    torch = sys.modules.get("torch")
    if not hasattr(torch, "nn"):
        return
    graded = torch.is_grad_enabled
    dynamo = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    _guards = getattr(dynamo, "TensorGuards", None)
    # Past torch's dispatcher, where it has such functions: that takes half the time.
    _new = (getattr(dynamo, "_empty_strided_cpu", functools.partial(_empty, "cpu")),
            getattr(dynamo, "_empty_strided_cuda", functools.partial(_empty, "cuda")))
    _dtypes = (torch.bfloat16, torch.float16, torch.float32, torch.int32)
    if torch.cuda.is_available():
        _stream = getattr(torch._C, "_cuda_getCurrentRawStream", memory.current_stream)
        _gpu = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
        _gpus = torch.cuda.device_count()
    _plain.update((torch.Tensor, torch.nn.Parameter))


def _empty(device: str, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
    return sys.modules["torch"].empty_strided(shape, strides, dtype=dtype, device=device)


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
    at, given, asked = (), tensors, (numbers, len(tensors), lost)
    if places or keys is not None:
        at = places if keys is None else (places or _ABSENT) + keys[:3]
        given = tensors + tuple([x for x in at if x is not None])
        asked = (numbers, len(tensors), lost, [x is None for x in at],
                 None if keys is None else keys[3:])
    last, look = op._last, None
    if last[0] == asked and last[1](*given):
        known = last[2]
    else:
        look = _look(op, tensors, numbers, at, keys, lost)
        known = None if look is None else op._known.get(look)
        if known is None:
            return None, look
        op._last = _noted(last, known, asked, given)
    return _again(op, known, tensors, at, keys), look


def _noted(last: tuple[Any, Any, Any], known: "Known", asked: Any, given: tuple[Any, ...]
           ) -> tuple[Any, Any, Any]:
    """What op._last becomes: a call's arguments but for tensors, what tells whether tensors look
    like the call's, and what is known of it. Only calls that come again are worth the guards."""
    if last[2] is known and _guards is not None and known.guards < _MOST_GUARDS:
        guards = _guards(*given, dynamic_dims_sizes=[list(x.shape) for x in given],
                         dynamic_dims_strides=[list(x.stride()) for x in given])
        known.check = (asked, guards.check)
        known.guards += 1
    return (*known.check, known)


def _again(op: "Op", known: "Known", tensors: tuple[Any, ...], at: tuple[Any, ...],
           keys: Keys | None) -> Any:
    """The results of a call that is known; None where torch's current GPU is another."""
    stream, space, index = 0, 0, known.index
    if index >= 0:
        if _gpu() != index:
            return None
        stream = _stream(index)
        if known.size:
            space, kept = memory.workspaces.get(known.device, stream, known.size)
    addresses = [x.data_ptr() for x in tensors]
    live = positions = sequences = where = 0
    if at:
        live, positions, sequences = [0 if x is None else x.data_ptr() for x in at[:3]]
    if keys is not None:
        packed, where = _packed(op, keys)
    results = tensors[op._n_params:]
    if known.like:
        new = _new[index >= 0]
        results = [new(*x) for x in known.like]
        addresses += [x.data_ptr() for x in results]
    flat = known.flat.copy()
    flat[::2] = addresses
    status = _run(op._alive(), known.pack(*flat), op._n, _RUN.pack(
        known.rows, known.schedule, live, positions, sequences, where, space, known.size, stream))
    if status:
        _native.check(status)
    return results[0] if len(results) == 1 else tuple(results)


def _look(op: "Op", tensors: tuple[Any, ...], numbers: tuple[Any, ...], at: tuple[Any, ...],
          keys: Keys | None, lost: bool) -> Any:
    """What tells calls of an op apart; None for those that are not kept."""
    said: list[Any] = [numbers]
    cuda = op.module._device == CUDA
    for x, slot in zip(tensors, op._run_slots):
        dtype = x.dtype if type(x) in _plain else None
        if (dtype is not _dtypes[slot.dtype] or (lost and x.requires_grad)
                or not (x.is_cuda if cuda else x.is_cpu) or (dtype is not _dtypes[0] and x.is_neg())
                or (_gpus > 1 and cuda and x.get_device() != op.module._index)):
            return None
        said.append(x.shape if x.is_contiguous() else (x.shape, x.stride()))
    for x in at[:5]:
        if x is None:
            said.append(None)
        elif _is_there(op, cuda, x) and x.is_contiguous():
            said.append(x.numel())
        else:
            return None
    if keys is not None:
        table = keys[2]
        if table is not None and not _is_there(op, cuda, table):
            return None
        said.append((keys[3:], None if table is None else (table.shape, table.stride())))
    return tuple(said)


def _is_there(op: "Op", cuda: bool, x: Any) -> bool:
    """Whether x is int32 of torch's on the module's device."""
    return (type(x) in _plain and x.dtype is _dtypes[_INT32] and (x.is_cuda if cuda else x.is_cpu)
            and (_gpus <= 1 or not cuda or x.get_device() == op.module._index))


def _packed(op: "Op", keys: Keys) -> tuple[Any, int]:
    """The structure of keys and its address: the layers of a model have the same one."""
    lengths, starts, table = keys[:3]
    packed = _KEYS.pack(0 if lengths is None else lengths.data_ptr(),
                        0 if starts is None else starts.data_ptr(),
                        0 if table is None else table.data_ptr(),
                        0 if table is None else table.stride(0), *keys[3:])
    last = op._keys
    if last[0] != packed:
        kept = _KeysBytes.from_buffer_copy(packed)
        last = op._keys = (packed, kept, ctypes.addressof(kept))
    return last[1], last[2]


class Known:
    """A call that went well, without its addresses."""

    __slots__ = ("rows", "schedule", "flat", "pack", "like", "device", "index", "size",
                 "check", "guards")

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
        self.like = () if brought else tuple(
            (tuple(x.shape), tuple(x.stride()), x.dtype) for x in outs)
        self.device = call.torch.device if call.on_torch else None
        self.index = self.device.index if self.device is not None else -1
        self.size = call.run.workspace_bytes
        self.check: tuple[Any, Any] = (None, None)  # the first two of op._last
        self.guards = 0  # that were made


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
