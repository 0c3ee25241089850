"""isoc.torch on a GPU: bits of the CPU's, opcheck, compilation, graphs, checkpoints, streams."""

import os
import unittest

try:
    import torch
    from torch.utils.checkpoint import checkpoint
except ImportError:
    raise unittest.SkipTest("torch is not there")
if not torch.cuda.is_available():
    raise unittest.SkipTest("there is no GPU")

import isoc
import isoc.torch

from support import CUBINS
from test_torch import bf16, rms_norm


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        path = os.path.join(CUBINS, "smollm2-135m.cubin")
        cls.module, cls.cpu = isoc.load(path, device="cuda"), isoc.load(path, device="cpu")
        cls.op = cls.module.ops["final_norm"]
        cls.norm = staticmethod(isoc.torch.function(cls.op, rms_norm, name="gpu_norm"))
        cls.w = bf16((576,), 5).cuda().requires_grad_()

    def x(self, rows, seed=3):
        return bf16((rows, 576), seed).cuda().requires_grad_()

    def equal(self, a, b):
        self.assertTrue(torch.equal(a.detach().cpu().view(torch.int16),
                                    b.detach().cpu().view(torch.int16)))

    def test_bits_are_the_cpus(self):
        for rows in (1, 5, 200):
            x = self.x(rows)
            want = self.cpu.ops["final_norm"](x.detach().cpu(), self.w.detach().cpu())
            for _ in range(2):
                self.equal(self.norm(x, self.w), want)

    def test_a_stream_and_a_workspace_of_its_own(self):
        op, rows = self.module.ops["lm_head"], 3
        x, w = bf16((rows, 576), 1).cuda(), bf16((49152, 576), 2).cuda()
        want = op(x, w)
        torch.cuda.synchronize()
        other = torch.cuda.Stream()
        with torch.cuda.stream(other):
            again = [op(x, w) for _ in range(3)]
        other.synchronize()
        for y in again:
            self.assertTrue(torch.equal(y, want))

    def test_opcheck(self):
        torch.library.opcheck(torch.ops.isoc.gpu_norm.default, (self.x(5), self.w))

    def test_compiled_without_a_break(self):
        def alone(x, w):
            return self.norm(x, w)

        for backend in ("aot_eager", "inductor"):
            with self.subTest(backend):
                compiled = torch.compile(alone, fullgraph=True, dynamic=True, backend=backend)
                x = self.x(7)
                self.equal(compiled(x, self.w), self.norm(x, self.w))
                gradient = bf16((7, 576), 9).cuda()
                one, two = (torch.autograd.grad(f(x, self.w), (x, self.w), gradient)
                            for f in (compiled, self.norm))
                for a, b in zip(one, two):
                    apart = (a.float() - b.float()).norm() / b.float().norm()
                    self.assertLessEqual(float(apart), 0.01 if backend == "inductor" else 0.0)

    def test_captured_in_a_graph(self):
        lm_head, w = self.module.ops["lm_head"], bf16((49152, 576), 2).cuda()
        x, weight = self.x(4).detach(), self.w.detach()
        for _ in range(2):
            lm_head(self.norm(x, weight), w)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = lm_head(self.norm(x, weight), w)
        for seed in (3, 4):
            x.copy_(self.x(4, seed).detach())
            logits.zero_()
            graph.replay()
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(logits, lm_head(self.norm(x, weight), w)))

    def test_a_training_step_in_a_graph(self):
        x, w = self.x(4), self.w.detach().clone().requires_grad_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                torch.autograd.grad(self.norm(x, w).float().square().sum(), (x, w))
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = torch.autograd.grad(self.norm(x, w).float().square().sum(), (x, w))
        graph.replay()
        for a, b in zip(made, torch.autograd.grad(self.norm(x, w).float().square().sum(), (x, w))):
            self.assertTrue(torch.equal(a, b))

    def test_checkpointed(self):
        def model(x):
            return self.norm(x, self.w).float().sum()

        x = self.x(5)
        kept = torch.autograd.grad(model(x), (x, self.w))
        for reentrant in (False, True):
            with self.subTest(reentrant):
                y, w = x.detach().clone().requires_grad_(), self.w
                w.grad = None
                checkpoint(model, y, use_reentrant=reentrant).backward()
                for a, b in zip((y.grad, w.grad), kept):
                    self.assertTrue(torch.equal(a, b))


if __name__ == "__main__":
    unittest.main()
