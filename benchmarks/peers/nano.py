"""A whole training run of a small character GPT, the peer of `lockstep train transformer` with the
recipe of apps/bench/against/contests.cpp: AdamW with warm-up, cosine decay and clipping, and the
mean loss of a fixed validation text every so many steps. The process as a whole is timed from
outside."""

import argparse
import math

import torch
from torch.nn.utils import clip_grad_norm_

import gpt
import report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--text", required=True)
parser.add_argument("--precision", choices=("fp32", "amp-bf16"), default="fp32")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--steps", type=int, default=2000)
parser.add_argument("--eval-every", type=int, default=250)
parser.add_argument("--val-windows", type=int, default=540)
options = parser.parse_args()

BATCH, CONTEXT, WARM_UP, CLIP = 12, 64, 100, 1.0
HIGHEST, LOWEST = 1e-3, 1e-4


def learning_rate(step):
    if step < WARM_UP:
        return HIGHEST * (step + 1) / WARM_UP
    done = (step - WARM_UP) / max(1, options.steps - WARM_UP)
    return LOWEST + (HIGHEST - LOWEST) * (1 + math.cos(math.pi * done)) / 2


def load(path):
    """Training tokens, validation inputs and targets [windows, context], size of the alphabet."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    code = {letter: number for number, letter in enumerate(sorted(set(text)))}
    tokens = torch.tensor([code[letter] for letter in text])
    cut = int(0.9 * len(tokens))
    used = min(options.val_windows, (len(tokens) - cut - 1) // CONTEXT) * CONTEXT
    tail = tokens[-used - 1 :]
    held_out = (tail[:-1].view(-1, CONTEXT), tail[1:].view(-1, CONTEXT))
    return tokens[:cut], held_out, len(code)


torch.set_num_threads(options.threads)
torch.manual_seed(1)
train, (val_inputs, val_targets), vocab = load(options.text)
model = gpt.Gpt(vocab, 4, 4, 128, CONTEXT, bias=False, gelu="none")
matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
vectors = [parameter for parameter in model.parameters() if parameter.dim() == 1]
optimizer = torch.optim.AdamW(
    [dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],
    lr=HIGHEST,
    betas=(0.9, 0.99),
)


def random_batch():
    begins = torch.randint(len(train) - CONTEXT, (BATCH,)).tolist()
    inputs = torch.stack([train[at : at + CONTEXT] for at in begins])
    targets = torch.stack([train[at + 1 : at + 1 + CONTEXT] for at in begins])
    return inputs, targets


def validation_loss():
    total = 0.0
    with torch.no_grad(), gpt.autocast(options.precision):
        for inputs, targets in zip(val_inputs.split(BATCH), val_targets.split(BATCH)):
            total += model(inputs, targets).item() * len(inputs)
    return total / len(val_inputs)


val_loss = math.nan
for step in range(options.steps):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step)
    inputs, targets = random_batch()
    optimizer.zero_grad()
    with gpt.autocast(options.precision):
        loss = model(inputs, targets)
    loss.backward()
    clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    if (step + 1) % options.eval_every == 0 or step + 1 == options.steps:
        val_loss = validation_loss()
report.emit("nano", val_loss=val_loss, steps=options.steps)
