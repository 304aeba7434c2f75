"""Random small clusters at rising WAN bandwidth: whether a plan made for a slower WAN is the better one on a faster."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from geotrain.cluster import Cluster
from geotrain.planner import find_plan
from geotrain.planner.whatif.variants import with_bandwidth
from geotrain.simulation import simulate
from geotrain.workload import Job

_GPUS = ("a100-80gb", "a100-40gb", "h100", "v100", "l40s")
_RUNGS = (1.0, 3.1623, 10.0)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The plan for less bandwidth against the plan for more, both simulated with more."""

    better: float
    """By this share the plan for less is the better one; at most 0 where more bandwidth does not hurt."""
    stated: float
    """By this share any plan may be better, as the answer for more says."""


def random_case(seed: int) -> tuple[Cluster, Job]:
    """Two or three data centers with up to 16 GPUs each, all of their memory to be used, and 4 to 24 layers."""
    luck = random.Random(seed)
    kind, mixed = luck.choice(_GPUS), luck.random() < 0.4
    dcs = [
        {
            "name": f"dc{number}",
            "nodes": luck.randint(1, 4),
            "gpus_per_node": luck.choice([1, 2, 4]),
            "gpu": luck.choice(_GPUS) if mixed else kind,
            "price_per_gpu_hour": luck.choice([1.0, 2.0]),
            "fabric": {"rate": "100 Gbit/s", "latency": "10 us"},
            "memory_reserve": 0,
        }
        for number in range(luck.randint(2, 3))
    ]
    rtt, rate = luck.randint(1, 100) / 1e3, luck.choice([0.5, 1, 2, 5, 10]) * 1e9 / 8
    layers, hidden = luck.randint(4, 24), luck.choice([2048, 4096, 6144])
    by_batch = luck.random() < 0.5
    batch = {"global_batch": luck.choice([16, 32, 64])} if by_batch else {"microbatches": luck.choice([4, 8, 16])}
    model = {"layers": layers, "hidden": hidden, "heads": hidden // 128, "vocab": 50257}
    wan = {"default": {"rtt": rtt, "pair_cap": rate, "price_per_gb": 0.01}}
    job = {"model": model, "sequence": 2048, "precision": "fp16", "recompute": luck.choice(["full", "none"]), **batch}
    return Cluster.parse({"datacenters": dcs, "wan": wan}, source=Path("random")), Job.parse(job, source=Path("random"))


def compared(cluster: Cluster, job: Job) -> Iterator[Pair]:
    """Every two of three bandwidths; DoesNotFitError where there is no plan."""
    clusters = [with_bandwidth(cluster, share) for share in _RUNGS]
    answers = [find_plan(one, job) for one in clusters]
    for less, more in combinations(range(len(_RUNGS)), 2):
        again = simulate(answers[less].best.result.plan.change(cluster=clusters[more]))
        better = again.tokens_per_s / answers[more].best.result.tokens_per_s - 1
        yield Pair(better=better, stated=1 / (1 - answers[more].gap) - 1)
