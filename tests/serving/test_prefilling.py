import time
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread

from geotrain.device import Device
from geotrain.serving.announcer import Announcer
from geotrain.serving.contract import Sampling
from geotrain.serving.gate import Gate
from geotrain.serving.messages import FirstToken, Kv, Message, Slice, Task, Tensor
from geotrain.serving.prefilling import Prefilling
from geotrain.serving.wire import Buffer
from tests.serving.prefilling import prompt, shards, write

NAME = "east-0"
WINDOW_S = 0.06
STALL_S = 0.5


class StallsOnce(Device):
    """A core that another program takes away, once."""

    def __init__(self) -> None:
        super().__init__(None, NAME)
        self.stalls = 0

    @contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        with super().held(seconds):
            yield
            if not self.stalls:
                self.stalls += 1
                time.sleep(STALL_S)


def trains(announcer: Announcer, ended: Event) -> None:
    """Steps with one window each."""
    step = 0
    while not ended.is_set():
        start_s = time.monotonic()
        announcer.step(step, start_s, 2 * WINDOW_S)
        announcer.idle(0, start_s, start_s + WINDOW_S, 0.0)
        time.sleep(WINDOW_S)
        announcer.busy(time.monotonic())
        time.sleep(WINDOW_S)
        step += 1


def test_a_unit_that_was_held_up_once_does_not_keep_the_next_out_of_every_window(tmp_path: Path):
    write(tmp_path / "model")
    (shard,) = shards(tmp_path / "model", 1)
    said: list[Message] = []
    answered, ended = Event(), Event()

    def send(_: str | None, message: Message, payload: Buffer) -> None:
        said.append(message)
        if isinstance(message, FirstToken):
            answered.set()

    ids = prompt(7)
    part = Slice(request="a", position=0, tokens=7, prompt_tokens=7, sampling=Sampling(max_tokens=1))
    about = Tensor(dtype="int64", shape=(7,))
    layers = 0, len(shard.layers)
    task = Task(
        booking=0,
        place=0,
        layers=layers,
        chunk=0,
        slices=(part,),
        unit_s=0.01,
        seldom_s=0.012,
        decoder="/d",
        tensor=about,
    )
    device = StallsOnce()
    with (
        closing(Announcer(tmp_path, NAME)) as announcer,
        closing(Gate(tmp_path, NAME, guard_s=0.001, quantile=0.75)) as gate,
    ):
        prefilling = Prefilling(shard, gate, send, device=device)
        threads = [Thread(target=trains, args=(announcer, ended)), Thread(target=prefilling.run)]
        for thread in threads:
            thread.start()
        prefilling.give(task, bytearray(array("q", ids).tobytes()))
        try:
            assert answered.wait(30)
        finally:
            ended.set()
            prefilling.end()
            for thread in threads:
                thread.join()
    assert device.stalls == 1
    assert [message.layer for message in said if isinstance(message, Kv)] == list(range(4))
