"""New rows of keys and values into paged caches."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_void_p
from typing import TYPE_CHECKING, Any, Sequence

from . import _native, memory, tensors
from .errors import Status

if TYPE_CHECKING:
    from .module import Module


class _Rows(ctypes.Structure):
    _fields_ = [
        ("rows", c_void_p),
        ("cache", c_void_p),
        ("n", c_int),
        ("slots", c_void_p),
        ("rows_device", c_void_p),
    ]


def _pack(views: list[tensors.View]) -> ctypes.Array[ctypes.c_char]:
    size = _native.TENSOR.size
    packed = ctypes.create_string_buffer(size * len(views))
    for i, view in enumerate(views):
        n = len(view.shape)
        if n > _native.MAX_AXES or view.dtype in (tensors.OTHER, tensors.INT32, tensors.INT64):
            raise _native.error(Status.BAD_TENSOR,
                                f"a tensor of {n} axes and dtype {view.dtype_name} is no cache's")
        pad = (0,) * (_native.MAX_AXES - n)
        dtype = tensors.BF16 if view.dtype == tensors.BITS16 else view.dtype
        _native.TENSOR.pack_into(packed, i * size, view.address or memory.ALIGNMENT, dtype, n,
                                 *view.shape, *pad, *view.strides, *pad)
    return packed


def _integers(x: Any, what: str, dtype: int, name: str) -> tensors.View:
    view = tensors.view(x)
    if view.dtype != dtype or not view.contiguous():
        raise _native.error(Status.BAD_TENSOR,
                            f"{what} must be contiguous {name}, not {view.dtype_name}")
    return view


def write(module: Module, rows: Sequence[Any], caches: Sequence[Any], slots: Any,
          live_rows: Any = None, stream: Any = None) -> None:
    """See :meth:`Module.write_cache`."""
    if len(rows) != len(caches):
        raise _native.error(Status.BAD_COUNT, f"{len(rows)} tensors of rows, {len(caches)} caches")
    handle, on_gpu = module._alive(), module._device == 0
    from_views, to_views = ([tensors.view(x) for x in xs] for xs in (rows, caches))
    indices = _integers(slots, "slots", tensors.INT64, "int64")
    live = None if live_rows is None else _integers(live_rows, "live_rows", tensors.INT32, "int32")
    views = [*from_views, *to_views, indices, *([live] if live else [])]
    for view in views:
        if view.cuda != on_gpu:
            raise _native.error(Status.BAD_TENSOR, "the module was loaded for "
                                f"{module.device}, a tensor is in other memory")
    if any(view.readonly for view in to_views):
        raise _native.error(Status.BAD_TENSOR, "a cache is read-only")
    if from_views and (not from_views[0].shape or indices.elements() < from_views[0].shape[0]):
        raise _native.error(Status.BAD_TENSOR,
                            f"{indices.elements()} slots for rows of shape {from_views[0].shape}")
    packed = _pack(from_views), _pack(to_views)
    what = _Rows(ctypes.addressof(packed[0]), ctypes.addressof(packed[1]), len(from_views),
                 indices.address or memory.ALIGNMENT, live.address if live else None)
    torch = tensors.first_torch([*rows, *caches])
    if stream is not None:
        on = memory.stream_handle(stream)
    elif on_gpu:
        on = memory.stated_stream(views) if torch is None else memory.current_stream(torch.device)
    else:
        on = 0
    _native.check(_native.lib.iso_cache_write(handle, ctypes.byref(what), on))
