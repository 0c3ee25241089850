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
from typing import TYPE_CHECKING, Any, Callable

from . import _native, memory
from .keys import Keys

if TYPE_CHECKING:
    from .op import Op, _Call

_MOST = 512  # looks of one op that are kept
_RUN = struct.Struct("@qiPPPPPNP")  # as _native.Run
_KEYS = struct.Struct("@PPPqiiq")  # as iso_keys
_KeysBytes = ctypes.c_char * _KEYS.size
_REST = _native.TENSOR.size - struct.calcsize("P")

# The same function, taking bytes instead of structures.
_run = _native.lib["iso_op_run"]
_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]

_plain: set[type] = set()  # torch.Tensor and Parameter, once there is torch
_torch: Any = None
_graded: Callable[[], bool]
_stream: Callable[[int], int]


def learn() -> None:
    """Notes torch's functions, if it was imported meanwhile."""
    global _torch, _graded, _stream
    torch = sys.modules.get("torch")
    if not hasattr(torch, "nn"):
        return
    _torch, _graded = torch, torch.is_grad_enabled
    _stream = getattr(torch._C, "_cuda_getCurrentRawStream", memory.current_stream)
    _plain.update((torch.Tensor, torch.nn.Parameter))


def look(xs: Any, fixed: tuple[Any, ...], keys: Keys | None, graded: bool) -> Any:
    """What calls have in common that need the same checks; None for a call that is not kept.

    Args:
        xs: parameters, results that were brought, coordinates; None where one is missing.
        fixed: what else decides: numbers, and how many of xs there are of a kind.
        graded: whether a tensor that wants a gradient is refused while there are gradients.
    """
    said = [fixed]
    if keys is not None:
        xs = (*xs, keys.lengths, keys.starts, keys.block_table)
        said.append(keys[3:])
    for x in xs:
        if type(x) in _plain:
            if x.is_neg() or (graded and x.requires_grad and _graded()):
                return None
            said += (x.dtype, x.device, x.shape, x.stride())
        elif x is None:
            said.append(None)
        else:
            return None
    return tuple(said)


class Known:
    """A call that went well, without its addresses."""

    __slots__ = ("op", "rows", "schedule", "given", "flat", "pack", "results", "device", "size",
                 "stride")

    def __init__(self, call: "_Call", brought: bool, keys: Keys | None) -> None:
        op = call.op
        self.op = op
        self.rows, self.schedule = call.rows, call.run.schedule
        packed = bytes(call.tensors())
        size = _native.TENSOR.size
        self.flat: list[Any] = []
        for at in range(0, len(packed), size):
            self.flat += (0, packed[at + size - _REST:at + size])
        self.pack = struct.Struct("@" + f"P{_REST}s" * op._n).pack
        outs = call.given[op._n_params:]
        self.results = () if brought else tuple((x.shape, x.dtype, x.device) for x in outs)
        self.device = call.torch.device if call.on_torch else None
        self.size = call.run.workspace_bytes
        self.stride = 0
        if keys is not None and keys.block_table is not None:
            self.stride = keys.block_table.stride(0)

    def run(self, tensors: tuple[Any, ...], coordinates: Any, keys: Keys | None) -> Any:
        """The results, or None where torch's current GPU is another one.

        Args:
            tensors: parameters and the results that were brought.
            coordinates: live_rows, positions, sequences; or () for none.
        """
        device, stream, space, kept = self.device, 0, 0, None
        if device is not None:
            if _torch.cuda.current_device() != device.index:
                return None
            stream = _stream(device.index)
            if self.size:
                space, kept = memory.workspaces.get(device, stream, self.size)
        op = self.op
        op.module._alive()
        made = tuple(_torch.empty(shape, dtype=dtype, device=place)
                     for shape, dtype, place in self.results)
        tensors = (*tensors, *made)
        flat = self.flat.copy()
        flat[::2] = [x.data_ptr() for x in tensors]
        live, positions, sequences = coordinates and [0 if x is None else x.data_ptr()
                                                      for x in coordinates] or (0, 0, 0)
        where = None if keys is None else self._keys(keys)
        status = _run(op._handle, self.pack(*flat), op._n, _RUN.pack(
            self.rows, self.schedule, live, positions, sequences,
            0 if where is None else ctypes.addressof(where), space, self.size, stream))
        if status:
            _native.check(status)
        del kept  # until here
        results = made or tensors[op._n_params:]
        return results[0] if len(results) == 1 else results

    def _keys(self, keys: Keys) -> Any:
        at = [0 if x is None else x.data_ptr() for x in keys[:3]]
        return _KeysBytes.from_buffer_copy(_KEYS.pack(*at, self.stride, *keys[3:]))


def keep(op: "Op", said: Any, call: "_Call", brought: bool, keys: Keys | None) -> None:
    """After a call that went well, unless it is none of those that are looked at. Empty tensors
    have no address to bring."""
    if not _plain:
        learn()
    if said is None or any(0 in x.shape for x in call.given):
        return
    if len(op._known) >= _MOST:
        op._known.clear()
    op._known[said] = Known(call, brought, keys)
