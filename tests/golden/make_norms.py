"""Makes norms.safetensors: batch and group normalisation by PyTorch in float64 from float32 values. Run
`python make_norms.py` in this folder; the tests read the file and need no Python.

Cases: batch_norm over [N, C], [N, C, L] and [N, C, H, W], momentum 0.1, 0.3 and cumulative, affine or not;
group_norm. Tensors of a case: x/K, dy/K for three steps K, weight, bias; after each step y/K, dx/K, dweight/K,
dbias/K, running_mean/K, running_var/K; eval/y, eval/dx (of x/0, dy/0). Metadata CASE/momentum ("none":
cumulative), CASE/groups, torch."""
import torch, torch.nn as nn

from make_golden import write

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
STEPS = 3


def single(x):  # float32 values, held in float64
    return x.float().double()


def gradients(layer, x, dy):
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(dy)
    found = dict(y=y, dx=x.grad)
    if layer.weight is not None:
        found |= dict(dweight=layer.weight.grad.clone(), dbias=layer.bias.grad.clone())
    return found


def record(name, layer, shape, tensors):
    if layer.weight is not None:
        with torch.no_grad():
            layer.weight.copy_(single(torch.normal(1, 0.2, layer.weight.shape)))
            layer.bias.copy_(single(torch.normal(0, 0.3, layer.bias.shape)))
        tensors |= {f"{name}/weight": layer.weight.detach().clone(), f"{name}/bias": layer.bias.detach().clone()}
    spread = (torch.arange(shape[1]) + 1.0).reshape([-1] + [1] * (len(shape) - 2))
    for k in range(STEPS):
        x, dy = single(torch.randn(shape) * spread + 3 * spread), single(torch.randn(shape))
        tensors |= {f"{name}/x/{k}": x, f"{name}/dy/{k}": dy}
        tensors |= {f"{name}/{key}/{k}": v for key, v in gradients(layer, x, dy).items()}
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            tensors |= {f"{name}/running_mean/{k}": layer.running_mean.clone(),
                        f"{name}/running_var/{k}": layer.running_var.clone()}
    layer.eval()
    found = gradients(layer, tensors[f"{name}/x/0"], tensors[f"{name}/dy/0"])
    tensors |= {f"{name}/eval/{key}": v for key, v in found.items()}


torch.manual_seed(1)
tensors, metadata = {}, dict(torch=torch.__version__)
for name, kind, shape, options in [
    ("vectors", nn.BatchNorm1d, (6, 5), dict()),
    ("sequences", nn.BatchNorm1d, (3, 4, 7), dict(momentum=0.3)),
    ("images", nn.BatchNorm2d, (2, 5, 4, 3), dict(momentum=None)),
    ("bare", nn.BatchNorm2d, (3, 3, 2, 2), dict(affine=False)),
]:
    record(name, kind(shape[1], **options), shape, tensors)
    momentum = options.get("momentum", 0.1)
    metadata[f"{name}/momentum"] = "none" if momentum is None else momentum
for name, groups, shape in [("groups", 2, (3, 6, 4, 3)), ("instances", 4, (2, 4, 5))]:
    record(name, nn.GroupNorm(groups, shape[1]), shape, tensors)
    metadata[f"{name}/groups"] = groups
write("norms.safetensors", tensors, metadata)
