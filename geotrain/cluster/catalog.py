"""GPU types by name, from the vendors' data sheets (SXM or OAM form where there is one; dense, no sparsity).

`matmul` is measured: highest bf16 rate of any matrix shape over peak, from the MAMF table of Stas Bekman's Machine
Learning Engineering Open Book; 85% where that table has no entry. Network cards are those of the vendor's server.
"""

from geotrain.cluster.gpu import Gpu
from geotrain.hints import hint

_ROWS: list[tuple[str, float | None, float, float, str, float, float, float, float]] = [
    # name, bf16, fp16, fp32 in TFLOP/s, memory, memory bandwidth, matmul, GPU to GPU and network card in GB/s
    ("v100", None, 125, 15.7, "32 GiB", 900, 0.85, 150, 12.5),
    ("a100-40gb", 312, 312, 19.5, "40 GiB", 1555, 0.86, 300, 25),
    ("a100-80gb", 312, 312, 19.5, "80 GiB", 2039, 0.86, 300, 25),
    ("l40s", 362, 362, 91.6, "48 GB", 864, 0.85, 32, 25),
    ("h100", 989.4, 989.4, 66.9, "80 GiB", 3350, 0.80, 450, 50),
    ("h200", 989.4, 989.4, 66.9, "141 GB", 4800, 0.80, 450, 50),
    ("b200", 2250, 2250, 75, "180 GB", 7700, 0.78, 900, 50),
    ("mi300x", 1307.4, 1307.4, 163.4, "192 GB", 5300, 0.60, 448, 50),
]


def _gpu(
    name: str,
    bf16: float | None,
    fp16: float,
    fp32: float,
    memory: str,
    bandwidth: float,
    matmul: float,
    nvlink: float,
    nic: float,
) -> Gpu:
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
            "matmul": matmul,
            "nvlink": f"{nvlink} GB/s",
            "nic": f"{nic} GB/s",
        }
    )


GPUS: dict[str, Gpu] = {row[0]: _gpu(*row) for row in _ROWS}


def find_gpu(name: str) -> Gpu:
    """The catalog's GPU of that name; ValueError with the nearest name otherwise."""
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise ValueError(f"is not in the GPU catalog: {hint(name, GPUS)}")
    return gpu
