"""isoc: the kernels of a numerical contract, from Python.

    import isoc
    module = isoc.load("kernels.cubin")              # or a contract, "model.iso"
    y = module.ops["o_proj"](o, w, res)              # torch, NumPy, DLPack, CUDA array interface
    op = module.op("o_proj", layout="tp4", rank=1)   # what rank 1 of 4 runs

A module is a set of ops; two modules with equal fingerprints give equal bits on every device,
layout and row count. Tensors are used where they are, never copied. Calls are asynchronous on
torch's current stream; on the device "cpu" they return when done. Errors are :class:`IsoError`.
"""

from ._native import lib as _lib
from .errors import IsoError, Status
from .keys import Keys
from .memory import workspaces
from .module import Module, load
from .op import Op, TensorSpec

__version__: str = _lib.iso_version().decode()

__all__ = ["IsoError", "Keys", "Module", "Op", "Status", "TensorSpec", "load", "workspaces"]
