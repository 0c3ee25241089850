"""What a decoding step of a Qwen3 model takes in transformers: one token of each sequence at a position, a static
cache, a CUDA graph, the token's log-probability brought to the host; random weights. Beside `bench_model`.

usage: model_torch.py 0.6b|8b POSITION SEQUENCES..."""
import sys
import time

import torch
import transformers

SHAPES = {
    "0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                 num_key_value_heads=8, tie_word_embeddings=True),
    "8b": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32,
               num_key_value_heads=8, tie_word_embeddings=False),
}
WARM, STEPS = 5, 50


def make(shape):
    config = transformers.Qwen3Config(vocab_size=151936, head_dim=128, rope_theta=1e6, rms_norm_eps=1e-6,
                                      max_position_embeddings=8192, attn_implementation="sdpa", **SHAPES[shape])
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.Qwen3ForCausalLM(config)
    return model.eval()


def capture(model, sequences, position):
    cache = transformers.StaticCache(config=model.config, max_cache_len=(position + 128) // 128 * 128,
                                     max_batch_size=sequences, device="cuda", dtype=torch.bfloat16)
    ids = torch.arange(sequences, device="cuda").view(-1, 1)
    at = torch.tensor([position], device="cuda")

    def step():
        logits = model(ids, past_key_values=cache, cache_position=at, position_ids=at.expand(sequences, 1),
                       use_cache=True).logits[:, -1].float()
        return logits.log_softmax(-1).gather(1, ids)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    return graph, out


def main():
    shape, position, counts = sys.argv[1], int(sys.argv[2]), [int(n) for n in sys.argv[3:]]
    with torch.inference_mode():
        model = make(shape)
        for sequences in counts:
            graph, out = capture(model, sequences, position)
            times = []
            for _ in range(WARM + STEPS):
                begin = time.perf_counter()
                graph.replay()
                out.cpu()
                times.append(1e3 * (time.perf_counter() - begin))
            times = sorted(times[WARM:])
            print(f"transformers {transformers.__version__}, torch {torch.__version__}, qwen3-{shape}, {sequences} "
                  f"sequences at position {position}: median {times[STEPS // 2]:.3f} ms, {times[STEPS // 10]:.3f} to "
                  f"{times[STEPS * 9 // 10]:.3f}", flush=True)


main()
