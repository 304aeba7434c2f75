from pathlib import Path

import pytest

from geotrain.cluster import Cluster
from geotrain.planner.misfit import closest
from geotrain.workload import Job

LARGE = {"name": "large", "layers": 96, "hidden": 12288, "heads": 96, "vocab": 50257}
WIDE = {"name": "wide", "layers": 4, "hidden": 16384, "heads": 128, "vocab": 250000}


def cluster(*datacenters):
    names = ("name", "nodes", "gpus_per_node", "gpu")
    rows = [dict(zip(names, row, strict=True)) for row in datacenters]
    return Cluster.parse({"datacenters": rows}, source=Path("cluster.yaml"))


def job(**fields):
    return Job.parse({"sequence": 2048, "microbatches": 8, **fields}, source=Path("job.yaml"))


def test_too_few_gpus_says_the_stage_its_memory_and_how_many_more_would_do():
    sentence = closest(cluster(("east", 4, 8, "h100")), job(model=LARGE))

    assert sentence.startswith(
        "closest: the last of 4 stages, 24 layers on h100 in 'east' with tensor_parallel 8, needs "
    )
    assert (
        " per GPU and there are 80 GiB, of which 4.8 GiB are kept free (weights, gradients and optimizer " in sentence
    )
    assert "what would make it fit: 1 more node of 8 x h100 in 'east', or h200 GPUs (131.3 GiB)" in sentence


def test_a_layer_too_large_for_any_gpu_wants_wider_nodes():
    sentence = closest(cluster(("east", 64, 1, "a100-40gb")), job(model=WIDE, sequence=8192))

    assert (
        "1 layer on a100-40gb in 'east' with tensor_parallel 1, needs 121.2 GiB per GPU and there are 40 GiB, "
        in sentence
    )
    assert "nodes of 4 GPUs, for tensor_parallel 4" in sentence
    assert "more node" not in sentence


def test_activations_that_are_too_many_want_recompute_or_a_smaller_microbatch():
    deep = job(model={"name": "gpt-a", "layers": 16}, sequence=4096, microbatch=4, recompute="none")
    sentence = closest(cluster(("east", 2, 1, "a100-40gb")), deep)

    assert "8 layers on a100-40gb" in sentence
    assert "what would make it fit: recompute: layerwise (" in sentence and "or microbatch: 2 (" in sentence


def test_what_is_said_to_help_does():
    there = cluster(("east", 4, 8, "h100"))
    more = cluster(("east", 5, 8, "h100"))

    assert closest(there, job(model=LARGE)).startswith("closest: ")
    assert closest(more, job(model=LARGE)).startswith("memory is not the reason: ")


def test_measured_memory_counts():
    measured = job(model="gpt-a", profile={"stage": {"static_bytes": "90 GiB", "activation_bytes": "1 GiB"}})

    assert "weights, gradients and optimizer 90 GiB" in closest(cluster(("east", 4, 1, "h100")), measured)


@pytest.mark.parametrize(
    ("datacenters", "sentence"),
    [
        pytest.param([("east", 0, 8, "h100")], "the cluster has no GPUs", id="no-gpus"),
        pytest.param([("east", 2, 8, "v100")], "no GPU of the cluster computes in bf16: there are v100", id="no-bf16"),
        pytest.param(
            [("east", 2, 1, "h100")],
            "memory is not the reason: 2 stages with tensor_parallel 1 would fit",
            id="it-fits",
        ),
    ],
)
def test_other_reasons(datacenters, sentence):
    assert closest(cluster(*datacenters), job(model="gpt-a")) == sentence
