"""The planner: how long it looks, against exhaustive search, and what it gains over the published algorithm."""

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.measurement import Measurement
from geotrain.cluster import Cluster
from geotrain.errors import DoesNotFitError
from geotrain.planner import Answer, Ask, find_plan
from geotrain.workload import Job
from tests.planner.bandwidths import Pair, compared
from tests.planner.bandwidths import random_case as case_of_bandwidths
from tests.planner.exhaustive import every_rate

SMALL_CASES, CLUSTERS = 200, 500
_GPUS = ("a100-80gb", "a100-40gb", "h100", "v100", "l40s")


def run() -> Iterator[Measurement]:
    """All of the above."""
    yield from _speed()
    yield from _against_exhaustive()
    yield from _against_published()
    yield from _more_bandwidth()


def _cluster(datacenters: list[dict[str, Any]], **wan: Any) -> Cluster:
    named = [{"name": f"dc{n}", **dc} for n, dc in enumerate(datacenters)]
    return Cluster.parse({"datacenters": named, "wan": wan}, source=Path("benchmark"))


def _job(layers: int, hidden: int, **fields: Any) -> Job:
    model = {"layers": layers, "hidden": hidden, "heads": hidden // 128, "vocab": 50257}
    return Job.parse({"model": model, "sequence": 2048, **fields}, source=Path("benchmark"))


_FABRIC = {"rate": "100 Gbit/s", "latency": "10 us"}
_WINDOW = 1.465e6


def five_zones() -> tuple[Cluster, Job]:
    """640 GPUs in five zones of one region."""
    zone = {"nodes": 16, "gpus_per_node": 8, "gpu": "a100-80gb", "price_per_gpu_hour": 2.0, "fabric": _FABRIC}
    wan = {"rtt": 0.002, "pair_cap": "10 Gbit/s", "tcp_window": _WINDOW, "price_per_gb": 0.01}
    return _cluster([zone] * 5, default=wan), _job(48, 6144, global_batch=1280)


def five_datacenters() -> tuple[Cluster, Job]:
    """5 x 600 GPUs far apart, and GPT-3."""
    dc = {"nodes": 75, "gpus_per_node": 8, "gpu": "a100-80gb", "price_per_gpu_hour": 2.0, "fabric": _FABRIC}
    wan = {"rtt": 0.04, "pair_cap": "5 Gbit/s", "tcp_window": _WINDOW, "price_per_gb": 0.02}
    return _cluster([dc] * 5, default=wan), _job(96, 12288, global_batch=1536)


def ten_datacenters() -> tuple[Cluster, Job]:
    """10 x 10,000 GPUs of two kinds, every link different, and a trillion parameters."""
    luck = random.Random(0)
    dcs = [
        {
            "nodes": 1250,
            "gpus_per_node": 8,
            "gpu": luck.choice(["a100-80gb", "h100"]),
            "price_per_gpu_hour": luck.choice([2.0, 3.0]),
            "fabric": _FABRIC,
        }
        for _ in range(10)
    ]
    links = [{"between": [f"dc{a}", f"dc{b}"], "rtt": luck.uniform(0.005, 0.1)} for a in range(10) for b in range(a)]
    wan = {"rtt": 0.04, "pair_cap": "5 Gbit/s", "tcp_window": _WINDOW, "price_per_gb": 0.02}
    return _cluster(dcs, default=wan, links=links), _job(128, 25600, global_batch=12288)


def _speed() -> Iterator[Measurement]:
    find_plan(*five_zones(), Ask(evaluations=2))  # compiles
    quick = find_plan(*five_zones())
    yield Measurement(name="640 GPUs in five zones, full search", value=quick.search_s, unit="s", target=1.0)
    for name, question, limit in (
        ("5 x 600 GPUs", five_datacenters(), 10.0),
        ("10 x 10,000 GPUs", ten_datacenters(), 60.0),
    ):
        answer, within = _time_to_within(question, 0.01)
        yield Measurement(name=f"{name}, full search", value=answer.search_s, unit="s")
        yield Measurement(name=f"{name}, stated gap", value=100 * answer.gap, unit="%")
        yield Measurement(name=f"{name}, until within 1% of the answer", value=within, unit="s", target=limit)


def _time_to_within(question: tuple[Cluster, Job], share: float) -> tuple[Answer, float]:
    seen: list[tuple[float, float]] = []
    answer = find_plan(
        *question,
        watch=lambda progress: seen.append((progress.elapsed_s, progress.best.s_per_token)) if progress.best else None,
    )
    final = answer.best.s_per_token * (1 + share)
    return answer, min(when for when, s_per_token in seen if s_per_token <= final)


def small_case(luck: random.Random) -> tuple[Cluster, Job]:
    """Up to three data centers with a few GPUs and four layers: few enough plans to simulate them all."""
    dcs = [
        {"nodes": luck.randint(1, 3), "gpus_per_node": luck.randint(1, 2), "gpu": luck.choice(_GPUS)}
        for _ in range(luck.randint(1, 3))
    ]
    wan = {"rtt": luck.randint(1, 100) / 1e3, "pair_cap": luck.randint(1, 40) * 1e8}
    batch = {luck.choice(["microbatches", "global_batch"]): luck.choice([1, 2, 4, 6, 8])}
    recompute = luck.choice(["full", "none"])
    job = _job(luck.randint(1, 4), luck.choice([2048, 8192]), precision="fp16", recompute=recompute, **batch)
    return _cluster(dcs, default=wan), job


def _against_exhaustive() -> Iterator[Measurement]:
    luck = random.Random(0)
    ratios: list[float] = []
    while len(ratios) < SMALL_CASES:
        cluster, job = small_case(luck)
        if rates := every_rate(cluster, job, "varuna"):
            best = min(s_per_token for s_per_token, _ in rates)
            ratios.append(find_plan(cluster, job, Ask(schedule="varuna")).best.s_per_token / best)
    words = f"planner over exhaustive search, {SMALL_CASES} small cases"
    equal = sum(ratio <= 1 + 1e-9 for ratio in ratios)
    yield Measurement(name=f"{words}, equal", value=equal, unit="cases")
    yield Measurement(name=f"{words}, worst", value=max(ratios), unit="x", target=1.01)


def random_case(luck: random.Random) -> tuple[Cluster, Job]:
    """One to five data centers of unequal size, GPUs and links; a model of 1 to 40 billion parameters."""
    one_kind = luck.choice(_GPUS)
    mixed = luck.random() < 0.4
    dcs = [
        {
            "nodes": luck.randint(1, 24),
            "gpus_per_node": luck.choice([1, 4, 8]),
            "gpu": luck.choice(_GPUS) if mixed else one_kind,
            "price_per_gpu_hour": luck.choice([1.0, 2.0, 4.0]),
            "fabric": _FABRIC,
        }
        for _ in range(luck.randint(1, 5))
    ]
    pairs = [(a, b) for a in range(len(dcs)) for b in range(a)]
    links = [
        {"between": [f"dc{a}", f"dc{b}"], "rtt": luck.uniform(0.002, 0.15), "pair_cap": luck.uniform(0.5, 10) * 1e9 / 8}
        for a, b in pairs
        if luck.random() < 0.5
    ]
    wan = {"rtt": 0.04, "pair_cap": "5 Gbit/s", "tcp_window": _WINDOW, "price_per_gb": 0.02}
    layers, hidden = luck.choice([(24, 2048), (32, 4096), (40, 5120), (48, 8192)])
    batch = (
        {"global_batch": luck.choice([64, 192, 512])} if luck.random() < 0.5 else {"microbatches": luck.choice([8, 32])}
    )
    return _cluster(dcs, default=wan, links=links), _job(layers, hidden, precision="fp16", **batch)


def random_gains() -> list[float]:
    """Tokens per second over what the published algorithm's plan gives, for many clusters."""
    with ProcessPoolExecutor() as pool:
        found = [gain for gain in pool.map(_gain, range(CLUSTERS + CLUSTERS // 2)) if gain is not None]
    return found[:CLUSTERS]


def _gain(seed: int) -> float | None:
    try:
        answer = find_plan(*random_case(random.Random(seed)), Ask(evaluations=30))
    except DoesNotFitError:
        return None
    return None if answer.published is None else answer.published.s_per_token / answer.best.s_per_token


def _against_published() -> Iterator[Measurement]:
    gains = random_gains()
    words = f"tokens/s over the published algorithm, {len(gains)} clusters"
    low, *_, high = quantiles(gains, n=20)
    yield Measurement(name=f"{words}, least", value=min(gains), unit="x", target=1 - 1e-9, more_is_better=True)
    yield Measurement(name=f"{words}, p5", value=low, unit="x")
    yield Measurement(name=f"{words}, median", value=median(gains), unit="x")
    yield Measurement(name=f"{words}, p95", value=high, unit="x")


def _more_bandwidth() -> Iterator[Measurement]:
    """Whether the plan for a slower WAN is better on a faster one than the plan for that."""
    with ProcessPoolExecutor() as pool:
        cases = [pairs for pairs in pool.map(_pairs, range(SMALL_CASES)) if pairs]
    words = f"plans for three bandwidths, {len(cases)} clusters"
    hurt = sum(any(pair.better > 1e-6 for pair in pairs) for pairs in cases)
    untrue = sum(any(pair.better > pair.stated + 1e-6 for pair in pairs) for pairs in cases)
    yield Measurement(name=f"{words}, better for less", value=hurt, unit="clusters", target=0)
    yield Measurement(name=f"{words}, by more than stated", value=untrue, unit="clusters", target=0)


def _pairs(seed: int) -> list[Pair]:
    try:
        return list(compared(*case_of_bandwidths(seed)))
    except DoesNotFitError:
        return []
