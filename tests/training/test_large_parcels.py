"""What is larger than a channel's usual buffer crosses the WAN, or is refused before the run begins."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from geotrain.errors import InputError
from geotrain.plan import Plan
from geotrain.training import gradients
from geotrain.training.gradients import TiedEnds
from geotrain.training.options import Options
from geotrain.training.preflight import check
from geotrain.transport import Settings
from geotrain.transport.memory import memory_pair
from tests.training.plans import plan
from tests.training.team import Team, team

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workers() -> Iterator[Team]:
    """Enough for two stages and two pipelines."""
    with team(4) as made:
        yield made


def sending(parcel: str, pipelines: int = 1) -> Plan:
    """Two data centers and one microbatch of that size each way; the wires are fast."""
    job = {"microbatches": 1, "profile": {"boundary_bytes": parcel}}
    link = {"rtt": "1 ms", "pair_cap": "100 Gbit/s", "tcp_window": "16 MB"}
    return plan(["east", "south"], pipelines_per_cell=pipelines, schedule="1f1b", job=job, link=link)


@pytest.mark.parametrize("pipelines", [pytest.param(1, id="channel"), pytest.param(2, id="pool")])
def test_parcels_above_256_mib_are_sent(workers: Team, tmp_path: Path, pipelines: int):
    options = Options(dc="", out=tmp_path, compute="emulated", steps=1)
    reports = workers.train(sending("280 MB", pipelines), options)
    assert [report["step"] for report in reports] == [0]


def test_parcels_above_4_gib_are_refused_before_anybody_meets(tmp_path: Path):
    told = Options(dc="east", out=tmp_path, compute="emulated")
    with pytest.raises(InputError, match=r"sends 4\.657 GiB to the next stage, and at most 4 GiB can cross the WAN"):
        check(sending("5 GB"), told)


def test_a_tied_head_larger_than_a_buffer_is_swapped_in_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gradients, "SWAP_BYTES", 1000)
    channels = memory_pair(settings=Settings(connections=1, max_buffer_bytes=1000, window_bytes=12_000))
    ends = [torch.zeros(60, 70) for _ in channels]
    mine = [torch.randn(60, 70, generator=torch.Generator().manual_seed(number)) for number in range(2)]
    for end, gradient in zip(ends, mine, strict=True):
        end.grad = gradient.clone()
    tied = [
        TiedEnds(end, is_first=number == 0, across=channel, copies=None, job="j", deadline_s=20.0)
        for number, (end, channel) in enumerate(zip(ends, channels, strict=True))
    ]
    threads = [threading.Thread(target=one.sum) for one in tied]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for end in ends:
        assert end.grad is not None and torch.equal(end.grad, mine[0] + mine[1])
