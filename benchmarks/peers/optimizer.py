"""AdamW on one large parameter, the peer of `lockstep bench optimizer`: fused where PyTorch can."""

import argparse

import torch

import report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--elements", type=int, default=10_000_000)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--repeats", type=int, default=20)
options = parser.parse_args()

torch.set_num_threads(options.threads)
torch.manual_seed(1)
weight = torch.nn.Parameter(torch.rand(options.elements) - 0.5)
weight.grad = torch.full_like(weight, 1e-3)
settings = dict(lr=1e-3, weight_decay=0.01)
try:
    optimizer = torch.optim.AdamW([weight], fused=True, **settings)
    fused = True
except (RuntimeError, TypeError):
    optimizer = torch.optim.AdamW([weight], **settings)
    fused = False
ms = report.median_ms(options.repeats, optimizer.step)
report.emit("optimizer adamw", median_ms=ms, gb_per_s=28e-6 * options.elements / ms, fused=fused)
