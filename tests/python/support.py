"""What the tests share: modules, tensors of known bits, cuts, and stand-ins for other libraries."""

import os
import sys
import types
import typing
import unittest
from unittest import mock

import numpy as np

import isoc

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CUBINS = os.environ.get("ISOC_TEST_CUBINS", "")
DTYPES = {"bf16": np.uint16, "f16": np.float16, "f32": np.float32}


def load(name):
    """A module that tests/python/run compiled; skips where it could not for want of NVRTC."""
    path = os.path.join(CUBINS, name + ".cubin")
    if not os.path.exists(path):
        raise unittest.SkipTest(f"no {name}.cubin: NVRTC is not there")
    return isoc.load(path, device="cpu")


def pattern(shape, seed):
    """bf16 values between -1 and 1 from a counter: those of examples/layer.c."""
    h = (np.arange(int(np.prod(shape)), dtype=np.uint64) * 2654435761 + seed).astype(np.uint32)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    exponent = np.uint32(0x3B80) + ((h >> np.uint32(8)) & np.uint32(3)) * np.uint32(0x80)
    return ((h & np.uint32(0x807F)) | exponent).astype(np.uint16).reshape(shape)


def tensor(spec, seed):
    """A tensor of a spec's shape and dtype; a table of 16 entries where the axis is one."""
    shape = tuple(size or 16 for size in spec.shape)
    bits = pattern(shape, seed)
    if spec.dtype == "bf16":
        return bits
    values = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(DTYPES[spec.dtype])


def inputs(op, rows):
    return [tensor(spec, 7 * i + 1) for i, spec in enumerate(op.tensors(rows)[:len(op.params)])]


def results(op, rows):
    return [np.full(spec.shape, 0xCD, DTYPES[spec.dtype])
            for spec in op.tensors(rows)[len(op.params):]]


def cut(whole, spec):
    """A rank's part of a whole tensor, in place."""
    return whole[tuple(slice(lo, lo + n) for lo, n in zip(spec.origin, spec.shape))]


def in_layout(module, name, layout, rows, params):
    """The op's whole results, each rank computing its part of them in place."""
    ops = [module.op(name, layout=layout, rank=rank) for rank in range(module.layouts[layout])]
    out = results(module.op(name), rows)
    n = len(params)

    def parts(op, phase):
        return [cut(t, spec) for t, spec in zip(params + out, op.tensors(rows, phase))]

    if not ops[0].needs_join:
        for op in ops:
            mine = parts(op, "run")
            op(*mine[:n], out=mine[n:], rows=rows)
        return out
    roots = [op.part(*parts(op, "part")[:n], rows=rows) for op in ops]
    for op in ops:
        mine = parts(op, "join")
        op.join(roots, *mine[:n], out=mine[n:], rows=rows)
    return out


# ---- stand-ins ------------------------------------------------------------------------------


class OnlyDlpack:
    """An array seen through DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnlyCuda:
    """An array that claims to be in GPU memory, through ``__cuda_array_interface__``."""

    def __init__(self, array, stream=None, typestr=None, readonly=False):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": typestr or array.dtype.str, "version": 3,
            "data": (array.ctypes.data, readonly), "strides": array.strides, "stream": stream,
        }

    # Looked up on the type.
    __cuda_array_interface__ = None


class Device(typing.NamedTuple):
    type: str
    index: int


class FakeTensor:
    """As much of a torch tensor as isoc uses, over a NumPy array."""

    def __init__(self, array, dtype, device="cpu", index=None, requires_grad=False):
        self.array, self.dtype, self.requires_grad = array, dtype, requires_grad
        self.device = Device(device, index)
        self.shape = array.shape

    def data_ptr(self):
        return self.array.ctypes.data

    def stride(self):
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def is_neg(self):
        return False

    def numel(self):
        return self.array.size

    def __getitem__(self, index):
        return FakeTensor(self.array[index], self.dtype, self.device.type, self.device.index)


class FakeTorch(types.ModuleType):
    """A torch whose GPU is host memory, and which notes what was asked of it."""

    numpy_of = {"torch.bfloat16": np.uint16, "torch.float16": np.float16,
                "torch.float32": np.float32, "torch.uint8": np.uint8}

    def __init__(self):
        super().__init__("torch")
        self.bfloat16, self.float16 = "torch.bfloat16", "torch.float16"
        self.float32, self.uint8 = "torch.float32", "torch.uint8"
        self.capturing, self.current, self.gpu, self.entered = False, 77, 0, []
        self.zeroed = []
        self.cuda = types.SimpleNamespace(
            current_stream=lambda device: types.SimpleNamespace(cuda_stream=self.current),
            current_device=lambda: self.gpu,
            is_current_stream_capturing=lambda: self.capturing,
            ExternalStream=lambda handle, device: types.SimpleNamespace(cuda_stream=handle),
            device=lambda index: self._enter("gpu", index),
            stream=lambda stream: self._enter("current", stream.cuda_stream))

    def _enter(self, name, value):
        torch = self

        class Context:
            def __enter__(self):
                self.before = getattr(torch, name)
                setattr(torch, name, value)
                torch.entered.append((name, value))

            def __exit__(self, *_):
                setattr(torch, name, self.before)

        return Context()

    def is_grad_enabled(self):
        return True

    def empty(self, shape, dtype, device):
        return FakeTensor(np.empty(shape, self.numpy_of[dtype]), dtype, device.type, device.index)

    def zeros(self, size, dtype, device):
        self.zeroed.append(size)
        return FakeTensor(np.zeros(size, self.numpy_of[dtype]), dtype, device.type, device.index)


def with_torch(fake):
    """A patch that makes the stand-in the torch that isoc sees."""
    return mock.patch.dict(sys.modules, torch=fake)
