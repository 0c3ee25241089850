"""libiso by ctypes: its structures, its functions, and where it is found.

The library is looked for in $ISOC_LIBRARY (a file), beside this package (where the wheel has it),
and where the loader looks. Every function returns a status; ``check`` makes the others exceptions.
"""

from __future__ import annotations

import ctypes
import os
import struct
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint8, c_void_p
from pathlib import Path

from .errors import IsoError

MAX_AXES = 8
CUDA, CPU = 0, 1
RUN, PART, JOIN = 0, 1, 2


class Config(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("cpu_threads", c_int),
        ("cache_dir", c_char_p),
    ]


class Layout(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("degrees", c_char_p), ("rank", c_int)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int),
        ("n_axes", c_int),
        ("shape", c_int64 * MAX_AXES),
        ("stride", c_int64 * MAX_AXES),
    ]


class Run(ctypes.Structure):
    _fields_ = [
        ("rows", c_int64),
        ("schedule", c_int),
        ("settled", c_int),
        ("rows_device", c_void_p),
        ("positions", c_void_p),
        ("sequences", c_void_p),
        ("keys", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("stream", c_void_p),
    ]


# The same bytes as Tensor, written in one call: filling a ctypes array field by field is slower
# than the launch.
TENSOR = struct.Struct("@Pii8q8q")

_int = POINTER(c_int)
_size = POINTER(c_size_t)
_text = POINTER(c_char_p)
_digest = c_uint8 * 32

# Name: parameter types. All return a status but those of TEXTS.
CALLS: dict[str, list[object]] = {
    "iso_module_load": [POINTER(c_void_p), c_char_p, POINTER(Config)],
    "iso_module_load_data": [POINTER(c_void_p), c_char_p, c_size_t, POINTER(Config)],
    "iso_module_fingerprint": [c_void_p, _digest],
    "iso_module_expect": [c_void_p, _digest],
    "iso_module_name": [c_void_p, _text, _int],
    "iso_module_layout_ranks": [c_void_p, c_char_p, _int],
    "iso_module_manifest": [c_void_p, _text, _size],
    "iso_op_get": [c_void_p, c_char_p, POINTER(Layout), POINTER(c_void_p)],
    "iso_op_tensors": [c_void_p, _int, _int],
    "iso_op_tensor": [c_void_p, c_int, c_int64, c_int, POINTER(Tensor), _text],
    "iso_op_origin": [c_void_p, c_int, c_int64, c_int, c_int64 * MAX_AXES],
    "iso_op_fingerprint": [c_void_p, _digest],
    "iso_op_schedules": [c_void_p, _int],
    "iso_op_needs_join": [c_void_p, _int],
    "iso_op_roots": [c_void_p, c_int64, _size],
    "iso_op_roots_of_keys": [c_void_p, c_int64, c_int64, _size],
    "iso_op_workspace": [c_void_p, c_int64, c_int, _size],
    "iso_op_run": [c_void_p, c_void_p, c_int, POINTER(Run)],
    "iso_op_part": [c_void_p, c_void_p, c_int, c_void_p, POINTER(Run)],
    "iso_op_join": [c_void_p, POINTER(c_void_p), c_int, c_void_p, c_int, POINTER(Run)],
    "iso_op_kernel": [c_void_p, c_int, c_int64, c_int, _text],
    "iso_cache_write": [c_void_p, c_void_p, c_void_p],
}
# Of iso_group.h and iso_model.h, whose structures are in group.py and model.py.
GROUP_CALLS: dict[str, list[object]] = {
    "iso_group_create": [POINTER(c_void_p), c_void_p, c_void_p],
    "iso_group_status": [c_void_p],
}
MODEL_CALLS: dict[str, list[object]] = {
    "iso_model_size": [c_void_p, c_void_p, c_int, c_void_p],
    "iso_model_load": [POINTER(c_void_p), c_void_p, c_void_p],
    "iso_model_weights": [c_void_p, _digest],
    "iso_model_step": [c_void_p, c_void_p],
    "iso_model_value": [c_void_p, c_char_p, c_int64, POINTER(Tensor)],
    "iso_model_table": [c_void_p, c_int, c_int64, c_void_p, c_void_p, c_size_t],
    "iso_model_trace": [c_void_p, c_char_p, c_char_p],
    "iso_trace_diff": [c_char_p, c_char_p, c_void_p],
}
TEXTS: dict[str, list[object]] = {
    "iso_version": [],
    "iso_status_string": [c_int],
    "iso_last_error": [],
    "iso_module_op_name": [c_void_p, c_int],
    "iso_module_layout_name": [c_void_p, c_int],
}
MODEL_TEXTS: dict[str, list[object]] = {
    "iso_model_input_name": [c_void_p, c_int],
    "iso_model_output_name": [c_void_p, c_int],
}
VOIDS = ("iso_module_unload", "iso_group_destroy", "iso_model_unload")


def _open() -> ctypes.CDLL:
    given = os.environ.get("ISOC_LIBRARY")
    packed = Path(__file__).with_name("libiso.so")
    path = given or (str(packed) if packed.exists() else "libiso.so.0")
    try:
        library = ctypes.CDLL(path)
    except OSError as problem:
        raise ImportError(
            f"isoc cannot open {path}: {problem}; install isoc's wheel, or set ISOC_LIBRARY to "
            "the libiso.so that `make` builds"
        ) from problem
    for names, result in ((CALLS, c_int), (GROUP_CALLS, c_int), (MODEL_CALLS, c_int),
                          (TEXTS, c_char_p), (MODEL_TEXTS, c_char_p)):
        for name, types in names.items():
            function = getattr(library, name)
            function.argtypes, function.restype = types, result
    for name in VOIDS:
        function = getattr(library, name)
        function.argtypes, function.restype = [c_void_p], None
    return library


lib = _open()


def error(status: int, detail: str) -> IsoError:
    """An exception of a status, with the library's sentence for it."""
    return IsoError(status, lib.iso_status_string(status).decode(), detail)


def check(status: int) -> None:
    """Raises unless the status is ISO_OK; the thread's last error is what was wrong."""
    if status:
        raise error(status, lib.iso_last_error().decode(errors="replace"))


def int_of(function: str, handle: c_void_p) -> int:
    """What a function of (handle, int *) writes."""
    value = c_int()
    check(getattr(lib, function)(handle, ctypes.byref(value)))
    return value.value


def digest_of(function: str, handle: c_void_p) -> bytes:
    """What a function of (handle, uint8_t[32]) writes."""
    digest = _digest()
    check(getattr(lib, function)(handle, digest))
    return bytes(digest)


def digest_from(value: bytes | str) -> ctypes.Array[c_uint8]:
    """32 bytes, or 64 hexadecimal digits, as a digest to pass."""
    try:
        raw = bytes.fromhex(value) if isinstance(value, str) else bytes(value)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise ValueError(f"a fingerprint is 32 bytes or 64 hexadecimal digits, not {value!r}")
    return _digest(*raw)
