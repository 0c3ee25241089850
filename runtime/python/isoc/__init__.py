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
from .engine import Answer, Engine, Request
from .errors import IsoError, Status
from .group import Group
from .keys import Keys
from .memory import workspaces
from .model import Difference, Model, Sequence, Sizes, trace_diff
from .module import Module, load
from .op import Op, TensorSpec
from .receipt import Receipt

__version__: str = _lib.iso_version().decode()

__all__ = ["Answer", "Difference", "Engine", "Group", "IsoError", "Keys", "Model", "Module", "Op",
           "Receipt", "Request", "Sequence", "Sizes", "Status", "TensorSpec", "load", "trace_diff",
           "workspaces"]
