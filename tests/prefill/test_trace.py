import gzip
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geotrain.errors import InputError
from geotrain.prefill.request import Request
from geotrain.prefill.trace import Trace, find_trace, generate, read_trace, reader

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:51.2224670,879,55"""
PLAIN = "arrival_s,input_tokens\n1.5,10\n"


def written(directory: Path, text: str) -> Path:
    path = directory / "trace.csv"
    path.write_text(text)
    return path


def trace(*arrivals_s: float, blocks: tuple[int, ...] = ()) -> Trace:
    requests = (Request(id=i, arrival_s=at, input_tokens=1, blocks=blocks) for i, at in enumerate(arrivals_s))
    return Trace(name="a trace", requests=tuple(requests))


def test_azure_stamps_are_ordered_and_begin_at_0(tmp_path: Path):
    read = read_trace(written(tmp_path, AZURE))
    assert read.name == "trace"
    assert [(r.id, r.input_tokens, r.output_tokens) for r in read.requests] == [
        (0, 374, 44),
        (1, 396, 109),
        (2, 879, 55),
    ]
    assert [r.arrival_s for r in read.requests] == pytest.approx([0, 4.314579, 4.541877], abs=1e-6)
    assert read.duration_s == read.requests[-1].arrival_s
    assert read.rate_rps == pytest.approx(2 / 4.541877)
    assert read.input_tokens == 1649


def test_azure_stamps_of_2024_have_a_zone_and_sometimes_no_fraction(tmp_path: Path):
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10 00:00:00.009930+00:00,2162,5"]
    read = read_trace(written(tmp_path, "\n".join([*lines, "2024-05-10 00:00:01+00:00,7,0"])))
    assert [r.arrival_s for r in read.requests] == pytest.approx([0, 0.99007], abs=1e-6)
    assert [r.output_tokens for r in read.requests] == [5, 0]


def test_mooncake_blocks_are_numbered_and_no_more_than_the_prompt_has(tmp_path: Path):
    lines = [
        {"timestamp": 27000, "input_length": 1025, "output_length": 8, "hash_ids": [46, 47, 48, 49]},
        {"timestamp": 30500, "input_length": 512, "output_length": 1, "hash_ids": [46]},
        {"timestamp": 30500, "input_length": 700, "hash_ids": ["f00", 48]},
    ]
    read = read_trace(written(tmp_path, "\n".join(map(json.dumps, lines))))
    assert read.requests == (
        Request(id=0, arrival_s=0, input_tokens=1025, output_tokens=8, blocks=(0, 1, 2)),
        Request(id=1, arrival_s=3.5, input_tokens=512, output_tokens=1, blocks=(0,)),
        Request(id=2, arrival_s=3.5, input_tokens=700, blocks=(3, 2)),
    )


def test_plain_columns_come_in_any_order_and_may_be_left_out(tmp_path: Path):
    text = """# ours
tenant, Priority, note, timestamp_s, input_tokens, model

blue, 2, x, 1e1, 7.0, llama-3-8b
, , , 12, 8
"""
    assert read_trace(written(tmp_path, text)).requests == (
        Request(id=0, arrival_s=0, input_tokens=7, model="llama-3-8b", tenant="blue", priority=2),
        Request(id=1, arrival_s=2, input_tokens=8),
    )


@pytest.mark.parametrize(
    ("formats", "text"),
    [
        pytest.param("_CSV", "when,prompt\n3,100\n5,200\n", id="csv"),
        pytest.param("_JSON", '{"when": 3, "prompt": 100}\n{"when": 5, "prompt": 200}\n', id="json"),
    ],
)
def test_another_format_is_a_line_in_a_list(tmp_path: Path, monkeypatch, formats: str, text: str):
    columns = {"when": reader._Column(field="arrival_s", convert=float), "prompt": reader._INPUT}
    known = getattr(reader, formats)
    monkeypatch.setattr(reader, formats, (*known, reader._Format(name="another", columns=columns)))
    found = read_trace(written(tmp_path, text)).requests
    assert [(one.arrival_s, one.input_tokens) for one in found] == [(0, 100), (2, 200)]


def test_files_are_known_by_what_is_in_them(tmp_path: Path):
    zipped = tmp_path / "conversation.jsonl.gz"
    zipped.write_bytes(gzip.compress(("\ufeff" + AZURE.replace("\n", "\r\n")).encode()))
    read = read_trace(zipped)
    assert read.name == "conversation"
    assert read.requests == read_trace(written(tmp_path, AZURE)).requests


HASHES = '{"timestamp": 1, "input_length": 1, "hash_ids": [1.5]}'
WRONG = {
    "empty": ("", "is empty and must have at least one request"),
    "comments": ("\n# nothing\n", "is empty and must have at least one request"),
    "header-only": ("arrival_s,input_tokens\n", "has no requests and must have at least one"),
    "no-header": ("0.5,100\n", "line 1 is '0.5,100' and must be of a known format: Azure CSV with TIMESTAMP, "),
    "other-json": ('{"text": 1}', "line 1 is '{\"text\": 1}' and must be of a known format: Azure CSV with "),
    "column": ("arrival_s,tokens\n1,2", "line 1 has no column input_tokens, which plain CSV must have"),
    "azure-column": ("TIMESTAMP,Tokens\n1,2", "line 1 has no column ContextTokens, which Azure CSV must have"),
    "twice": ("arrival_s,input_tokens,timestamp_s\n1,2,3", "line 1 has the column arrival_s twice"),
    "no-number": (PLAIN + "x,1", "line 3: arrival_s is 'x' and must be a number of at least 0"),
    "negative": (PLAIN + "-1,1", "line 3: arrival_s is '-1' and must be a number of at least 0"),
    "nan": (PLAIN + "nan,1", "line 3: arrival_s is 'nan' and must be a number of at least 0"),
    "inf": (PLAIN + "inf,1", "line 3: arrival_s is 'inf' and must be a number of at least 0"),
    "zero": (PLAIN + "\n2,0", "line 4: input_tokens is '0' and must be a whole number from 1 to 1000000000"),
    "fraction": (PLAIN + "2,1.5", "line 3: input_tokens is '1.5' and must be a whole number from 1 to "),
    "huge": (PLAIN + "2,1e99", "line 3: input_tokens is '1e99' and must be a whole number from 1 to "),
    "short-line": (PLAIN + "2", "line 3 has no input_tokens"),
    "decimal-comma": (PLAIN + "2,1,5", "line 3 has 3 cells and must have at most 2, like the first line"),
    "quote": (PLAIN + '"2,1', "line 3 is not CSV: unexpected end of data"),
    "priority": (
        "arrival_s,input_tokens,priority\n1,2,11",
        "line 2: priority is '11' and must be a whole number from 0 ",
    ),
    "stamp": (AZURE + "\n18:15,1,1", "line 5: TIMESTAMP is '18:15' and must be a moment like 2023-11-16 18:15:46.680"),
    "output": (AZURE + "\n2023-11-16 18:15,1,-1", "line 5: GeneratedTokens is '-1' and must be a whole number from 0 "),
    "json-column": ('{"timestamp": 1}', "line 1 has no input_length"),
    "bool": ('{"timestamp": 1, "input_length": true}', "line 1: input_length is True and must be a whole number "),
    "hash": (HASHES, "line 1: hash_ids is [1.5] and must be a list of whole numbers"),
    "json-list": ('{"timestamp": 1, "input_length": 1}\n[]', "line 2 is [] and must be a JSON object"),
    "json-cut": ('{"timestamp": 1,', "line 1 is not JSON: Expecting property name"),
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, sentence: str):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: {sentence}")
    assert "\n" not in str(caught.value)


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path):
    (tmp_path / "latin-1").write_bytes(b"caf\xe9")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(AZURE.encode())[:40])
    (tmp_path / "odd.gz").write_bytes(b"\x1f\x8bnothing")
    sentences = {
        "nowhere": "no such file",
        ".": "is a directory, expected a file",
        "latin-1": "is not UTF-8 text",
        "cut.gz": "begins like a gzip file and is damaged or cut off",
        "odd.gz": "begins like a gzip file and is damaged or cut off",
    }
    for name, sentence in sentences.items():
        with pytest.raises(InputError) as caught:
            read_trace(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {sentence}"


def test_rates_are_scaled_and_the_rest_stays():
    faster = trace(0, 1, 5).scaled(2)
    assert [r.arrival_s for r in faster.requests] == [0, 0.5, 2.5]
    assert trace(0, 1, 5).at_rate(4).rate_rps == pytest.approx(4)
    assert faster.scaled(0.5) == trace(0, 1, 5)


def test_a_trace_is_cut_or_repeated_to_last():
    assert trace(0, 1, 5).first(5) == trace(0, 1)
    assert trace(0, 1, 5).repeated(4) == trace(0, 1)
    # The mean gap of 2.5 s is also the one between two rounds.
    assert trace(0, 1, 5).repeated(13) == trace(0, 1, 5, 7.5, 8.5, 12.5)


def test_a_later_round_finds_no_prefix_of_an_earlier_one():
    twice = trace(0, 1, blocks=(0, 4)).repeated(4)
    assert [request.blocks for request in twice.requests] == [(0, 4), (0, 4), (5, 9), (5, 9)]


@given(
    gaps_s=st.lists(st.integers(0, 20), min_size=1, max_size=20).filter(any), factor=st.sampled_from([0.25, 2, 64]),
    duration_s=st.integers(1, 200),
)  # fmt: skip
def test_whatever_is_done_to_it_a_trace_is_in_order_with_ids_from_0(gaps_s: list[int], factor: float, duration_s: int):
    original = trace(*np.cumsum([0, *gaps_s]).astype(float))
    for changed in (original.scaled(factor), original.first(duration_s), original.repeated(duration_s)):
        arrivals_s = [request.arrival_s for request in changed.requests]
        assert arrivals_s == sorted(arrivals_s)
        assert arrivals_s[0] == 0
        assert [request.id for request in changed.requests] == list(range(len(arrivals_s)))
    assert duration_s - 21 * 2 <= original.repeated(duration_s).duration_s < duration_s


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_no_trace_runs_at_no_rate_or_for_no_time(wrong: float):
    for change in (Trace.scaled, Trace.at_rate, Trace.first, Trace.repeated):
        with pytest.raises(InputError, match=r"^a trace: .* must be "):
            change(trace(0, 1), wrong)


def test_requests_of_one_moment_have_no_rate():
    at_once = trace(0, 0)
    assert at_once.rate_rps == float("inf")
    with pytest.raises(
        InputError, match="all its requests arrive at one moment, so it has no rate and cannot be brought"
    ):
        at_once.at_rate(3)
    with pytest.raises(InputError, match="so it has no rate and cannot be repeated"):
        at_once.repeated(3)


@pytest.mark.parametrize(
    ("name", "rate_rps", "mean", "quantiles", "output_mean", "peak"),
    [
        pytest.param("azure-conversation", 5.53, 1155, (1020, 2735, 4142, 14050), 211, (14, 20), id="conversation"),
        pytest.param("azure-code", 2.57, 2048, (1469, 5194, 7436, 7437), 28, (45, 95), id="code"),
        pytest.param("mooncake-conversation", 3.40, 12035, (6909, 27367, 85401, 126195), 343, (8, 20), id="mooncake"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_made_up_traces_have_the_published_statistics(seed, name, rate_rps, mean, quantiles, output_mean, peak):
    made = generate(name, seed=seed)
    tokens = np.array([request.input_tokens for request in made.requests])
    assert made.rate_rps == pytest.approx(rate_rps, rel=0.01)
    assert tokens.mean() == pytest.approx(mean, rel=0.01)
    assert np.quantile(tokens, [0.5, 0.9, 0.99, 1]) == pytest.approx(quantiles, rel=0.01)
    assert np.mean([request.output_tokens for request in made.requests]) == pytest.approx(output_mean, rel=0.05)
    assert peak[0] <= max(Counter(int(request.arrival_s) for request in made.requests).values()) <= peak[1]


def test_made_up_prompts_share_as_many_blocks_as_the_real_ones():
    requests = generate("mooncake-conversation").requests
    assert all(len(request.blocks) == -(-request.input_tokens // 512) for request in requests)
    seen, again, total = set[int](), 0, 0
    for request in requests:
        known = [block in seen for block in request.blocks]
        assert known == sorted(known, reverse=True)  # a prefix
        seen.update(request.blocks)
        again, total = again + sum(known), total + len(known)
    assert again / total == pytest.approx(0.366, abs=0.005)


def test_the_seed_decides():
    assert generate("azure-code", seed=7) == generate("azure-code", seed=7)
    assert generate("azure-code", seed=7) != generate("azure-code", seed=8)


def test_the_real_trace_is_taken_where_there_is_one(tmp_path: Path):
    (tmp_path / "AzureLLMInferenceTrace_code.csv").write_text(AZURE)
    assert find_trace(tmp_path, "azure-code").input_tokens == 1649
    assert find_trace(tmp_path, "azure-conversation") == find_trace(None, "azure-conversation")
    with pytest.raises(InputError, match="'azure-chat' is not a known trace: did you mean 'azure-"):
        find_trace(None, "azure-chat")


def test_the_azure_conversation_is_what_its_page_says():
    folder = os.environ.get("GEOTRAIN_TRACES")
    found = find_trace(Path(folder) if folder else None, "azure-conversation")
    tokens = [request.input_tokens for request in found.requests]
    assert len(tokens) == 19366
    assert found.duration_s == pytest.approx(3502, abs=1)
    assert np.mean(tokens) == pytest.approx(1155, rel=0.01)
    assert np.quantile(tokens, [0.5, 0.9, 0.99, 1]) == pytest.approx([1020, 2735, 4142, 14050], rel=0.01)
    assert replace(found, name="") == replace(found.scaled(1), name="")
