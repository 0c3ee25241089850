"""Where the keys and values of `attend` are: padded, packed or paged."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_int64, c_void_p
from typing import Any, Callable, NamedTuple

from . import _native, tensors
from .errors import Status


class Keys(NamedTuple):
    """Passed as ``keys=`` to an op with `attend`. Key j of sequence s lies, in steps of the axes
    sequence and position of the keys' and values' tensors, at (s, j); with ``starts`` at
    (0, starts[s] + j); with ``block_table`` at (block_table[s, j // page], j % page).

    Indices are not compared with the tensors' sizes.

    Attributes:
        lengths: int32 [sequences], keys of each sequence, the rows' own included. None, for causal
            attention: as far as a row sees.
        starts: int32 [sequences], of a packed batch; cu_seqlens does.
        block_table: int32 [sequences, blocks], of a paged cache; rows may be apart.
        page: keys of a block.
        most_rows: rows of one sequence that the call has at most. This and the next are hints by
            which a schedule is chosen; a wrong one costs time, no bit. 0: unknown.
        most_keys: keys of one sequence at most. 0: unknown.
        turns: int32 [sequences], where ranks share the keys by whole splits, n of them: split i of
            sequence s is on rank (i + turns[s]) % n. None: zeros. Then ``most_keys`` is no hint: it
            must be given, and no sequence may have more.
    """

    lengths: Any = None
    starts: Any = None
    block_table: Any = None
    page: int = 0
    most_rows: int = 0
    most_keys: int = 0
    turns: Any = None


class _Keys(ctypes.Structure):
    _fields_ = [
        ("lengths", c_void_p),
        ("starts", c_void_p),
        ("block_table", c_void_p),
        ("block_table_stride", c_int64),
        ("page", c_int),
        ("most_rows", c_int),
        ("most_keys", c_int64),
        ("turns", c_void_p),
    ]


def pack(keys: Keys, check: Callable[[tensors.View, str], None]) -> tuple[_Keys, list[Any]]:
    """The structure that libiso takes, and what must live as long as it.

    Raises:
        IsoError: BAD_TENSOR for what is not int32 in rows without gaps; what ``check`` raises.
    """
    packed = _Keys(page=keys.page, most_rows=keys.most_rows, most_keys=keys.most_keys)
    kept: list[Any] = []
    for name, axes in (("lengths", 1), ("starts", 1), ("block_table", 2), ("turns", 1)):
        x = getattr(keys, name)
        if x is None:
            continue
        view = tensors.view(x)
        if view.dtype != tensors.INT32 or len(view.shape) != axes or view.strides[-1] != 1:
            raise _native.error(Status.BAD_TENSOR,
                                f"keys.{name} must be int32 of {axes} axes, the last one without "
                                f"gaps, not {view.dtype_name} of shape {view.shape}")
        check(view, f"keys.{name}")
        kept.append(view)
        setattr(packed, name, view.address)
        if axes == 2:
            packed.block_table_stride = view.strides[0]
    return packed, kept
