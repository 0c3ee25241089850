"""Memory that isoc makes for its callers, with their own library: results, roots, workspaces.

CUDA memory comes from torch alone; callers of other libraries pass ``out``, ``roots`` and
``workspace`` themselves.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, Sequence

from . import _native, tensors
from .errors import Status

ALIGNMENT = 256


# ---- results and roots ----------------------------------------------------------------------


def empty(like: Sequence[Any], dtype: int, shape: tuple[int, ...]) -> Any:
    """A new tensor of the library, and on the device, of the first of ``like`` that allocates.

    bf16 is torch.bfloat16; with NumPy it is the bfloat16 of an input that has one, else uint16.

    Raises:
        TypeError: none of them is torch's or NumPy's.
    """
    for x in like:
        if tensors.is_torch(x):
            torch = sys.modules["torch"]
            return torch.empty(shape, dtype=_torch_dtype(torch, dtype), device=x.device)
        if tensors.is_numpy(x):
            numpy = sys.modules["numpy"]
            return numpy.empty(shape, dtype=_numpy_dtype(numpy, like, dtype))
    raise TypeError("isoc allocates with torch and NumPy alone: pass out= (and roots=) for "
                    "tensors of other libraries")


def _torch_dtype(torch: Any, dtype: int) -> Any:
    return getattr(torch, ("bfloat16", "float16", "float32", "int32")[dtype])


def _numpy_dtype(numpy: Any, like: Sequence[Any], dtype: int) -> Any:
    if dtype == tensors.BF16:
        for x in like:
            if tensors.is_numpy(x) and x.dtype.name == "bfloat16":
                return x.dtype
        return numpy.uint16
    return {tensors.F16: numpy.float16, tensors.F32: numpy.float32}.get(dtype, numpy.int32)


def roots(like: Sequence[Any], size: int) -> Any:
    """A float32 buffer of ``size`` bytes, at least one element, aligned to 256 bytes."""
    count, slack = max(size // 4, 1), ALIGNMENT // 4
    whole = empty(like, tensors.F32, (count + slack,))
    skip = -tensors.view(whole).address % ALIGNMENT // 4
    return whole[skip:skip + count]


# ---- streams --------------------------------------------------------------------------------


def stream_handle(stream: Any) -> int:
    """The CUstream of an int, or of a stream of torch, CuPy or the ``__cuda_stream__`` protocol."""
    if isinstance(stream, int):
        return stream
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise TypeError(f"{type(stream).__name__} is no CUDA stream: pass a CUstream as int, or a "
                    "stream of torch, CuPy or __cuda_stream__")


def current_stream(device: Any) -> int:
    """The CUstream that is current for a device of torch's."""
    return int(sys.modules["torch"].cuda.current_stream(device).cuda_stream)


@contextlib.contextmanager
def torch_stream(stream: Any, index: int) -> Any:
    """Makes the device, and the stream if one is given, torch's current ones: what is allocated
    meanwhile then belongs to that stream."""
    cuda = sys.modules["torch"].cuda
    with contextlib.ExitStack() as stack:
        if index >= 0 and cuda.current_device() != index:
            stack.enter_context(cuda.device(index))
        if stream is not None:
            if not hasattr(stream, "cuda_stream"):
                stream = cuda.ExternalStream(stream_handle(stream), device=index)
            stack.enter_context(cuda.stream(stream))
        yield


def stated_stream(views: Sequence[tensors.View | None]) -> int:
    """The stream that ``__cuda_array_interface__`` states; 0, the default one, if none does."""
    stated = {view.stream for view in views if view is not None and view.stream is not None}
    if len(stated) > 1:
        raise _native.error(Status.INVALID_ARGUMENT,
                            f"the tensors were written on several streams ({sorted(stated)}): "
                            "make them wait for one and pass stream=")
    return stated.pop() if stated else 0


# ---- workspaces -----------------------------------------------------------------------------


class Workspaces:
    """Scratch memory, one per device and stream, grown when a call needs more.

    A workspace is zeroed once; every run leaves it ready for the next on its stream. While a CUDA
    graph is captured each call gets its own from the graph's pool: a graph must not refer to one
    that later grows, nor share it with what runs beside the graph.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], Any] = {}
        self._lock = threading.Lock()

    def get(self, device: Any, stream: int, size: int) -> tuple[int, Any]:
        """The address of at least ``size`` bytes for torch's device, on its current stream, and
        what must be kept until the call is made."""
        torch = sys.modules["torch"]
        if torch.cuda.is_current_stream_capturing():
            return self._zeros(torch, device, size)
        key = (device.index, stream)
        kept = self._kept.get(key)
        if kept is not None and kept[1].numel() >= size + ALIGNMENT:
            return kept
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept[1].numel() < size + ALIGNMENT:
                more = size if kept is None else max(size, 2 * kept[1].numel())
                kept = self._kept[key] = self._zeros(torch, device, more)
            return kept

    def clear(self) -> None:
        """Gives all of them back. No run that uses one may be under way."""
        with self._lock:
            self._kept.clear()

    @staticmethod
    def _zeros(torch: Any, device: Any, size: int) -> tuple[int, Any]:
        memory = torch.zeros(size + ALIGNMENT, dtype=torch.uint8, device=device)
        address = memory.data_ptr()
        return address + -address % ALIGNMENT, memory


workspaces = Workspaces()
