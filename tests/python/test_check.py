"""isoc.check: processes that agree, and that do not. The store is a stand-in, and torch's own
between two processes where torch is there."""

import os
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import isoc
import isoc.check
from isoc import Status

from support import OnlyCuda, OnlyDlpack, load, pattern


class Store:
    """A store in this process; get waits as torch's do."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def add(self, key, n):
        with self.changed:
            self.values[key] = self.values.get(key, 0) + n
            return self.values[key]

    def set(self, key, value):
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, 20):
                raise TimeoutError(key)
            return self.values[key]


def meet(*calls):
    """What each of the calls of peers returns or raises, all at once on one store."""
    store, found = Store(), [None] * len(calls)

    def run(i, name, module, named):
        try:
            found[i] = isoc.check.peers(store, name, len(calls), module, **named)
        except (isoc.IsoError, ValueError) as problem:
            found[i] = problem

    threads = [threading.Thread(target=run, args=(i, *call)) for i, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


class Digests(unittest.TestCase):
    def test_bits_matter_and_strides_do_not(self):
        a = pattern((6, 10, 4), 1)
        b = np.arange(12, dtype=np.float32)
        wide = np.zeros((6, 12, 8), np.uint16)
        wide[:, 1:11, ::2] = a
        before = isoc.check.digest({"a": a, "b": b})
        self.assertEqual(before, isoc.check.digest({"b": OnlyDlpack(b), "a": wide[:, 1:11, ::2]}))
        columns = np.asfortranarray(a)
        self.assertEqual(before, isoc.check.digest({"a": columns, "b": b}))
        others = [{"a": a.reshape(6, 40), "b": b}, {"a": a, "c": b}, {"a": a},
                  {"a": a, "b": b.view(np.int32)}]
        a = a.copy()
        a[5, 9, 3] ^= 1
        others.append({"a": a, "b": b})
        found = {isoc.check.digest(other) for other in others}
        self.assertEqual(len(found | {before}), 6)

    def test_every_length_of_runs(self):
        for shape in ((), (1,), (3, 1), (1, 3), (0, 4)):
            x = pattern(shape, 2)
            twice = np.repeat(x[..., None], 2, axis=-1)[..., 0]
            self.assertEqual(isoc.check.digest({"x": x}), isoc.check.digest({"x": twice}))

    def test_refusals(self):
        for wrong in (np.zeros(2), OnlyCuda(np.zeros(2, np.float32))):
            with self.assertRaisesRegex(isoc.IsoError, "x is .* memory"):
                isoc.check.digest({"x": wrong})


class Peers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.small, cls.model = load("small"), load("smollm2-135m")

    def test_agreement(self):
        found = meet(("trainer", self.model, {"weights": b"\1" * 32, "layout": "tp1"}),
                     ("sampler", self.model, {"weights": "01" * 32, "layout": "tp3"}))
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[0]["sampler"],
                         {"contract": "smollm2_135m version 1", "weights": "01" * 32,
                          "fingerprint": self.model.fingerprint.hex(), "layout": "tp3"})

    def differ(self, status, words, *calls):
        for problem in meet(*calls):
            self.assertIsInstance(problem, isoc.IsoError)
            self.assertEqual((problem.status, problem.detail), (status, words))

    def test_differences(self):
        self.differ(Status.FINGERPRINT,
                    f"a runs smollm2_135m version 1 with fingerprint "
                    f"{self.model.fingerprint.hex()[:16]}, c runs small version 3 with "
                    f"fingerprint {self.small.fingerprint.hex()[:16]}",
                    ("b", self.model, {}), ("a", self.model, {}), ("c", self.small, {}))
        self.differ(Status.WEIGHTS,
                    "a runs small version 3 with weights 0202020202020202, b runs small version 3 "
                    "with weights none given",
                    ("a", self.small, {"weights": b"\2" * 32}), ("b", self.small, {}))

    def test_refusals(self):
        with self.assertRaisesRegex(isoc.IsoError, "no layout tp9"):
            isoc.check.peers(Store(), "a", 1, self.small, layout="tp9")
        for problem in meet(("a", self.small, {}), ("a", self.small, {})):
            self.assertIsInstance(problem, ValueError)

    def test_two_processes_and_torchs_store(self):
        try:
            import torch.distributed
        except ImportError:
            self.skipTest("torch is not there")
        program = (
            "import sys, torch.distributed, isoc, isoc.check\n"
            "store = torch.distributed.FileStore(sys.argv[1], 2)\n"
            "module = isoc.load(sys.argv[3], device='cpu')\n"
            "print(sorted(isoc.check.peers(store, sys.argv[2], 2, module)))\n")
        for other, code in (("small", 0), ("smollm2-135m", 1)):
            with tempfile.TemporaryDirectory() as folder:
                runs = [subprocess.Popen(
                    [sys.executable, "-c", program, os.path.join(folder, "store"), name,
                     os.path.join(os.environ["ISOC_TEST_CUBINS"], cubin + ".cubin")],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    for name, cubin in (("one", "small"), ("two", other))]
                for run in runs:
                    out, err = run.communicate(timeout=120)
                    self.assertEqual(run.returncode, code, err)
                    self.assertIn("FINGERPRINT" if code else "['one', 'two']", out + err)


if __name__ == "__main__":
    unittest.main()
