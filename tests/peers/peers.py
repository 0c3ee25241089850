"""Beside Hugging Face's transformers: entries of rotary tables and weights that differ, and how far
log-probabilities of whole models are from those computed in f32, next to transformers' own in bf16.

    pip install torch transformers accelerate gguf
    python tests/peers/peers.py rope
    python tests/peers/peers.py weights "$(make -s smollm2)"
    python tests/peers/peers.py smollm2 "$(make -s smollm2)" README.md
    python tests/peers/peers.py families           small models of every imported family
    python tests/peers/peers.py families gpt-oss 3    of one, from another seed
"""
import ctypes
import os
import subprocess
import sys
import tempfile

import torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
NUMBERS = "theta factor low high original beta_fast beta_slow attention_factor"
POSITIONS = 32768


class Rope(ctypes.Structure):
    _fields_ = ([("dim", ctypes.c_int), ("scaling", ctypes.c_int)] +
                [(n, ctypes.c_double) for n in NUMBERS.split()] + [("truncate", ctypes.c_int)])


def library():
    out = os.path.join(tempfile.mkdtemp(), "peers.so")
    sources = ["tests/peers/peers.c", "runtime/error.c"] + [
        f"runtime/weights/weights{s}.c"
        for s in ("", "_type", "_seed", "_safetensors", "_gguf", "_fp4", "_threads")]
    subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2",
                    "-ffp-contract=off", "-shared", "-fPIC", "-I.", "-Iruntime", "-Icompiler",
                    *sources, "-o", out, "-ljansson", "-lcrypto", "-lm"], cwd=ROOT, check=True)
    return ctypes.CDLL(out)


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8192)
ROPES = [
    ("SmolLM2", dict(rope_type="default", rope_theta=1e5), Rope(64, 0, 1e5)),
    ("Qwen3", dict(rope_type="default", rope_theta=1e6), Rope(128, 0, 1e6)),
    ("OLMo 2", dict(rope_type="default", rope_theta=5e5), Rope(128, 0, 5e5)),
    ("linear 4", dict(rope_type="linear", rope_theta=1e4, factor=4.0), Rope(128, 1, 1e4, 4.0)),
    ("Llama 3.1", dict(LLAMA3, factor=8.0), Rope(128, 2, 5e5, 8.0, 1.0, 4.0, 8192.0)),
    ("Llama 3.2 1B", dict(LLAMA3, factor=32.0), Rope(64, 2, 5e5, 32.0, 1.0, 4.0, 8192.0)),
    ("OLMo 3, YaRN 8", dict(rope_type="yarn", rope_theta=5e5, factor=8.0, beta_fast=32.0,
                            beta_slow=1.0, original_max_position_embeddings=8192,
                            attention_factor=1.2079441541679836),
     Rope(128, 3, 5e5, 8.0, 0, 0, 8192.0, 32.0, 1.0, 1.2079441541679836, 1)),
    ("Qwen3, YaRN 4", dict(rope_type="yarn", rope_theta=1e6, factor=4.0,
                           original_max_position_embeddings=32768),
     Rope(128, 3, 1e6, 4.0, 0, 0, 32768.0, 32.0, 1.0, 0, 1)),
    ("gpt-oss, YaRN 32", dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, truncate=False,
                              original_max_position_embeddings=4096, beta_fast=32.0,
                              beta_slow=1.0),
     Rope(64, 3, 150000.0, 32.0, 0, 0, 4096.0, 32.0, 1.0, 0, 0)),
]


def rope(lib):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
    print(f"| tables of {POSITIONS} positions | frequencies | f32 entries | bf16 entries |")
    print("| --- | --- | --- | --- |")
    for name, parameters, own in ROPES:
        columns = own.dim // 2
        config = LlamaConfig(hidden_size=2 * own.dim, num_attention_heads=2, head_dim=own.dim,
                             num_key_value_heads=2, max_position_embeddings=131072,
                             rope_parameters=parameters)
        theirs = LlamaRotaryEmbedding(config)
        frequency = torch.empty(columns)
        cos, sin = (torch.empty(POSITIONS, columns) for _ in range(2))
        lib.peer_rope(ctypes.byref(own), POSITIONS, *map(pointer, (frequency, cos, sin)))
        counts = [int((frequency != theirs.inv_freq).sum())]
        for dtype in (torch.float32, torch.bfloat16):
            tables = theirs(torch.zeros(1, dtype=dtype), torch.arange(POSITIONS)[None])
            counts.append(sum(int((t[0, :, :columns] != o.to(dtype)).sum())
                              for t, o in zip(tables, (cos, sin))))
        print(f"| {name} | {counts[0]} of {columns} | {counts[1]} of {2 * cos.numel()} | "
              f"{counts[2]} |", flush=True)


def weights(lib, path):
    from transformers import AutoModelForCausalLM
    folder, file = os.path.split(os.path.abspath(path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    different = total = 0
    for name, theirs in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        rows, columns = (1, *theirs.shape)[-2:]
        own = torch.empty(rows, columns)
        status = lib.peer_read(path.encode(), name.encode(), rows, columns, pointer(own))
        assert status == 0, (name, status)
        different += int((own.view_as(theirs) != theirs).sum())
        total += theirs.numel()
    print(f"{different} of {total} elements differ")


def isoc(*arguments):
    command = os.path.join(ROOT, os.environ.get("BUILD", "build"), "isoc")
    done = subprocess.run([command, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def their_scores(model, ids):
    x = torch.tensor([ids])
    with torch.no_grad():
        logits = model(x).logits[0].float()
    return torch.log_softmax(logits, -1)[:-1].gather(1, x[0, 1:, None])[:, 0].double()


def gaps(name, contract, weights, exact, rounded, ids):
    """`exact` computes in f32, `rounded` is the same model in bf16."""
    cubin = os.path.join(tempfile.mkdtemp(), "m.cubin")
    isoc(contract, "--layout=tp1", "-o", cubin)
    out = isoc("score", cubin, "--device", "cpu", "--layout", "tp1", "--weights", weights, "--ids",
               ",".join(map(str, ids)))
    own = [float(line.split()[2]) for line in out.splitlines()
           if len(line.split()) == 3 and line.split()[0].isdigit()]
    f32, bf16 = their_scores(exact, ids), their_scores(rounded, ids)
    own = torch.tensor(own, dtype=torch.double)
    figures = [f"{d.mean():.4f}, {d.max():.4f}"
               for d in ((bf16 - f32).abs(), (own - f32).abs(), (own - bf16).abs())]
    print(f"| {name} | {len(ids)} | " + " | ".join(figures) + " |", flush=True)


HEADING = """| | ids | transformers bf16 to f32 | isoc to f32 | isoc to bf16 |
| --- | --- | --- | --- | --- |"""


def smollm2(lib, path, text):
    from transformers import AutoModelForCausalLM, AutoTokenizer
    folder, file = os.path.split(os.path.abspath(path))
    ids = AutoTokenizer.from_pretrained(folder, gguf_file=file).encode(open(text).read()[:1500])
    rounded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.bfloat16,
                                                   attn_implementation="eager")
    exact = type(rounded)(rounded.config).float()
    exact.load_state_dict({k: v.float() for k, v in rounded.state_dict().items()})
    print(HEADING)
    gaps("SmolLM2-135M", "contracts/smollm2-135m-model.iso", os.path.abspath(path),
         exact, rounded, ids)


def randomise(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn_like(p)
            scale = (1 if "embed" in name else 0.15 if "lm_head" in name else 0.3 if p.dim() == 1
                     else p.shape[1] ** -0.5)
            p.copy_((1 + 0.2 * r if "norm" in name else scale * r).bfloat16().float())


def families(lib, *words):
    import transformers as t
    only = [w for w in words if not w.isdigit()]
    torch.manual_seed(next((int(w) for w in words if w.isdigit()), 0))
    sizes = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=8, vocab_size=1003,
                 num_attention_heads=4, max_position_embeddings=4096, tie_word_embeddings=False,
                 num_key_value_heads=2, rms_norm_eps=1e-6, dtype="bfloat16", bos_token_id=1,
                 eos_token_id=2, pad_token_id=None, attn_implementation="eager")
    plain = dict(rope_type="default", rope_theta=5e5)
    experts = dict(moe_intermediate_size=128, num_experts_per_tok=4)
    yarn = dict(rope_type="yarn", rope_theta=5e5, factor=8.0, beta_fast=32.0, beta_slow=1.0,
                original_max_position_embeddings=64)
    models = [
        ("Llama", t.LlamaConfig, t.LlamaForCausalLM,
         dict(rope_parameters=dict(LLAMA3, factor=8.0, original_max_position_embeddings=64))),
        ("Mistral", t.MistralConfig, t.MistralForCausalLM,
         dict(sliding_window=48, rope_parameters=plain)),
        ("Qwen2", t.Qwen2Config, t.Qwen2ForCausalLM,
         dict(use_sliding_window=True, sliding_window=40, max_window_layers=5,
              rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0))),
        ("Qwen3", t.Qwen3Config, t.Qwen3ForCausalLM, dict(head_dim=128, rope_parameters=yarn)),
        ("OLMo 2", t.Olmo2Config, t.Olmo2ForCausalLM, dict(rope_parameters=plain)),
        ("OLMo 3", t.Olmo3Config, t.Olmo3ForCausalLM,
         dict(sliding_window=40,
              rope_parameters=dict(full_attention=yarn, sliding_attention=plain))),
        ("Qwen3-MoE", t.Qwen3MoeConfig, t.Qwen3MoeForCausalLM,
         dict(experts, head_dim=128, num_experts=16, norm_topk_prob=True, rope_parameters=plain)),
        ("Mixtral", t.MixtralConfig, t.MixtralForCausalLM,
         dict(num_local_experts=8, num_experts_per_tok=2, rope_parameters=plain)),
        ("GLM-4.5", t.Glm4MoeConfig, t.Glm4MoeForCausalLM,
         dict(experts, head_dim=128, n_routed_experts=16, n_group=4, topk_group=2,
              attention_bias=True, use_qk_norm=True, first_k_dense_replace=2,
              routed_scaling_factor=2.5,
              rope_parameters=dict(plain, partial_rotary_factor=0.5))),
        ("gpt-oss", t.GptOssConfig, t.GptOssForCausalLM,
         dict(num_local_experts=16, num_experts_per_tok=4, head_dim=64, sliding_window=48,
              intermediate_size=256, rope_parameters=dict(yarn, truncate=False))),
    ]
    ids = torch.randint(0, 1000, (150,)).tolist()
    print(HEADING)
    for name, config, kind, own in models:
        if only and name not in only:
            continue
        folder = tempfile.mkdtemp()
        exact = kind(config(**{**sizes, **own})).float()
        randomise(exact)
        rounded = kind(config(**{**sizes, **own})).float()
        rounded.load_state_dict(exact.state_dict())
        rounded = rounded.bfloat16()
        rounded.save_pretrained(folder, max_shard_size="2MB")
        contract = os.path.join(folder, "m.iso")
        isoc("import", os.path.join(folder, "config.json"), "-o", contract)
        gaps(name, contract, folder, exact, rounded, ids)


if __name__ == "__main__":
    commands = {"rope": rope, "weights": weights, "smollm2": smollm2, "families": families}
    commands[sys.argv[1]](library(), *sys.argv[2:])
