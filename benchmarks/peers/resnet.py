"""One training step of the residual net, the peer of `lockstep bench vision`.

Images lie as a user gets them, channel by channel: what most programs write, and the default.
`--layout channels_last` puts images and weights the other way round, which is 5 to 10 % faster on
the processors this was tried on; docs/performance.md gives both."""

import argparse

import torch
from torch import nn
from torch.nn import functional

import gpt
import report

BATCH, CHANNELS, SIZE = 64, 3, 32  # as in apps/bench/vision.cpp
WIDTH, BLOCKS, CLASSES = 16, 3, 10  # as in apps/vision/residual_net.h


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 one where sizes change."""

    def __init__(self, inputs, outputs):
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride == 2:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=2, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        return functional.relu(y, inplace=True)


class ResidualNet(nn.Module):
    """images [B, 3, 32, 32] and labels [B] give the mean cross-entropy."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(CHANNELS, WIDTH, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)
        blocks, inputs = [], WIDTH
        for outputs in (WIDTH, 2 * WIDTH, 4 * WIDTH):
            for _ in range(BLOCKS):
                blocks.append(Block(inputs, outputs))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, CLASSES)

    def forward(self, images, labels):
        x = functional.relu(self.norm(self.stem(images)), inplace=True)
        logits = self.head(self.blocks(x).mean((2, 3)))
        return functional.cross_entropy(logits.float(), labels)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--layout", choices=("channels_first", "channels_last"), default="channels_first")
parser.add_argument("--precision", choices=("fp32", "amp-bf16"), default="fp32")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--repeats", type=int, default=20)
options = parser.parse_args()

torch.set_num_threads(options.threads)
torch.manual_seed(1)
model = ResidualNet()
images = torch.rand(BATCH, CHANNELS, SIZE, SIZE) * 2 - 1
labels = torch.arange(BATCH) % CLASSES
if options.layout == "channels_last":
    model = model.to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)


def step():
    optimizer.zero_grad()
    with gpt.autocast(options.precision):
        loss = model(images, labels)
    loss.backward()
    optimizer.step()


ms = report.median_ms(options.repeats, step)
report.emit(
    "vision",
    median_ms=ms,
    samples_per_s=1e3 * BATCH / ms,
    peak_memory_mb=report.peak_memory_mb(),
)
