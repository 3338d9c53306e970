"""A training step on ranks of a thread each under DistributedDataParallel over Gloo, the peer of
`lockstep bench parallel`."""

import argparse

import torch
from torch.nn.parallel import DistributedDataParallel

import gpt
import ranks
import report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--preset", choices=gpt.PRESETS, default="4x128")
parser.add_argument("--precision", choices=("fp32", "amp-bf16"), default="fp32")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--repeats", type=int, default=20)


def work(rank, options):
    torch.manual_seed(1)
    preset = gpt.PRESETS[options.preset]
    model = DistributedDataParallel(gpt.of_preset(preset))
    ms = report.median_ms(options.repeats, gpt.training_step(model, preset, options.precision))
    if rank == 0:
        report.emit("parallel", median_ms=ms)


if __name__ == "__main__":
    ranks.run(work, parser.parse_args())
