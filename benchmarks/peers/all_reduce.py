"""All-reduce of fp32 among ranks over Gloo, the peer of `lockstep bench allreduce`."""

import argparse
import os
import tempfile

import torch
from torch import distributed, multiprocessing

import report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--repeats", type=int, default=20)
SIZES_KIB = (4, 256, 4096, 40960)


def run(rank, options, meeting):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=options.ranks
    )
    for kib in SIZES_KIB:
        values = torch.zeros(kib * 256)
        ms = report.median_ms(options.repeats, lambda: distributed.all_reduce(values))
        if rank == 0:
            report.emit(f"allreduce {options.ranks} ranks {kib} KiB", median_ms=ms)
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, args=(words, folder), nprocs=words.ranks)
