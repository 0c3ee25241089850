"""Modules: a cubin, or a contract compiled at load time, ready on a device."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _native
from . import caches as caches_of
from ._native import CPU, CUDA, lib
from .errors import Status
from .op import Op


class Module:
    """What :func:`load` returns. Immutable; safe to use from several threads.

    Attributes:
        name, version: the contract's.
        fingerprint: SHA-256 over the contract's numerics, 32 bytes. Two modules with equal
            fingerprints give equal bits, on every device, layout and row count.
        layouts: the layouts' names and how many ranks each has, in the contract's order.
        ops: the contract's ops by name, on one rank: ``module.ops["o_proj"](o, w, res)``.
        device: "cpu", "cuda" or "cuda:N".
    """

    def __init__(self, handle: ctypes.c_void_p, device: str, kind: int, index: int) -> None:
        self._handle: ctypes.c_void_p | None = handle
        self._device = kind
        self._index = index
        self.device = device
        # A CUDA module must not go while its kernels run, which only its user can know.
        self._unload = weakref.finalize(self, lib.iso_module_unload, handle)
        self._unload.atexit = False
        if kind == CUDA:
            self._unload.detach()
        name, version = ctypes.c_char_p(), ctypes.c_int()
        _native.check(lib.iso_module_name(handle, name, version))
        self.name = name.value.decode()
        self.version = version.value
        self.fingerprint = _native.digest_of("iso_module_fingerprint", handle)
        self.layouts = {layout: self._ranks(layout)
                        for layout in _names(lib.iso_module_layout_name, handle)}
        self._op_names = tuple(_names(lib.iso_module_op_name, handle))
        self._ops: dict[tuple[str, str | None, str | None, int], Op] = {}
        self.ops: Mapping[str, Op] = _Ops(self)

    def __repr__(self) -> str:
        return (f"<isoc.Module {self.name} version {self.version}, fingerprint "
                f"{self.fingerprint.hex()[:16]}, on {self.device}>")

    def __enter__(self) -> "Module":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alive(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise _native.error(Status.INVALID_ARGUMENT, f"module {self.name} was closed")
        return self._handle

    def _ranks(self, layout: str) -> int:
        ranks = ctypes.c_int()
        _native.check(lib.iso_module_layout_ranks(self._alive(), layout.encode(), ranks))
        return ranks.value

    def close(self) -> None:
        """Unloads the module; its ops are refused from then on. No kernel of it may be running,
        and no other thread may be calling it. A CUDA module that is never closed stays loaded."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._unload.detach()
            lib.iso_module_unload(handle)

    def expect(self, fingerprint: bytes | str) -> None:
        """Raises IsoError FINGERPRINT unless the module's is this one (32 bytes, or hexadecimal):
        for a trainer and a sampler that must agree before they start."""
        _native.check(lib.iso_module_expect(self._alive(), _native.digest_from(fingerprint)))

    def manifest(self) -> dict[str, Any]:
        """All that a launcher needs to know, as isoc wrote it: ops, kernels, layouts, the model."""
        text = ctypes.c_char_p()
        _native.check(lib.iso_module_manifest(self._alive(), text, None))
        return dict(json.loads(text.value or b"{}"))

    def op(self, name: str, layout: str | None = None, rank: int = 0, *,
           degrees: str | None = None) -> Op:
        """An op in a layout, on one of its ranks.

        Args:
            name: the op's, in the contract.
            layout: its name; None and no degrees: the contract on one rank.
            rank: in the layout, row-major over its meshes, the first outermost.
            degrees: instead of a name, the degrees of the meshes as "tp=4 cp=2".

        Raises:
            IsoError: UNKNOWN_OP, UNKNOWN_LAYOUT, BAD_RANK.
        """
        key = (name, layout, degrees, rank)
        known = self._ops.get(key)
        if known is None:
            known = self._ops[key] = self._get(name, layout, degrees, rank)
        return known

    def write_cache(self, rows: Sequence[Any], caches: Sequence[Any], slots: Any,
                    live_rows: Any = None, stream: Any = None) -> None:
        """Writes new rows of keys and values into paged caches; bytes move as they are.

        Args:
            rows: tensors [tokens, ...], keys' and values' say; 1 to 4.
            caches: for each one a tensor [blocks, page, ...] of the same further axes and dtype;
                strides may be any by which these are runs at one distance.
            slots: int64 [tokens]: token i goes to place ``slots[i] % page`` of block
                ``slots[i] // page``, as vLLM's slot_mapping says it; a negative one is skipped.
                On a GPU they are not compared with the cache's size.
            live_rows: one int32: tokens past it are not written.
            stream: as for an op.

        Raises:
            IsoError: BAD_TENSOR, BAD_COUNT, INVALID_ARGUMENT, DRIVER, UNSUPPORTED (the contract
                has no `attend`).
        """
        caches_of.write(self, rows, caches, slots, live_rows, stream)

    def _get(self, name: str, layout: str | None, degrees: str | None, rank: int) -> Op:
        handle, at = ctypes.c_void_p(), None
        if layout is not None or degrees is not None or rank:
            at = _native.Layout(None if layout is None else layout.encode(),
                                None if degrees is None else degrees.encode(), rank)
        _native.check(lib.iso_op_get(self._alive(), name.encode(), at, handle))
        ranks = 1
        if layout is not None:
            ranks = self.layouts[layout]
        elif degrees is not None:
            ranks = _product(degrees)
        return Op(self, handle, name, layout or degrees or "", rank, ranks)


class _Ops(Mapping[str, Op]):
    """The ops on one rank, by name."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._names = module._op_names

    def __getitem__(self, name: str) -> Op:
        if name not in self._names:
            raise KeyError(name)
        return self._module.op(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _names(function: Any, handle: ctypes.c_void_p) -> Iterator[str]:
    index = 0
    while (name := function(handle, index)) is not None:
        yield name.decode()
        index += 1


def _product(degrees: str) -> int:
    product = 1
    for mesh in degrees.split():
        product *= int(mesh.partition("=")[2])
    return product


# ---- loading --------------------------------------------------------------------------------


def _torch_cuda() -> Any:
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


def _place(device: str) -> tuple[int, int, Any]:
    """The device's kind, its index or -1, and a context in which libiso loads there."""
    kind, colon, number = device.partition(":")
    if device == "cpu":
        return CPU, -1, contextlib.nullcontext()
    if kind != "cuda" or (colon and not number.isdigit()):
        raise ValueError(f"device {device!r} is neither 'cpu', 'cuda' nor 'cuda:N'")
    cuda = _torch_cuda()
    if cuda is None:
        if number not in ("", "0"):
            raise _native.error(Status.UNSUPPORTED,
                                f"{device} needs torch to make that GPU current: import torch "
                                "first, or make its context current and load on 'cuda'")
        return CUDA, int(number or -1), contextlib.nullcontext()
    index = int(number) if number else cuda.current_device()
    return CUDA, index, cuda.device(index)


def _open_nvrtc() -> bool:
    """Opens the NVRTC of the wheel `nvidia-cuda-nvrtc` beside this Python's packages, so that
    libiso, which does not know this Python, finds it by its name. False where there is none."""
    for folder in map(Path, sys.path):
        for wheel in ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"):
            libraries = sorted((folder / wheel).glob("libnvrtc.so.1[23]"))
            if libraries:
                for builtins in (folder / wheel).glob("libnvrtc-builtins.so.*"):
                    ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
                ctypes.CDLL(str(libraries[-1]))
                return True
    return False


def _load(handle: ctypes.c_void_p, source: str | os.PathLike[str] | bytes,
          config: _native.Config) -> int:
    if isinstance(source, bytes):
        return lib.iso_module_load_data(handle, source, len(source), config)
    status = lib.iso_module_load(handle, os.fsencode(source), config)
    if status == Status.TOOLCHAIN and _open_nvrtc():
        status = lib.iso_module_load(handle, os.fsencode(source), config)
    return status


def load(source: str | os.PathLike[str] | bytes, device: str = "cuda", *, cpu_threads: int = 0,
         cache_dir: str | os.PathLike[str] | None = None,
         expect: bytes | str | None = None) -> Module:
    """Loads kernels.

    Args:
        source: the path of a cubin made by isoc, or of a contract (.iso), which is compiled unless
            the cache has it, by the CUDA Toolkit's NVRTC or that of the wheel nvidia-cuda-nvrtc;
            or a cubin's bytes.
        device: "cuda" is torch's current GPU if torch is imported, else the current context's;
            "cuda:N"; "cpu" is the executor: the same bits, slowly.
        cpu_threads: for "cpu"; 0 is one per processor.
        cache_dir: where compiled contracts are kept; None: $ISOC_CACHE, else the user's cache.
        expect: a fingerprint that the module must have.

    Raises:
        IsoError: FILE, NOT_ISO, CORRUPT, VERSION_MISMATCH, CONTRACT (with the compiler's
            messages), TOOLCHAIN, DRIVER, ARCHITECTURE, FINGERPRINT.
        ValueError: an unknown device.
    """
    kind, index, context = _place(device)
    config = _native.Config(size=ctypes.sizeof(_native.Config), device=kind,
                            cpu_threads=cpu_threads)
    if cache_dir is not None:
        config.cache_dir = os.fsencode(cache_dir)
    handle = ctypes.c_void_p()
    with context:
        _native.check(_load(handle, source, config))
    module = Module(handle, device, kind, index)
    if expect is not None:
        module.expect(expect)
    return module
