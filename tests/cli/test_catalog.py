from geotrain.cluster import GPUS
from geotrain.workload import MODELS


def test_the_catalog_lists_every_gpu_and_model(geotrain):
    lines = geotrain("catalog").out.splitlines()
    first_words = [line.split()[0] for line in lines if line.split()]
    assert first_words == ["GPUs", "name", *GPUS, "Models", "name", *MODELS]


def test_rows_show_the_figures_in_units(geotrain):
    rows = {line.split()[0]: line.split()[1:] for line in geotrain("catalog").out.splitlines() if line.split()}
    assert " ".join(rows["a100-80gb"]) == "312 TFLOP/s 312 TFLOP/s 19.5 TFLOP/s 80 GiB 2.039 TB/s"
    assert " ".join(rows["llama-3.1-8b"]) == "8.0 32 4096 32/8 14336 128256 8192"


def test_json_has_the_same_in_si(geotrain):
    catalog = geotrain("catalog", "--json").json
    assert catalog["gpus"][0] == {
        "name": "v100",
        "bf16": None,
        "fp16": 125e12,
        "fp32": 15.7e12,
        "memory_bytes": 32 * 2**30,
        "memory_bandwidth": 900e9,
        "matmul": 0.85,
        "nvlink": 150e9,
        "nic": 12.5e9,
    }
    assert {model["name"]: model["parameters"] for model in catalog["models"]} == {
        name: model.parameters for name, model in MODELS.items()
    }
