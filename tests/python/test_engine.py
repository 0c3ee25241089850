"""Models and engines: a sampler's bits are the trainer's, whatever the batch; receipts replay."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import isoc
from isoc import Request, Sequence

from support import load

PROMPTS = [[1, 2, 3, 4, 5], [7, 8], [9] * 20, list(range(100, 137))]


def bits(x):
    return np.asarray(x, np.float32).view(np.uint32).tolist()


def engine(module, **named):
    named = {"at_once": 3, "max_rows": 16, "max_position": 64, **named}
    return isoc.Engine(module, named.pop("weights", "seed:1"), **named)


class Sampling(unittest.TestCase):
    def setUp(self):
        self.module = load("tiny")

    def test_the_batch_moves_nothing(self):
        """All together in small steps, and each alone in large ones with other pages."""
        with engine(self.module) as many, engine(self.module, at_once=1, max_rows=64,
                                                 page=528, pages=1) as one:
            together = many.generate(PROMPTS, tokens=6, seed=3, top_p=0.95)
            for prompt, answer in zip(PROMPTS, together):
                alone = one.generate([prompt], tokens=6, seed=3, top_p=0.95)[0]
                self.assertEqual((alone.tokens, bits(alone.logprobs)),
                                 (answer.tokens, bits(answer.logprobs)))

    def test_a_trainers_pass_gives_the_samplers_log_probabilities(self):
        with engine(self.module) as sampler, engine(self.module, max_rows=64) as trainer:
            for answer in sampler.generate(PROMPTS, tokens=6, seed=5, temperature=0.7):
                n = len(answer.request.prompt)
                scored = trainer.score([*answer.request.prompt, *answer.tokens], temperature=0.7)
                self.assertEqual(bits(scored[n - 1:]), bits(answer.logprobs))
                self.assertTrue((scored <= 0).all())

    def test_seeds_and_streams_tell_answers_apart(self):
        with engine(self.module) as sampler:
            requests = [Request([1, 2, 3], tokens=8, seed=seed, stream=stream)
                        for seed in (1, 2) for stream in (0, 1)]
            answers = sampler.generate(requests + requests[:1])
        self.assertEqual(len({tuple(a.tokens) for a in answers}), 4)
        self.assertEqual(answers[0].tokens, answers[-1].tokens)

    def test_an_answer_ends_at_a_stop(self):
        with engine(self.module) as sampler:
            whole = sampler.generate([[1, 2, 3]], tokens=8, seed=1)[0]
            cut = sampler.generate([[1, 2, 3]], tokens=8, seed=1, stop=[whole.tokens[2]])[0]
        self.assertEqual(cut.tokens, whole.tokens[:whole.tokens.index(whole.tokens[2]) + 1])

    def test_pages_come_back(self):
        with engine(self.module, pages=4) as sampler:
            free = sum(map(len, sampler._free))
            self.assertEqual(len(sampler.generate(PROMPTS[:3] * 3, tokens=4)), 9)
            self.assertEqual(sum(map(len, sampler._free)), free)

    def test_what_is_refused(self):
        with engine(self.module, pages=2) as sampler:
            for status, prompt, tokens in ((isoc.Status.INVALID_ARGUMENT, [], 4),
                                           (isoc.Status.INVALID_ARGUMENT, [1], 0),
                                           (isoc.Status.STEP_ROWS, [1] * 60, 5),
                                           (isoc.Status.PAGES, [1] * 40, 5)):
                with self.assertRaises(isoc.IsoError) as caught:
                    sampler.generate([prompt], tokens=tokens)
                self.assertEqual(caught.exception.status, status)

    def test_a_contract_without_a_model_is_refused(self):
        with self.assertRaises(isoc.IsoError) as caught:
            engine(load("small"))
        self.assertEqual(caught.exception.status, isoc.Status.NO_MODEL)


class Receipts(unittest.TestCase):
    def setUp(self):
        self.module = load("tiny")
        with engine(self.module) as sampler:
            self.receipts = [a.receipt for a in sampler.generate(PROMPTS[:2], tokens=5, seed=9)]

    def test_they_replay(self):
        with engine(self.module, at_once=1) as other:
            for receipt in self.receipts:
                self.assertEqual(isoc.Receipt.read(receipt.text()).replay(other), [])

    def test_another_bit_is_found(self):
        receipt = self.receipts[0]
        wrong = receipt._replace(logprobs=[f"{int(receipt.logprobs[0], 16) ^ 1:08x}",
                                           *receipt.logprobs[1:]])
        with engine(self.module) as other:
            self.assertEqual(len(wrong.replay(other)), 1)
            self.assertEqual(len(receipt._replace(tokens=receipt.tokens[:-1]).replay(other)), 1)

    def test_other_weights_and_contracts_are_refused(self):
        with engine(self.module, weights="seed:2") as other:
            for receipt, status in ((self.receipts[0], isoc.Status.WEIGHTS),
                                    (self.receipts[0]._replace(fingerprint="00" * 32),
                                     isoc.Status.FINGERPRINT)):
                with self.assertRaises(isoc.IsoError) as caught:
                    receipt.replay(other)
                self.assertEqual(caught.exception.status, status)

    def test_what_is_no_receipt(self):
        whole = json.loads(self.receipts[0].text())
        for text in ("", "[]", "{}", json.dumps({**whole, "format": 2}),
                     json.dumps({**whole, "more": 1})):
            with self.assertRaises(ValueError):
                isoc.Receipt.read(text)

    def test_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "receipt.json")
            for receipt, code in ((self.receipts[1], 0),
                                  (self.receipts[1]._replace(logprobs=["0"] * 5), 1),
                                  (self.receipts[1]._replace(weights=""), 3)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(receipt.text())
                cubin = os.path.join(os.environ["ISOC_TEST_CUBINS"], "tiny.cubin")
                ran = subprocess.run([sys.executable, "-m", "isoc", "replay", path, "--model",
                                      cubin, "--weights", "seed:1"], capture_output=True,
                                     text=True, check=False)
                self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)


class Ranks(unittest.TestCase):
    def test_two_ranks_draw_what_one_does(self):
        module = load("tiny")
        with engine(module) as one:
            expected = one.generate(PROMPTS, tokens=4, seed=2)
        answers = [None, None]

        def rank(r, folder):
            own = load("tiny")
            with isoc.Group(own, r, 2, bootstrap=f"file:{folder}", timeout=30) as group:
                with engine(own, layout="tp2", group=group) as sampler:
                    answers[r] = sampler.generate(PROMPTS, tokens=4, seed=2)
                group.check()

        with tempfile.TemporaryDirectory() as folder:
            threads = [threading.Thread(target=rank, args=(r, folder)) for r in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for said in answers:
            self.assertEqual([(a.tokens, bits(a.logprobs)) for a in said],
                             [(a.tokens, bits(a.logprobs)) for a in expected])


class Traces(unittest.TestCase):
    def test_a_packed_pass_and_paged_steps_agree(self):
        module = load("tiny")
        ids = list(range(40))
        columns = {"ids": ids, "targets": ids[1:] + [0], "temperature": [1.0] * 40}
        with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
            with isoc.Model(module, "seed:1", max_rows=64, max_position=64) as packed:
                with packed.trace(a):
                    packed.step([Sequence(40)], columns, ["logprob"])
            with isoc.Model(module, "seed:1", layout="tp1", max_rows=64, max_position=64,
                            pages=3) as paged, paged.trace(b):
                for lo, hi in ((0, 7), (7, 39), (39, 40)):
                    part = {name: values[lo:hi] for name, values in columns.items()}
                    paged.step([Sequence(hi - lo, lo, [2, 0, 1])], part, ["logprob"])
            self.assertIsNone(isoc.trace_diff(a, b))
            with isoc.Model(module, "seed:2", max_rows=64, max_position=64) as other:
                with other.trace(b):
                    other.step([Sequence(40)], columns, ["logprob"])
            found = isoc.trace_diff(a, b)
            self.assertEqual((found.op, found.turn), ("embedding", -1))
            self.assertGreater(found.differ, 0)
            with isoc.Model(module, "seed:2", max_rows=64, max_position=64) as other:
                with other.trace(b, ["down", "qkv"]):
                    other.step([Sequence(40)], columns, ["logprob"])
            found = isoc.trace_diff(a, b)
            self.assertEqual((found.op, found.turn), ("qkv", 0))


class SharedKeys(unittest.TestCase):
    """Layouts kv2 and kv3: ranks have every second or third split of 128 keys."""

    def setUp(self):
        self.module = load("tiny")

    def test_parts_joined_are_the_whole(self):
        numbers = np.random.default_rng(5)
        q, k, v = ((numbers.standard_normal(shape, np.float32).view(np.uint32) >> 16)
                   .astype(np.uint16) for shape in ((3, 4, 64), (2, 300, 2, 64), (2, 300, 2, 64)))
        rows = {"positions": np.array([299, 140, 149], np.int32),
                "sequences": np.array([0, 1, 1], np.int32)}
        keys = isoc.Keys(lengths=np.array([300, 150], np.int32), most_keys=300,
                         turns=np.array([0, 2], np.int32))
        expected = self.module.ops["attention"](q, k, v, keys=keys, **rows)
        ranks = [self.module.op("attention", layout="kv3", rank=rank) for rank in range(3)]
        roots = [rank.part(q, k, v, keys=keys, **rows) for rank in ranks]
        for rank in ranks:
            result = rank.join(roots, None, None, None, keys=keys, rows=3, **rows)
            for own, whole in zip(result, expected):
                np.testing.assert_array_equal(own, whole)
        with self.assertRaisesRegex(isoc.IsoError, "roots by keys"):
            ranks[0].part(q, k, v, **rows)

    def test_a_rank_has_its_share_of_the_cache(self):
        one, two = (isoc.Model.sizes(self.module, layout=layout, page=16, pages=64)
                    for layout in ("tp1", "kv2"))
        self.assertEqual((one.page_ranks, two.page_ranks, two.page_positions), (1, 2, 128))
        self.assertEqual(one.cache, 2 * two.cache)


if __name__ == "__main__":
    unittest.main()
