"""One training step of a GPT on random tokens, the peer of `lockstep bench step`."""

import argparse

import torch

import gpt
import report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--preset", choices=gpt.PRESETS, default="4x128")
parser.add_argument("--precision", choices=("fp32", "amp-bf16"), default="fp32")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--repeats", type=int, default=20)
options = parser.parse_args()

torch.set_num_threads(options.threads)
torch.manual_seed(1)
preset = gpt.PRESETS[options.preset]
step = gpt.training_step(gpt.of_preset(preset), preset, options.precision)
ms = report.median_ms(options.repeats, step)
report.emit("step", median_ms=ms, peak_memory_mb=report.peak_memory_mb())
