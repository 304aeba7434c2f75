"""A probe and a benchmark as they could have come out."""

from geotrain.wan.bench import Bench, BenchRow
from geotrain.wan.figures import Probe, Step, Way


def way(*rates: float, cores: float = 0.2) -> Way:
    return Way(steps=[Step(connections=2**n, rate=rate, cores=cores, machine=0.3) for n, rate in enumerate(rates)])


def probe(there: Way | None = None, back: Way | None = None) -> Probe:
    usual = way(36.625e6, 73.25e6, 125e6, 126e6)
    return Probe(
        host="10.2.0.1",
        port=7470,
        secure=False,
        rtts_s=[0.041, 0.04, 0.0399],
        there=there or usual,
        back=back or usual,
    )


def bench() -> Bench:
    rows = [
        BenchRow(way="one connection", times_s=[0.9, 1.0, 1.1], predicted_s=0.935, cpu_s=0.1),
        BenchRow(way="n connections", connections=18, times_s=[0.1], predicted_s=0.08, cpu_s=0.1),
        BenchRow(way="gloo", times_s=[], missing="torch is not installed"),
    ]
    return Bench(source="east", target="south", size_bytes=33_500_000, rows=rows)
