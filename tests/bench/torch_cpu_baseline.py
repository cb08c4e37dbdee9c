#!/usr/bin/env python3
"""Times the stock model in PyTorch on the CPU, as a reference for `laya bench model`.

    pip install torch transformers
    tests/bench/torch_cpu_baseline.py base --dtype fp32 > torch_fp32.jsonl
    laya bench model --preset base --device cpu --dtype fp32 --shapes 1x64,1x512,8x128 \
        --reference torch_fp32.jsonl

Prints one JSON line {"cfg","mode","rows","L","p50_ms","p95_ms"} per shape and way of running it.
The model is transformers' ModernBertModel with the decision head, with random weights; rows are 60
to 100 % full, and padded to the longest, as the model's users run it. In bf16 both ways are
measured: autocast, as the public package does it, and a model converted as a whole. PyTorch's
products are oneDNN's.
"""

import argparse
import json
import time

import torch
from torch import nn
from transformers import ModernBertConfig, ModernBertModel

PRESETS = {
    "base": {"hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12,
             "intermediate_size": 1152, "vocab_size": 256000},
    "large": {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
              "intermediate_size": 2624, "vocab_size": 50368},
}
MARKERS = [3, 9, 15, 21, 27]
WARM_UPS = 3


class Decision(nn.Module):
    """Encoder, two transformer layers, scorer of the options and action head."""

    def __init__(self, config, head_layers=2, actions=2):
        super().__init__()
        d = config.hidden_size
        self.encoder = ModernBertModel(config)
        layer = nn.TransformerEncoderLayer(d, d // 64, 4 * d, batch_first=True, norm_first=True)
        self.head = nn.TransformerEncoder(layer, head_layers, enable_nested_tensor=False)
        self.type_emb = nn.Embedding(3, d)
        self.scorer = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, 1))
        self.act_head = nn.Sequential(nn.Linear(d + 4, 256), nn.GELU(), nn.Linear(256, actions))

    def forward(self, ids, mask, markers, qtype):
        h = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        h = h + self.type_emb(qtype)[:, None, :]
        for layer in self.head.layers:
            h = layer(h, src_key_padding_mask=~mask.bool())
        options = torch.gather(h, 1, markers[:, :, None].expand(-1, -1, h.size(-1)))
        logits = self.scorer(options).squeeze(-1).float()
        p = torch.softmax(logits, -1)
        k = float(markers.size(1))
        entropy = -(p * torch.log(p.clamp_min(1e-9))).sum(-1) / torch.log(torch.tensor(k))
        top = p.topk(2, -1).values
        features = torch.stack([top[:, 0], top[:, 0] - top[:, 1], entropy,
                                torch.full_like(entropy, k / 255)], -1)
        return logits, self.act_head(torch.cat([h[:, 0], features.to(h.dtype)], -1))


def make_batch(rows, length, vocab):
    generator = torch.Generator().manual_seed(rows * 7919 + length)
    ids = torch.randint(5, vocab, (rows, length), generator=generator)
    lengths = torch.randint(int(length * 0.6), length + 1, (rows,), generator=generator)
    lengths[0] = length
    mask = (torch.arange(length)[None] < lengths[:, None]).long()
    return ids, mask, torch.tensor([MARKERS] * rows), torch.zeros(rows, dtype=torch.long)


def milliseconds(call, repeat):
    for _ in range(WARM_UPS):
        call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return times


def measure(model, mode, args):
    is_autocast = mode == "autocast"
    for shape in args.shapes.split(","):
        rows, length = (int(part) for part in shape.split("x"))
        batch = make_batch(rows, length, PRESETS[args.preset]["vocab_size"])
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            times = milliseconds(lambda: model(*batch), args.repeat)
        print(json.dumps({"cfg": args.preset, "mode": mode, "rows": rows, "L": length,
                          "p50_ms": round(times[len(times) // 2], 3),
                          "p95_ms": round(times[int(len(times) * 0.95)], 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--shapes", default="1x64,1x512,8x128", help="ROWSxTOKENS,...")
    parser.add_argument("--threads", type=int, default=0, help="default: PyTorch's own choice")
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    config = ModernBertConfig(**PRESETS[args.preset], attn_implementation="sdpa")
    model = Decision(config).eval()
    if args.dtype == "fp32":
        measure(model, "eager", args)
        return
    measure(model, "autocast", args)
    measure(model.to(torch.bfloat16), "converted", args)


if __name__ == "__main__":
    main()
