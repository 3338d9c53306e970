"""What every peer shares: the clock, and the lines that `lockstep bench --against` reads."""

import json
import statistics
import time

import torch

WARM_UP = 3  # calls before the clock starts, as on the other side


def median_ms(repeats, call):
    """Milliseconds of the middle one of `repeats` calls."""
    for _ in range(WARM_UP):
        call()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(seconds)


def peak_memory_mb():
    """Most memory that this process ever held, as the kernel counts it."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024e-6
    return 0.0


def emit(name, **figures):
    """One line of results, a JSON object."""
    print(json.dumps({"name": name, "torch": torch.__version__, **figures}), flush=True)
