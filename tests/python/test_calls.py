"""Calls on the CPU device: tensors in place, results, tables, cut rows, and what is refused."""

import os
import pathlib
import tempfile
import threading
import unittest
from unittest import mock

import numpy as np

import isoc
from isoc import Status

from support import (CUBINS, ROOT, FakeTensor, FakeTorch, OnlyCuda, OnlyDlpack, in_layout, inputs,
                     load, pattern, with_torch)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.module = load("small")

    def refused(self, status, words, call, *args, **named):
        with self.assertRaises(isoc.IsoError) as caught:
            call(*args, **named)
        self.assertEqual(caught.exception.status, status)
        self.assertIn(words, str(caught.exception))


class Modules(Case):
    def test_what_a_module_says(self):
        module = self.module
        self.assertEqual((module.name, module.version, module.device), ("small", 3, "cpu"))
        self.assertEqual(module.layouts, {"one": 1, "tp2": 2, "tp4_sp": 4})
        self.assertEqual(list(module.ops), ["scale", "shift", "down", "attend_small"])
        self.assertEqual(len(module.fingerprint), 32)
        module.expect(module.fingerprint)
        module.expect(module.fingerprint.hex())
        self.refused(Status.FINGERPRINT, "another fingerprint", module.expect, bytes(32))
        self.assertRaises(ValueError, module.expect, "abc")

    def test_what_an_op_says(self):
        op = self.module.op("down", layout="tp4_sp", rank=1)
        self.assertEqual((op.params, op.results, op.ranks), (("h", "w", "res"), ("y",), 4))
        self.assertTrue(op.needs_join)
        self.assertFalse(self.module.ops["down"].needs_join)
        self.assertIs(op, self.module.op("down", layout="tp4_sp", rank=1))
        self.assertEqual(op.fingerprint, self.module.ops["down"].fingerprint)
        self.assertIn("iso_gemm_", op.kernel(5, phase="part"))
        h, _, res, _ = op.tensors(9, "part")
        self.assertEqual((h.dtype, h.shape, h.origin), ("bf16", (9, 64), (0, 64)))
        self.assertEqual(op.tensors(9, "join")[2].origin, (2, 0))
        by_degrees = self.module.op("down", degrees="tp=4", rank=3)
        self.assertEqual((by_degrees.ranks, by_degrees.layout), (4, "tp=4"))

    def test_loading_is_refused(self):
        path = os.path.join(CUBINS, "small.cubin")
        data = bytearray(pathlib.Path(path).read_bytes())
        self.assertEqual(isoc.load(bytes(data), device="cpu").fingerprint, self.module.fingerprint)
        data[600] ^= 1
        self.refused(Status.CORRUPT, "the cubin's bytes", isoc.load, bytes(data), device="cpu")
        self.refused(Status.NOT_ISO, ".note.iso", isoc.load, b"\x7fELF", device="cpu")
        self.refused(Status.FILE, "/nowhere", isoc.load, "/nowhere.cubin", device="cpu")
        self.refused(Status.FINGERPRINT, "small", isoc.load, path, device="cpu", expect=bytes(32))
        self.assertRaises(ValueError, isoc.load, path, device="tpu")
        with tempfile.TemporaryDirectory() as folder:
            bad = os.path.join(folder, "bad.iso")
            pathlib.Path(bad).write_text("contract bad version 1;\nnumerics nothing;\n")
            self.refused(Status.CONTRACT, "bad.iso:2:", isoc.load, bad, device="cpu")

    def test_the_wheels_nvrtc_is_opened_where_there_is_no_other(self):
        with tempfile.TemporaryDirectory() as folder:
            libraries = pathlib.Path(folder, "nvidia", "cu13", "lib")
            libraries.mkdir(parents=True)
            for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.alt.so.13"):
                (libraries / name).touch()
            contract = os.path.join(ROOT, "tests", "python", "small.iso")
            environment = {"ISOC_NVRTC": "/nowhere", "ISOC_CACHE": folder}
            with mock.patch.dict(os.environ, environment), \
                    mock.patch("sys.path", ["/nowhere", folder]), \
                    mock.patch("isoc.module.ctypes.CDLL") as opened:
                self.refused(Status.TOOLCHAIN, "NVRTC was not found", isoc.load, contract,
                             device="cpu")
            self.assertEqual([call.args[0] for call in opened.call_args_list],
                             [str(libraries / "libnvrtc-builtins.so.13.0"),
                              str(libraries / "libnvrtc.so.13")])

    def test_lookups_are_refused(self):
        op = self.module.op
        self.refused(Status.UNKNOWN_OP, "no op up", op, "up")
        self.refused(Status.UNKNOWN_LAYOUT, "tp3", op, "down", layout="tp3")
        self.refused(Status.BAD_RANK, "ranks 0 to 1", op, "down", layout="tp2", rank=2)
        self.assertRaises(KeyError, lambda: self.module.ops["up"])

    def test_closing(self):
        with isoc.load(os.path.join(CUBINS, "small.cubin"), device="cpu") as module:
            op = module.ops["down"]
        self.refused(Status.INVALID_ARGUMENT, "closed", op, *inputs(self.module.ops["down"], 2))
        module.close()


class Results(Case):
    def test_several_results_and_dtypes(self):
        x = np.arange(128, dtype=np.float16).reshape(2, 64)
        s = np.linspace(-1, 1, 64, dtype=np.float32)
        y, z = self.module.ops["scale"](x, s)
        np.testing.assert_array_equal(z, x.astype(np.float32) * s)
        np.testing.assert_array_equal(y, z.astype(np.float16))
        self.assertEqual((y.dtype, z.dtype), (np.float16, np.float32))

    def test_names_and_out(self):
        op = self.module.ops["down"]
        h, w, res = inputs(op, 4)
        expected = op(h, w, res)
        out = np.zeros_like(expected)
        self.assertIs(op(h, res=res, w=w, out=out), out)
        np.testing.assert_array_equal(out, expected)

    def test_no_rows(self):
        h, w, res = inputs(self.module.ops["down"], 1)
        self.assertEqual(self.module.ops["down"](h[:0], w, res[:0]).shape, (0, 64))

    def test_bfloat16_of_an_input_is_kept(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not there")
        op = self.module.ops["down"]
        params = inputs(op, 3)
        y = op(*(p.view(ml_dtypes.bfloat16) for p in params))
        self.assertEqual(y.dtype, ml_dtypes.bfloat16)
        np.testing.assert_array_equal(y.view(np.uint16), op(*params))

    def test_live_rows(self):
        op = self.module.ops["down"]
        params, out = inputs(op, 6), np.full((6, 64), 0x7777, np.uint16)
        whole = op(*params)
        op(*params, out=out, live_rows=np.array([4], np.int32))
        np.testing.assert_array_equal(out[:4], whole[:4])
        self.assertTrue((out[4:] == 0x7777).all())

    def test_threads(self):
        op, found = self.module.ops["down"], {}
        params = inputs(op, 5)

        def run(i):
            found[i] = op(*params)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for y in found.values():
            np.testing.assert_array_equal(y, op(*params))
        self.assertEqual(len(found), 4)


class InPlace(Case):
    """Views of fused and padded storage, read and written where they are."""

    def test_fused_and_padded(self):
        op = self.module.ops["down"]
        h, w, res = inputs(op, 5)
        expected = op(h, w, res)
        fused = np.full((5, 16 + 256 + 64), 0x7FC0, np.uint16)
        fused[:, 16:272], fused[:, 272:] = h, res
        padded = np.full((64, 300), 0x7FC0, np.uint16)
        padded[:, :256] = w
        out = np.full((10, 80), 0x1234, np.uint16)
        op(fused[:, 16:272], padded[:, :256], fused[:, 272:], out=out[::2, 8:72])
        np.testing.assert_array_equal(out[::2, 8:72], expected)
        out[::2, 8:72] = 0x1234
        self.assertTrue((out == 0x1234).all())

    def test_transposed(self):
        x = np.arange(192, dtype=np.float16).reshape(64, 3).T
        s = np.ones(64, np.float32)
        y, _ = self.module.ops["scale"](x, s)
        np.testing.assert_array_equal(y, x)

    def test_dlpack(self):
        x = np.arange(384, dtype=np.float16).reshape(3, 128)[:, ::2]
        s = np.linspace(0, 1, 64, dtype=np.float32)
        y, z = np.empty((3, 64), np.float16), np.empty((3, 64), np.float32)
        self.module.ops["scale"](OnlyDlpack(x), OnlyDlpack(s), out=(OnlyDlpack(y), OnlyDlpack(z)))
        np.testing.assert_array_equal(y, self.module.ops["scale"](x, s)[0])
        with self.assertRaisesRegex(TypeError, "pass out="):
            self.module.ops["scale"](OnlyDlpack(x), OnlyDlpack(s))

    def test_like_torch(self):
        op, torch = self.module.ops["down"], FakeTorch()
        params = inputs(op, 3)
        with with_torch(torch):
            y = op(*(FakeTensor(p, torch.bfloat16) for p in params))
        self.assertEqual((type(y), y.dtype), (FakeTensor, torch.bfloat16))
        np.testing.assert_array_equal(y.array, op(*params))


class Tables(Case):
    def setUp(self):
        self.op = self.module.ops["shift"]
        self.x = np.zeros((5, 64), np.uint16)
        self.t = inputs(self.op, 5)[1]

    def test_positions(self):
        positions = np.array([3, 0, 15, 3, 1], np.int32)
        y = self.op(self.x, self.t, positions=positions)
        np.testing.assert_array_equal(y, self.t[positions])

    def test_positions_of_the_wrong_kind(self):
        for wrong in (np.zeros(5, np.int64), np.zeros(4, np.int32), np.zeros(10, np.int32)[::2]):
            self.refused(Status.BAD_TENSOR, "positions must be 5 contiguous int32", self.op, self.x,
                         self.t, positions=wrong)
        self.refused(Status.INVALID_ARGUMENT, "positions", self.op, self.x, self.t)


class Attention(Case):
    """One result from keys and values that are padded, packed and paged."""

    def setUp(self):
        self.op = self.module.ops["attend_small"]
        self.lengths = np.array([5, 9], np.int32)
        self.q = pattern((4, 2, 64), 1)
        self.k, self.v = pattern((2, 9, 2, 64), 2), pattern((2, 9, 2, 64), 3)
        self.rows = {"sequences": np.array([0, 1, 1, 0], np.int32),
                     "positions": np.array([4, 7, 8, 2], np.int32)}
        self.expected = self.op(self.q, self.k, self.v, **self.rows)

    def test_padded(self):
        self.assertGreater(len(np.unique(self.expected)), 100)
        y = self.op(self.q, self.k, self.v, keys=isoc.Keys(lengths=self.lengths), **self.rows)
        np.testing.assert_array_equal(y, self.expected)
        fewer = isoc.Keys(lengths=np.array([5, 8], np.int32))
        y = self.op(self.q, self.k, self.v, keys=fewer, **self.rows)
        differ = (y != self.expected).any(axis=(1, 2))
        self.assertEqual(differ.tolist(), [False, False, True, False])

    def test_packed(self):
        k, v = (np.concatenate([t[0, :5], t[1]])[None] for t in (self.k, self.v))
        keys = isoc.Keys(lengths=self.lengths, starts=np.array([0, 5, 14], np.int32))
        np.testing.assert_array_equal(self.op(self.q, k, v, keys=keys, **self.rows), self.expected)

    def test_paged(self):
        table = np.array([[6, 1, -1, 0], [2, 0, 5, 0]], np.int32)
        cache = [np.full((7, 4, 2, 64), 0x7FC0, np.uint16) for _ in range(2)]
        for own, pages in zip((self.k, self.v), cache):
            for s in range(2):
                for j in range(self.lengths[s]):
                    pages[table[s, j // 4], j % 4] = own[s, j]
        keys = isoc.Keys(lengths=self.lengths, block_table=table[:, :3], page=4)
        np.testing.assert_array_equal(self.op(self.q, *cache, keys=keys, **self.rows),
                                      self.expected)

    def test_written_cache(self):
        cache = [np.full((7, 4, 2, 64), 0x7FC0, np.uint16) for _ in range(2)]
        table = np.array([[6, 1, 3], [2, 0, 5]], np.int32)
        slots = np.array([table[s, j // 4] * 4 + j % 4 if j < 9 else -1
                          for s in range(2) for j in range(self.lengths[s])] + [-1], np.int64)
        rows = [np.concatenate([t[0, :5], t[1], t[0, :1]]) for t in (self.k, self.v)]
        self.module.write_cache(rows, cache, slots)
        keys = isoc.Keys(lengths=self.lengths, block_table=table, page=4, most_rows=2)
        np.testing.assert_array_equal(self.op(self.q, *cache, keys=keys, **self.rows),
                                      self.expected)
        self.assertEqual((cache[0] != 0x7FC0).any(axis=(2, 3)).sum(), 14)
        for words, arguments in (("3 tensors of rows", (rows + rows[:1], cache, slots)),
                                 ("slots must be contiguous int64", (rows, cache, slots[::2])),
                                 ("14 slots for rows", (rows, cache, slots[:14])),
                                 ("row 0 has slot 28", (rows, cache, slots * 0 + 28)),
                                 ("other axes", (rows, [c[:, :, :1] for c in cache], slots))):
            with self.assertRaisesRegex(isoc.IsoError, words):
                self.module.write_cache(*arguments)

    def test_refusals(self):
        for words, keys in (("keys.lengths must be int32 of 1 axes",
                             isoc.Keys(lengths=self.lengths.astype(np.int64))),
                            ("keys.starts must be", isoc.Keys(starts=np.zeros(4, np.int32)[::2])),
                            ("keys.block_table must be int32 of 2 axes",
                             isoc.Keys(block_table=self.lengths, page=4))):
            self.refused(Status.BAD_TENSOR, words, self.op, self.q, self.k, self.v, keys=keys,
                         **self.rows)


class Joins(Case):
    def test_all_layouts(self):
        op = self.module.ops["down"]
        params = inputs(op, 7)
        for layout in self.module.layouts:
            for rows in (7, 1):
                some = [params[0][:rows], params[1], params[2][:rows]]
                with self.subTest(layout=layout, rows=rows):
                    np.testing.assert_array_equal(
                        in_layout(self.module, "down", layout, rows, some)[0], op(*some))

    def test_rows_are_read_off_where_they_are_whole(self):
        h, w, res = inputs(self.module.ops["down"], 3)
        ops = [self.module.op("down", layout="tp2", rank=rank) for rank in (0, 1)]
        roots = [op.part(h[:, 128 * i:128 * i + 128], w[:, 128 * i:128 * i + 128])
                 for i, op in enumerate(ops)]
        for op in ops:
            part = op.tensors(3, "join")
            lo, n = part[2].origin[1], part[2].shape[1]
            y = op.join(roots, res=res[:, lo:lo + n])
            whole = self.module.ops["down"](h, w, res)
            np.testing.assert_array_equal(y, whole[:, lo:lo + n])

    def test_the_callers_own_roots(self):
        h, w, _ = inputs(self.module.ops["down"], 3)
        op = self.module.op("down", layout="tp2", rank=0)
        own = op.part(h[:, :128], w[:, :128])
        self.assertEqual((own.dtype, own.nbytes), (np.float32, op.roots_bytes(3)))
        self.assertEqual(own.ctypes.data % 256, 0)
        again = np.empty_like(op.part(h[:, :128], w[:, :128]))
        if again.ctypes.data % 256 == 0:
            op.part(h[:, :128], w[:, :128], roots=again)
            np.testing.assert_array_equal(own, again)
        self.refused(Status.INVALID_ARGUMENT, "rank 0 must be", op.part, h[:, :128], w[:, :128],
                     roots=np.empty(8, np.float32))

    def test_wrong_calls(self):
        op, whole = self.module.op("down", layout="tp4_sp", rank=1), self.module.ops["down"]
        h, w, res = inputs(whole, 6)
        part = (h[:, 64:128], w[:, 64:128])
        self.refused(Status.NEEDS_JOIN, "ends in a join", op, *part, res, rows=6)
        self.refused(Status.NO_JOIN, "no join", whole.part, h, w)
        self.refused(Status.NO_JOIN, "no join", whole.join, [None], res=res)
        roots = op.part(*part, rows=6)
        with self.assertRaisesRegex(TypeError, "pass rows="):
            op.join([roots] * 4, res=res[1:3])
        self.refused(Status.INVALID_ARGUMENT, "has 4 ranks, got roots of 3", op.join, [roots] * 3,
                     res=res[1:3], rows=6)
        self.refused(Status.INVALID_ARGUMENT, "roots of rank 2 are NULL", op.join,
                     [roots, roots, None, roots], res=res[1:3], rows=6)
        self.refused(Status.INVALID_ARGUMENT, "roots of rank 3 must be", op.join,
                     [roots, roots, roots, roots[:9]], res=res[1:3], rows=6)


class Refusals(Case):
    def setUp(self):
        self.op = self.module.ops["down"]
        self.params = inputs(self.op, 3)

    def but(self, status, words, index, wrong):
        params = list(self.params)
        params[index] = wrong
        self.refused(status, words, self.op, *params)

    def test_dtypes(self):
        h = self.params[0]
        for dtype in (np.float32, np.float16, np.float64, np.int16, np.uint8):
            words = f"h has dtype {np.dtype(dtype).name}, the contract says bf16"
            self.but(Status.BAD_TENSOR, words, 0, h.astype(dtype))
        self.but(Status.BAD_TENSOR, "of the other byte order", 0, h.astype(">u2"))
        self.refused(Status.BAD_TENSOR, "x has dtype uint16, the contract says f16",
                     self.module.ops["scale"], np.zeros((2, 64), np.uint16),
                     np.zeros(64, np.float32))
        torch = FakeTorch()
        self.but(Status.BAD_TENSOR, "h has dtype float64", 0, FakeTensor(h, "torch.float64"))

    def test_shapes_and_strides(self):
        h, w, _ = self.params
        self.but(Status.BAD_TENSOR, "axis 1 of tensor h has 255 elements", 0, h[:, :255])
        self.but(Status.BAD_TENSOR, "h has 1 axes, the contract says 2", 0, h[0])
        self.but(Status.BAD_TENSOR, "negative stride", 1, w[::-1])
        self.but(Status.BAD_TENSOR, "axis 0 of tensor res has 2", 2, self.params[2][:2])
        odd = np.zeros(3 * 256 * 2 + 1, np.uint8)[1:].view(np.uint16).reshape(3, 256)
        self.but(Status.BAD_TENSOR, "aligned to 2 bytes", 0, odd)

    def test_counts(self):
        h, w, res = self.params
        self.refused(Status.BAD_COUNT, "missing: res", self.op, h, w)
        self.refused(Status.BAD_COUNT, "takes 3 parameters (h, w, res), not 4", self.op, h, w, res,
                     h)
        self.refused(Status.BAD_COUNT, "1 results (y), not 2", self.op, h, w, res, out=(h, h))
        self.refused(Status.INVALID_ARGUMENT, "schedule 99", self.op, h, w, res, schedule=99)
        with self.assertRaisesRegex(TypeError, "no parameter q"):
            self.op(h, w, q=res)
        with self.assertRaisesRegex(TypeError, "passed twice"):
            self.op(h, w, res, h=h)

    def test_places(self):
        h = self.params[0]
        self.but(Status.BAD_TENSOR, "h is in GPU memory", 0, OnlyCuda(h))
        readonly = np.zeros((3, 64), np.uint16)
        readonly.flags.writeable = False
        self.refused(Status.BAD_TENSOR, "y is read-only", self.op, *self.params, out=readonly)
        with self.assertRaisesRegex(TypeError, "builtins.list is no tensor"):
            self.op(h.tolist(), *self.params[1:])

    def test_gradients(self):
        with with_torch(FakeTorch()):
            self.but(Status.UNSUPPORTED, "requires a gradient", 0,
                     FakeTensor(self.params[0], "torch.bfloat16", requires_grad=True))


if __name__ == "__main__":
    unittest.main()
