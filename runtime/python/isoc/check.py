"""Whether processes that must give equal bits run the same thing: compared once, at the start.

    import isoc.check
    isoc.check.peers(store, "trainer", 2, module, weights=isoc.check.digest(state), layout="tp1")
    isoc.check.peers(store, "sampler", 2, module, weights=isoc.check.digest(state), layout="tp2")

The store is any of torch.distributed's (``TCPStore``, ``FileStore``, ...), or what behaves like
one: ``set``, ``get`` (which waits for the key) and ``add``.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from typing import Any, Iterable, Mapping

from . import _native, tensors
from .errors import Status
from .module import Module


def digest(weights: Mapping[str, Any]) -> bytes:
    """SHA-256 over tensors in host memory by name: names, dtypes, shapes and elements.

    Strides do not matter, nor the mapping's order; bf16 and its uint16 bits are the same.

    Args:
        weights: bf16, f16, f32, uint16 or int32 tensors of torch, NumPy or DLPack, whole: ranks of
            different layouts hold different parts, whose digests say nothing.

    Raises:
        IsoError: BAD_TENSOR for a tensor in GPU memory or of another dtype.
    """
    whole = hashlib.sha256()
    for name in sorted(weights):
        x = weights[name]
        view = tensors.view(x.detach() if tensors.is_torch(x) else x)
        dtype = tensors.BF16 if view.dtype == tensors.BITS16 else view.dtype
        if view.cuda or dtype == tensors.OTHER:
            raise _native.error(Status.BAD_TENSOR,
                                f"{name} is {view.dtype_name} in {'GPU' if view.cuda else 'host'} "
                                "memory; a digest is of bf16, f16, f32 or int32 in host memory")
        head = json.dumps([name, dtype, list(view.shape)])
        whole.update(head.encode() + b"\n")
        for chunk in _rows(view):
            whole.update(chunk)
    return whole.digest()


def _rows(view: tensors.View) -> Iterable[Any]:
    """The elements' bytes in row-major order, as few pieces as the strides allow."""
    size = 2 if view.dtype in (tensors.BF16, tensors.F16, tensors.BITS16) else 4
    if 0 in view.shape:
        return
    inner, axes = size, len(view.shape)
    while axes and (view.strides[axes - 1] * size == inner or view.shape[axes - 1] == 1):
        axes -= 1
        inner *= view.shape[axes]
    index = [0] * axes
    while True:
        offset = sum(i * s for i, s in zip(index, view.strides)) * size
        yield (ctypes.c_char * inner).from_address(view.address + offset)
        axis = axes - 1
        while axis >= 0 and index[axis] == view.shape[axis] - 1:
            index[axis] = 0
            axis -= 1
        if axis < 0:
            return
        index[axis] += 1


def peers(store: Any, name: str, count: int, module: Module, *, weights: bytes | str = b"",
          layout: str | None = None, prefix: str = "isoc") -> dict[str, dict[str, Any]]:
    """Tells the others what this process runs, waits for them, and compares.

    Every process calls it once for a prefix, with a name of its own.

    Args:
        store: of torch.distributed; how long its ``get`` waits is the store's own time limit.
        name: of this process, in messages.
        count: how many processes there are.
        module: what this one runs.
        weights: their digest, of :func:`digest` or the caller's own. A process that gives none
            differs from one that does.
        layout: this process's. Layouts may differ, that is what contracts are for; one that the
            module does not have is refused.

    Returns:
        What every process said, by name: contract, fingerprint, weights (hexadecimal), layout.

    Raises:
        IsoError: FINGERPRINT, WEIGHTS with who differs from whom; UNKNOWN_LAYOUT. All processes
            raise alike, so that none goes on alone.
        ValueError: two processes have one name.
    """
    if layout is not None and layout not in module.layouts:
        raise _native.error(Status.UNKNOWN_LAYOUT,
                            f"contract {module.name} has no layout {layout}")
    digest_ = weights if isinstance(weights, str) else weights.hex()
    own = {"name": name, "contract": f"{module.name} version {module.version}",
           "fingerprint": module.fingerprint.hex(), "weights": digest_, "layout": layout}
    place = int(store.add(f"{prefix}/count", 1)) - 1
    store.set(f"{prefix}/{place}", json.dumps(own))
    said: dict[str, dict[str, Any]] = {}
    for i in range(count):
        other = json.loads(store.get(f"{prefix}/{i}"))
        if other["name"] in said:
            raise ValueError(f"two processes call themselves {other['name']}")
        said[other.pop("name")] = other
    _compare(said)
    return said


def _compare(said: dict[str, dict[str, Any]]) -> None:
    names = sorted(said)
    for field, status in (("fingerprint", Status.FINGERPRINT), ("weights", Status.WEIGHTS)):
        for other in names[1:]:
            one, two = said[names[0]], said[other]
            if one[field] != two[field]:
                raise _native.error(status,
                                    f"{names[0]} runs {_said(one, field)}, {other} runs "
                                    f"{_said(two, field)}")


def _said(one: dict[str, Any], field: str) -> str:
    value = one[field][:16] or "none given"
    return f"{one['contract']} with {field} {value}"
