"""The GPT of apps/transformer/gpt.h in PyTorch: same layers, parameters, initial weights' spread."""

import contextlib
import math

import torch
from torch import nn
from torch.nn import functional

PRESETS = {  # as in apps/bench/presets.h
    "4x128": dict(vocab=256, layers=4, heads=4, width=128, context=64, batch=12),
    "6x384": dict(vocab=256, layers=6, heads=6, width=384, context=256, batch=8),
}


class Attention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.proj = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        batch, time, width = x.shape
        packed = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.proj(mixed.transpose(1, 2).reshape(batch, time, width))


class Mlp(nn.Module):
    def __init__(self, width, bias, gelu):
        super().__init__()
        self.fc = nn.Linear(width, 4 * width, bias=bias)
        self.gelu = nn.GELU(approximate=gelu)
        self.out = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        return self.out(self.gelu(self.fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads, bias, gelu):
        super().__init__()
        self.ln1 = nn.LayerNorm(width, bias=bias)
        self.attention = Attention(width, heads, bias)
        self.ln2 = nn.LayerNorm(width, bias=bias)
        self.mlp = Mlp(width, bias, gelu)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    """ids and targets [B, T] give the mean cross-entropy."""

    def __init__(self, vocab, layers, heads, width, context, bias=True, gelu="tanh"):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, bias, gelu) for _ in range(layers))
        self.ln = nn.LayerNorm(width, bias=bias)
        self.register_buffer("positions", torch.arange(context), persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                ends_branch = name.endswith(("proj.weight", "out.weight"))
                spread = 0.02 / math.sqrt(2 * layers) if ends_branch else 0.02
                nn.init.normal_(parameter, std=spread)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(self.positions[: ids.shape[1]])
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.ln(x), self.wte.weight)  # the head is tied
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def autocast(precision):
    """What `--precision` means here; parameters and gradients stay fp32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    if precision == "amp-bf16":
        return torch.autocast("cpu", dtype=torch.bfloat16)
    raise SystemExit(f"precision {precision}: expected fp32 or amp-bf16")


def random_tokens(preset):
    shape = (preset["batch"], preset["context"])
    return torch.randint(preset["vocab"], shape), torch.randint(preset["vocab"], shape)


def of_preset(preset):
    return Gpt(**{key: value for key, value in preset.items() if key != "batch"})


def training_step(model, preset, precision):
    """A call that trains on the same random tokens once more."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
    ids, targets = random_tokens(preset)

    def step():
        optimizer.zero_grad()
        with autocast(precision):
            loss = model(ids, targets)
        loss.backward()
        optimizer.step()

    return step
