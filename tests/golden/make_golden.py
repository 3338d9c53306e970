"""Makes gpt_*.safetensors: tiny GPTs with weights, inputs, activations, loss, all gradients and ten AdamW
steps, computed by PyTorch in float64 from float32 weights. Run `python make_golden.py` in this folder;
the tests read the files and need no Python.

Tensors: ids, targets (i32 [B, T], -100 is ignored); param/NAME, grad/NAME (of the loss summed over
targets); activation/embedding, activation/blocks.N.{ln1,attention,ln2,mlp,out} (out: the residual
stream behind the block), activation/ln, activation/logits; truncated/K: logits of the model with the
first K blocks only; loss_sum [1]; adamw_losses [11]: mean loss before each of ten steps and after the
last. Metadata: the configuration, the optimiser's options, the version of PyTorch."""
import json, math, struct
import torch, torch.nn as nn, torch.nn.functional as F

torch.set_num_threads(1)
ADAMW = dict(lr=1e-2, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1)  # decay on matrices only


class Attention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(x).split(c, 2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)
        scores = scores.masked_fill(torch.ones(t, t).tril().logical_not(), float("-inf"))
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))


class Mlp(nn.Module):
    def __init__(self, width, bias, approximate):
        super().__init__()
        self.approximate = approximate
        self.fc, self.out = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)

    def forward(self, x):
        return self.out(F.gelu(self.fc(x), approximate=self.approximate))


class Block(nn.Module):
    def __init__(self, width, heads, bias, approximate):
        super().__init__()
        self.ln1, self.attention = nn.LayerNorm(width, bias=bias), Attention(width, heads, bias)
        self.ln2, self.mlp = nn.LayerNorm(width, bias=bias), Mlp(width, bias, approximate)


class Gpt(nn.Module):
    def __init__(self, vocab, layers, heads, width, context, bias, approximate):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, bias, approximate) for _ in range(layers))
        self.ln = nn.LayerNorm(width, bias=bias)

    def forward(self, ids, seen=None, blocks=None):
        seen = {} if seen is None else seen
        x = seen["embedding"] = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for n, block in enumerate(self.blocks[:blocks]):
            at = f"blocks.{n}."
            h = seen[at + "ln1"] = block.ln1(x)
            h = seen[at + "attention"] = block.attention(h)
            x = x + h
            h = seen[at + "ln2"] = block.ln2(x)
            h = seen[at + "mlp"] = block.mlp(h)
            x = seen[at + "out"] = x + h
        h = seen["ln"] = self.ln(x)
        seen["logits"] = F.linear(h, self.wte.weight)  # the head is the token embedding
        return seen["logits"]

    def loss_sum(self, ids, targets):
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=-100)


def write(path, tensors, metadata):
    header, data = {"__metadata__": {k: str(v) for k, v in metadata.items()}}, b""
    for name, x in tensors.items():
        dtype = "I32" if x.dtype in (torch.int64, torch.int32) else "F32"
        x = x.detach().to(torch.int32 if dtype == "I32" else torch.float32).contiguous()
        raw = x.numpy().tobytes()
        header[name] = dict(dtype=dtype, shape=list(x.shape), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def make(path, seed, vocab, layers, heads, width, context, bias, gelu):
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    model = Gpt(vocab, layers, heads, width, context, bias, {"tanh": "tanh", "exact": "none"}[gelu])
    with torch.no_grad():
        for name, p in model.named_parameters():
            mean, sd = (1, 0.1) if "ln" in name and name.endswith("weight") else (0, 0.1 if p.dim() == 1 else 0.3)
            p.copy_(torch.normal(mean, sd, p.shape).float())  # float32 values, held in float64
    ids = torch.randint(vocab, (3, context))
    targets = torch.randint(vocab, (3, context))
    targets[1, 2] = targets[2, -1] = -100
    count = int((targets != -100).sum())

    tensors = dict(ids=ids, targets=targets)
    tensors |= {f"param/{n}": p.detach().clone() for n, p in model.named_parameters()}
    seen = {}
    model(ids, seen)
    tensors |= {f"activation/{n}": x for n, x in seen.items()}
    tensors |= {f"truncated/{k}": model(ids, blocks=k) for k in range(1, layers)}
    loss = model.loss_sum(ids, targets)
    loss.backward()
    tensors["loss_sum"] = loss.reshape(1)
    tensors |= {f"grad/{n}": p.grad.clone() for n, p in model.named_parameters()}

    wide = [p for p in model.parameters() if p.dim() > 1]
    thin = [p for p in model.parameters() if p.dim() == 1]
    groups = [dict(params=wide, weight_decay=ADAMW["weight_decay"]), dict(params=thin, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"])
    losses = []
    for step in range(11):
        optimizer.zero_grad()
        loss = model.loss_sum(ids, targets) / count
        losses.append(loss.item())
        if step == 10:
            break
        loss.backward()
        optimizer.step()
    tensors["adamw_losses"] = torch.tensor(losses)
    write(path, tensors, dict(vocab=vocab, layers=layers, heads=heads, width=width, context=context,
                              bias="on" if bias else "off", gelu=gelu, torch=torch.__version__, **ADAMW))
    print(path, "losses", losses[0], "->", losses[-1], "parameters", sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    make("gpt_bias_tanh.safetensors", 1, vocab=17, layers=2, heads=2, width=16, context=8, bias=True, gelu="tanh")
    make("gpt_nobias_exact.safetensors", 2, vocab=13, layers=3, heads=3, width=12, context=7, bias=False, gelu="exact")
