"""Rotary tables and dequantised weights beside Hugging Face's transformers: entries that differ.

    pip install torch transformers accelerate gguf
    python tests/peers/peers.py rope
    python tests/peers/peers.py weights "$(make -s smollm2)"
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
        f"runtime/weights{s}.c" for s in ("", "_type", "_seed", "_safetensors", "_gguf")]
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


if __name__ == "__main__":
    commands = {"rope": rope, "weights": weights}
    commands[sys.argv[1]](library(), *sys.argv[2:])
