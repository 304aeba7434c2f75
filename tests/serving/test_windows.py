"""Training says when its slot is idle; prefill beside it runs then, and only then, whatever happens to either."""

import math
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geotrain.cli.train import _announcer
from geotrain.errors import InputError, RunError
from geotrain.seating import Seating
from geotrain.serving.announcer import Announcer
from geotrain.serving.gate import Gate
from geotrain.serving.windows import NUM_PAST, Past, Reader, Record, State, newest, pack, paths, place, unpack
from geotrain.training.idling import Nobody
from geotrain.training.launch import Launch, Loopback, Run
from tests.training.plans import plan

pytestmark = pytest.mark.slow


NAME = "east-0"
GUARD = {"guard_s": 0.001, "quantile": 0.75}
PAST = Past(0, 1.0, 2.0, 3.0)
SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def both(directory: Path, **options: float) -> Iterator[tuple[Announcer, Gate]]:
    with closing(Announcer(directory, NAME)) as announcer, closing(Gate(directory, NAME, **(GUARD | options))) as gate:
        yield announcer, gate


def opened(announcer: Announcer, length_s: float, *, step: int = 0) -> float:
    now_s = time.monotonic()
    announcer.step(step, now_s, 1.0)
    announcer.idle(0, now_s, now_s + length_s, 0.0)
    return now_s


def test_a_unit_runs_if_it_ends_before_training_is_back(tmp_path: Path):
    with both(tmp_path, guard_s=1.0) as (announcer, gate):
        start_s = opened(announcer, 10.0)
        assert gate.look() == start_s + 10.0
        assert gate.open_for(8.0)
        assert not gate.open_for(9.5)
        announcer.busy(time.monotonic())
        assert gate.look() == -math.inf
        assert not gate.open_for(0.0)
        assert not gate.wait(0.0, deadline_s=0.0)


def test_what_has_not_set_out_cannot_arrive_at_once(tmp_path: Path):
    with both(tmp_path, guard_s=0.001) as (announcer, gate):
        now_s = time.monotonic()
        announcer.step(0, now_s, 100.0)
        announcer.idle(0, now_s, now_s, 20.0)
        assert gate.open_for(10.0)
        assert not gate.open_for(21.0)
        announcer.idle(0, now_s, now_s + 5.0, 0.0)
        assert gate.open_for(2.0)
        assert not gate.open_for(10.0)


def test_its_end_may_be_foreseen_anew(tmp_path: Path):
    with both(tmp_path) as (announcer, gate):
        now_s = opened(announcer, 0.0)
        assert not gate.open_for(1.0)
        announcer.idle(0, now_s, now_s + 100.0, 0.0)
        assert gate.open_for(1.0)
        assert gate.record is not None
        assert (gate.record.num_windows, gate.record.start_s) == (1, now_s)


def test_where_there_is_no_training_the_slot_is_one_big_bubble(tmp_path: Path):
    with closing(Gate(tmp_path / "later", NAME, **GUARD)) as gate:
        assert gate.open_for(1e6)
        announcer = Announcer(tmp_path / "later", NAME)
        # It has not begun its first step.
        time.sleep(0.03)
        assert gate.open_for(1e6)
        announcer.step(0, time.monotonic(), 1.0)
        assert not gate.open_for(0.0)
        announcer.close()
        assert gate.open_for(1e6)


def test_training_that_is_overdue_for_long_has_stopped(tmp_path: Path):
    with both(tmp_path, silent_s=60.0) as (announcer, gate):
        now_s = time.monotonic()
        announcer.step(0, now_s - 100.0, 1.0)
        assert gate.open_for(1e6)
        announcer.step(1, now_s - 100.0, 50.0)
        assert not gate.open_for(0.0)
        announcer.idle(0, now_s - 100.0, now_s - 50.0, 0.0)
        assert not gate.open_for(0.0)
        announcer.idle(0, now_s - 100.0, now_s - 70.0, 0.0)
        assert gate.open_for(1e6)
        announcer.busy(now_s)
        assert not gate.open_for(0.0)


def test_who_waits_is_woken(tmp_path: Path):
    with both(tmp_path) as (announcer, gate):
        announcer.step(0, time.monotonic(), 1.0)
        training = threading.Timer(0.05, lambda: announcer.idle(0, time.monotonic(), time.monotonic() + 100.0, 0.0))
        training.start()
        assert gate.wait(1.0, deadline_s=60.0)
        training.join()


def test_overruns_are_counted_and_push_the_guard(tmp_path: Path):
    with both(tmp_path, guard_s=0.001) as (announcer, gate):
        for step in range(3):
            start_s = opened(announcer, 1.0, step=step)
            assert gate.ran(start_s) is False
            announcer.busy(time.monotonic())
        assert (gate.overruns, gate.guard_s) == (0, 0.001)
        start_s = opened(announcer, 1.0, step=3)
        announcer.busy(time.monotonic())
        assert gate.ran(start_s) is True
        assert gate.overruns == 1
        assert 0 < gate.overrun_s < gate.used_s
        announcer.step(4, time.monotonic(), 1.0)
        gate.look()
        assert gate.guard_s >= 0.002
        doubled_s = gate.guard_s
        for step in range(5, 8):
            assert gate.ran(opened(announcer, 0.0, step=step)) is False
            announcer.busy(time.monotonic())
        announcer.step(8, time.monotonic(), 1.0)
        gate.look()
        assert gate.guard_s < doubled_s


def test_windows_that_end_early_push_the_guard_also_while_nobody_looks(tmp_path: Path):
    with both(tmp_path, guard_s=0.001, quantile=0.9) as (announcer, gate):
        for step in range(10):
            for _ in range(NUM_PAST // 2):
                now_s = time.monotonic()
                announcer.idle(0, now_s, now_s + 0.25, 0.0)
                announcer.busy(now_s + 0.05)
            announcer.step(step, now_s, 1.0)
            if step % 2:
                gate.look()
        assert gate.guard_s == pytest.approx(0.2)
        assert gate.offered_s == pytest.approx(10 * NUM_PAST // 2 * 0.05)


def _train(directory: Path, orders: Any) -> None:
    announcer = Announcer(directory, NAME)
    step = 0
    while (order := orders.get()) is not None:
        step += 1
        announcer.step(step, time.monotonic(), 1000.0)
        if order == "idle":
            announcer.idle(0, time.monotonic(), time.monotonic() + 1000.0, 0.0)
        else:
            announcer.busy(time.monotonic())
    announcer.close()


def _until(true: Any) -> None:
    end_s = time.monotonic() + 60.0
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.002)


def test_training_is_killed_and_begins_anew(tmp_path: Path):
    with closing(Gate(tmp_path, NAME, **GUARD)) as gate:
        for _ in range(2):
            orders = SPAWN.SimpleQueue()
            process = SPAWN.Process(target=_train, args=(tmp_path, orders), daemon=True)
            process.start()
            orders.put("busy")
            _until(lambda: not gate.open_for(0.0))
            assert gate.record is not None
            assert gate.record.pid == process.pid
            orders.put("idle")
            assert gate.wait(1.0, deadline_s=60.0)
            assert not gate.open_for(1001.0)
            orders.put("busy")
            _until(lambda: not gate.open_for(0.0))
            process.kill()
            process.join()
            assert gate.wait(1e6, deadline_s=60.0)
            assert gate.record is None


_LISTENER = """
import sys
from pathlib import Path
from geotrain.serving.gate import Gate
gate = Gate(Path(sys.argv[1]), sys.argv[2], guard_s=0.001, quantile=0.75)
print("here", flush=True)
gate.wait(1e9, 1e5)
"""


def test_listeners_come_and_go_and_training_never_notices(tmp_path: Path):
    with closing(Announcer(tmp_path, NAME)) as announcer:
        announcer.step(0, time.monotonic(), 1.0)
        for stopped in (signal.SIGSTOP, signal.SIGKILL):
            command = [sys.executable, "-c", _LISTENER, str(tmp_path), NAME]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
                assert listener.stdout is not None
                assert listener.stdout.readline() == "here\n"
                listener.send_signal(stopped)
                # More than fits into the pipe that nobody empties.
                for _ in range(70_000 if stopped == signal.SIGSTOP else 100):
                    announcer.idle(0, 0.0, 1.0, 0.0)
                listener.kill()
        now_s = opened(announcer, 100.0)
        with closing(Gate(tmp_path, NAME, **GUARD)) as gate:
            assert gate.look() == now_s + 100.0


def test_the_file_is_removed_and_training_is_still_seen(tmp_path: Path):
    with both(tmp_path) as (announcer, gate):
        announcer.step(0, time.monotonic(), 1000.0)
        assert not gate.open_for(0.0)
        for path in paths(tmp_path, NAME):
            path.unlink()
        time.sleep(0.03)
        assert not gate.open_for(0.0)


def test_a_file_of_a_dead_process_says_nothing(tmp_path: Path):
    announcer = Announcer(tmp_path, NAME)
    announcer.step(0, time.monotonic(), 1000.0)
    path = paths(tmp_path, NAME)[0]
    left = path.read_bytes()
    announcer.close()
    path.write_bytes(left)
    with closing(Reader(tmp_path, NAME)) as reader:
        assert reader.read() is None


def test_a_disk_without_room_is_an_error_that_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(file: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunError, match=r"east-0\.window: cannot be made: No space left on device"):
        Announcer(tmp_path, NAME)
    assert [path.name for path in tmp_path.iterdir()] == ["east-0.wake"]
    assert not [file for file in _open_files() if file.startswith(str(tmp_path))]


def _open_files() -> Iterator[str]:
    """Of this process, in which other threads may open and close some meanwhile."""
    for file in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield os.readlink(file)


def test_what_is_no_window_file_is_said_so(tmp_path: Path):
    path, wake = paths(tmp_path, NAME)
    path.write_bytes(b"short")
    reader = Reader(tmp_path, NAME)
    for _ in range(2):
        with pytest.raises(RunError, match=r"east-0\.window: is not a window file of version 1"):
            reader.read()
        time.sleep(0.03)
    wake.write_text("no pipe")
    with pytest.raises(InputError, match=r"east-0\.wake: cannot be opened: is there, and is no pipe"):
        Gate(tmp_path, NAME, **GUARD)
    with pytest.raises(RunError, match="is there, and is no pipe"):
        Announcer(tmp_path, NAME)


def test_a_run_announces_from_its_first_step_to_its_end(tmp_path: Path):
    profile = {"stage": {"forward_s": 0.01, "backward_s": 0.02}, "boundary_bytes": 1000, "gradient_bytes": 0}
    made = plan(["east", "south"], schedule="1f1b", job={"profile": profile})
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(made.dump()))
    seating, windows = Seating(made), tmp_path / "windows"
    launch = Launch(
        plan_file=file,
        seating=seating,
        out=tmp_path / "run",
        insecure=True,
        max_restarts=0,
        options=("--compute", "emulated", "--steps", "5", "--announce", str(windows)),
    )
    with Run(launch, Loopback(seating)) as run:
        run.wait(deadline_s=110)
    for seat in seating.seats:
        record = newest(paths(windows, seat.name)[0].read_bytes())
        assert record is not None
        assert (record.state, record.step) == (State.ENDED, 4)
        # In every step each slot waits for the other.
        assert record.num_windows >= 5
        assert 0 < record.idle_s < record.changed_s - record.born_s
        with closing(Gate(windows, seat.name, **GUARD)) as gate:
            assert gate.open_for(1e6)


def test_who_cannot_announce_trains_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").touch()
    assert isinstance(_announcer(tmp_path / "file", NAME), Nobody)
    assert capsys.readouterr().err == (
        f"warning: east-0: {tmp_path}/file/east-0.window: cannot be made: File exists; its idle time is not announced\n"
    )


RECORDS = st.builds(
    Record,
    state=st.sampled_from(State),
    is_open=st.booleans(),
    **{name: st.integers(0, 2**63 - 1) for name in ("number", "pid", "step", "mark", "num_windows", "num_past")},
    **{
        name: st.floats(allow_nan=False)
        for name in ("born_s", "begin_s", "length_s", "start_s", "end_s", "lead_s", "over_s", "changed_s", "idle_s")
    },
    past=st.lists(
        st.builds(Past, st.integers(0, 2**62), *[st.floats(allow_nan=False)] * 3), min_size=NUM_PAST, max_size=NUM_PAST
    ).map(tuple),
)


@given(RECORDS, RECORDS, st.integers(0, 1000))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_of_two_records_the_newest_whole_one_counts(old: Record, new: Record, cut: int):
    old, new = old._replace(number=6), new._replace(number=7)
    file = bytearray(2 * len(pack(old)))
    file[place(6)], file[place(7)] = pack(old), pack(new)
    assert newest(bytes(file)) == new
    # The next one is being written over the older.
    third = pack(new._replace(number=8))
    file[place(6)] = third[:cut] + pack(old)[cut:]
    found = newest(bytes(file))
    assert found == new or (found is not None and found.number == 8 and pack(found) == third)


@given(RECORDS, st.integers(0, 10_000), st.integers(1, 255))
def test_a_record_with_a_wrong_bit_is_none(record: Record, at: int, flip: int):
    raw = bytearray(pack(record))
    assert unpack(bytes(raw)) == record
    raw[at % len(raw)] ^= flip
    assert unpack(bytes(raw)) is None


def _shout(directory: Path, stop: Any) -> None:
    """As fast as can be, records whose fields all say the same."""
    announcer = Announcer(directory, NAME)
    number = 0
    while not stop.is_set():
        number += 1
        announcer.step(number, float(number), float(number))


def test_no_reader_ever_sees_a_torn_record(tmp_path: Path):
    stop = SPAWN.Event()
    writer = SPAWN.Process(target=_shout, args=(tmp_path, stop), daemon=True)
    writer.start()
    with closing(Reader(tmp_path, NAME)) as reader:
        _until(lambda: (record := reader.read()) is not None and record.state is State.RUNNING)
        last, reads, seen = 0, 0, set[int]()
        while reads < 10_000 or len(seen) <= 100:  # however seldom the writer has a core
            reads += 1
            record = reader.read()
            assert record is not None
            assert record.begin_s == record.length_s == record.step == record.changed_s
            # The first record has no step.
            assert record.number == record.step + 1
            assert record.number >= last
            last = record.number
            seen.add(last)
    stop.set()
    writer.join()


def test_the_layout_is_fixed():
    past = (PAST,) * NUM_PAST
    record = Record(State.RUNNING, True, 1, 2, 3.0, 4, 5.0, 6.0, 7, 8.0, 9.0, 10.0, 11.0, 12.0, 13, 14, 15.0, past)
    raw = pack(record)
    assert raw[:8] == b"geoW" + struct.pack("<H", 1) + b"\1\1"
    assert struct.unpack("<QQdqddqdddddQQd", raw[8:128]) == record[2:-1]
    assert len(raw) == 128 + 32 * NUM_PAST + 4
