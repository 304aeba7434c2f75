"""Against a real vLLM on the CPU, in an environment of its own. It takes half a minute to start."""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import torch
from transformers import AutoModelForCausalLM

from geotrain.model import Config, Part
from geotrain.serving import service
from geotrain.serving.contract import Sampling
from geotrain.serving.vllm.bridge import Bridge
from geotrain.serving.vllm.handover import Handover
from geotrain.serving.vllm.server import transfer_config
from tests.ports import free_port
from tests.serving import live
from tests.serving.prefilling import WORDS, ids_of
from tests.serving.vllm.handing import (
    SHAPE,
    Heard,
    files,
    hand,
    on_loop,
    ours,
    prefilled,
    prompt,
    running,
    start,
    write_model,
)

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not PYTHON.exists(), reason="vLLM is not installed here: make test-vllm does that"),
]

GREEDY = Sampling(max_tokens=12, temperature=0.0)
LENGTHS = (1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 400, 600)
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


class Vllm:
    """A server that runs."""

    def __init__(self, url: str, directory: Path, model: Path, process: subprocess.Popen[bytes]) -> None:
        self.url, self.directory, self.model, self._process = url, directory, model, process

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """With all its processes, which remove what they have in shared memory if they get the time."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                for _ in range(200):
                    self._process.poll()
                    os.killpg(self._process.pid, 0)
                    time.sleep(0.1)
            except ProcessLookupError:
                return

    def bridge(self, heard: Heard, *, config: Config = SHAPE, lease_s: float = 60.0) -> Bridge:
        return Bridge(self.directory, self.url, "tiny", config, WORDS, lease_s=lease_s, tell=heard.tell)

    def count(self, metric: str) -> float:
        """The value of a line of /metrics that begins so, and has these words."""
        name, *words = metric.split()
        lines = httpx.get(f"{self.url}/metrics", timeout=30.0).text.splitlines()
        (line,) = [line for line in lines if line.startswith(f"vllm:{name}{{") and all(word in line for word in words)]
        return float(line.split()[-1])

    def sources(self) -> Counter[str]:
        """Tokens of prompts until now: from outside, computed, and of blocks that were still there."""
        kinds = "external", "compute", "local_cache_hit"
        return Counter({kind: int(self.count(f"prompt_tokens_by_source_total {kind}")) for kind in kinds})


@contextmanager
def served(model: Path, log: Path, *options: str, config: dict[str, Any] | None = None) -> Iterator[Vllm]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        port = free_port()
        transfer = json.dumps(json.loads(transfer_config(Path(directory))) | (config or {}))
        command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", "tiny"]
        command += ["--host", "127.0.0.1", "--port", port, "--dtype", "float32", "--enforce-eager"]
        command += ["--max-model-len", "1024", "--max-num-seqs", "8", "--kv-transfer-config", transfer, *options]
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["nice", *map(str, command)],
                env=os.environ | _ENVIRONMENT,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        vllm = Vllm(f"http://127.0.0.1:{port}", Path(directory), model, process)
        try:
            _await(vllm.url, process, log)
            yield vllm
        finally:
            vllm.end()


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    while process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5.0).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail(f"vLLM has ended:\n{log.read_text()[-5000:]}")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def part(model: Path) -> Part:
    return write_model(model)


@pytest.fixture(scope="module")
def vllm(model: Path, part: Part, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    with served(model, tmp_path_factory.mktemp("log") / "vllm.log") as vllm:
        yield vllm


def expected(part: Part, ids: list[int], number: int = 12) -> list[int]:
    return ids_of(ours(part, ids, Sampling(max_tokens=number, temperature=0.0)))


async def idle(vllm: Vllm) -> None:
    while await asyncio.to_thread(vllm.count, "num_requests_running"):  # noqa: ASYNC110 -- it happens elsewhere
        await asyncio.sleep(0.1)


@on_loop
async def test_answers_are_those_of_the_built_in_decoder_and_of_transformers(vllm: Vllm, part: Part):
    heard, prompts = Heard(), {str(length): prompt(length) for length in LENGTHS}
    before = vllm.sources()
    async with running(vllm.bridge(heard)) as bridge:
        assert await bridge.room_tokens() > 10_000
        for name, ids in prompts.items():
            hand(bridge, part, name, ids, GREEDY)
        await heard.until(list(prompts))
        assert files(vllm.directory) == []
    theirs: Any = AutoModelForCausalLM.from_pretrained(vllm.model, dtype=torch.float32)
    for name, ids in prompts.items():
        assert heard.ids(name) == expected(part, ids)
        told = heard.ids(name)
        whole = theirs.generate(torch.tensor([ids]), max_new_tokens=len(told), do_sample=False)
        assert told == whole[0, len(ids) :].tolist()
    came = vllm.sources() - before
    assert came == Counter(external=sum(LENGTHS), compute=len(LENGTHS)), "vLLM computes the first tokens, and no more"


@on_loop
async def test_vllm_uses_what_it_is_given(vllm: Vllm, part: Part):
    """Keys and values of another prompt: other tokens follow, those that the built-in decoder makes of them too."""
    heard, said, meant = Heard(), prompt(200, seed=5), prompt(200, seed=6)
    sent, first = prefilled(part, "a", meant)
    async with running(vllm.bridge(heard)) as bridge:
        start(bridge, "a", said, GREEDY)
        for kv, payload in sent:
            bridge.receive(kv, payload)
        bridge.first(first)
        await heard.until("a")
    assert heard.ids("a") == expected(part, meant) != expected(part, said)


@on_loop
async def test_prompts_that_begin_alike(vllm: Vllm, part: Part):
    """vLLM has the first blocks already, and loads the rest."""
    heard, ids = Heard(), prompt(600, seed=7)
    async with running(vllm.bridge(heard)) as bridge:
        for name, length in {"a": 300, "b": 600, "c": 600, "d": 257}.items():
            hand(bridge, part, name, ids[:length], GREEDY)
            await heard.until(name)
            assert heard.ids(name) == expected(part, ids[:length])
    assert vllm.sources()["local_cache_hit"] > 0


@on_loop
async def test_it_ends_by_token_string_and_number(vllm: Vllm, part: Part):
    free = expected(part, prompt(9), 30)
    ends = SHAPE.model_copy(update={"eos_token_id": free[12]})
    samplings = {
        "token": Sampling(max_tokens=30, temperature=0.0),
        "number": Sampling(max_tokens=5, temperature=0.0),
        "one": Sampling(max_tokens=1, temperature=0.0),
        "string": Sampling(max_tokens=30, temperature=0.0, stop=(WORDS.decode(free[4:7]),)),
    }
    heard = Heard()
    async with running(vllm.bridge(heard, config=ends)) as bridge:
        for name, sampling in samplings.items():
            hand(bridge, part, name, prompt(9), sampling)
        await heard.until(list(samplings))
        await idle(vllm)
    for name, sampling in samplings.items():
        assert heard.pieces(name) == ours(part, prompt(9), sampling, ends)
    assert {heard.tokens[name][-1].finish for name in ("token", "string")} == {"stop"}


@on_loop
async def test_a_seed_gives_the_same_again(vllm: Vllm, part: Part):
    heard, sampling = Heard(), Sampling(max_tokens=20, temperature=1.0, top_p=0.9, seed=3)
    async with running(vllm.bridge(heard)) as bridge:
        for name in "ab":
            hand(bridge, part, name, prompt(50), sampling)
        await heard.until("ab")
    assert heard.ids("a") == heard.ids("b") != expected(part, prompt(50), 20)


@on_loop
async def test_cancelled_in_the_middle(vllm: Vllm, part: Part):
    heard = Heard()
    async with running(vllm.bridge(heard)) as bridge:
        hand(bridge, part, "a", prompt(300), Sampling(max_tokens=700, temperature=0.0))
        await heard.until("a", tokens=5)
        bridge.cancel(["a"])
        assert files(vllm.directory) == []
        await idle(vllm)
    assert 5 <= len(heard.tokens["a"]) < 700


@on_loop
async def test_too_long_for_vllm(vllm: Vllm, part: Part):
    heard = Heard()
    async with running(vllm.bridge(heard)) as bridge:
        hand(bridge, part, "prompt", prompt(1024), GREEDY)
        hand(bridge, part, "answer", prompt(1000), Sampling(max_tokens=50, temperature=0.0))
        await heard.until(["prompt", "answer"])
        assert files(vllm.directory) == []
    assert heard.errors["prompt"].startswith("vLLM has refused it with 400: ")
    assert heard.errors["answer"] == "vLLM has ended the answer after 24 of 50 tokens"


@on_loop
async def test_what_cannot_be_used_is_computed(vllm: Vllm, part: Part, monkeypatch: pytest.MonkeyPatch):
    """The file is gone, not complete, or its lease is over: slower, but right."""

    def gone(handover: Handover) -> None:
        (vllm.directory / handover.name).unlink()

    def old(handover: Handover) -> None:
        os.utime(vllm.directory / handover.name, (0, 0))

    seal, heard = Handover.seal, Heard()
    before = vllm.sources()
    async with running(vllm.bridge(heard)) as bridge:
        for name, spoil in {"gone": gone, "half": None, "old": old}.items():
            monkeypatch.setattr(
                Handover, "seal", lambda handover, spoil=spoil: spoil and (seal(handover), spoil(handover))
            )
            hand(bridge, part, name, ids := prompt(200, seed=len(name)), GREEDY)
            await heard.until([name])
            assert heard.ids(name) == expected(part, ids)
    assert vllm.sources()["external"] == before["external"]


@on_loop
async def test_what_vanishes_at_the_last_moment_is_computed(model: Path, part: Part, tmp_path: Path):
    losing = {"kv_connector": "LosingConnector", "kv_connector_module_path": "tests.serving.vllm.losing"}
    with served(model, tmp_path / "vllm.log", config=losing) as vllm:
        heard = Heard()
        async with running(vllm.bridge(heard)) as bridge:
            for length in (1, 128, 300):
                hand(bridge, part, str(length), prompt(length), GREEDY)
            await heard.until(["1", "128", "300"])
        for length in (1, 128, 300):
            assert heard.ids(str(length)) == expected(part, prompt(length))
        assert "keys and values were not loaded" in (tmp_path / "vllm.log").read_text()


@on_loop
async def test_two_workers_short_of_room_and_then_killed(model: Path, part: Part, tmp_path: Path):
    """They share the heads. Room is for ten blocks of 128 tokens: who has to give his up is computed again."""
    options = "--tensor-parallel-size", "2", "--num-gpu-blocks-override", "10"
    with served(model, tmp_path / "vllm.log", *options) as vllm:
        heard = Heard()
        async with running(vllm.bridge(heard, lease_s=200.0)) as bridge:
            for seed, name in enumerate("xyz", 3):
                hand(bridge, part, name, prompt(360, seed), Sampling(max_tokens=100, temperature=0.0))
            await heard.until("xyz")
            for seed, name in enumerate("xyz", 3):
                assert heard.ids(name) == expected(part, prompt(360, seed), 100)
            assert vllm.count("num_preemptions_total") > 0
            for name in "abc":
                hand(bridge, part, name, prompt(200), Sampling(max_tokens=700, temperature=0.0))
            await heard.until("abc", tokens=3)
            hand(bridge, part, "d", prompt(100), GREEDY)
            vllm.kill()
            await heard.until("abcd")
            assert files(vllm.directory) == []
        assert [name for name in "abcd" if "vLLM is lost" in heard.errors[name]] == list("abcd")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(
            "base.KVConnectorBase_V1.__abstractmethods__ |= {'fly'}",
            "this connector is for vLLM 0.32; the one here is 0.32.0 and has other methods: fly",
            id="another method",
        ),
        pytest.param(
            "del base.KVConnectorMetadata",
            "this connector is for vLLM 0.32; the one here is without a part of it: cannot import name",
            id="a part is missing",
        ),
    ],
)
def test_another_vllm_is_refused(spoil: str, words: str):
    script = f"""
from vllm.distributed.kv_transfer.kv_connector.v1 import base
{spoil}
import geotrain.serving.vllm.connector
"""
    done = subprocess.run(
        [PYTHON, "-c", script], env=os.environ | _ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"ImportError: {words}" in done.stderr


def test_a_whole_service_decodes_with_it(vllm: Vllm, part: Part, tmp_path: Path):
    """With prompts that no other test has: vLLM takes nothing over of which it still has the blocks."""
    (tmp_path / live.NAME).symlink_to(vllm.model)
    decoder = service.Vllm(url=vllm.url, called="tiny", directory=vllm.directory)
    lengths = (1, 33, 128, 300)
    prompts = [prompt(length, seed=8) for length in lengths]

    async def story() -> list[list[int | None]]:
        async with live.running(tmp_path, degree=2, chunk=100, vllm=decoder) as made:
            asked = [live.prompt(ids, name=f"whole-{len(ids)}", max_tokens=12) for ids in prompts]
            return [[piece.token for piece in pieces] for pieces in await live.answers(made, asked)]

    before = vllm.sources()
    assert asyncio.run(story()) == [expected(part, ids) for ids in prompts]
    assert vllm.sources() - before == Counter(external=sum(lengths), compute=len(lengths))
    assert not files(vllm.directory)
