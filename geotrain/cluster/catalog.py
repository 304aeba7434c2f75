"""GPU types by name, from the vendors' data sheets (SXM or OAM form where there is one; dense, no sparsity)."""

from geotrain.cluster.gpu import Gpu
from geotrain.hints import hint

_ROWS: list[tuple[str, float | None, float, float, str, float]] = [
    # name, bf16, fp16, fp32 in TFLOP/s, memory, memory bandwidth in GB/s
    ("v100", None, 125, 15.7, "32 GiB", 900),
    ("a100-40gb", 312, 312, 19.5, "40 GiB", 1555),
    ("a100-80gb", 312, 312, 19.5, "80 GiB", 2039),
    ("l40s", 362, 362, 91.6, "48 GB", 864),
    ("h100", 989.4, 989.4, 66.9, "80 GiB", 3350),
    ("h200", 989.4, 989.4, 66.9, "141 GB", 4800),
    ("b200", 2250, 2250, 75, "180 GB", 7700),
    ("mi300x", 1307.4, 1307.4, 163.4, "192 GB", 5300),
]


def _gpu(name: str, bf16: float | None, fp16: float, fp32: float, memory: str, bandwidth: float) -> Gpu:
    def tera(value: float) -> str:
        return f"{value} TFLOP/s"

    return Gpu.model_validate(
        {
            "name": name,
            "bf16": None if bf16 is None else tera(bf16),
            "fp16": tera(fp16),
            "fp32": tera(fp32),
            "memory": memory,
            "memory_bandwidth": f"{bandwidth} GB/s",
        }
    )


GPUS: dict[str, Gpu] = {row[0]: _gpu(*row) for row in _ROWS}


def find_gpu(name: str) -> Gpu:
    """The catalog's GPU of that name; ValueError with the nearest name otherwise."""
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise ValueError(f"is not in the GPU catalog: {hint(name, GPUS)}")
    return gpu
