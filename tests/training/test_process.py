"""How a process finds the others of its data center."""

import os
from pathlib import Path

import pytest

from geotrain.errors import InputError
from geotrain.training.process import Place
from tests.ports import free_port
from tests.training.checkpoint.processes import in_process

RANKED = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


def listening(told: dict[str, str]) -> list[str]:
    """Addresses at which this process listens, in hex as the kernel has them, after it has joined its world."""
    Place.of(told).join(deadline_s=30)
    own = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return [line[1].split(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in own]


@pytest.mark.parametrize("meeting", ["address", "file"])
def test_a_process_listens_at_its_own_address_only(tmp_path: Path, meeting: str):
    address = {"MASTER_ADDR": "127.0.0.2", "MASTER_PORT": str(free_port())}
    told = address if meeting == "address" else {"GEOTRAIN_STORE": str(tmp_path)}
    code, found = in_process(listening, RANKED | {"GLOO_SOCKET_IFNAME": "lo"} | told)
    assert code == 0
    assert ("0200007F" in found) == (meeting == "address")
    assert set(found) <= {"0100007F", "0200007F"}


def test_every_start_under_torchrun_has_a_file_of_its_own():
    files = [Place.of(RANKED | {"GEOTRAIN_STORE": "/s", "MASTER_PORT": port}).file for port in ("4001", "4002")]
    assert files == [Path("/s/workers-4001"), Path("/s/workers-4002")]


def test_a_place_without_a_meeting_point_is_refused():
    with pytest.raises(InputError, match="the environment has RANK=0, WORLD_SIZE=1, LOCAL_RANK=0; needed are RANK"):
        Place.of(RANKED)
