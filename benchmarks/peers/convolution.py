"""The layers of benchmarks/convolution_bench.cpp in PyTorch: microseconds of forward, of the gradient
of the input and of the weight, best of some. `python convolution.py [threads]`"""
import sys, time
import torch

torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)


def best(f, tries=20):
    times = []
    for _ in range(tries + 1):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


for inputs, outputs, side, window, stride in [(3, 16, 32, 3, 1), (16, 16, 32, 3, 1), (16, 32, 32, 3, 2), (16, 32, 32, 1, 2),
                                              (32, 32, 16, 3, 1), (32, 64, 16, 3, 2), (64, 64, 8, 3, 1)]:
    x, w = torch.randn(64, inputs, side, side), torch.randn(outputs, inputs, window, window)
    dy = torch.randn_like(torch.conv2d(x, w, None, stride, window // 2))

    def backward(*wanted):
        return torch.ops.aten.convolution_backward(dy, x, w, None, [stride] * 2, [window // 2] * 2, [1, 1], False, [0, 0], 1,
                                                   [*wanted, False])

    times = [best(f) for f in (lambda: torch.conv2d(x, w, None, stride, window // 2), lambda: backward(True, False),
                               lambda: backward(False, True))]
    print(f"{inputs}/{outputs}/{side}/{window}/{stride}", *(f"{t:.0f}" for t in times), flush=True)
