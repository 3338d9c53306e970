"""Ranks over Gloo, a process and a thread each."""

import os
import tempfile

import torch
from torch import distributed, multiprocessing


def _rank(rank, work, options, meeting):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=options.ranks
    )
    work(rank, options)
    distributed.destroy_process_group()


def run(work, options):
    """Calls work(rank, options) on `options.ranks` ranks that know each other."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_rank, args=(work, options, folder), nprocs=options.ranks)
