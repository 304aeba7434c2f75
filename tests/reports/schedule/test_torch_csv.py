"""What torch.distributed.pipelining makes of the CSV: it lowers it without a stall, and trains as one process does."""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections import deque
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings

from geotrain.cli import main
from geotrain.reports.schedule import pipelines, schedule_csv
from geotrain.simulation.result import Result
from tests.simulation.test_invariants import SCHEDULES, cases, run

pytestmark = pytest.mark.slow


PAGE = Path(__file__).parents[3] / "docs" / "torchtitan.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's train.py, in the directory where commands run."""
    monkeypatch.chdir(tmp_path)
    (source,) = blocks("python")
    path = tmp_path / "train.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("train", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def geotrain(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", shlex.split(line))
    with pytest.raises(SystemExit) as exit:
        main()
    assert not exit.value.code


def torchrun(line: str) -> str:
    """What the processes print."""
    command = [sys.executable, "-m", "torch.distributed.run", *shlex.split(line)[1:]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=110)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun then ends its workers
        process.wait(5)
        raise
    assert process.returncode == 0, err
    return out


def assert_trained_like_one_process(page: ModuleType, out: str, path: str, *, stages: int, microbatches: int) -> None:
    import torch

    model = torch.nn.Sequential(*(parts := page.make_parts(stages)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(page.STEPS):
        tokens, target = page.make_batch(step, microbatches)
        loss = page.loss_of(model(tokens), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    printed = [float(loss) for loss in re.findall(rf"^{path}: step \d, loss (\S+)$", out, re.MULTILINE)]
    assert printed == pytest.approx(losses, abs=1e-5)
    assert printed[-1] < printed[0]
    for stage, part in enumerate(parts):
        trained = torch.load(f"{path}.stage{stage}.pt")
        for name, weight in part.state_dict().items():
            torch.testing.assert_close(trained[name], weight, rtol=0, atol=1e-5)


CASES: dict[str, dict[str, Any]] = {
    "four": {
        "forward": [1.0, 2.0, 1.0, 1.0],
        "backward": [2.0, 3.0, 2.0, 2.0],
        "recompute": [1.0, 2.0, 1.0, 1.0],
        "occupancy": [1.5, None, 1.0],
        "latency": [4.0, 0.0, 2.0],
        "microbatches": 6,
        "pipelines": 2,
        "sharing": "temporal",
    },
    "two": {"forward": [1.0, 1.0], "backward": [2.0, 2.0], "occupancy": [1.0], "latency": [3.0], "microbatches": 5},
}


def export(case: str, schedule: str) -> str:
    """The cell's last pipeline as a file."""
    path = Path(f"{case}-{schedule}.csv")
    path.write_text(schedule_csv(pipelines(run(schedule, CASES[case]))[-1]))
    return path.name


def test_the_page_runs_as_shown_and_every_schedule_trains_like_one_process(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    exports, train = blocks("sh")
    for line in exports.splitlines():
        geotrain(line, monkeypatch)
    out = torchrun(train.strip())
    assert "I" in Path("auto.csv").read_text(), "the page says that auto often splits backwards"
    for path in ("atlas.csv", "auto.csv"):
        assert_trained_like_one_process(page, out, path, stages=3, microbatches=16)
    others = [export("four", schedule) for schedule in [*SCHEDULES, "auto"]]
    out = torchrun(" ".join(["torchrun --standalone --nproc-per-node 4 train.py", *others]))
    for path in others:
        assert_trained_like_one_process(page, out, path, stages=8 if "interleaved" in path else 4, microbatches=6)


def test_two_processes_with_two_stages_each_train_like_one(page: ModuleType):
    """Activations and gradients of both chunks go between the same two ranks, both ways."""
    path = export("two", "interleaved")
    out = torchrun(f"torchrun --standalone --nproc-per-node 2 train.py {path}")
    assert_trained_like_one_process(page, out, path, stages=4, microbatches=5)


def lowered(path: str, result: Result) -> dict[int, list[str]]:
    """The ranks' lists once torch has checked the file and added communication; weights' own actions left out."""
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    ranks = len(result.plan.stages)
    stage = SimpleNamespace(num_stages=ranks * result.plan.interleave, group_size=ranks, group_rank=0)
    runtime = _PipelineScheduleRuntime([stage], result.plan.num_microbatches, loss_fn=max)
    runtime._load_csv(path)
    return {
        rank: [str(action) for action in actions if action.microbatch_index is not None]
        for rank, actions in runtime.pipeline_order_with_comms.items()
    }


def assert_no_stall(lists: dict[int, list[str]]) -> None:
    """Even if a send waits for its receive and the other way round, every rank comes to its end."""
    queues = [deque(lists[rank]) for rank in sorted(lists)]
    while any(queues):
        before = sum(map(len, queues))
        for queue in queues:
            sent = re.fullmatch(r"(\d+)SEND_([FB])(\d+)", queue[0]) if queue else None
            if sent is not None:
                received = f"{int(sent[1]) + (1 if sent[2] == 'F' else -1)}RECV_{sent[2]}{sent[3]}"
                peer = queues[int(received.split("R")[0]) % len(queues)]
                if peer and peer[0] == received:
                    peer.popleft()
                    queue.popleft()
            elif queue and "RECV" not in queue[0]:
                queue.popleft()
        assert sum(map(len, queues)) < before, f"all wait: {[queue[0] for queue in queues if queue]}"


@pytest.mark.parametrize("schedule", [*SCHEDULES, "auto"])
@given(case=cases())
@settings(max_examples=12)
def test_torch_lowers_every_list_and_no_rank_stalls(
    tmp_path_factory: pytest.TempPathFactory, schedule: str, case: dict[str, Any]
):
    result = run(schedule, case)
    last = f"{len(result.plan.stages) * result.plan.interleave - 1}F"
    for pipeline in pipelines(result):
        path = tmp_path_factory.mktemp("csv") / "schedule.csv"
        path.write_text(schedule_csv(pipeline))
        lists = lowered(str(path), result)
        assert_no_stall(lists)
        # torch finds the loss of microbatch m as the m-th it has computed.
        losses = [int(action.removeprefix(last)) for action in lists[len(lists) - 1] if action.startswith(last)]
        assert losses == list(range(result.plan.num_microbatches))


@pytest.mark.parametrize(("halves", "forwards"), [(False, 2), (True, 5)], ids=["B", "I and W"])
def test_checkpointed_blocks_recompute_once_for_b_and_more_often_for_i_and_w(
    page: ModuleType, halves: bool, forwards: int
):
    """What the page says about activation checkpointing and split backwards."""
    import torch
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    block, x, grad = page.Block(), torch.randn(2, page.WIDTH, requires_grad=True), torch.randn(2, page.WIDTH)
    block(x).backward(grad)
    expected = [weight.grad.clone() for weight in block.parameters()]
    block.zero_grad()
    runs: list[None] = []
    block.register_forward_pre_hook(lambda *_: runs.append(None))
    y = checkpoint(block, x, use_reentrant=False)
    if halves:
        _, groups = stage_backward_input([y], [grad], [x], block.parameters())
        stage_backward_weight(block.parameters(), groups)
    else:
        y.backward(grad)
    torch.testing.assert_close([weight.grad for weight in block.parameters()], expected)
    assert len(runs) == forwards
