from typing import Any

import pytest

from geotrain.validation.build import chunks_and_layers, plan_of, ring_and_hop_rates
from geotrain.workload import Efficiency
from tests.validation.rows import make_row

RULE = Efficiency(nvlink=0.5)
CARD, LINK = 0.8 * 25e9, 0.5 * 300e9


@pytest.mark.parametrize(
    ("layers", "stages", "interleave", "expected"),
    [
        pytest.param(24, 2, 1, (1, [12, 12]), id="even"),
        pytest.param(10, 4, 1, (1, [2, 3, 3, 2]), id="the-ends-get-fewer"),
        pytest.param(11, 4, 1, (1, [3, 3, 3, 2]), id="odd"),
        pytest.param(24, 4, 3, (3, [6, 6, 6, 6]), id="chunks"),
        pytest.param(96, 10, 2, (2, [8, 10, 10, 10, 10, 10, 10, 10, 10, 8]), id="uneven-chunks"),
        pytest.param(126, 16, 8, (8, [8] * 16), id="a-last-chunk-counts-as-full"),
        pytest.param(40, 8, 4, (1, [5] * 8), id="no-chunks-that-stay-even"),
        pytest.param(24, 1, 4, (1, [24]), id="one-stage-needs-none"),
    ],
)
def test_layers_are_spread_evenly(layers: int, stages: int, interleave: int, expected: tuple[int, list[int]]):
    row = make_row(layers=layers, pipeline_parallel=stages, interleave=interleave)
    assert chunks_and_layers(row) == expected


def test_a_plan_does_what_the_run_did():
    plan = plan_of(make_row(interleave=3), RULE)
    assert (plan.schedule, plan.interleave, plan.cells, plan.pipelines_per_cell) == ("interleaved", 3, 2, 1)
    assert (plan.tensor_parallel, plan.sequence_parallel, plan.num_microbatches) == (2, False, 16)
    assert plan.num_gpus == 8
    assert (plan.job.recompute, plan.job.attention, plan.job.efficiency) == ("layerwise", "unfused", RULE)
    assert plan.cluster.datacenters[0].nodes == 1


def test_a_run_that_fitted_is_not_stopped_by_our_estimate_of_memory():
    huge = make_row(hidden=65536, heads=64, microbatch=32, recompute="none", gpu="a100-40gb")
    assert plan_of(huge, RULE).cluster.datacenters[0].gpu.memory_bytes == 1e18


@pytest.mark.parametrize(
    ("cells", "ring", "hop"),
    [
        pytest.param({}, 2 * LINK, 2 * LINK, id="all-in-one-node"),
        pytest.param({"pipeline_parallel": 4}, 2 * LINK, 2 * CARD, id="rings-inside-stages-in-several"),
        pytest.param({"data_parallel": 16}, 8 * CARD, 2 * CARD, id="rings-over-nodes-use-all-cards"),
        pytest.param({"tensor_parallel": 1, "data_parallel": 64}, LINK, CARD, id="limited-by-the-link"),
        pytest.param({"tensor_parallel": 8, "data_parallel": 8}, 8 * CARD, 8 * CARD, id="a-slot-is-a-node"),
    ],
)
def test_rings_and_transfers_have_their_own_ways(cells: dict[str, Any], ring: float, hop: float):
    assert ring_and_hop_rates(make_row(**{"global_batch": 512} | cells), 0.5) == pytest.approx((ring, hop))


def test_a_transfer_arrives_as_late_as_its_own_way_is_slow():
    fabric = plan_of(make_row(pipeline_parallel=4), RULE).cluster.datacenters[0].fabric
    sent = 2 * 2048 * 2048 * 2
    assert fabric is not None
    assert sent / fabric.rate + fabric.latency_s == pytest.approx(sent / (2 * CARD) + 10e-6)


def test_tensor_parallelism_over_nodes_goes_at_the_rate_of_their_cards():
    plan = plan_of(make_row(tensor_parallel=16, gpus_per_node=8, data_parallel=1), RULE)
    datacenter = plan.cluster.datacenters[0]
    assert (datacenter.gpus_per_node, datacenter.nodes, datacenter.gpu.nvlink) == (16, 2, 8 * 25e9)


def test_a_run_on_one_slot_needs_no_fabric():
    assert plan_of(make_row(pipeline_parallel=1, data_parallel=1), RULE).cluster.datacenters[0].fabric is None
