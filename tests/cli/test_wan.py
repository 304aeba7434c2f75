"""`geotrain wan`, from the outside."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


CLUSTER = """# mine
name: c
datacenters: [{name: east, nodes: 1, gpu: a100-80gb}, {name: south, nodes: 1, gpu: a100-80gb}]
"""


@pytest.fixture
def server() -> Iterator[str]:
    command = [sys.executable, "-m", "geotrain", "wan", "serve", "--insecure", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        yield process.stdout.readline().removeprefix("listening at ").strip()
        process.terminate()
        assert process.stderr.readline().startswith("warning: --insecure: no encryption")


def test_a_probe_shows_writes_and_draws(geotrain, server: str, tmp_path: Path):
    path, chart = tmp_path / "cluster.yaml", tmp_path / "rates.svg"
    path.write_text(CLUSTER)
    options = ["--insecure", "--seconds", 0.05, "--write", path, "--link", "east,south", "--chart", chart, "--json"]
    answer = geotrain("wan", "probe", server, *options)
    assert answer.exit_code == 0
    assert answer.err.startswith("round trip ")
    assert answer.json["there"]["pair_cap"] > 0 and answer.json["written"]
    assert path.read_text().startswith("# mine\n") and "links:" in path.read_text()
    assert chart.read_text().startswith("<svg")
    assert geotrain("wan", "probe", server, "--insecure", "--seconds", 0.05).out.startswith(server)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["probe", "h"], "give either --keys DIR and --node NAME, or", id="who"),
        pytest.param(["serve"], "give either --keys DIR and --node NAME, or", id="serve"),
        pytest.param(["probe", "h:x", "--insecure"], "the server is 'h:x' and must be HOST or HOST:PORT", id="port"),
        pytest.param(["probe", "h", "--insecure", "--seconds", "0"], "--seconds is 0 and must be 0.05 to 60", id="s"),
        pytest.param(["probe", "h", "--insecure", "--link", "a,b"], "--write CLUSTER and --link", id="link"),
        pytest.param(["probe", "h", "--keys", "k", "--node", "n"], "--keys needs --peer NAME: which node", id="peer"),
        pytest.param(["probe", "h", "--keys", "k", "--peer", "n"], "--keys needs --node NAME: whose keys", id="node"),
        pytest.param(["bench", "FILE", "--between", "east"], "--between is 'east' and must be two data", id="between"),
        pytest.param(["bench", "FILE", "--between", "east,nort"], "the unknown data center 'nort'", id="dc"),
        pytest.param(["bench", "FILE", "--between", "east,south", "--size", "1 parsec"], "--size is ", id="size"),
        pytest.param(["probe", "h", "--insecure", "--write", "FILE", "--link", "east,x"], "the unknown", id="write"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(geotrain, tmp_path: Path, arguments: list[str], sentence: str):
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    answer = geotrain("wan", *(path if word == "FILE" else word for word in arguments))
    assert (answer.exit_code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"error: {sentence}")


def test_alone_it_shows_its_help(geotrain):
    assert geotrain("wan").out == geotrain("wan", "--help").out
    for what in ("serve", "probe", "bench"):
        assert f"geotrain wan {what} " in geotrain("wan", what, "--help").out


def test_only_this_machine_reaches_a_server_unless_told() -> None:
    import inspect

    from geotrain.cli.wan import serve

    assert inspect.signature(serve).parameters["host"].default == "127.0.0.1"
