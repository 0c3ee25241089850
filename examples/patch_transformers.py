"""A trainer in PyTorch and a sampler in isoc, one contract: how many log-probabilities differ?

    python examples/patch_transformers.py model.cubin CHECKPOINT [--tokens 20000] [--device cuda]

CHECKPOINT is a folder that transformers loads, or a JSON file with a config, whose weights are then
drawn by a seed. The sampler answers random prompts; the patched model and the stock one score what
it drew. With --steps their gradients are compared, and both train on it, their losses side by side.
"""

import argparse
import copy
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import isoc
import isoc.transformers


def load_model(path, device):
    if not path.endswith(".json"):
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).to(device)
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path),
                                                dtype=torch.bfloat16)


def sample(module, folder, options, vocab):
    """Prompts of mixed lengths, several of each length, answered."""
    draw = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, vocab, (8 + 37 * i % 200,), generator=draw).tolist()
               for i in range(-(-options.tokens // options.answer))]
    with isoc.Engine(module, folder, at_once=64, max_rows=2048,
                     max_position=208 + options.answer) as engine:
        return engine.generate([isoc.Request(p, tokens=options.answer, seed=i)
                                for i, p in enumerate(prompts)])


def batches(answers, device, size=8):
    """Padded ids, their mask, the sampler's log-probabilities and where these are."""
    for first in range(0, len(answers), size):
        some = answers[first:first + size]
        whole = [[*a.request.prompt, *a.tokens] for a in some]
        length = max(map(len, whole))
        ids, mask = (torch.zeros(len(some), length, dtype=torch.long) for _ in range(2))
        drawn = torch.zeros(len(some), length - 1)
        here = torch.zeros(len(some), length - 1, dtype=torch.bool)
        for row, (answer, tokens) in enumerate(zip(some, whole)):
            at = slice(len(answer.request.prompt) - 1, len(tokens) - 1)
            ids[row, :len(tokens)] = torch.tensor(tokens)
            mask[row, :len(tokens)] = 1
            drawn[row, at] = torch.from_numpy(answer.logprobs)
            here[row, at] = True
        yield [t.to(device) for t in (ids, mask, drawn, here)]


@torch.no_grad()
def compare(name, score, answers, device):
    differ = total = 0
    most = 0.0
    for ids, mask, drawn, here in batches(answers, device):
        own = score(ids, mask)
        differ += int((own.view(torch.int32) != drawn.view(torch.int32))[here].sum())
        most = max(most, (own - drawn).abs()[here].max().item())
        total += int(here.sum())
    print(f"{name}: {differ} of {total} log-probabilities differ, by at most {most:.3g}")


def stock_score(model):
    def score(ids, mask):
        logits = model(ids, attention_mask=mask).logits.float()
        return logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)
    return score


def losses(model, answers, device, steps):
    """Mean negative log-likelihood while the model learns the answers by heart."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids, mask, _, _ = next(batches(answers, device, size=4))
    labels = ids.masked_fill(mask == 0, -100)
    for _ in range(steps):
        loss = model(ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def gradients(model, answers, device):
    ids, mask, _, _ = next(batches(answers, device, size=2))
    model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss.backward()
    made = {name: p.grad.float() for name, p in model.named_parameters()}
    model.zero_grad()
    return made


def compare_gradients(model, stock, answers, device):
    """Patched from stock, and how far each is from the same model in f32: roundings' own noise."""
    exact = copy.deepcopy(stock).float()
    a, b, c = (gradients(m, answers, device) for m in (model, stock, exact))
    for name, gradient in b.items():
        apart, own, other = (float((x - y).norm() / y.norm()) for x, y in
                             ((a[name], gradient), (a[name], c[name]), (gradient, c[name])))
        print(f"gradient of {name}: {apart:.4f} from stock; from f32 {own:.4f}, stock {other:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("contract")
    parser.add_argument("checkpoint")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=20000, help="to draw, all in all")
    parser.add_argument("--answer", type=int, default=256, help="tokens of an answer")
    parser.add_argument("--steps", type=int, default=0, help="of training, patched and stock")
    options = parser.parse_args()
    model = load_model(options.checkpoint, options.device)
    module = isoc.load(options.contract, device=options.device)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        answers = sample(module, folder, options, model.config.vocab_size)
    compare("stock", stock_score(model), answers, options.device)
    stock = copy.deepcopy(model)
    isoc.transformers.patch(model, module)
    compare("patched", lambda ids, mask: isoc.transformers.logprobs(model, ids,
                                                                    attention_mask=mask),
            answers, options.device)
    if options.steps:
        compare_gradients(model, stock, answers, options.device)
        pairs = zip(losses(model, answers, options.device, options.steps),
                    losses(stock, answers, options.device, options.steps))
        for step, (own, other) in enumerate(pairs):
            if step % 10 == 0 or step == options.steps - 1:
                print(f"step {step}: loss {own:.4f} patched, {other:.4f} stock")


if __name__ == "__main__":
    main()
