"""A training step on ranks of a thread each under DistributedDataParallel over Gloo, the peer of
`lockstep bench parallel`."""

import argparse
import os
import tempfile

import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

import gpt
import report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--preset", choices=gpt.PRESETS, default="4x128")
parser.add_argument("--precision", choices=("fp32", "amp-bf16"), default="fp32")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--repeats", type=int, default=20)


def run(rank, options, meeting):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=options.ranks
    )
    preset = gpt.PRESETS[options.preset]
    model = DistributedDataParallel(gpt.of_preset(preset))
    ms = report.median_ms(options.repeats, gpt.training_step(model, preset, options.precision))
    if rank == 0:
        report.emit("parallel", median_ms=ms)
    distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, args=(words, folder), nprocs=words.ranks)
