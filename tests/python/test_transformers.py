"""A Hugging Face model through a contract: a sampler's bits, PyTorch's gradients, what is refused."""

import tempfile
import unittest
from unittest import mock

import isoc

from support import load

try:
    import torch
    from transformers import (AttentionInterface, AttentionMaskInterface, LlamaConfig,
                              LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM)

    import isoc.transformers as patching
except ImportError as missing:
    raise unittest.SkipTest(f"this Python has no {missing.name}") from missing

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512,
         "rms_norm_eps": 1e-6, "max_position_embeddings": 256, "tie_word_embeddings": True}


def qwen(**changed):
    torch.manual_seed(0)
    config = Qwen3Config(**{**SIZES, "rope_theta": 10000.0, **changed})
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "layernorm" in name or name.endswith("norm.weight"):
                p.mul_(1 + 0.1 * torch.randn_like(p))
            elif "self_attn" in name:
                p.mul_(8)  # so that positions matter
    return model


def bits(x):
    return x.detach().contiguous().numpy().view("uint32").tolist()


class Patched(unittest.TestCase):
    def setUp(self):
        self.module = load("tiny")
        self.model = qwen()
        self.ids = torch.randint(0, 512, (3, 12), generator=torch.Generator().manual_seed(1))
        self.mask = torch.ones_like(self.ids)
        self.mask[1, 7:] = 0
        self.mask[2, :4] = 0  # padding on the left

    def logprobs(self, **named):
        with torch.no_grad():
            return patching.logprobs(self.model, self.ids, attention_mask=self.mask, **named)

    def test_an_engines_log_probabilities(self):
        with tempfile.TemporaryDirectory() as folder:
            self.model.save_pretrained(folder)
            with isoc.Engine(self.module, folder, at_once=3, max_rows=7, max_position=64) as engine:
                answers = engine.generate([[1, 2, 3], [5] * 9, [7]], tokens=8, seed=3,
                                          temperature=0.75)
        patching.patch(self.model, self.module)
        whole = [[*a.request.prompt, *a.tokens] for a in answers]
        length = max(map(len, whole))
        self.ids = torch.tensor([w + [0] * (length - len(w)) for w in whole])
        self.mask = torch.tensor([[1] * len(w) + [0] * (length - len(w)) for w in whole])
        found = self.logprobs(temperature=0.75)
        patching.unpatch(self.model)
        with torch.no_grad():
            logits = self.model(self.ids, attention_mask=self.mask).logits.float() / 0.75
        stock = logits.log_softmax(-1)[:, :-1].gather(-1, self.ids[:, 1:, None]).squeeze(-1)
        differs = 0
        for row, answer in enumerate(answers):
            at = slice(len(answer.request.prompt) - 1, len(whole[row]) - 1)
            want = answer.logprobs.view("uint32").tolist()
            self.assertEqual(bits(found[row, at]), want)
            differs += sum(a != b for a, b in zip(bits(stock[row, at]), want))
        self.assertGreater(differs, 0)  # the hazard is there

    def test_padding_and_packing_move_nothing(self):
        patching.patch(self.model, self.module)
        padded = self.logprobs()
        lengths = self.mask.sum(1).tolist()
        parts = [self.ids[row][self.mask[row].bool()] for row in range(3)]
        positions = torch.cat([torch.arange(n) for n in lengths]).unsqueeze(0)
        with torch.no_grad():
            packed = patching.logprobs(self.model, torch.cat(parts).unsqueeze(0),
                                       position_ids=positions)[0]
        first = 0
        for row, n in enumerate(lengths):
            lo = int(self.mask[row].nonzero()[0])
            self.assertEqual(bits(packed[first:first + n - 1]), bits(padded[row, lo:lo + n - 1]))
            first += n

    def gradients(self, loss):
        self.model.zero_grad()
        loss().backward()
        return {name: p.grad.float() for name, p in self.model.named_parameters()}

    def test_gradients_are_stock_ones(self):
        labels = self.ids.masked_fill(self.mask == 0, -100)
        labels[2, 4] = -100  # what stock PyTorch draws from padding

        def loss():
            return self.model(self.ids, attention_mask=self.mask, labels=labels).loss

        stock = self.gradients(loss)
        patching.patch(self.model, self.module)
        own = self.gradients(loss)
        for name, gradient in stock.items():
            apart = (own[name] - gradient).norm() / gradient.norm()
            self.assertLess(float(apart), 0.05, name)
        self.model.gradient_checkpointing_enable()
        self.model.train()
        again = self.gradients(loss)
        for name, gradient in own.items():
            self.assertTrue(torch.equal(again[name], gradient), name)

    def test_unpatch_restores(self):
        before = self.model(self.ids).logits
        patching.patch(self.model, self.module)
        with self.assertRaises(ValueError):
            patching.patch(self.model, self.module)
        self.assertEqual(self.model(self.ids, logits_to_keep=1).logits.shape, (3, 1, 512))
        patching.unpatch(self.model)
        patching.unpatch(self.model)
        patching.patch(self.model, self.module)
        patching.unpatch(self.model)
        self.assertTrue(torch.equal(self.model(self.ids).logits, before))
        with self.assertRaises(ValueError):
            patching.logprobs(self.model, self.ids)


class Registry(unittest.TestCase):
    """The contract's attention alone, as transformers' models call it."""

    @classmethod
    def setUpClass(cls):
        patching.register_attention(load("tiny"), name="isoc-test")

    def setUp(self):
        torch.manual_seed(2)
        self.attend = AttentionInterface()["isoc-test"]
        self.q, self.k, self.v = (torch.randn(3, n, 12, 64).bfloat16() for n in (4, 2, 2))
        self.mask = torch.ones(3, 12, dtype=torch.bool)
        self.mask[1, 7:] = False
        self.mask[2, :4] = False
        self.module = torch.nn.Module()

    def run_(self, q, k, v, mask=None, **named):
        return self.attend(self.module, q, k, v, mask, scaling=0.125, **named)[0]

    def alone(self, row):
        """By the op itself."""
        q, k, v = (x[row, :, self.mask[row]].transpose(0, 1) for x in (self.q, self.k, self.v))
        return load("tiny").ops["attention"](
            q, k[None], v[None], positions=torch.arange(len(q), dtype=torch.int32),
            sequences=torch.zeros(len(q), dtype=torch.int32))[0]

    def test_padded_packed_and_cached_rows_are_those_alone(self):
        padded = self.run_(self.q, self.k, self.v, self.mask)
        self.assertEqual((padded.shape, padded[1, 7:].any().item()), ((3, 12, 4, 64), False))
        parts = [[x[row:row + 1, :, self.mask[row]] for x in (self.q, self.k, self.v)]
                 for row in range(3)]
        ids = torch.cat([torch.arange(p[0].shape[2]) for p in parts]).unsqueeze(0)
        packed = self.run_(*(torch.cat(x, 2) for x in zip(*parts)), position_ids=ids)
        cached = self.run_(self.q[:, :, 9:], self.k, self.v, self.mask)
        first = 0
        for row in range(3):
            own = self.alone(row)
            self.assertTrue(torch.equal(padded[row, self.mask[row]], own))
            self.assertTrue(torch.equal(packed[0, first:first + len(own)], own))
            late = self.mask[row, 9:]
            self.assertTrue(torch.equal(cached[row, late], padded[row, 9:][late]))
            first += len(own)

    def test_a_model_with_it(self):
        model, ids = qwen(), torch.randint(0, 512, (2, 12))
        mask = torch.ones_like(ids)
        mask[0, :5] = 0

        def losses():
            model.zero_grad()
            loss = model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
            loss.backward()
            made = {n: p.grad.float() for n, p in model.named_parameters()}
            text = model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False)
            return loss.item(), made, text

        stock, gradients, text = losses()
        called = mock.Mock(side_effect=self.attend)
        AttentionInterface.register("isoc-counted", called)
        AttentionMaskInterface.register("isoc-counted", AttentionMaskInterface()["isoc-test"])
        model.set_attn_implementation("isoc-counted")
        own, ours, drawn = losses()
        self.assertEqual(called.call_count, 2 * (1 + 4))  # layers, by the loss and the tokens
        self.assertAlmostEqual(own, stock, delta=0.01 * stock)
        for name, gradient in gradients.items():
            self.assertLess(float((ours[name] - gradient).norm() / gradient.norm()), 0.05, name)
        self.assertEqual(drawn.shape, text.shape)

    def test_what_it_does_not_compute(self):
        for word, named in (("dropout", {"dropout": 0.1}), ("sliding_window", {"sliding_window": 8}),
                            ("is_causal", {"is_causal": False}), ("softcap", {"softcap": 30.0})):
            with self.assertRaises(isoc.IsoError) as caught:
                self.run_(self.q, self.k, self.v, **named)
            self.assertIn(word, str(caught.exception))
        with self.assertRaises(isoc.IsoError) as caught:
            self.attend(self.module, self.q, self.k, self.v, None, scaling=0.5)
        self.assertIn("scaling", str(caught.exception))
        with self.assertRaises(isoc.IsoError) as caught:
            self.run_(self.q, self.k, self.v, self.mask[:, None, None])
        self.assertIn("attention mask", str(caught.exception))


class Refused(unittest.TestCase):
    def refuse(self, status, model, word):
        with self.assertRaises(isoc.IsoError) as caught:
            patching.patch(model, load("tiny"))
        self.assertEqual(caught.exception.status, status)
        self.assertIn(word, str(caught.exception))
        self.assertFalse(hasattr(model, "_isoc"))

    def test_another_function(self):
        self.refuse(isoc.Status.UNSUPPORTED, qwen(rope_theta=100.0), "another function")

    def test_another_shape_or_dtype(self):
        self.refuse(isoc.Status.BAD_WEIGHT, qwen(intermediate_size=96), "gate_proj")
        self.refuse(isoc.Status.BAD_WEIGHT, qwen().float(), "float32")

    def test_parameters_that_the_contract_lacks(self):
        self.refuse(isoc.Status.UNSUPPORTED, qwen(attention_bias=True), "q_proj.bias")
        self.refuse(isoc.Status.UNSUPPORTED, qwen(num_hidden_layers=3), "layers.2")

    def test_parameters_that_the_model_lacks(self):
        llama = LlamaForCausalLM(LlamaConfig(**SIZES)).to(torch.bfloat16)
        self.refuse(isoc.Status.BAD_WEIGHT, llama, "q_norm")

    def test_arguments_without_a_say(self):
        model = qwen()
        patching.patch(model, load("tiny"))
        with self.assertRaises(isoc.IsoError) as caught:
            model(torch.zeros(1, 2, dtype=torch.long), past_key_values=object())
        self.assertIn("past_key_values", str(caught.exception))
        with self.assertRaises(isoc.IsoError):
            model(inputs_embeds=torch.zeros(1, 2, 64))


if __name__ == "__main__":
    unittest.main()
