"""All-reduce of fp32 among ranks over Gloo, the peer of `lockstep bench allreduce`."""

import argparse

import torch
from torch import distributed

import ranks
import report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--repeats", type=int, default=20)
SIZES_KIB = (4, 256, 4096, 40960)


def work(rank, options):
    for kib in SIZES_KIB:
        values = torch.zeros(kib * 256)
        ms = report.median_ms(options.repeats, lambda: distributed.all_reduce(values))
        if rank == 0:
            report.emit(f"allreduce {options.ranks} ranks {kib} KiB", median_ms=ms)


if __name__ == "__main__":
    ranks.run(work, parser.parse_args())
