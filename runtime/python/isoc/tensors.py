"""Tensors of other libraries as libiso sees them: an address, a dtype, a shape and strides.

Nothing is copied. In order of what is tried: tensors like torch's (``data_ptr``, ``stride``,
``device``), NumPy arrays, ``__cuda_array_interface__``, DLPack.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Callable

from . import _native
from .errors import Status

BF16, F16, F32 = 0, 1, 2
INT32 = 3  # indices, positions and sequences
BITS16 = 4  # uint16: how libraries without bfloat16 hold one
INT64 = 5  # slots of a cache
OTHER = -1
DTYPE_NAMES = ("bf16", "f16", "f32", "i32")
BYTES = (2, 2, 4, 4)
_NAMES = {
    "bfloat16": BF16,
    "float16": F16,
    "float32": F32,
    "uint16": BITS16,
    "int32": INT32,
    "int64": INT64,
}


class View:
    """A tensor in place. Strides count elements.

    Attributes:
        address: of the first element; 0 for an empty tensor.
        dtype: BF16, F16, F32, BITS16, INT32, INT64 or OTHER.
        dtype_name: as its own library calls it, for messages.
        cuda: whether the memory is a GPU's, and then ``index``, the GPU, or -1 if unknown.
        readonly: whether its library forbids writing.
        stream: the CUDA stream that last wrote it, where the protocol says so; else None.
        keep: what must live as long as this view.
    """

    __slots__ = ("address", "dtype", "dtype_name", "shape", "strides", "cuda", "index", "readonly",
                 "stream", "keep")

    def __init__(self, address: int, dtype: int, dtype_name: str, shape: tuple[int, ...],
                 strides: tuple[int, ...], cuda: bool, index: int = -1, readonly: bool = False,
                 stream: int | None = None, keep: object = None) -> None:
        self.address = address
        self.dtype = dtype
        self.dtype_name = dtype_name
        self.shape = shape
        self.strides = strides
        self.cuda = cuda
        self.index = index
        self.readonly = readonly
        self.stream = stream
        self.keep = keep

    def contiguous(self) -> bool:
        return self.strides == contiguous_strides(self.shape) or 0 in self.shape

    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _in_elements(strides: tuple[int, ...], size: int) -> tuple[int, ...]:
    for stride in strides:
        if stride % size:
            raise _native.error(Status.BAD_TENSOR,
                                f"a stride of {stride} bytes is no multiple of the {size} bytes of "
                                "an element")
    return tuple(stride // size for stride in strides)


# ---- torch ----------------------------------------------------------------------------------

# Asked for at every call, and slow to tell: what a dtype and a device mean.
_torch_dtypes: dict[Any, tuple[int, str]] = {}
_torch_places: dict[Any, tuple[bool, int]] = {}


def _torch_dtype(dtype: Any) -> tuple[int, str]:
    name = str(dtype).rpartition(".")[2]
    known = _torch_dtypes[dtype] = (_NAMES.get(name, OTHER), name)
    return known


def _torch_place(device: Any) -> tuple[bool, int]:
    kind = device.type
    if kind != "cpu" and kind != "cuda":
        raise _native.error(Status.BAD_TENSOR, f"a tensor is on device {device}; isoc runs on cpu "
                                               "and cuda")
    index = device.index if kind == "cuda" else None
    known = _torch_places[device] = (kind == "cuda", -1 if index is None else index)
    return known


def _refuse_gradient(x: Any) -> None:
    torch = sys.modules.get("torch")
    if torch is None or torch.is_grad_enabled():
        raise _native.error(Status.UNSUPPORTED,
                            "a tensor requires a gradient, which this call would lose: use "
                            "torch.no_grad(), or isoc.torch.function for an op with a backward")


def _view_torch(x: Any) -> View:
    if x.requires_grad:
        _refuse_gradient(x)
    if x.is_neg():
        raise _native.error(Status.BAD_TENSOR,
                            "a lazily negated tensor is not in memory: pass x.resolve_neg()")
    dtype, name = _torch_dtypes.get(x.dtype) or _torch_dtype(x.dtype)
    cuda, index = _torch_places.get(x.device) or _torch_place(x.device)
    return View(x.data_ptr(), dtype, name, x.shape, x.stride(), cuda, index)


# ---- NumPy ----------------------------------------------------------------------------------


_numpy_dtypes: dict[Any, tuple[int, str]] = {}


def _numpy_dtype(dtype: Any) -> tuple[int, str]:
    known = (_NAMES.get(dtype.name, OTHER), dtype.name)
    if not dtype.isnative:
        known = (OTHER, f"{dtype.name} of the other byte order")
    _numpy_dtypes[dtype] = known
    return known


def _view_numpy(x: Any) -> View:
    address, readonly = x.__array_interface__["data"]
    dtype = x.dtype
    code, name = _numpy_dtypes.get(dtype) or _numpy_dtype(dtype)
    return View(address, code, name, x.shape, _in_elements(x.strides, dtype.itemsize), False,
                readonly=readonly)


# ---- __cuda_array_interface__ ---------------------------------------------------------------

_TYPESTRS = {"<f4": F32, "<f2": F16, "<u2": BITS16, "<V2": BF16, "|V2": BF16, "<i4": INT32,
             "<i8": INT64}


def _view_cuda_interface(x: Any) -> View:
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is None:
        return _view_dlpack(x)
    address, readonly = interface["data"]
    typestr, shape = interface["typestr"], tuple(interface["shape"])
    strides = interface.get("strides")
    dtype = _TYPESTRS.get(typestr, OTHER)
    steps = (contiguous_strides(shape) if strides is None
             else _in_elements(tuple(strides), int(typestr[2:])))
    return View(address or 0, dtype, typestr, shape, steps, True, readonly=readonly,
                stream=interface.get("stream"))


# ---- DLPack ---------------------------------------------------------------------------------


class _DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_DL_DTYPES = {(4, 16): BF16, (2, 16): F16, (2, 32): F32, (1, 16): BITS16, (0, 32): INT32,
              (0, 64): INT64}
_DL_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_MANAGED = 1, 2, 3, 13

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]


def _view_dlpack(x: Any, stream: int | None = None) -> View:
    """The capsule keeps its name, so that it frees the export itself when the view goes."""
    device_type, device_id = x.__dlpack_device__()
    if device_type not in (_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_MANAGED):
        raise _native.error(Status.BAD_TENSOR, f"a tensor is on DLPack device type {device_type}; "
                                               "isoc runs on cpu and cuda")
    cuda = device_type in (_DL_CUDA, _DL_MANAGED)
    capsule = x.__dlpack__(stream=stream) if cuda and stream is not None else x.__dlpack__()
    tensor = _DlTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = (tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides
               else contiguous_strides(shape))
    dtype = _DL_DTYPES.get((tensor.code, tensor.bits), OTHER) if tensor.lanes == 1 else OTHER
    name = f"{_DL_CODES.get(tensor.code, f'code {tensor.code} ')}{tensor.bits}"
    return View((tensor.data or 0) + tensor.byte_offset, dtype, name, shape, strides, cuda,
                device_id if cuda else -1, keep=capsule)


# ---- choosing -------------------------------------------------------------------------------

Adapter = Callable[[Any], View]
_adapters: dict[type, Adapter] = {}


def is_torch(x: object) -> bool:
    """Whether x is a tensor of torch's, or one that behaves like it."""
    return _adapter(type(x)) is _view_torch


def first_torch(xs: list[Any]) -> Any:
    """The first of them that is torch's, or None."""
    for x in xs:
        if (_adapters.get(type(x)) or _adapter(type(x))) is _view_torch:
            return x
    return None


def is_numpy(x: object) -> bool:
    return _adapter(type(x)) is _view_numpy


def _choose(kind: type) -> Adapter:
    if hasattr(kind, "data_ptr") and hasattr(kind, "stride"):
        return _view_torch
    if hasattr(kind, "__array_interface__") and hasattr(kind, "dtype"):
        return _view_numpy
    if hasattr(kind, "__cuda_array_interface__"):
        return _view_cuda_interface
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return _view_dlpack
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} is no tensor that isoc can read: "
                    "pass one of torch, NumPy, __cuda_array_interface__ or DLPack")


def _adapter(kind: type) -> Adapter:
    known = _adapters.get(kind)
    if known is None:
        known = _adapters[kind] = _choose(kind)
    return known


def view(x: Any, stream: int | None = None) -> View:
    """A tensor in place.

    Args:
        x: a tensor of torch, NumPy, ``__cuda_array_interface__`` or DLPack.
        stream: the CUDA stream that will read it; DLPack producers make theirs wait for it.

    Raises:
        TypeError: x is none of these.
        IsoError: BAD_TENSOR for memory that no kernel can address, UNSUPPORTED for a tensor that
            requires a gradient while gradients are enabled.
    """
    adapter = _adapters.get(type(x)) or _adapter(type(x))
    return _view_dlpack(x, stream) if adapter is _view_dlpack else adapter(x)
