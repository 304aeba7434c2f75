"""One line per request, without secrets."""

import io
import json
from pathlib import Path

from geotrain.serving.http.access_log import AccessLog, Entry, RotatingFile
from tests.serving import patient
from tests.serving.http.toy import MODEL, Toy, served


def test_a_line_says_how_a_request_went():
    with served(Toy(delay_s=0.01)) as site:
        body = {"model": MODEL, "prompt": "a secret", "max_tokens": 3, "user": "ada", "stream": True}
        answer = patient.post(f"{site.url}/v1/completions?key=secret", json=body, headers={"x-request-id": "mine-1"})
        (entry,) = site.entries(1)
    assert "secret" not in str(entry)
    assert 0.01 <= entry.pop("ttft_s") <= entry.pop("duration_s") - 0.02
    assert entry.pop("time").endswith("+00:00")
    assert entry.pop("answer") in answer.text
    assert entry == {
        "id": "mine-1",
        "tenant": "ada",
        "method": "POST",
        "path": "/v1/completions",
        "body_bytes": len(answer.request.content),
        "status": 200,
        "error": None,
        "model": MODEL,
        "prompt_tokens": 8,
        "completion_tokens": 3,
    }


def test_an_id_that_could_do_harm_is_replaced():
    harmful = ["", "a b", "x" * 129, 'a"b', "a\tb"]
    with served(Toy()) as site:
        answers = [patient.get(f"{site.url}/health", headers={"x-request-id": given}) for given in harmful]
        logged = [entry["id"] for entry in site.entries(len(harmful))]
    assert [answer.headers["x-request-id"] for answer in answers] == logged
    assert all(name.startswith("req-") for name in logged) and len(set(logged)) == len(harmful)


def test_refusals_are_logged_by_their_code_only():
    with served(Toy()) as site:
        patient.post(f"{site.url}/v1/completions", json={"model": MODEL, "prompt": {"secret": 1}})
        patient.get(f"{site.url}/nowhere")
        wrong, lost = site.entries(2)
    assert (wrong["status"], wrong["error"], lost["status"], lost["error"]) == (400, "invalid_value", 404, "not_found")
    assert "secret" not in str(wrong)


def test_a_log_that_cannot_be_written_stops_nothing():
    stream = io.StringIO()
    stream.close()
    AccessLog(stream).write(Entry(id="1", method="GET", path="/"))


def test_a_file_does_not_grow_without_end(tmp_path: Path):
    path = tmp_path / "access.jsonl"
    for start in (0, 50):  # a service that is started again goes on with its file
        file = RotatingFile(path, most_bytes=5_000)
        log = AccessLog(file)
        for number in range(start, start + 50):
            log.write(Entry(id=str(number), method="GET", path="/"))
        file.close()
    older = tmp_path / "access.jsonl.1"
    assert sorted(tmp_path.iterdir()) == [path, older]
    assert 2_500 < older.stat().st_size <= 5_000 and path.stat().st_size <= 5_000
    kept = [json.loads(line)["id"] for line in (older.read_text() + path.read_text()).splitlines()]
    assert kept == [str(number) for number in range(100 - len(kept), 100)]
