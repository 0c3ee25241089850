"""An op of a contract, in one layout, on one rank: what it takes, and running it."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from . import _native, memory, quick, tensors
from ._native import CPU, JOIN, PART, RUN, lib
from .errors import Status
from .keys import Keys, pack

if TYPE_CHECKING:
    from .module import Module

_PHASES = {"run": RUN, "part": PART, "join": JOIN}
# Row counts that together tell an axis of all rows from one that a layout cuts.
_PROBES = (1, 2, 7, 1000003)
_PADS = tuple((0,) * (_native.MAX_AXES - n) for n in range(_native.MAX_AXES + 1))
_AS_IT_IS = contextlib.nullcontext()
_NOWHERE = (None, None, None)


class TensorSpec(NamedTuple):
    """A tensor as one rank passes it.

    Attributes:
        name: in the contract.
        dtype: "bf16", "f16" or "f32"; "i32" for indices of an axis.
        shape: of this rank's part; 0 for a table's axis, which may have any length that holds all
            positions (or sequences).
        strides: of contiguous storage, in elements. Others may be passed.
        origin: the index of the part's first element in the whole tensor, one per axis.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    origin: tuple[int, ...]


class _Slot(NamedTuple):
    """What does not depend on the row count. ``axis`` is that of the rows, or -1; ``whole`` is
    whether this rank has all of them."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    axis: int
    whole: bool


class Op:
    """An op, got from :meth:`Module.op` or ``module.ops``. Call it to run it.

    Immutable, and safe to call from several threads whose results are distinct; on CUDA each
    thread needs its own stream and a current context, as torch gives it one.

    Attributes:
        name: in the contract.
        layout: the layout's name, or "" for the contract on one rank.
        rank: this rank in the layout; ranks: how many it has.
        params, results: the tensors' names, as declared.
        needs_join: whether ranks must exchange roots: then use :meth:`part` and :meth:`join`.
        schedules: how many kernels the op has for different row counts. Any gives the same bits.
        fingerprint: the SHA-256 of the op's numerics.
    """

    def __init__(self, module: "Module", handle: ctypes.c_void_p, name: str, layout: str,
                 rank: int, ranks: int) -> None:
        self.module = module
        self.name = name
        self.layout = layout
        self.rank = rank
        self.ranks = ranks
        self._handle = handle
        self._slots: dict[int, tuple[_Slot, ...]] = {}
        self._known: dict[Any, quick.Known] = {}
        self._last: tuple[Any, Any, Any] = (None, None, None)  # see quick._noted
        self._keys: tuple[bytes, Any, int] = (b"", None, 0)
        n_params, n_results = ctypes.c_int(), ctypes.c_int()
        _native.check(lib.iso_op_tensors(handle, n_params, n_results))
        self._n_params = n_params.value
        self._n = n_params.value + n_results.value
        self._run_slots = self._slots_of(RUN)
        names = tuple(slot.name for slot in self._run_slots)
        self._packed = ctypes.c_char * (_native.TENSOR.size * self._n)
        self.params = names[:self._n_params]
        self.results = names[self._n_params:]
        self.needs_join = bool(_native.int_of("iso_op_needs_join", handle))
        self.schedules = _native.int_of("iso_op_schedules", handle)
        self.fingerprint = _native.digest_of("iso_op_fingerprint", handle)

    def __repr__(self) -> str:
        where = f", layout={self.layout!r}, rank={self.rank}" if self.layout else ""
        arrow = f"({', '.join(self.params)}) -> {', '.join(self.results)}"
        return f"<isoc.Op {self.name}{arrow}{where}>"

    def _alive(self) -> ctypes.c_void_p:
        self.module._alive()
        return self._handle

    # ---- what it takes ----

    def _tensor(self, phase: int, rows: int, index: int) -> tuple[_native.Tensor, str]:
        self.module._alive()
        tensor, name = _native.Tensor(), ctypes.c_char_p()
        _native.check(lib.iso_op_tensor(self._handle, phase, rows, index, tensor, name))
        return tensor, name.value.decode()

    def _slot(self, phase: int, index: int) -> _Slot:
        probes = [self._tensor(phase, rows, index)[0] for rows in _PROBES]
        first, last = probes[0], probes[-1]
        shape = tuple(first.shape[:first.n_axes])
        ragged = [i for i in range(first.n_axes) if first.shape[i] != last.shape[i]]
        axis = ragged[0] if ragged else -1
        whole = bool(ragged) and all(
            probe.shape[axis] == rows for probe, rows in zip(probes, _PROBES))
        return _Slot(self._tensor(phase, 1, index)[1], first.dtype, shape, axis, whole)

    def _slots_of(self, phase: int) -> tuple[_Slot, ...]:
        slots = self._slots.get(phase)
        if slots is None:
            slots = tuple(self._slot(phase, i) for i in range(self._n))
            self._slots[phase] = slots
        return slots

    def _shape(self, phase: int, rows: int, index: int) -> tuple[int, ...]:
        slot = self._slots_of(phase)[index]
        if slot.axis < 0:
            return slot.shape
        if slot.whole:
            shape = list(slot.shape)
            shape[slot.axis] = rows
            return tuple(shape)
        tensor, _ = self._tensor(phase, rows, index)
        return tuple(tensor.shape[:tensor.n_axes])

    def tensors(self, rows: int, phase: str = "run") -> tuple[TensorSpec, ...]:
        """The parameters, then the results, as this rank passes them.

        Args:
            rows: the global row count, before any cut.
            phase: "run" or "part" for what the rank computes with, "join" for what it finishes.
        """
        specs = []
        for i in range(self._n):
            tensor, name = self._tensor(_PHASES[phase], rows, i)
            origin = (ctypes.c_int64 * _native.MAX_AXES)()
            _native.check(lib.iso_op_origin(self._handle, _PHASES[phase], rows, i, origin))
            axes = slice(tensor.n_axes)
            specs.append(TensorSpec(name, tensors.DTYPE_NAMES[tensor.dtype],
                                    tuple(tensor.shape[axes]), tuple(tensor.stride[axes]),
                                    tuple(origin[axes])))
        return tuple(specs)

    def roots_bytes(self, rows: int, most_keys: int = 0) -> int:
        """Bytes of this rank's roots for that global row count; for an `attend` whose keys ranks
        share, also by the keys of one sequence at most."""
        return self._size(lib.iso_op_roots_of_keys, rows, most_keys)

    def workspace_bytes(self, rows: int, schedule: int = 0) -> int:
        """Bytes of scratch, aligned to 256 and zeroed once, that a call with so many rows needs."""
        return self._size(lib.iso_op_workspace, rows, schedule)

    def _size(self, function: Any, *args: int) -> int:
        self.module._alive()
        size = ctypes.c_size_t()
        _native.check(function(self._handle, *args, size))
        return size.value

    def kernel(self, rows: int, schedule: int = 0, phase: str = "run") -> str:
        """The name of the kernel that a call launches, for logs; "" where the rank is idle."""
        self.module._alive()
        name = ctypes.c_char_p()
        _native.check(lib.iso_op_kernel(self._handle, _PHASES[phase], rows, schedule, name))
        return name.value.decode()

    # ---- running ----

    def __call__(self, *params: Any, out: Any = None, rows: int | None = None,
                 positions: Any = None, sequences: Any = None, live_rows: Any = None,
                 keys: Keys | None = None, schedule: int = 0, stream: Any = None,
                 workspace: Any = None, **named: Any) -> Any:
        """Runs the op on torch's current stream, or on the CPU executor, which returns when done.

        Args:
            params: the parameters as declared, or by name: this rank's parts, in place. Shapes and
                dtypes are those of :meth:`tensors`; any strides do that the op's kernels can walk.
            out: where the results go: a tensor, or a sequence of them if the op has several.
                None makes new ones with torch or NumPy.
            rows: the global row count. Needed where the layout cuts the rows, else it is read off
                the tensors.
            positions, sequences: int32, one per row of this rank, where a table is indexed by
                them. They are not compared with the table's length.
            keys: where the keys and values of `attend` are. None: by their tensors' strides.
            live_rows: one int32 in the device's memory: rows past it are left untouched.
            schedule: 0 chooses by the row count, s > 0 takes schedule s - 1.
            stream: the CUDA stream. None: torch's current one; without torch's tensors the one
                that ``__cuda_array_interface__`` states, else the default one. A stream given
                here must itself wait for whoever wrote the tensors.
            workspace: uint8 memory of :meth:`workspace_bytes`. None: one that isoc keeps.

        Returns:
            The result, or a tuple of them.

        Raises:
            IsoError: NEEDS_JOIN, BAD_TENSOR (dtype, shape, stride, alignment, device), BAD_COUNT,
                WORKSPACE, DRIVER, INVALID_ARGUMENT, UNSUPPORTED (a gradient would be lost).
            TypeError: no tensor, an unknown name, ``rows`` or ``out`` missing.
        """
        if stream is None and workspace is None and not named:
            return self._run(params, out, rows, (live_rows, positions, sequences), keys, schedule)
        return self._run_in_full(params, named, out, rows, (live_rows, positions, sequences), keys,
                                 schedule, stream, workspace).result()

    def _run(self, params: tuple[Any, ...], out: Any, rows: int | None,
             places: tuple[Any, ...], keys: Keys | None, schedule: int = 0,
             graded: bool = True) -> Any:
        """On torch's current stream, by what is known of a call that looked the same.

        Args:
            graded: whether a gradient would be lost.
        """
        outs = () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if places[0] is places[1] is places[2] is None:
            places = ()
        result, look = quick.run(self, params + outs, (len(params), len(places), rows, schedule),
                                 places, keys, graded and quick.graded())
        if result is not None:
            return result
        with _AS_IT_IS if graded else sys.modules["torch"].no_grad():
            call = self._run_in_full(params, {}, out, rows, places or _NOWHERE, keys, schedule)
        quick.keep(self, look, call, bool(outs))
        return call.result()

    def _run_in_full(self, params: tuple[Any, ...], named: dict[str, Any], out: Any,
                     rows: int | None, places: tuple[Any, ...], keys: Keys | None,
                     schedule: int, stream: Any = None, workspace: Any = None) -> "_Call":
        call = _Call(self, RUN, params, named, out, rows, schedule, stream)
        live_rows, positions, sequences = places
        with call.on_stream():
            call.prepare(positions, sequences, live_rows, workspace)
            if keys is not None:
                call.place_keys(keys)
            _native.check(lib.iso_op_run(self._handle, call.tensors(), self._n, call.run))
        return call

    def part(self, *params: Any, roots: Any = None, rows: int | None = None,
             positions: Any = None, sequences: Any = None, live_rows: Any = None,
             keys: Keys | None = None, schedule: int = 0, stream: Any = None,
             workspace: Any = None, **named: Any) -> Any:
        """Computes this rank's roots, the values that ranks exchange.

        Arguments are those of a run; parameters that only the join reads (a residual) may be None.
        roots: a contiguous float32 tensor of :meth:`roots_bytes`, aligned to 256 bytes, that the
        other ranks will read; None makes one.

        Returns:
            The roots.

        Raises:
            IsoError: NO_JOIN, and as for a run.
        """
        call = _Call(self, PART, params, named, None, rows, schedule, stream)
        with call.on_stream():
            call.prepare(positions, sequences, live_rows, workspace)
            if keys is not None:
                call.place_keys(keys)
            size = self.roots_bytes(call.rows, keys.most_keys if keys else 0)
            if roots is None:
                roots = memory.roots(call.like, size)
            address = call.roots_address(roots, size, self.rank)
            _native.check(lib.iso_op_part(self._handle, call.tensors(), self._n, address, call.run))
        return roots

    def join(self, roots: Sequence[Any], *params: Any, out: Any = None, rows: int | None = None,
             positions: Any = None, sequences: Any = None, live_rows: Any = None,
             keys: Keys | None = None, stream: Any = None, **named: Any) -> Any:
        """Joins all ranks' roots in tree order and finishes the rows that this rank owns.

        Args:
            roots: one per rank of the layout, in order of rank: what :meth:`part` returned there,
                readable here. An address (int) does too, of memory that another rank shares.
                None for ranks that this one does not hear.
            params, out: as :meth:`tensors` with phase "join" says; parameters that only the part
                reads may be None.

        Returns:
            The result, or a tuple of them.

        Raises:
            IsoError: NO_JOIN, INVALID_ARGUMENT (roots missing or too small), and as for a run.
        """
        if not self.needs_join:
            raise _native.error(Status.NO_JOIN,
                                f"op {self.name} in layout {self.layout or '(one rank)'} needs no "
                                "join")
        like = [x for x in roots if not isinstance(x, int)]
        call = _Call(self, JOIN, params, named, out, rows, 0, stream, like)
        with call.on_stream():
            call.prepare(positions, sequences, live_rows, None)
            if keys is not None:
                call.place_keys(keys)
            sources = call.sources(roots, keys.most_keys if keys else 0)
            _native.check(lib.iso_op_join(self._handle, sources, len(sources), call.tensors(),
                                          self._n, call.run))
        return call.result()


class _Call:
    """One call: from what was passed to the structures that libiso takes."""

    def __init__(self, op: Op, phase: int, params: tuple[Any, ...], named: dict[str, Any], out: Any,
                 rows: int | None, schedule: int, stream: Any, like: Sequence[Any] = ()) -> None:
        op.module._alive()
        self.op = op
        self.phase = phase
        self.cuda = op.module._device != CPU
        self.slots = op._slots_of(phase)
        self.stream = stream
        self.given: list[Any] = _ordered(op, params, named) + _results_of(op, out)
        # Whose library, device and stream the call is for.
        self.like: list[Any] = [x for x in (*self.given, *like) if x is not None]
        self.torch = tensors.first_torch(self.like)
        # Whether torch's current device and stream are the ones to run on.
        self.on_torch = self.cuda and self.torch is not None and self.torch.device.type == "cuda"
        if phase == RUN and any(x is None for x in self.given[:op._n_params]):
            self._missing()
        self.rows = -1 if rows is None else rows
        self.views: list[tensors.View | None] = []
        self.run = _native.Run(schedule=schedule)
        self._keep: list[Any] = []

    def _missing(self) -> None:
        missing = [name for name, x in zip(self.op.params, self.given) if x is None]
        raise _native.error(Status.BAD_COUNT,
                            f"op {self.op.name} takes {', '.join(self.op.params)}; missing: "
                            f"{', '.join(missing)}")

    # ---- device and stream ----

    def on_stream(self) -> Any:
        """Holds torch's device and stream for the call, where torch has a say."""
        if not self.on_torch:
            return _AS_IT_IS
        return memory.torch_stream(self.stream, self.torch.device.index)

    def _stream(self) -> int | None:
        """The stream as far as it is known before the tensors are looked at."""
        if not self.cuda:
            return None
        if self.on_torch:
            return memory.current_stream(self.torch.device)
        return None if self.stream is None else memory.stream_handle(self.stream)

    # ---- tensors ----

    def prepare(self, positions: Any, sequences: Any, live_rows: Any, workspace: Any) -> None:
        stream = self._stream()
        # DLPack calls the default stream 1.
        hint = None if stream is None else stream or 1
        self.views = [None if x is None else self._view(x, i, hint)
                      for i, x in enumerate(self.given)]
        if self.rows < 0:
            self.rows = self._rows()
        self._make_results(hint)
        self.run.rows = self.rows
        if positions is not None:
            self.run.positions = self._coordinates(positions, "positions", hint)
        if sequences is not None:
            self.run.sequences = self._coordinates(sequences, "sequences", hint)
        if live_rows is not None:
            self.run.rows_device = self._int32(live_rows, "live_rows", 1, hint)
        if self.cuda:
            self.run.stream = memory.stated_stream(self.views) if stream is None else stream
            if self.phase != JOIN:
                self._workspace(workspace)

    def place_keys(self, keys: Keys) -> None:
        packed, kept = pack(keys, self._check_place)
        self._keep += [packed, kept]
        self.run.keys = ctypes.addressof(packed)

    def _check_place(self, view: tensors.View, what: str) -> None:
        module = self.op.module
        if view.cuda != self.cuda:
            raise _native.error(Status.BAD_TENSOR,
                                f"op {self.op.name}: {what} is in {'GPU' if view.cuda else 'host'} "
                                f"memory, the module was loaded for {module.device}")
        if self.cuda and view.index >= 0 and module._index >= 0 and view.index != module._index:
            raise _native.error(Status.BAD_TENSOR,
                                f"op {self.op.name}: {what} is on GPU {view.index}, the module was "
                                f"loaded on GPU {module._index}")

    def _view(self, x: Any, index: int, stream: int | None) -> tensors.View:
        slot, view = self.slots[index], tensors.view(x, stream)
        if view.dtype == tensors.BITS16 and slot.dtype == tensors.BF16:
            view.dtype = tensors.BF16
        if (view.dtype != slot.dtype or len(view.shape) != len(slot.shape) or view.readonly
                or view.cuda or self.cuda):
            self._check(view, slot, index)
        return view

    def _check(self, view: tensors.View, slot: _Slot, index: int) -> None:
        """Refuses what libiso could not: it sees an address and its own dtypes."""
        what = f"tensor {slot.name}"
        if view.dtype != slot.dtype:
            raise _native.error(Status.BAD_TENSOR,
                                f"op {self.op.name}: {what} has dtype {view.dtype_name}, the "
                                f"contract says {tensors.DTYPE_NAMES[slot.dtype]}")
        if len(view.shape) != len(slot.shape):
            raise _native.error(Status.BAD_TENSOR,
                                f"op {self.op.name}: {what} has {len(view.shape)} axes, the "
                                f"contract says {len(slot.shape)}")
        if view.readonly and index >= self.op._n_params:
            raise _native.error(Status.BAD_TENSOR, f"op {self.op.name}: {what} is read-only")
        self._check_place(view, what)

    def _rows(self) -> int:
        for view, slot in zip(self.views, self.slots):
            if view is not None and slot.whole:
                return view.shape[slot.axis]
        raise TypeError(f"op {self.op.name}, layout {self.op.layout}, rank {self.op.rank}: the "
                        "tensors do not tell the global row count, since this rank has only some "
                        "of the rows: pass rows=")

    def _make_results(self, stream: int | None) -> None:
        """Results that the caller did not bring. A part has none."""
        for i in range(self.op._n_params, self.op._n):
            if self.given[i] is None and self.phase != PART:
                shape = self.op._shape(self.phase, self.rows, i)
                self.given[i] = memory.empty(self.like, self.slots[i].dtype, shape)
                self.views[i] = self._view(self.given[i], i, stream)

    def tensors(self) -> ctypes.Array[ctypes.c_char]:
        """The iso_tensor array."""
        size = _native.TENSOR.size
        packed, at = self.op._packed(), 0
        for view in self.views:
            if view is not None:
                shape = view.shape
                n = len(shape)
                pad = _PADS[n]
                _native.TENSOR.pack_into(packed, at, view.address or self._address(view),
                                         view.dtype, n, *shape, *pad, *view.strides, *pad)
            at += size
        return packed

    @staticmethod
    def _address(view: tensors.View) -> int:
        """Libraries give empty tensors no address; nothing is read there, but NULL means absent."""
        return view.address or (memory.ALIGNMENT if 0 in view.shape else 0)

    def result(self) -> Any:
        results = self.given[self.op._n_params:]
        return results[0] if len(results) == 1 else tuple(results)

    # ---- coordinates and workspace ----

    def _local_rows(self) -> int:
        for i, slot in enumerate(self.slots):
            if slot.axis >= 0:
                return self.op._shape(self.phase, self.rows, i)[slot.axis]
        return self.rows

    def _coordinates(self, x: Any, what: str, stream: int | None) -> int:
        return self._int32(x, what, self._local_rows(), stream)

    def _int32(self, x: Any, what: str, count: int, stream: int | None) -> int:
        view = tensors.view(x, stream)
        self._keep.append(view)
        if view.dtype != tensors.INT32 or view.elements() != count or not view.contiguous():
            raise _native.error(Status.BAD_TENSOR,
                                f"op {self.op.name}: {what} must be {count} contiguous int32, not "
                                f"{view.dtype_name} of shape {view.shape}")
        self._check_place(view, what)
        return self._address(view)

    def _workspace(self, given: Any) -> None:
        size = self.op.workspace_bytes(self.rows, self.run.schedule)
        if size == 0:
            return
        if given is not None:
            view = tensors.view(given)
            self._check_place(view, "the workspace")
            if view.dtype_name not in ("uint8", "|u1") or not view.contiguous():
                raise _native.error(Status.WORKSPACE, f"op {self.op.name}: the workspace must be "
                                                      "contiguous uint8")
            self.run.workspace, self.run.workspace_bytes = view.address, view.elements()
        elif self.on_torch:
            address, kept = memory.workspaces.get(self.torch.device, self.run.stream or 0, size)
            self._keep.append(kept)
            self.run.workspace, self.run.workspace_bytes = address, size
        else:
            raise _native.error(Status.WORKSPACE,
                                f"op {self.op.name} needs {size} bytes of workspace: isoc keeps "
                                "one for torch's tensors; for others pass workspace=")

    # ---- roots ----

    def roots_address(self, x: Any, size: int, rank: int) -> int:
        view = tensors.view(x)
        self._keep.append(view)
        if (view.dtype != tensors.F32 or not view.contiguous() or view.elements() * 4 < size):
            raise _native.error(Status.INVALID_ARGUMENT,
                                f"op {self.op.name}: the roots of rank {rank} must be {size} bytes "
                                f"of contiguous float32, not {view.dtype_name} of shape "
                                f"{view.shape}")
        self._check_place(view, f"the roots of rank {rank}")
        return view.address

    def sources(self, roots: Sequence[Any], most_keys: int) -> Any:
        op = self.op
        if len(roots) != op.ranks:
            raise _native.error(Status.INVALID_ARGUMENT,
                                f"layout {op.layout} has {op.ranks} ranks, got roots of "
                                f"{len(roots)}")
        addresses: list[int | None] = []
        for rank, x in enumerate(roots):
            if x is None or isinstance(x, int):
                addresses.append(x)
                continue
            peer = op.module.op(op.name, layout=op.layout, rank=rank)
            size = peer.roots_bytes(self.rows, most_keys)
            addresses.append(self.roots_address(x, size, rank))
        return (ctypes.c_void_p * len(addresses))(*addresses)


def _ordered(op: Op, params: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """Parameters in the contract's order; None where one was not passed."""
    if len(params) > op._n_params:
        raise _native.error(Status.BAD_COUNT,
                            f"op {op.name} takes {op._n_params} parameters "
                            f"({', '.join(op.params)}), not {len(params)}")
    given = list(params) + [None] * (op._n_params - len(params))
    for name, x in named.items():
        if name not in op.params:
            raise TypeError(f"op {op.name} has no parameter {name}; it takes "
                            f"{', '.join(op.params)}")
        index = op.params.index(name)
        if index < len(params):
            raise TypeError(f"op {op.name}: parameter {name} is passed twice")
        given[index] = x
    return given


def _results_of(op: Op, out: Any) -> list[Any]:
    n = op._n - op._n_params
    if out is None:
        return [None] * n
    results = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(results) != n:
        raise _native.error(Status.BAD_COUNT,
                            f"op {op.name} has {n} results ({', '.join(op.results)}), not "
                            f"{len(results)}")
    return results
