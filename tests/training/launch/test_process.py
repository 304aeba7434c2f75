"""Every seat of a plan gets its process, told as torchrun would tell it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.seating import Seating
from geotrain.training.launch import Launch, Loopback, Namespaces, needed_testbed, processes
from geotrain.training.launch.process import node_name
from tests.training.launch.runs import launch
from tests.training.plans import plan


@given(
    stages=st.lists(st.sampled_from(["east", "south", "west"]), min_size=1, max_size=4),
    pipelines=st.integers(1, 3),
    width=st.sampled_from([1, 2]),
    max_restarts=st.sampled_from([0, 3]),
    local=st.booleans(),
)
def test_each_seat_is_taken_once(stages, pipelines, width, max_restarts, local):
    seating = Seating(plan(stages, pipelines_per_cell=pipelines, tensor_parallel=width, gpus_per_node=4))
    given = Launch(plan_file=Path("p"), seating=seating, out=Path("o"), max_restarts=max_restarts)
    planned = list(processes(given, Loopback(seating) if local else Namespaces(seating, needed_testbed(seating))))

    assert [seat for process in planned for seat in process.seats] == seating.seats
    assert len({process.name for process in planned}) == len(planned)
    assert len({(process.dc, process.node, process.host) for process in planned}) == sum(
        1 if local else len(seating.nodes(dc)) for dc in seating.dcs
    )
    for process in planned:
        if process.agent:
            assert process.agent[process.agent.index("--nproc-per-node") + 1] == str(len(process.seats))
            continue
        (seat,) = process.seats
        told = process.environment
        assert (told["RANK"], told["WORLD_SIZE"]) == (str(seat.rank), str(len(seating.world(seat.dc))))
        assert told["LOCAL_RANK"] == str(seat.rank if local else seat.local_rank)
        assert told["GEOTRAIN_STORE"] == f"o/rendezvous/{seat.dc}"


def test_a_worker_is_told_its_data_center_its_address_and_where_all_meet(tmp_path: Path):
    given = launch(tmp_path, "leave", data=Path("tokens"), insecure=False)
    east, south = processes(given, Namespaces(given.seating, needed_testbed(given.seating)))
    assert south.command[2:] == [
        *("plan.yaml", "--dc", "south", "--data", "tokens", "--out", str(tmp_path)),
        *("--control", "10.1.0.1:29400", "--host", "10.2.0.1", "--keys", str(tmp_path / "keys"), "--do", "leave"),
    ]
    assert east.host == "10.1.0.1" and east.environment["GLOO_SOCKET_IFNAME"] == "fabric"


def test_torch_ranks_nodes_in_their_order():
    # The rendezvous sorts nodes by name, as text.
    names = [node_name(number) for number in range(3000)]
    assert sorted(names) == names


def test_restarts_are_counted_from_none(tmp_path: Path):
    with pytest.raises(InputError, match="--max-restarts is -1 and must be at least 0"):
        launch(tmp_path, "leave", max_restarts=-1)
