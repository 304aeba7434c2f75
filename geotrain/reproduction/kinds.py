"""The kinds of experiment, by the name that a file gives."""

from collections.abc import Callable, Iterator

from geotrain.reproduction import grid, planning, prefill, schedules, testbed, wire
from geotrain.reproduction.finding import Finding

KINDS: dict[str, Callable[..., Iterator[Finding]]] = {
    kind.__name__: kind
    for kind in (
        wire.bandwidth,
        wire.parallelism,
        schedules.schedules,
        schedules.ablation,
        grid.grid,
        planning.datacenters,
        planning.fractions,
        planning.across,
        planning.frontier,
        prefill.utilization,
        prefill.first_token,
        prefill.slowdown,
        prefill.decisions,
        testbed.transfers,
        testbed.steps,
        testbed.live_prefill,
    )
}
