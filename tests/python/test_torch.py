"""isoc.torch, and torch's own tensors, where torch is there."""

import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

try:
    import torch
    import torch.distributed
    from torch.utils.checkpoint import checkpoint
except ImportError:
    raise unittest.SkipTest("torch is not there")

import isoc
import isoc.torch

from support import CUBINS, load, pattern


def rms_norm(x, w):
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return scaled.to(x.dtype) * w


def scale(x, s):
    z = x.float() * s
    return z.half(), z


def shift(x, t, positions=None):
    return x + t[positions.long()]


def bf16(shape, seed):
    return torch.from_numpy(pattern(shape, seed).view(np.int16)).view(torch.bfloat16)


class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.small, cls.model = load("small"), load("smollm2-135m")
        cls.op = cls.model.ops["final_norm"]
        cls.norm = staticmethod(isoc.torch.function(cls.op, rms_norm))
        cls.scale = staticmethod(isoc.torch.function(cls.small.ops["scale"], scale))
        cls.shift = staticmethod(isoc.torch.function(cls.small.ops["shift"], shift))

    def operator(self, op):
        return getattr(torch.ops.isoc, isoc.torch._name(op)).default

    def setUp(self):
        self.x = bf16((5, 576), 3).requires_grad_()
        self.w = bf16((576,), 5).requires_grad_()

    def bits(self, y):
        return y.detach().view(torch.int16).numpy().view(np.uint16)

    def test_tensors_are_those_of_numpy(self):
        wide = torch.zeros(5, 600, dtype=torch.bfloat16)
        wide[:, 8:584] = self.x.detach()
        with torch.no_grad():
            y = self.op(wide[:, 8:584], self.w)
        self.assertEqual((y.dtype, y.shape, y.device.type), (torch.bfloat16, (5, 576), "cpu"))
        expected = self.op(self.bits(self.x), self.bits(self.w))
        np.testing.assert_array_equal(self.bits(y), expected)
        np.testing.assert_array_equal(self.bits(self.norm(self.x, self.w)), expected)

    def test_dlpack_of_bfloat16(self):
        class Other:
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self):
                return self.tensor.__dlpack__()

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

        x, w, out = self.x.detach(), self.w.detach(), torch.empty(5, 576, dtype=torch.bfloat16)
        self.op(Other(x), Other(w), out=Other(out))
        self.assertTrue(torch.equal(out, self.op(x, w)))

    def test_join(self):
        op = self.small.ops["down"]
        h, w, res = bf16((3, 256), 1), bf16((64, 256), 2), bf16((3, 64), 3)
        ranks = [self.small.op("down", layout="tp2", rank=rank) for rank in (0, 1)]
        roots = [rank.part(h[:, i:i + 128], w[:, i:i + 128]) for rank, i in zip(ranks, (0, 128))]
        self.assertEqual((roots[0].dtype, roots[0].data_ptr() % 256), (torch.float32, 0))
        whole = op(h, w, res)
        for rank in ranks:
            spec = rank.tensors(3, "join")[2]
            mine = slice(spec.origin[1], spec.origin[1] + spec.shape[1])
            self.assertTrue(torch.equal(rank.join(roots, res=res[:, mine]), whole[:, mine]))

    def test_refusals(self):
        with self.assertRaisesRegex(isoc.IsoError, "requires a gradient"):
            self.op(self.x, self.w)
        with self.assertRaisesRegex(isoc.IsoError, "h has dtype float32") as caught:
            self.small.ops["down"](torch.zeros(3, 256), torch.zeros(64, 256), torch.zeros(3, 64))
        self.assertEqual(caught.exception.status, isoc.Status.BAD_TENSOR)
        with self.assertRaisesRegex(isoc.IsoError, "on device meta"):
            self.op(torch.empty(5, 576, dtype=torch.bfloat16, device="meta"), self.w)
        for autocast in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                with self.assertRaisesRegex(TypeError, "x has dtype torch.float32"):
                    self.norm(self.x.float(), self.w)
                self.assertEqual(self.norm(self.x, self.w).dtype, torch.bfloat16)
        with self.assertRaisesRegex(isoc.IsoError, "NEEDS_JOIN"):
            isoc.torch.function(self.small.op("down", layout="tp2"))
        with self.assertRaisesRegex(ValueError, "already"):
            isoc.torch.function(self.op)

    def test_gradients_are_those_of_the_formula(self):
        gradient = bf16((5, 576), 9)
        self.norm(self.x, self.w).backward(gradient)
        x, w = (t.detach().clone().requires_grad_() for t in (self.x, self.w))
        rms_norm(x, w).backward(gradient)
        self.assertTrue(torch.equal(self.x.grad, x.grad))
        self.assertTrue(torch.equal(self.w.grad, w.grad))

    def test_gradients_of_one_result_and_one_parameter(self):
        x, s = torch.ones(2, 64, dtype=torch.half), torch.full((64,), 3.0, requires_grad=True)
        _, z = self.scale(x, s)
        z.sum().backward()
        self.assertTrue(torch.equal(s.grad, torch.full((64,), 2.0)))

    def test_a_table(self):
        x, t = bf16((3, 64), 1).requires_grad_(), bf16((16, 64), 2).requires_grad_()
        positions = torch.tensor([1, 0, 1], dtype=torch.int32)
        y = self.shift(x, t, positions=positions)
        self.assertTrue(torch.equal(y, shift(x, t, positions)))
        y.float().sum().backward()
        self.assertEqual(t.grad[:, 0].tolist(), [1.0, 2.0] + [0.0] * 14)

    def test_opcheck(self):
        torch.library.opcheck(self.operator(self.op), (self.x, self.w))
        s = torch.ones(64, requires_grad=True)
        x = torch.ones(2, 64, dtype=torch.half)
        torch.library.opcheck(self.operator(self.small.ops["scale"]), (x, s))

    def test_compiled_without_a_break(self):
        def model(x, w):
            return self.norm(x * 2, w).float().square().sum()

        compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
        for rows in (5, 9):
            x = bf16((rows, 576), rows).requires_grad_()
            own, other = compiled(x, self.w), model(x, self.w)
            self.assertEqual(own.item(), other.item())
            one = torch.autograd.grad(own, (x, self.w))
            for a, b in zip(one, torch.autograd.grad(other, (x, self.w))):
                self.assertTrue(torch.equal(a, b))

    def test_calls_that_look_the_same(self):
        """What was looked at once is refused as before, and nothing of a call's values is kept."""
        op, x, w = self.small.ops["shift"], bf16((3, 64), 1), bf16((16, 64), 2)
        op._known.clear()
        places = [torch.tensor(p, dtype=torch.int32) for p in ([1, 0, 1], [3, 2, 15], [0, 0, 0])]
        for p in places:
            self.assertTrue(torch.equal(op(x, w, positions=p), shift(x, w, p)))
        self.assertEqual(len(op._known), 1)
        out = torch.empty(3, 64, dtype=torch.bfloat16)
        for p in places:
            self.assertIs(op(x, w, out=out, positions=p), out)
            self.assertTrue(torch.equal(out, shift(x, w, p)))
        wide = torch.stack([x, x * 2], 1)
        for half in (0, 1, 0):
            self.assertTrue(torch.equal(op(wide[:, half], w, positions=places[1]),
                                        shift(wide[:, half], w, places[1])))
        self.assertEqual(len(op._known), 3)
        for status, bad in ((isoc.Status.BAD_TENSOR, (x, w.float())),
                            (isoc.Status.UNSUPPORTED, (x, w.clone().requires_grad_()))):
            with self.assertRaises(isoc.IsoError) as caught:
                op(*bad, positions=places[0])
            self.assertEqual(caught.exception.status, status)
        with self.assertRaises(isoc.IsoError):
            op(x, w, positions=places[0][:2])
        self.assertEqual(len(op._known), 3)

    def test_calls_that_come_again_and_again(self):
        """Torch tells that they look alike; what does not is refused, or gone through, as ever."""
        op, x, w = self.small.ops["shift"], bf16((16, 64), 1), bf16((16, 64), 2)
        p, learnt = torch.arange(16, dtype=torch.int32), w.clone().requires_grad_()
        want = shift(x, w, p)
        for _ in range(6):
            self.assertTrue(torch.equal(op(x, w, positions=p), want))
        turned = x.t().contiguous().t()
        with self.assertRaises(isoc.IsoError):
            op(x, learnt, positions=p)
        for bad in (w.float(), torch.empty_like(w, device="meta"), w[:, :32], None):
            with self.assertRaises((isoc.IsoError, TypeError)):
                op(x, bad, positions=p)
        with self.assertRaises(isoc.IsoError):
            op(x, w, positions=p.float())
        for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            with mode():
                for _ in range(5):
                    given = w if mode is torch.enable_grad else learnt
                    for y in (x, turned, x):
                        got = op(y, given, positions=p)
                        self.assertTrue(torch.equal(got, want))
                        self.assertEqual(got.is_inference(), mode is torch.inference_mode)
                    out = torch.zeros_like(want)
                    self.assertIs(op(x, given, out=out, positions=p), out)
                    self.assertTrue(torch.equal(out, want))
        with self.assertRaises(isoc.IsoError):
            op(x, learnt, positions=p)

    def test_looks_are_not_kept_for_ever(self):
        op, w = self.small.ops["shift"], bf16((16, 64), 2)
        with mock.patch("isoc.quick._MOST", 4):
            for rows in range(1, 12):
                x, p = bf16((rows, 64), 1), torch.arange(rows, dtype=torch.int32)
                self.assertTrue(torch.equal(op(x, w, positions=p), shift(x, w, p)))
                self.assertLessEqual(len(op._known), 4)

    def test_those_who_look_at_operators_see_one(self):
        """Plain calls go past torch's dispatcher; modes, tracers and profilers do not notice."""
        from torch.fx.experimental.proxy_tensor import make_fx
        from torch.utils._python_dispatch import TorchDispatchMode

        seen = []

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        name = "isoc." + isoc.torch._name(self.op)
        x, w = self.x.detach(), self.w.detach()
        self.norm(x, w)
        with Mode():
            self.norm(x, w)
        graph = make_fx(self.norm)(x, w)
        with torch.profiler.profile() as profile:
            self.norm(x, w)
        self.assertIn(name, "".join(seen))
        self.assertIn(name, graph.code)
        self.assertIn(name.replace(".", "::"), [event.name for event in profile.events()])
        self.assertTrue(torch.equal(torch.func.vmap(lambda y: self.norm(y, w))(x[None])[0],
                                    self.norm(x, w)))

    def test_without_a_formula(self):
        norm = isoc.torch.function(self.op, name="no_formula")
        with self.assertRaisesRegex(isoc.IsoError, "no reference="):
            norm(self.x, self.w).sum().backward()

    def test_readme(self):
        folder, names = os.path.join(CUBINS, "readme"), {}
        for block in ("1.py", "2.py"):
            with open(os.path.join(folder, block), encoding="utf-8") as file:
                text = file.read().replace("k.cubin", os.path.join(CUBINS, "smollm2-135m.cubin"))
            # The example's operator has the name that this class's has.
            exec(text.replace("function(norm,", 'function(norm, name="readme",'), names)
        self.assertEqual(names["x"].grad.shape, (4, 576))

    def test_distributed_data_parallel(self):
        class Norm(torch.nn.Module):
            def __init__(self, norm, w):
                super().__init__()
                self.norm, self.w = norm, torch.nn.Parameter(w.detach().clone())

            def forward(self, x):
                return self.norm(x, self.w)

        def step(model):
            model(self.x.detach()).float().square().mean().backward()
            return next(model.parameters()).grad

        expected = step(Norm(rms_norm, self.w))
        with tempfile.TemporaryDirectory() as folder:
            torch.distributed.init_process_group(
                "gloo", store=torch.distributed.FileStore(os.path.join(folder, "store"), 1), rank=0,
                world_size=1)
            self.addCleanup(torch.distributed.destroy_process_group)
            wrapped = torch.nn.parallel.DistributedDataParallel(Norm(self.norm, self.w))
            self.assertTrue(torch.equal(step(wrapped), expected))

    def test_fully_sharded(self):
        """FSDP2 on two processes: bits and gradients of the model that runs the formula itself."""
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sharded.py")
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            ranks = [subprocess.Popen([sys.executable, program, store, str(rank)],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                     for rank in (0, 1)]
            for rank in ranks:
                out, err = rank.communicate(timeout=300)
                self.assertEqual(rank.returncode, 0, err)
                self.assertIn("equal: forward True, gradients [True, True, True]", out)

    def test_training(self):
        """Fifty steps: the loss falls as the formula's own does."""
        def train(norm):
            w = torch.full((576,), 2.0, dtype=torch.bfloat16, requires_grad=True)
            optimizer = torch.optim.SGD([w], lr=20.0)
            for _ in range(50):
                optimizer.zero_grad()
                loss = (norm(self.x.detach(), w).float() - self.x.detach().float()).square().mean()
                loss.backward()
                optimizer.step()
            return loss.item()

        self.assertLess(train(self.norm), 0.2)
        self.assertAlmostEqual(train(self.norm), train(rms_norm), places=3)

    def test_checkpointed(self):
        def model(x):
            return self.norm(x, self.w).float().sum()

        kept = torch.autograd.grad(model(self.x), self.x)[0]
        again = torch.autograd.grad(checkpoint(model, self.x, use_reentrant=False), self.x)[0]
        self.assertTrue(torch.equal(kept, again))


if __name__ == "__main__":
    unittest.main()
