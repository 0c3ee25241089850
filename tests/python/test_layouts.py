"""Every op of SmolLM2-135M in every layout: the bits of the op run whole, and those of the C
interface, which examples/layer.c prints as FNV-1a digests."""

import os
import re
import subprocess
import unittest

import numpy as np

from support import CUBINS, in_layout, inputs, load

ROWS = 3


def fnv(arrays):
    h = 0xCBF29CE484222325
    for array in arrays:
        for byte in array.tobytes():
            h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def digests_of_c():
    layer = os.environ["ISOC_TEST_LAYER"]
    text = subprocess.run([layer, os.path.join(CUBINS, "smollm2-135m.cubin"), str(ROWS)],
                          check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^(\w+) +(\w+) +\d+ ranks +([0-9a-f]{16})", text, re.M)
    return {(op, layout): int(digest, 16) for op, layout, digest in lines}


class Layouts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.module = load("smollm2-135m")
        cls.expected = digests_of_c()

    def test_all_ops_in_all_layouts(self):
        self.assertEqual(list(self.module.layouts.items()), [("tp1", 1), ("tp3", 3), ("tp3_sp", 3)])
        self.assertEqual(len(self.expected), 3 * len(self.module.ops))
        for name, op in self.module.ops.items():
            params = inputs(op, ROWS)
            whole = op(*params)
            whole = list(whole) if isinstance(whole, tuple) else [whole]
            digest = fnv(whole)
            for layout in self.module.layouts:
                with self.subTest(op=name, layout=layout):
                    self.assertEqual(digest, self.expected[name, layout])
                    others = in_layout(self.module, name, layout, ROWS, params)
                    for own, other in zip(whole, others):
                        np.testing.assert_array_equal(own, other)

    def test_one_bit_of_an_input_matters(self):
        op = self.module.ops["o_proj"]
        params = inputs(op, ROWS)
        before = op(*params)
        params[2][1, 5] ^= 0x8000
        self.assertEqual(np.argwhere(op(*params) != before).tolist(), [[1, 5]])

    def test_rows_do_not_matter(self):
        op = self.module.ops["down"]
        h, w, res = inputs(op, 9)
        whole = op(h, w, res)
        for schedule in range(op.schedules + 1):
            np.testing.assert_array_equal(op(h[4:7], w, res[4:7], schedule=schedule), whole[4:7])


if __name__ == "__main__":
    unittest.main()
