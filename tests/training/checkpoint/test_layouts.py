"""Checkpoints that many processes write and other layouts read, over gloo."""

import os
import resource
import signal
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from geotrain.errors import RunError
from geotrain.training.checkpoint.writing import Writers
from tests.training.checkpoint.processes import in_world
from tests.training.checkpoint.states import (
    cut,
    directories,
    load_step,
    position,
    same,
    save,
    saver,
    trained,
    zeros,
)

pytestmark = pytest.mark.slow


def share(state, rank, size):
    """What one of so many pipelines holds: all parameters, and the optimizer's state of some of them."""
    names = [name for name in state if not name.startswith("optimizer.")]
    mine = set(names[rank::size])
    return {name: t for name, t in state.items() if name in names or name.split(".", 2)[2] in mine}


def save_shared(rank: int, directory: Path) -> list[str]:
    """Two pipelines with a sharded optimizer, while training uses another group all the time."""
    state, group = trained(), dist.new_group(backend="gloo")
    writer = saver(directory, group=group)
    for step in (10, 20, 30):
        writer.save(share(state, rank, 2), position(step), complete=[done.step for done in writer.saved])
        for _ in range(20):
            dist.all_reduce(torch.ones(1000))
    writer.wait()
    return [str(done.step) for done in writer.saved]


def test_two_pipelines_write_one_copy_that_three_stages_read(tmp_path):
    assert in_world(save_shared, tmp_path, 2, tmp_path / "run") == [(0, ["10", "20", "30"])] * 2

    state = trained()
    for part in cut(state, [1, 1, 1]):
        found = zeros(part)
        assert load_step(tmp_path / "run", 30, found) == position(30)
        assert same(found, part)
    written = [path.stat().st_size for path in (tmp_path / "run/step-00000030/stage-00").glob("*.distcp")]
    assert len(written) == 2
    save(tmp_path / "alone", 30, state)
    [alone] = [path.stat().st_size for path in (tmp_path / "alone/step-00000030/stage-00").glob("*.distcp")]
    assert sum(written) < 1.01 * alone


def split(state, mesh):
    """As tensor parallelism has it: matrices cut by rows, the rest whole on each."""
    return {name: distribute_tensor(t.detach(), mesh, [Shard(0)]) if t.dim() == 2 else t for name, t in state.items()}


def reshard(rank: int, directory: Path) -> bool:
    """Two pipelines of two tensor-parallel ranks take over what one process wrote, and write it as theirs."""
    state, group = trained(), dist.new_group(backend="gloo")
    meshes = [DeviceMesh("cpu", pair) for pair in ([0, 1], [2, 3])]
    mine = split(share(zeros(state), rank // 2, 2), meshes[rank // 2])
    load_step(directory, 10, mine)
    whole = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in mine.items()}
    writer = saver(directory, group=group)
    writer.save(mine, position(20))
    writer.wait()
    return same(whole, share(state, rank // 2, 2)) and any(isinstance(t, DTensor) for t in mine.values())


def test_tensor_parallel_ranks_read_and_write_what_others_write_and_read(tmp_path):
    state = trained()
    save(tmp_path / "run", 10, *cut(state, [2, 1]))
    assert in_world(reshard, tmp_path, 4, tmp_path / "run") == [(0, True)] * 4
    found = zeros(state)
    load_step(tmp_path / "run", 20, found)
    assert same(found, state)


def fail(rank: int, directory: Path, how: str) -> str | None:
    state, group = {"a": torch.ones(100_000), f"b{rank}": torch.ones(100_000)}, dist.new_group(backend="gloo")
    writer = saver(directory, group=group)
    writer.save(state, position(10))
    writer.wait()
    if rank == 1 and how == "full":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    if rank == 1 and how == "killed":
        sys.addaudithook(lambda event, _: os.kill(os.getpid(), signal.SIGKILL) if event == "open" else None)
    writer.save(state, position(20))
    try:
        writer.wait()
    except RunError as error:
        return str(error).replace(str(directory), "")
    return None


def test_a_full_disk_on_one_node_fails_the_save_on_all(tmp_path):
    sentence = "/step-00000020/stage-00: the checkpoint was not written: File too large (rank 1 of the stage)"
    assert in_world(fail, tmp_path, 2, tmp_path / "run", "full") == [(0, sentence)] * 2
    assert directories(tmp_path / "run") == ["step-00000010/stage-00"]


def test_a_rank_that_dies_while_it_writes_fails_the_save_of_the_others(tmp_path):
    (code, sentence), died = in_world(fail, tmp_path, 2, tmp_path / "run", "killed")
    assert died == (-signal.SIGKILL, None)
    assert code == 0
    assert sentence.startswith("/step-00000020/stage-00: the checkpoint was not written: ")
    assert "\n" not in sentence
    assert directories(tmp_path / "run") == ["step-00000010/stage-00"]


def gather_plainly(rank: int) -> list[object]:
    """What cannot be pickled into code: tuples come back as JSON's lists."""
    return Writers(dist.new_group(backend="gloo")).gather((rank, "x" * rank))


def test_ranks_tell_each_other_json_and_no_pickles(tmp_path):
    assert in_world(gather_plainly, tmp_path, 2) == [(0, [[0, ""], [1, "x"]])] * 2
