"""`geotrain serve`, from the outside."""

import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from geotrain.files import write_text
from geotrain.model import Config
from tests.serving import live, patient
from tests.serving.commanded import serving, until
from tests.serving.prefilling import SHAPE, WORDS
from tests.training.checkpoint.states import cut, save, trained

KEY = "sk-0123456789abcdef"
# A service has half a dozen processes, and each of them torch.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def signal_all(pids: set[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


def test_openais_client_works_and_what_has_begun_is_finished(tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY} team 1\n")
    options = ["--api-keys", str(keys), "--slo", "60 s", "--drain", "100 s"]
    with serving(tmp_path, live.small_plan(), *options) as served, served.client(KEY) as client:
        assert [model.id for model in client.models.list()] == [live.NAME]
        asked: Any = {"model": live.NAME, "max_tokens": 20, "temperature": 0}
        whole = client.completions.create(prompt="the sea", **asked)
        stream = client.completions.create(prompt="the sea", stream=True, **asked)
        assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text
        assert whole.usage is not None and whole.usage.completion_tokens == 20
        chat = client.chat.completions.create(messages=[{"role": "user", "content": "the sea"}], **asked)
        assert chat.choices[0].finish_reason == "length" and chat.choices[0].message.content
        with pytest.raises(openai.AuthenticationError), served.client("sk-wrong0123456789") as stranger:
            stranger.models.list()
        with pytest.raises(openai.BadRequestError):
            client.completions.create(prompt="sea " * 5000, **asked)
        family = served.family()
        stream = client.completions.create(prompt="sea", stream=True, **asked | {"max_tokens": 1500})
        first = next(stream)
        signal_all(family, signal.SIGSTOP)  # Else it may be finished already, however long it is.
        served.process.terminate()
        until(lambda: "ending: 1 requests under way" in served.said.read_text())
        with pytest.raises((openai.APIStatusError, openai.APIConnectionError)) as refused:
            client.completions.create(prompt="sea", **asked)
        assert getattr(refused.value, "status_code", 503) == 503
        signal_all(family, signal.SIGCONT)
        assert [first, *stream][-1].choices[0].finish_reason == "length"
        assert served.process.wait(60.0) == 0
    assert KEY not in served.said.read_text() + (tmp_path / "out" / "access.jsonl").read_text()
    lines = [json.loads(line) for line in (tmp_path / "out" / "prefill.jsonl").read_text().splitlines()]
    assert sum(line["what"] == "work" for line in lines) >= 4


def test_who_would_wait_too_long_is_told_when_to_come_back(tmp_path: Path):
    emulated = ["--compute", "emulated", "--slo", "1 ms"]
    with serving(tmp_path, live.small_plan(), *emulated) as served:
        asked = {"model": live.NAME, "prompt": "the sea", "max_tokens": 4}
        answer = patient.post(f"http://127.0.0.1:{served.port}/v1/completions", json=asked)
        assert (answer.status_code, answer.json()["error"]["message"]) == (429, "no bubble in time")
        assert int(answer.headers["retry-after"]) >= 1
        assert patient.get(f"http://127.0.0.1:{served.port}/ready").status_code == 200
        assert served.end() == 0


def test_a_run_with_nothing_but_checkpoints_is_served(tmp_path: Path):
    shape = SHAPE.model_copy(update={"num_hidden_layers": 3, "max_position_embeddings": 128})
    save(tmp_path / "run" / "checkpoints", 10, *cut(trained(Config.model_validate(shape)), [1, 1, 1]), model=shape)
    write_text(tmp_path / "words" / "tokenizer.json", WORDS.json)
    named = ["--model", str(tmp_path / "run"), "--tokenizer", str(tmp_path / "words"), "--name", live.NAME]
    # Of a model with so little room three points are measured, and a busy machine makes anything of them.
    with serving(tmp_path, live.small_plan(), *named, "--compute", "emulated", "--slo", "60 s") as served:
        assert served.ask()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan, a model, and keys of which some are bad."""
    monkeypatch.chdir(tmp_path)
    live.model(tmp_path / "model")
    Path("plan.yaml").write_text(yaml.safe_dump(live.small_plan().dump()))
    Path("bare").mkdir()
    Path("bare/config.json").write_bytes(Path("model/config.json").read_bytes())
    Path("light").mkdir()
    for name in ("config.json", "tokenizer.json"):
        Path("light", name).write_bytes(Path("model", name).read_bytes())
    Path("keys").write_text("short\n")
    Path("times.yaml").write_text("[]\n")
    Path("binary").write_bytes(bytes(range(256)))
    Path("deep.yaml").write_text("[" * 100_000)
    shutil.copytree("model", "many")
    config = json.loads(Path("model/config.json").read_text())
    Path("many/config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**9}))
    shutil.copytree("model", "broken")
    Path("broken/config.json").write_text("[]")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(["--model", "nothing"], "nothing: is no model: it has neither config.json nor", id="no-model"),
        pytest.param(["--model", "bare"], "bare: has no tokenizer.json; --tokenizer names one", id="no-tokenizer"),
        pytest.param(["--model", "light"], "light: has neither model.safetensors nor", id="no-weights"),
        pytest.param(["--dc", "north"], "--dc: 'north' has no part in this plan, only east, south have", id="dc"),
        pytest.param(["--host", "0.0.0.0"], "can be reached by others, so API keys are needed", id="host"),
        pytest.param(["--host", "192.0.2.1", "--api-keys", "good"], "cannot be listened on", id="not-ours"),
        pytest.param(["--host", "..", "--api-keys", "good"], "host: '..' must be a name or an address", id="no-name"),
        pytest.param(
            ["--model", "many"], "many: has 39 tensors, too few for a model of 1000000000 layers", id="layers"
        ),
        pytest.param(["--model", "broken"], "broken/config.json: must be a mapping of fields", id="config"),
        pytest.param(["--device", "cuda"], "--device is cuda and must be cpu: torch finds no GPU here", id="cuda"),
        pytest.param(["--api-keys", "keys"], "keys: line 1:", id="keys"),
        pytest.param(["--api-keys", "none"], "none: no such file", id="no-keys"),
        pytest.param(["--api-keys", "binary"], "binary: is not UTF-8 text", id="binary-keys"),
        pytest.param(["--metrics-keys", "keys"], "keys: line 1: a key must be 16 to 256", id="metrics-keys"),
        pytest.param(["--tls-key", "keys"], "--tls-certificate and --tls-key must be given together", id="tls-alone"),
        pytest.param(["--tls-certificate", "none", "--tls-key", "keys"], "none: no such file", id="no-certificate"),
        pytest.param(["--tls-certificate", "keys", "--tls-key", "keys"], "keys: has no certificate in PEM", id="tls"),
        pytest.param(["--max-connections-per-address", "5000"], "5000 must be 1 to 4096, all of them", id="address"),
        pytest.param(["--vllm", "http://[::1"], "--vllm is 'http://[::1' and must be an address", id="vllm"),
        pytest.param(["--vllm", "http://x:99999"], "--vllm is 'http://x:99999' and must be", id="vllm-port"),
        pytest.param(["--vllm", "ftp://x"], "error: --vllm is 'ftp://x' and must be an address", id="vllm-scheme"),
        pytest.param(["--vllm", "http://x", "--handover", "keys"], "--handover: keys cannot be used", id="handover"),
        pytest.param(["--slo", "soon"], "--slo", id="slo"),
        pytest.param(["--decoder-memory", "much"], "--decoder-memory", id="memory"),
        pytest.param(["--drain", "-1 s"], "--drain", id="drain"),
        pytest.param(["--drain", "1e20 s"], "--drain is '1e20 s' and must be at most a day", id="long-drain"),
        pytest.param(["--drain", "1e30 s"], "--drain is '1e30 s' and must be at most", id="endless-drain"),
        pytest.param(["--slo", "2 d"], "--slo", id="long-slo"),
        pytest.param(["--decoder-memory", "1 B"], "--decoder-memory is '1 B' and must be at least", id="little-memory"),
        pytest.param(["--announce", ""], "--announce is empty, or this directory", id="announce-nowhere"),
        pytest.param(["--handover", ""], "--handover is empty, or this directory", id="handover-nowhere"),
        pytest.param(
            ["--model", "nothing", "--host", "0.0.0.0"], "can be reached by others, so API keys", id="host-before-model"
        ),
        pytest.param(["--times", "times.yaml"], "error: times.yaml: must be", id="times"),
        pytest.param(["--compute", "emulated", "--like", "nobody"], "error: --like nobody: is not in", id="like"),
        pytest.param(["--name", "x" * 257], "--name has 257 characters and must have at most 256", id="name"),
        pytest.param(["--degree", "9"], "degree", id="degree"),
        pytest.param(["--out", "plan.yaml/x"], "plan.yaml/x", id="out"),
        pytest.param(["--announce", "plan.yaml"], "plan.yaml", id="announce"),
        pytest.param(["--tokenizer", "nothing"], "nothing", id="tokenizer"),
    ],
)
def test_bad_input_is_one_sentence(geotrain, files: Path, options: list[str], sentence: str):
    Path("good").write_text(f"{KEY}\n")
    answer = geotrain("serve", "plan.yaml", *([] if "--model" in options else ["--model", "model"]), *options)
    assert (answer.exit_code, answer.out) == (2, ""), answer
    assert answer.err.startswith("error: ") and answer.err.count("\n") == 1 and sentence in answer.err, answer.err


def test_a_port_that_is_taken(geotrain, files: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = geotrain("serve", "plan.yaml", "--model", "model", "--port", port)
    assert (answer.exit_code, answer.err.count("\n")) == (2, 1)
    assert f"127.0.0.1:{port}: cannot be listened on: Address already in use" in answer.err


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ("nothing.yaml", "nothing.yaml: no such file"),
        ("binary", "binary: is not UTF-8 text"),
        ("deep.yaml", "deep.yaml: is nested too deeply: hundreds of lists or mappings within each other"),
        ("times.yaml", "times.yaml: must be a mapping of fields, but is a list"),
        ("model", "model: is a directory, expected a file"),
    ],
)
def test_a_plan_that_is_none(geotrain, files: Path, plan: str, sentence: str):
    answer = geotrain("serve", plan, "--model", "model")
    assert (answer.exit_code, answer.err.count("\n")) == (2, 1) and f"error: {sentence}" in answer.err


def test_without_its_libraries_it_says_what_to_install(geotrain, files: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    answer = geotrain("serve", "plan.yaml", "--model", "model")
    assert (answer.exit_code, answer.err) == (2, "error: serving needs uvicorn: pip install 'geotrain[serve]'\n")
