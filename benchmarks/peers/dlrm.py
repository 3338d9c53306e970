"""One training step of the recommender, the peer of `lockstep bench recommender`."""

import argparse

import torch
from torch import nn
from torch.nn import functional

import gpt
import report

BATCH, BATCHES = 2048, 16  # as in apps/bench/recommender.cpp
DENSE, WIDTH = 13, 16  # as in apps/recommender/dlrm.h, like the layers below
BOTTOM, TOP = (512, 256, 64), (512, 256)


def tower(widths, ends_with_relu):
    """Linear layers with ReLU between."""
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*(layers if ends_with_relu else layers[:-1]))


class Dlrm(nn.Module):
    """dense [B, 13], rows [tables, B, 1] and labels [B] give the mean cross-entropy."""

    def __init__(self, tables, rows):
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True) for _ in range(tables)
        )
        pairs = torch.tril_indices(1 + tables, 1 + tables, -1)
        self.register_buffer("first", pairs[0], persistent=False)
        self.register_buffer("second", pairs[1], persistent=False)
        self.bottom = tower((DENSE, *BOTTOM, WIDTH), ends_with_relu=True)
        self.top = tower((WIDTH + pairs.shape[1], *TOP, 1), ends_with_relu=False)

    def forward(self, dense, rows, labels):
        features = self.bottom(dense)
        looked_up = [bag(of_table) for bag, of_table in zip(self.bags, rows)]
        vectors = torch.stack([features.float(), *looked_up], dim=1)
        products = torch.bmm(vectors, vectors.mT)[:, self.first, self.second]
        logits = self.top(torch.cat((features, products), dim=1))[:, 0]
        return functional.binary_cross_entropy_with_logits(logits.float(), labels)


def random_batch(tables, rows):
    """Rows whose logarithm is uniform: a few of them are in most samples."""
    looked_up = (rows ** torch.rand(tables, BATCH, 1, dtype=torch.float64) - 1).long()
    return torch.rand(BATCH, DENSE), looked_up, torch.randint(2, (BATCH,)).float()


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--tables", type=int, default=26)
parser.add_argument("--rows", type=int, default=100_000)
parser.add_argument("--precision", choices=("fp32", "amp-bf16"), default="fp32")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--repeats", type=int, default=20)
options = parser.parse_args()

torch.set_num_threads(options.threads)
torch.manual_seed(1)
model = Dlrm(options.tables, options.rows)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [random_batch(options.tables, options.rows) for _ in range(BATCHES)]
steps = 0


def step():
    global steps
    dense, rows, labels = batches[steps % BATCHES]
    steps += 1
    optimizer.zero_grad()
    with gpt.autocast(options.precision):
        loss = model(dense, rows, labels)
    loss.backward()
    optimizer.step()


ms = report.median_ms(options.repeats, step)
report.emit(
    "recommender",
    median_ms=ms,
    samples_per_s=1e3 * BATCH / ms,
    peak_memory_mb=report.peak_memory_mb(),
)
