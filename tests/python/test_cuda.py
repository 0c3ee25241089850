"""What a call on CUDA hands to libiso: the stream, the workspace, the GPU. The library's run call
is replaced by one that notes its arguments, and torch by a stand-in."""

import ctypes
import unittest
from unittest import mock

import numpy as np

import isoc
from isoc import Status, _native, memory

from support import CUBINS, FakeTensor, FakeTorch, OnlyCuda, inputs, load, with_torch


class Recorder:
    """libiso, but that runs are only noted and need a workspace of ``size`` bytes."""

    def __init__(self, size=0):
        self.size, self.runs = size, []

    def __getattr__(self, name):
        return getattr(_native.lib, name)

    def iso_op_run(self, op, tensors, n, run):
        copy = {name: getattr(run, name) for name, _ in run._fields_}
        copy["tensors"] = [_native.TENSOR.unpack_from(tensors, i * _native.TENSOR.size)
                           for i in range(n)]
        self.runs.append(copy)
        return 0

    def iso_op_workspace(self, op, rows, schedule, size):
        size.value = self.size
        return 0


class Cuda(unittest.TestCase):
    def setUp(self):
        self.module = load("small")
        self.op = self.module.ops["down"]
        self.module._device, self.module.device, self.module._index = _native.CUDA, "cuda:1", 1
        self.params = inputs(self.op, 3)
        self.torch = FakeTorch()
        self.torch.gpu = 1
        self.library = Recorder()
        memory.workspaces.clear()
        for patch in (with_torch(self.torch), mock.patch("isoc.op.lib", self.library)):
            patch.start()
            self.addCleanup(patch.stop)

    def tensors(self, index=1):
        return [FakeTensor(p, self.torch.bfloat16, "cuda", index) for p in self.params]

    def last(self):
        return self.library.runs[-1]

    def test_tensors_and_torchs_current_stream(self):
        y = self.op(*self.tensors())
        run = self.last()
        self.assertEqual((run["stream"], run["rows"], run["workspace"]), (77, 3, None))
        self.assertEqual((y.device.type, y.device.index, y.shape), ("cuda", 1, (3, 64)))
        pad = (0,) * 6
        self.assertEqual(run["tensors"][0],
                         (self.params[0].ctypes.data, 0, 2, 3, 256, *pad, 256, 1, *pad))
        self.assertEqual(run["tensors"][3][0], y.data_ptr())
        self.assertEqual(self.torch.entered, [])

    def test_a_given_stream_is_torchs_meanwhile(self):
        self.op(*self.tensors(), stream=1234)
        self.assertEqual(self.last()["stream"], 1234)
        self.assertEqual((self.torch.entered, self.torch.current), ([("current", 1234)], 77))

    def test_another_current_gpu(self):
        self.torch.gpu = 0
        self.op(*self.tensors())
        self.assertEqual((self.torch.entered, self.torch.gpu), ([("gpu", 1)], 0))

    def test_workspaces_are_kept_and_grow(self):
        self.library.size = 1000
        self.op(*self.tensors())
        first = self.last()
        self.assertEqual((first["workspace"] % 256, first["workspace_bytes"]), (0, 1000))
        self.op(*self.tensors())
        self.assertEqual(self.last()["workspace"], first["workspace"])
        self.assertEqual(self.torch.zeroed, [1256])
        self.library.size = 1100
        self.op(*self.tensors())
        self.assertEqual(self.torch.zeroed, [1256, 2 * 1256 + 256])
        self.torch.current = 78
        self.op(*self.tensors())
        self.assertEqual(self.torch.zeroed[2:], [1100 + 256])

    def test_a_captured_call_has_a_workspace_of_its_own(self):
        self.library.size = 1000
        self.op(*self.tensors())
        self.torch.capturing = True
        self.op(*self.tensors())
        self.op(*self.tensors())
        self.torch.capturing = False
        self.assertEqual(self.torch.zeroed, [1256] * 3)
        self.op(*self.tensors())
        self.assertEqual(self.last()["workspace"], self.library.runs[0]["workspace"])

    def arrays(self, stream=None, **named):
        arrays = [OnlyCuda(p, stream, "<V2", **named) for p in self.params]
        return arrays, OnlyCuda(np.zeros((3, 64), np.uint16), stream)

    def test_cuda_array_interface(self):
        params, out = self.arrays(stream=2)
        self.assertIs(self.op(*params, out=out), out)
        self.assertEqual(self.last()["stream"], 2)
        self.assertEqual(self.last()["tensors"][1][0], self.params[1].ctypes.data)
        self.op(*params, out=out, stream=5)
        self.assertEqual(self.last()["stream"], 5)
        params, out = self.arrays()
        self.op(*params, out=out)
        self.assertIsNone(self.last()["stream"])
        with self.assertRaisesRegex(TypeError, "pass out="):
            self.op(*params)

    def refused(self, status, words, *args, **named):
        with self.assertRaises(isoc.IsoError) as caught:
            self.op(*args, **named)
        self.assertEqual(caught.exception.status, status)
        self.assertIn(words, str(caught.exception))
        self.assertEqual(self.library.runs, [])

    def test_refusals(self):
        params, out = self.arrays(stream=2)
        self.refused(Status.INVALID_ARGUMENT, "several streams", params[0], params[1],
                     OnlyCuda(self.params[2], 3), out=out)
        self.refused(Status.BAD_TENSOR, "read-only", *params,
                     out=OnlyCuda(np.zeros((3, 64), np.uint16), readonly=True))
        self.refused(Status.BAD_TENSOR, "h is on GPU 0, the module was loaded on GPU 1",
                     *self.tensors(0))
        self.refused(Status.BAD_TENSOR, "h is in host memory", *self.params)
        self.library.size = 1000
        self.refused(Status.WORKSPACE, "needs 1000 bytes", *params, out=out)

    def test_a_given_workspace(self):
        self.library.size = 1000
        params, out = self.arrays()
        memory_ = np.zeros(2000, np.uint8)
        self.op(*params, out=out, workspace=OnlyCuda(memory_, typestr="|u1"))
        self.assertEqual((self.last()["workspace"], self.last()["workspace_bytes"]),
                         (memory_.ctypes.data, 2000))


class Loading(unittest.TestCase):
    def test_without_a_driver(self):
        load("small")
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            pass
        else:
            self.skipTest("there is a driver")
        with self.assertRaises(isoc.IsoError) as caught:
            isoc.load(f"{CUBINS}/small.cubin")
        self.assertEqual(caught.exception.status, Status.DRIVER)
        with self.assertRaises(isoc.IsoError) as caught:
            isoc.load(f"{CUBINS}/small.cubin", device="cuda:1")
        self.assertEqual(caught.exception.status, Status.UNSUPPORTED)


if __name__ == "__main__":
    unittest.main()
