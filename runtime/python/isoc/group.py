"""Groups: the ranks of a layout, run as one, each with its process or its thread.

    with isoc.Group(module) as group:                    # as torchrun set the ranks
        model = isoc.Model(module, "weights", layout="tp2", group=group)

See ``runtime/iso_group.h`` for what a group promises when a rank dies, hangs or runs another thing.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint8, c_void_p
from typing import TYPE_CHECKING

from . import _native
from .errors import Status

if TYPE_CHECKING:
    from .module import Module


class _Config(ctypes.Structure):
        _fields_ = [
        ("size", c_size_t),
        ("rank", c_int),
        ("ranks", c_int),
        ("bootstrap", c_char_p),
        ("timeout", c_double),
        ("bytes", c_size_t),
        ("weights", POINTER(c_uint8)),
        ("two_shot", c_size_t),
        ("island", c_int),
        ("nccl_comm", c_void_p),
    ]


class Group:
    """A rank of a group. Every rank makes one, and returns from that when all have come.

    Attributes:
        rank: this one's, and ``ranks``, how many there are.
    """

    def __init__(self, module: Module, rank: int | None = None, ranks: int | None = None, *,
                 bootstrap: str | None = None, timeout: float = 60.0, size: int = 0) -> None:
        """
        Args:
            module: whose ops the group runs; it must not be closed before the group.
            rank, ranks: of this process; None: from $RANK and $WORLD_SIZE, as torchrun sets them.
            bootstrap: "tcp://HOST:PORT", where rank 0 listens, or "file:FOLDER" on one host;
                None: $MASTER_ADDR and the port after $MASTER_PORT, or $ISO_GROUP_PORT.
            timeout: seconds that a rank may be late.
            size: bytes that one op moves at most; see :meth:`Model.sizes`; 0: 64 MiB.

        Raises:
            IsoError: BOOTSTRAP, RANK_TIMEOUT, RANK_LOST, FINGERPRINT, DRIVER, OUT_OF_MEMORY,
                UNSUPPORTED.
        """
        if (rank is None) != (ranks is None):
            raise ValueError("give both rank and ranks, or neither")
        config = _Config(ctypes.sizeof(_Config), rank or 0, ranks or 0,
                         bootstrap.encode() if bootstrap else None, timeout, size)
        handle = c_void_p()
        _native.check(_native.lib.iso_group_create(handle, module._alive(), ctypes.byref(config)))
        self._handle: c_void_p | None = handle
        self._module = module

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alive(self) -> c_void_p:
        if self._handle is None:
            raise _native.error(Status.INVALID_ARGUMENT, "the group was closed")
        return self._handle

    def check(self) -> None:
        """Raises what the group failed with, if it has; does not wait."""
        _native.check(_native.lib.iso_group_status(self._alive()))

    def close(self) -> None:
        """Collective, unless the group has failed: no work on it may be running."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _native.lib.iso_group_destroy(handle)
