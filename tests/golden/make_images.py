"""Makes images.safetensors: convolutions and poolings, forward and backward, computed by PyTorch in
float64 from float32 numbers. Run `python make_images.py` in this folder; the tests read the file and
need no Python.

Tensors of case NAME: NAME/x, NAME/dy, NAME/y, NAME/dx and, of a convolution, NAME/weight, NAME/bias,
NAME/dweight, NAME/dbias. Metadata: NAME = its options, "stride 2 2 padding 1 1 …"; the version of
PyTorch."""
import json, struct
import torch, torch.nn.functional as F

torch.manual_seed(1)
torch.set_num_threads(1)
tensors, metadata = {}, {"torch": torch.__version__}


def normal(*shape):
    return torch.randn(*shape).double().requires_grad_()  # float32 values, held in float64


def record(name, f, options, **inputs):
    y = f(*inputs.values())
    dy = normal(*y.shape)
    gradients = torch.autograd.grad(y, list(inputs.values()), dy)
    for key, x in (inputs | dict(y=y, dy=dy) | {"d" + k: g for k, g in zip(inputs, gradients)}).items():
        tensors[f"{name}/{key}"] = x
    metadata[name] = " ".join(f"{k} {' '.join(map(str, v))}" for k, v in options.items())


def convolution(name, x, weight, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    record(name, lambda *t: F.conv2d(*t, stride, padding, dilation, groups),
           dict(stride=stride, padding=padding, dilation=dilation, groups=[groups]),
           x=normal(*x), weight=normal(*weight), bias=normal(weight[0]))


def pooling(name, f, x, window, stride, padding, ceil, **more):
    record(name, lambda t: f(t, window, stride, padding, ceil_mode=ceil, **more),
           dict(window=window, stride=stride, padding=padding, ceil=[int(ceil)], **{k: [int(v)] for k, v in more.items()}),
           x=normal(*x))


convolution("conv/plain", (2, 3, 9, 8), (5, 3, 3, 3), padding=(1, 1))
convolution("conv/stride", (3, 16, 8, 8), (32, 16, 3, 3), stride=(2, 2), padding=(1, 1))
convolution("conv/shortcut", (2, 16, 7, 7), (24, 16, 1, 1), stride=(2, 2))
convolution("conv/dilation", (2, 4, 11, 12), (3, 4, 3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 3))
convolution("conv/groups", (2, 8, 6, 7), (12, 2, 3, 3), stride=(2, 1), padding=(1, 1), groups=4)
convolution("conv/depthwise", (2, 6, 6, 6), (6, 1, 3, 3), padding=(1, 1), groups=6)
convolution("conv/sequence", (2, 4, 1, 23), (6, 4, 1, 5), stride=(1, 2), padding=(0, 2))
for ceil in (False, True):
    at = "ceil" if ceil else "floor"
    pooling(f"max/tiles_{at}", F.max_pool2d, (2, 3, 7, 9), (2, 2), (2, 2), (0, 0), ceil)
    pooling(f"max/overlap_{at}", F.max_pool2d, (2, 3, 8, 9), (3, 3), (2, 2), (1, 1), ceil)
    for counted in (False, True):
        pooling(f"average/{at}_{'padded' if counted else 'image'}", F.avg_pool2d, (2, 3, 8, 9), (3, 2), (2, 3), (1, 1),
                ceil, count_include_pad=counted)

header, data = {"__metadata__": metadata}, b""
for name, x in tensors.items():
    raw = x.detach().float().contiguous().numpy().tobytes()
    header[name] = dict(dtype="F32", shape=list(x.shape), data_offsets=[len(data), len(data) + len(raw)])
    data += raw
text = json.dumps(header, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
with open("images.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
