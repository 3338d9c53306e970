"""Writes python.safetensors with the reference implementation (pip install safetensors numpy)."""
import os
import numpy as np
from safetensors.numpy import save_file

here = os.path.dirname(os.path.abspath(__file__))
save_file(
    {
        "weight": np.array([[0.5, -1.25, 3.0], [1e-40, 65504.0, -0.0]], dtype=np.float32),
        "half": np.array([1.0, 2.0, 6.103515625e-05], dtype=np.float16),
        "ids": np.array([-1, 2**40], dtype=np.int64),
        "counts": np.array([7, -8], dtype=np.int32),
        "mask": np.array([0, 255, 1], dtype=np.uint8),
        "empty": np.zeros((0, 4), dtype=np.float32),
        "scalar": np.array(2.5, dtype=np.float32),
        "naïve name": np.array([1.0], dtype=np.float32),
    },
    os.path.join(here, "python.safetensors"),
    metadata={"format": "np", "quote": "\"\\ \n"},
)
