"""Models: a contract's `model`, with weights, run step by step over a packed batch of rows.

    model = isoc.Model(module, "SmolLM2-135M", max_rows=4096, max_sequences=64)
    out = model.step([isoc.Sequence(rows=len(ids))], {"ids": ids, "targets": targets, ...},
                     ["logprob"])

A step is a prefill, a chunk of one, decoding, the verification of drafted tokens or the scoring of
whole sequences, or any mix: a row's bits do not depend on which, nor on its neighbours.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_void_p
from typing import Any, Iterator, Mapping, NamedTuple, Sequence as Many

import numpy as np

from . import _native, tensors
from .errors import Status
from .group import Group
from .module import Module, _names

_BITS = {tensors.BF16: np.uint16, tensors.F16: np.float16, tensors.F32: np.float32,
         tensors.INT32: np.int32}


class _Config(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("weights", c_char_p),
        ("digest", POINTER(c_uint8)),
        ("layout", c_char_p),
        ("group", c_void_p),
        ("max_rows", c_int64),
        ("max_sequences", c_int),
        ("max_position", c_int64),
        ("page", c_int),
        ("pages", c_int64),
        ("output_rows", c_int64),
        ("graph_rows", c_int64),
    ]


class _Sizes(ctypes.Structure):
    _fields_ = [*((name, c_size_t) for name in ("group", "weights", "cache", "memory")),
                ("page_ranks", c_int), ("page_positions", c_int64)]


class _Sequence(ctypes.Structure):
    _fields_ = [
        ("id", c_int64),
        ("position", c_int64),
        ("rows", c_int),
        ("pages", POINTER(c_int32)),
    ]


class _Value(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t)]


class _Step(ctypes.Structure):
    _fields_ = [
        ("sequences", POINTER(_Sequence)),
        ("n_sequences", c_int),
        ("inputs", POINTER(_Value)),
        ("n_inputs", c_int),
        ("wanted", POINTER(c_int32)),
        ("n_wanted", c_int),
        ("outputs", POINTER(_Value)),
        ("n_outputs", c_int),
    ]


class _Difference(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_char * 128),
        ("value", ctypes.c_char * 128),
        ("turn", c_int),
        ("sequence", c_int64),
        ("position", c_int64),
        ("index", c_int64),
        ("a", c_uint32),
        ("b", c_uint32),
        ("compared", c_int64),
        ("differ", c_int64),
    ]


class Sequence(NamedTuple):
    """Rows of one sequence in a step, at ``position``, ``position + 1``, ...

    Attributes:
        rows: how many.
        position: of the first; the rows before it are in the cache.
        pages: int32 [blocks], the pages of the cache that hold the sequence's rows, row p in
            ``pages[p // page]``. None: the sequence begins here, at 0, and is not kept. The
            sequences of a step are all the one or all the other.
        id: by which traces tell sequences apart.
    """

    rows: int
    position: int = 0
    pages: Any = None
    id: int = 0


class Sizes(NamedTuple):
    """Bytes that a rank of a model needs: of its group (``Group(size=)``), of weights, of the
    cache, and of values, inputs and workspaces. Where ``page_ranks`` n is above 1, page g of the
    cache lies on rank g % n of so many, and page i of a sequence must be one of rank
    ``(pages[0] + i * page // page_positions) % n``."""

    group: int
    weights: int
    cache: int
    memory: int
    page_ranks: int
    page_positions: int


class Difference(NamedTuple):
    """The first element that two traces have and have unequal, in the order of the ops as they
    run. ``turn``: of the model's repeat, -1 outside; ``index``: in the row; ``a``, ``b``: bits;
    ``differ`` of the ``compared`` elements differ in all."""

    op: str
    value: str
    turn: int
    sequence: int
    position: int
    index: int
    a: int
    b: int
    compared: int
    differ: int


class Model:
    """A contract's model with its weights, on one rank.

    One thread at a time may use it. Models over a group are stepped by every rank in the same
    order with the same rows. It allocates nothing after it is made.

    Attributes:
        inputs, outputs: their names, in the contract's order.
        weights: the digest of the weights, whole: the same for every layout and storage.
        page, pages: of the cache.
    """

    def __init__(self, module: Module, weights: str | os.PathLike[str], *,
                 layout: str | None = None, group: Group | None = None, max_rows: int = 4096,
                 max_sequences: int = 64, max_position: int = 4096, page: int = 16,
                 pages: int = 0, output_rows: int = 0, graph_rows: int = 0,
                 digest: bytes | str | None = None) -> None:
        """
        Args:
            module: what to run, and where; it must not be closed before the model.
            weights: a folder with model.safetensors or with shards and their index, a
                .safetensors or .gguf file, or "seed:N" for numbers made from N.
            layout: None: one rank. Else ``group`` is this rank's, where the layout has several.
            max_rows, max_sequences: of a step.
            max_position: positions of a sequence.
            page, pages: positions of a page of the cache, and how many there are; 0: no cache.
            output_rows: wanted rows that are finished at a time; 0: 1024.
            graph_rows: steps of at most so many rows are CUDA graphs.
            digest: the weights', where it is known; None: it is computed, for which all of them
                are read, on every rank.

        Raises:
            IsoError: NO_MODEL, UNKNOWN_LAYOUT, BAD_RANK, FILE, BAD_WEIGHT, WEIGHTS (ranks have
                others), GROUP_BYTES, OUT_OF_MEMORY, DRIVER.
        """
        self._module, self._group = module, group
        config = _config(weights, layout, max_rows, max_sequences, max_position, page, pages,
                         output_rows, graph_rows)
        config.group = group._alive() if group is not None else None
        if digest is not None:
            config.digest = _native.digest_from(digest)
        handle = c_void_p()
        _native.check(_native.lib.iso_model_load(handle, module._alive(), ctypes.byref(config)))
        self._handle: c_void_p | None = handle
        self.layout, self.page, self.pages = layout, page, pages
        self.max_rows, self.max_sequences, self.max_position = max_rows, max_sequences, max_position
        self.inputs = tuple(_names(_native.lib.iso_model_input_name, module._alive()))
        self.outputs = tuple(_names(_native.lib.iso_model_output_name, module._alive()))
        self.weights = _native.digest_of("iso_model_weights", handle)

    @staticmethod
    def sizes(module: Module, *, layout: str | None = None, rank: int = 0, max_rows: int = 4096,
              max_sequences: int = 64, max_position: int = 4096, page: int = 16, pages: int = 0,
              output_rows: int = 0, graph_rows: int = 0) -> Sizes:
        """What a rank will need, before it is loaded; arguments as of the model."""
        config = _config("", layout, max_rows, max_sequences, max_position, page, pages,
                         output_rows, graph_rows)
        sizes = _Sizes()
        _native.check(_native.lib.iso_model_size(module._alive(), ctypes.byref(config), rank,
                                                ctypes.byref(sizes)))
        return Sizes(*(getattr(sizes, name) for name in Sizes._fields))

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alive(self) -> c_void_p:
        if self._handle is None:
            raise _native.error(Status.INVALID_ARGUMENT, "the model was closed")
        return self._handle

    def close(self) -> None:
        """Gives back the memory; no step may be running."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _native.lib.iso_model_unload(handle)

    def value(self, name: str, rows: int) -> tuple[tuple[int, ...], Any]:
        """Shape and NumPy dtype of an input or output for that many rows; bf16 is uint16."""
        tensor = _native.Tensor()
        _native.check(_native.lib.iso_model_value(self._module._alive(), name.encode(), rows,
                                                  tensor))
        return tuple(tensor.shape[:tensor.n_axes]), _BITS[tensor.dtype]

    def step(self, sequences: Many[Sequence], inputs: Mapping[str, Any],
             outputs: Many[str] = (), wanted: Any = None) -> dict[str, np.ndarray[Any, Any]]:
        """Runs what the asked outputs need.

        Args:
            sequences: rows are numbered through them in order.
            inputs: by name, an array of one element, or row of elements, for each row; those that
                no asked output needs may be left out.
            outputs: names; none: only the cache is written.
            wanted: the rows whose outputs are asked, ascending; None: all.

        Returns:
            The outputs of the wanted rows by name, new arrays. In a group a rank writes the part
            that it holds (see ``iso_model_part``); the rest is zero.

        Raises:
            IsoError: INVALID_ARGUMENT, STEP_ROWS, PAGES, BAD_TENSOR, and what a group reports.
        """
        rows = sum(s.rows for s in sequences)
        kept: list[Any] = []
        runs = (_Sequence * len(sequences))(*(_sequence(s, kept) for s in sequences))
        given = self._pack(inputs, rows, kept)
        pick = None if wanted is None else np.ascontiguousarray(wanted, np.int32)
        asked = rows if pick is None else len(pick)
        made = {}
        for name in outputs if asked else ():
            shape, dtype = self.value(name, asked)
            made[name] = np.zeros(shape, dtype)
        taken = (_Value * len(made))(*(_Value(n.encode(), a.ctypes.data, a.nbytes)
                                       for n, a in made.items()))
        step = _Step(runs, len(sequences), given, len(given), _int32s(pick),
                     0 if pick is None else asked, taken, len(made))
        _native.check(_native.lib.iso_model_step(self._alive(), ctypes.byref(step)))
        return made

    def _pack(self, inputs: Mapping[str, Any], rows: int, kept: list[Any]) -> Any:
        values = []
        for name, x in inputs.items():
            shape, dtype = self.value(name, rows)
            array = np.ascontiguousarray(x, dtype)
            if array.shape != shape:
                raise _native.error(Status.BAD_TENSOR,
                                    f"input {name} has shape {array.shape}, {rows} rows need "
                                    f"{shape}")
            kept.append(array)
            values.append(_Value(name.encode(), array.ctypes.data, array.nbytes))
        return (_Value * len(values))(*values)

    @contextlib.contextmanager
    def trace(self, folder: str | os.PathLike[str], ops: Many[str] = ()) -> Iterator[None]:
        """Steps inside write every value that an op gives, one of ``ops`` if there are any, to a
        file of this rank in the folder, which must exist; see :func:`trace_diff`."""
        names = ",".join(ops).encode() if ops else None
        _native.check(_native.lib.iso_model_trace(self._alive(), os.fsencode(folder), names))
        try:
            yield
        finally:
            _native.check(_native.lib.iso_model_trace(self._alive(), None, None))


def trace_diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Difference | None:
    """The first element in which two traces differ; None if they agree wherever both have one.

    Rows are met by their sequence's id and position, whatever layouts, pages and chunks were.
    """
    found = _Difference()
    _native.check(_native.lib.iso_trace_diff(os.fsencode(a), os.fsencode(b), ctypes.byref(found)))
    if found.differ == 0:
        return None
    return Difference(found.op.decode(), found.value.decode(), *(
        getattr(found, name) for name in Difference._fields[2:]))


def _config(weights: str | os.PathLike[str], layout: str | None, *rest: int) -> _Config:
    return _Config(ctypes.sizeof(_Config), os.fsencode(weights), None,
                   layout.encode() if layout is not None else None, None, *rest)


def _sequence(s: Sequence, kept: list[Any]) -> _Sequence:
    pages = None
    if s.pages is not None:
        pages = np.ascontiguousarray(s.pages, np.int32)
        kept.append(pages)
    return _Sequence(s.id, s.position, s.rows, _int32s(pages))


def _int32s(array: Any) -> Any:
    return None if array is None else array.ctypes.data_as(POINTER(c_int32))
